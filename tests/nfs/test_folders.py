"""Folders as an NFS client shows them: handles that are stale when they are listed, times and names
of a while ago, and times as coarse as some servers keep them.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.api import call, fetch, publish
from harness.processes import Processes
from harness.server import Serve, Server
from harness.waiting import comes_true
from nfs.mounts import ALWAYS, Mount, nfs_mount
from nfs.pairs import Pair, deleted, fetched, serve_pair

SILLY = ".nfs0000000000000001"


@pytest.mark.parametrize("asked", ["opendir", "readdir"])
async def test_a_queue_that_cannot_be_listed_is_there_all_the_same(
    pair: Pair, clients: tuple[Mount, Mount], asked: str
) -> None:
    await publish(pair[1], b"body")
    clients[0].arm(asked, errno.ESTALE, where="queues/q", times=ALWAYS)
    for _ in range(3):
        reply = await fetch(pair[0])
        assert reply.status in (204, 503), reply.body
    assert any("dir" in hit for hit in clients[0].hits())
    clients[0].heal()
    reply = await comes_true(lambda: fetched(pair[0]), "the message")
    assert reply is not None
    assert reply.body == b"body"


@pytest.fixture(
    params=[{"folder_looks": 20}, {"own_times_step_ns": 10**9}, {"own_times_step_ns": 2 * 10**9}],
    ids=["cached", "1 s", "2 s"],
)
def odd_clients(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Mount, Mount]]:
    """What a folder was is told for a while; or its times are in whole seconds, or in two."""
    options = request.param
    with (
        nfs_mount(tmp_path, "one", **options) as one,
        nfs_mount(tmp_path, "other", **options) as other,
    ):
        yield one, other


async def test_what_the_other_publishes_comes_once_each(
    odd_clients: tuple[Mount, Mount], serve: Serve
) -> None:
    one, other = await serve_pair(serve, odd_clients, visibility_s=600)
    published: set[str] = set()
    found: list[str] = []

    async def take_one(server: Server) -> bool:
        reply = await fetched(server)
        if reply is None:
            return False
        found.append(reply.id)
        assert await comes_true(lambda: deleted(server, reply.id)) is not None
        return True

    for number in range(6):
        published.add(await publish(one, b"%d" % number))
        await comes_true(lambda: take_one(other), "what the other has published")
        published.add(await publish(other, b"%d" % number))
        await comes_true(lambda: take_one(one), "what the other has published")
    assert sorted(found) == sorted(published)
    assert (await fetch(one)).status == (await fetch(other)).status == 204

    async def counts_none(server: Server) -> bool:
        said = (await call(server, "GET", "/q")).json()
        return bool(said["ready"] == said["delayed"] == said["in_flight"] == 0)

    for server in (one, other):
        await comes_true(lambda server=server: counts_none(server), "right counts")


async def test_what_lapses_comes_again(
    odd_clients: tuple[Mount, Mount], serve: Serve, daemons: Processes
) -> None:
    one, other = await serve_pair(serve, odd_clients, visibility_s=0.5)
    daemons.mover("--root", str(one.root))
    message_id = await publish(one, b"body")
    for receives, server in (("1", other), ("2", one), ("3", other)):
        reply = await comes_true(lambda server=server: fetched(server), "the message")
        assert reply is not None
        assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, receives)


async def test_names_that_a_client_keeps_for_open_files_are_nobody_s(
    pair: Pair, clients: tuple[Mount, Mount], daemons: Processes
) -> None:
    """`.nfs` names in every folder, and under the names of queues and buckets."""
    one, _ = pair
    folders = ["new", "queues", "queues/q", "delay", "remove", "settings", "schedules", "deleted"]
    silly = [one.root / folder / SILLY for folder in folders]
    for path in silly:
        path.write_bytes(b"of somebody")
        os.utime(path, (1000, 1000))
    daemons.mover("--root", str(one.root))
    daemons.reaper("--root", str(one.root))
    message_id = await publish(one, b"body")
    for server in reversed(pair):
        reply = await fetched(server)
        assert (reply is None) == (server is one)
    assert await comes_true(lambda: deleted(one, message_id)) is not None
    gone = one.root / "remove" / f"q:{message_id}"
    await comes_true(lambda: not gone.exists(), "the reaper's pass")
    assert [path.read_bytes() for path in silly] == [b"of somebody"] * len(silly)
    listed = (await call(one, "GET", "/-/queues")).body
    assert b".nfs" not in listed
    assert (await call(one, "GET", "/-/readyz")).status == 200
