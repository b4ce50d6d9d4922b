"""Stale handles, and files whose names go while they are open."""

import asyncio
import errno
import hashlib
from pathlib import Path

import aiohttp
import pytest
from harness.api import call, delete, fetch, make_queue, publish
from harness.audits import audit
from harness.folders import message_files, nothing_anywhere
from harness.processes import Processes
from harness.server import Serve
from harness.waiting import comes_true
from nfs.mounts import ALWAYS, Mount
from nfs.pairs import Pair, deleted, fetched, serve_pair

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.store.opening import open_root

# More than the sockets between a server and a client hold.
LARGE = 40 * 1024 * 1024


@pytest.fixture
async def pair(clients: tuple[Mount, Mount], serve: Serve) -> Pair:
    """With a short visibility."""
    return await serve_pair(serve, clients, visibility_s=2)


def names(root: Path, pattern: str) -> list[str]:
    return [path.name for path in root.rglob(pattern)]


@pytest.mark.parametrize("name", ["getattr", "open"])
async def test_a_fetch_of_a_stale_file_is_answered_and_the_message_comes(
    clients: tuple[Mount, Mount], pair: Pair, name: str
) -> None:
    one, _ = pair
    message_id = await publish(one)
    clients[0].arm(name, errno.ESTALE, f"/queues/q/{message_id}", times=ALWAYS)
    assert (await fetch(one)).status == 204
    clients[0].heal()
    assert (await comes_true(lambda: fetched(one))).id == message_id


@pytest.mark.parametrize("call_name", ["getattr", "open", "rename"])
@pytest.mark.parametrize("if_match", [False, True], ids=["", "if-match"])
async def test_a_delete_meets_a_stale_handle_and_looks_again(
    clients: tuple[Mount, Mount], pair: Pair, call_name: str, if_match: bool
) -> None:
    one, other = pair
    message_id = await publish(one)
    # As often as Linux tries a call.
    times = {"getattr": 4, "open": 2, "rename": 2}[call_name]
    clients[0].arm(call_name, errno.ESTALE, f"/queues/q/{message_id}", times)
    headers = {"If-Match": '"0"'} if if_match else {}
    reply = await comes_true(lambda: deleted(one, message_id, headers=headers))
    assert reply.status == 202
    assert message_files(other.root) == nothing_anywhere() | {"remove": [f"q:{message_id}"]}


async def test_a_publish_whose_fsync_finds_a_stale_handle_never_was(
    clients: tuple[Mount, Mount], pair: Pair
) -> None:
    one, other = pair
    clients[0].arm("fsync", errno.ESTALE, "/new/q:")
    assert (await call(one, "POST", "/q/messages", data=b"body")).status == 503
    assert message_files(other.root) == nothing_anywhere()
    await comes_true(lambda: not names(other.root, ".nfs*"), "the end of its .nfs name")


async def test_a_fetch_whose_fsync_finds_a_stale_handle_is_delivered_later(
    clients: tuple[Mount, Mount], pair: Pair, daemons: Processes
) -> None:
    one, other = pair
    message_id = await publish(one)
    clients[0].arm("fsync", errno.ESTALE, "q:")
    assert (await fetch(one)).status == 503
    daemons.mover("--root", str(other.root))
    back = await comes_true(lambda: fetched(other))
    assert (back.id, back.headers["X-Message-Receives"]) == (message_id, "2")


@pytest.mark.parametrize("reaping", [0, 1], ids=["this client", "another client"])
async def test_a_body_whose_file_goes_is_whole_or_breaks_off(
    clients: tuple[Mount, Mount], pair: Pair, daemons: Processes, reaping: int
) -> None:
    """Whole where the reaper is on this client, which keeps the file until it is closed."""
    one, _ = pair
    body = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(LARGE // 32))
    message_id = await publish(one, body)
    daemons.reaper("--root", str(clients[reaping].where / "root"))
    async with one.request("GET", "/q/messages") as response:
        start = await response.content.readexactly(1000)
        assert (await delete(one, message_id)).status == 202
        await comes_true(lambda: not names(one.root, f"q:{message_id}"), "the reaping")
        if reaping == 0:
            assert len(names(one.root, ".nfs*")) == 1
            assert start + await response.content.read() == body
        else:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.content.read()
    await comes_true(lambda: not names(one.root, ".nfs*"), "the end of its .nfs name")


async def test_a_file_that_is_kept_for_whoever_has_it_open_is_hidden(
    clients: tuple[Mount, Mount], pair: Pair, daemons: Processes
) -> None:
    one, other = pair
    root = open_root(str(other.root), Files(), SystemClock())
    message_id = await publish(one)
    hidden = audit(root).hidden
    with (one.root / "queues" / "q" / message_id).open("rb"):
        (one.root / "queues" / "q" / message_id).unlink()
        assert len(names(other.root, ".nfs*")) == 1
        found = audit(root)
        assert (found.is_clean, found.hidden, found.foreign) == (True, hidden + 1, 0)
        assert (await fetch(one)).status == (await fetch(other)).status == 204
        reaper = daemons.reaper("--root", str(other.root))
        assert (await call(one, "DELETE", "/q")).status == 200
        await asyncio.to_thread(reaper.wait_for_log, "foreign")
    # The folder goes when something comes to remove/ the next time.
    await make_queue(other)
    assert (await call(other, "DELETE", "/q")).status == 200
    await comes_true(lambda: not list((other.root / "remove").iterdir()), "an empty remove/")
