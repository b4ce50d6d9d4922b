"""Publishers with keys that meet, or fail, in the middle of their steps."""

import asyncio
import errno
import fcntl
import hashlib
import os
from pathlib import Path

import pytest
from harness.api import Reply, assert_problem, call, fetch, make_queue
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.server import Serve, Server, body_sizes
from harness.waiting import comes_true

pytestmark = pytest.mark.usefixtures("audited")

HASHED = hashlib.sha256(b"k").hexdigest()[:2]


async def post(server: Server, key: str = "k", once: str = "", body: bytes = b"x") -> Reply:
    headers = {"Content-Type": "text/plain", **({"Idempotency-Key": once} if once else {})}
    query = f"?key={key}" if key else ""
    return await call(server, "POST", f"/q/messages{query}", data=body, headers=headers)


async def test_another_meaning_that_was_made_and_not_answered_is_ours(serve: Serve) -> None:
    """As a network mount loses the reply."""
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    first = await post(server)
    (server.root / "queues" / "q" / first.id).unlink()
    files.fail("link", errno.EEXIST, "/.new", times=1, performed=True)
    reply = await post(server)
    assert reply.status == 201
    link = server.root / "queues" / "q" / ".keys" / HASHED / "k"
    assert str(link.readlink()) == reply.id
    assert not os.path.lexists(link.parent / ".new")


@pytest.mark.parametrize("once", ["", "k"], ids=["key", "both"])
@body_sizes
async def test_who_comes_while_another_shows_its_message_is_told_to_come_again(
    serve: Serve, once: str, size: int
) -> None:
    files = FaultyFiles()
    slow, other = await serve(files=files), await serve()
    await make_queue(slow)
    held = files.hold("rename", "/new/q:")
    publishing = asyncio.ensure_future(post(slow, once=once, body=b"s" * size))
    await comes_true(held.reached.is_set, "the links of the slow one")
    assert_problem(await post(other, once=once), 503, "message-busy")
    held.open()
    published = await publishing
    assert published.status == 201
    again = await post(other, once=once)
    assert (again.status, again.id) == (201 if once else 409, published.id)
    assert message_files(slow.root)["new"] == []


@pytest.mark.parametrize("once", ["", "k"], ids=["key", "both"])
async def test_a_publish_that_failed_leaves_its_keys_to_the_next(serve: Serve, once: str) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    for call_name in ("rename", "link"):
        files.fail(call_name, errno.EIO, times=1)
        assert_problem(await post(server, once=once), 503, "storage-failed")
        assert message_files(server.root) == {"new": [], "queues": [], "delay": [], "remove": []}
        links = [path for path in server.root.glob("*/q/*/k*") if path.is_symlink()]
        assert links == []
    assert (await post(server, once=once)).status == 201


async def test_a_failed_publish_whose_idempotency_key_cannot_be_taken_back_keeps_its_file(
    serve: Serve,
) -> None:
    """So that the key says nothing of a message that there never was."""
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.fail("rename", errno.EIO, "/new/q:", times=1)
    files.fail("unlink", errno.EIO, "/.idempotency/")
    assert (await post(server, "", "k")).status == 503
    [staged] = message_files(server.root)["new"]
    files.heal()
    reply = await post(server, "", "k")
    assert reply.status == 201
    assert message_files(server.root)["new"] == [staged]
    assert (await fetch(server)).id == reply.id
    assert (await post(server, "", "k")).id == reply.id


async def test_who_finds_another_at_the_key_s_folder_is_told_so(serve: Serve, root: Path) -> None:
    server = await serve()
    await make_queue(server)
    first = await post(server)
    (root / "queues" / "q" / first.id).unlink()
    path = root / "queues" / "q" / ".keys" / HASHED / ".lock"
    path.touch(0o600)
    with path.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_problem(await post(server), 503, "message-busy")
    assert message_files(root)["new"] == []
    assert (await post(server)).status == 201


async def test_a_folder_of_keys_that_a_mount_shows_and_that_is_gone_is_made_again(
    serve: Serve,
) -> None:
    """As a network mount shows a deleted queue's, until a folder is made there."""
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    first = await post(server)
    assert (await call(server, "DELETE", f"/q/messages/{first.id}")).status == 202
    files.fail("open_kept", errno.ENOENT, "/q/.keys/", times=1)
    assert (await post(server)).status == 201


async def test_a_mount_that_loses_an_answer_is_no_queue_that_is_not_found(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.fail("mkdir", errno.ENOENT, "/q/.keys", times=1, performed=True)
    assert_problem(await post(server), 503, "storage-failed")
    assert (await post(server)).status == 201


async def test_no_second_message_of_a_group_goes_while_its_link_could_not_be_made(
    serve: Serve,
) -> None:
    """A network mount makes the folder of links, and loses the answer."""
    files = FaultyFiles()
    server, other = await serve(files=files), await serve()
    await make_queue(server)
    first, second = [
        (await call(server, "POST", "/q/messages?group=a", data=body)).id for body in (b"1", b"2")
    ]
    files.fail("mkdir", errno.ENOENT, "/q/.groups", times=1, performed=True)
    replies = [await fetch(each) for each in (server, other, server, other)]
    assert [each.id for each in replies if each.status == 200] == [first]
    assert (await call(server, "DELETE", f"/q/messages/{first}")).status == 202
    assert (await call(other, "GET", "/q/messages?wait=10")).id == second
