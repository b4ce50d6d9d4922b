"""FIFOs, sockets and devices where mq expects its own files: nobody waits for what never comes, and
nothing that a device says, or takes, has to do with messages.
"""

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.exercise import ask_all, end_all, make_room, now, upkeep
from harness.api import assert_works, make_queue
from harness.damage.nodes import Damage, fifo, socket_node, zeros
from harness.messages import new_id
from harness.needs import cannot_run
from harness.processes import PATIENCE_S
from harness.server import Serve

MESSAGES = (
    *("queues/q/{id}", "queues/q/{id},k=night", "new/q:{id}", "delay/q:{id}", "remove/q:{id}"),
    *("queues/q/{bucket}", "queues/q/{bucket_before}", "delay/{bucket}", "remove/{bucket}"),
)
BESIDE = (
    *("settings/q.json", "purged/q", "schedules/q:nightly"),
    *("queues/q/.keys", "queues/q/.idempotency", "queues/q/.firings"),
    *("leases/c.1", "leases/c.2.json", "leases/c.lock", "journal/x.json", "new/.spark"),
    *("shovels/q.json", "shovels/q.stop", "members/a.json", "members/leader.json"),
    *("history", "archive", "crossings", "lost"),
)
LOCKS = ("deleted/.lock", "deleted/q", "schedules/.lock", "members/.lock", "shovels/.lock")


def _device(path: Path) -> None:
    try:
        zeros(path)
    except PermissionError:
        cannot_run("needs root, to make a device")


@pytest.mark.certificate
@pytest.mark.parametrize("damage", [fifo, socket_node, _device])
@pytest.mark.parametrize("names", [MESSAGES, BESIDE, LOCKS], ids=["messages", "beside", "locks"])
async def test_nobody_waits_for_it_and_the_rest_works(
    serve: Serve, root: Path, damage: Damage, names: tuple[str, ...]
) -> None:
    server = await serve(folder_max=3)
    await make_queue(server)
    await make_queue(server, "other")
    message_id = new_id().text
    nodes = [root / now(path, message_id) for path in names]
    with upkeep(root) as passing:
        for node in nodes:
            make_room(node)
            damage(node)
        async with asyncio.timeout(2 * PATIENCE_S):
            replies = await ask_all(server, "q", message_id)
            await asyncio.to_thread(passing.pass_time)
            replies += await ask_all(server, "q", message_id)
            replies += await end_all(server, "q")
            await asyncio.to_thread(passing.pass_time)
    assert [reply.body for reply in replies if reply.status == 500] == []
    assert max(len(reply.body) for reply in replies) < 1_000_000
    for node in nodes:
        _take_away(node)
    await assert_works(server, "other")


def _take_away(node: Path) -> None:
    if node.exists() and not (stat.S_ISREG(node.stat().st_mode) or node.is_dir()):
        node.unlink()


@pytest.mark.parametrize("damage", [fifo, socket_node])
async def test_a_daemon_starts_beside_them_or_says_why_not(
    serve: Serve, root: Path, damage: Callable[[Path], None]
) -> None:
    await serve()
    for path in ("queues/q", "delay/x", "new/x", "remove/x", "settings/q.json", "members/x"):
        damage(root / path)
    async with asyncio.timeout(PATIENCE_S):
        server = await serve()
        await make_queue(server, "other")
        await assert_works(server, "other")
