"""The steps of what keys need, in their order; and publishers that meet in the middle of them."""

import asyncio
import errno
import fcntl
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue
from harness.clock import FakeClock
from harness.faults import FaultyFiles, steps_of
from harness.folders import message_files
from harness.server import Serve, Server, body_sizes
from harness.waiting import comes_true

from mq.limits import IDEMPOTENCY_S_DEFAULT

pytestmark = pytest.mark.usefixtures("audited")

HASHED = hashlib.sha256(b"k").hexdigest()[:2]
STAGED = [("create", "new"), ("stamp", "new"), ("sync", "new"), ("sync_folder", "new")]
FOLDERS = [("sync_folder", "q"), ("sync_folder", HASHED)]
REVEALED = [("rename", "new"), ("sync_folder", "queues"), ("sync_folder", "q")]


async def post(server: Server, key: str = "k", once: str = "", body: bytes = b"x") -> Reply:
    headers = {"Content-Type": "text/plain", **({"Idempotency-Key": once} if once else {})}
    query = f"?key={key}" if key else ""
    return await call(server, "POST", f"/q/messages{query}", data=body, headers=headers)


@body_sizes
async def test_a_message_shows_once_its_key_is_on_stable_media(serve: Serve, size: int) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    before = len(files.calls)
    assert (await post(server, body=b"x" * size)).status == 201
    assert steps_of(files, before) == [
        *STAGED,
        ("link", HASHED),  # There is no folder for it yet.
        ("link", HASHED),
        ("sync_folder", "keys"),
        *FOLDERS,
        *REVEALED,
        ("sync_folder", "new"),
    ]


async def test_an_idempotency_key_comes_before_a_lookup_key(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    before = len(files.calls)
    assert (await post(server, once="k")).status == 201
    steps = steps_of(files, before)
    flushed = [name for call_name, name in steps if call_name == "sync_folder"]
    assert flushed.index("idempotency") < flushed.index("keys")
    [key_made] = [n for n, step in enumerate(steps) if step == ("sync_folder", "keys")]
    assert ("sync_folder", HASHED) in steps[:key_made]
    assert ("rename", "new") not in steps[:key_made]


async def test_a_key_that_is_taken_tells_of_what_is_on_stable_media(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    await post(server)
    before = len(files.calls)
    assert (await post(server)).status == 409
    assert steps_of(files, before) == [
        *STAGED,
        ("link", HASHED),
        ("sync_folder", "q"),  # Where it is.
        ("sync_folder", "delay"),
    ]


async def test_a_repeat_tells_of_what_is_on_stable_media(serve: Serve) -> None:
    """Whoever delivered the first may have died before its own flush."""
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    first = await post(server, "", "k")
    before = len(files.calls)
    assert (await post(server, "", "k")).id == first.id
    assert steps_of(files, before) == [
        *STAGED,
        ("link", HASHED),
        ("sync_folder", "q"),  # Where it is.
        ("sync_folder", "delay"),
    ]


async def test_a_delete_frees_a_key_once_it_is_on_stable_media(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    message_id = (await post(server)).id
    before = len(files.calls)
    assert (await delete(server, message_id)).status == 202
    names = [name for name, path in files.calls[before:] if "/keys/" in path or "sync" in name]
    assert names.index("unlink") > max(n for n, name in enumerate(names) if name == "sync_folder")


@pytest.mark.parametrize("kind", ["keys", "idempotency"])
async def test_a_link_that_was_made_and_not_answered_is_ours(serve: Serve, kind: str) -> None:
    """As a network mount loses the reply."""
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    (server.root / kind / "q").mkdir(mode=0o700)
    (server.root / kind / "q" / HASHED).mkdir(mode=0o700)
    files.fail("link", errno.EEXIST, times=1, performed=True)
    before = len(files.calls)
    reply = await post(server, "k" if kind == "keys" else "", "" if kind == "keys" else "k")
    assert reply.status == 201
    steps = steps_of(files, before)
    made = steps.index(("link", HASHED))
    assert steps[made + 1 : made + 4] == [("sync_folder", kind), *FOLDERS]
    assert steps.index(("rename", "new")) > made + 3


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
    link = server.root / "keys" / "q" / HASHED / "k"
    assert str(link.readlink()) == reply.id
    assert not os.path.lexists(link.parent / ".new")


async def test_an_idempotency_key_of_long_ago_says_the_new_message_before_that_shows(
    serve: Serve,
) -> None:
    files, clock = FaultyFiles(), FakeClock()
    server = await serve(files=files, clock=clock, commit="fsync")
    await make_queue(server)
    await post(server, "", "k")
    clock.advance(IDEMPOTENCY_S_DEFAULT + 1)
    before = len(files.calls)
    await post(server, "", "k")
    assert steps_of(files, before) == [
        *STAGED,
        ("link", HASHED),
        ("link", HASHED),
        ("rename", HASHED),
        ("sync_folder", "idempotency"),  # What leads there, at its first use.
        *FOLDERS,
        ("rename", "new"),
        ("sync_folder", "q"),
        ("sync_folder", "new"),
    ]


async def _nothing(server: Server, message_id: str) -> None:
    """It is ready."""


async def _fetched(server: Server, message_id: str) -> None:
    assert (await fetch(server)).id == message_id


async def _deleted(server: Server, message_id: str) -> None:
    assert (await delete(server, message_id)).status == 202


@pytest.mark.parametrize("then", [_nothing, _fetched, _deleted])
@pytest.mark.parametrize("once", ["", "k"], ids=["key", "both"])
@body_sizes
async def test_whose_message_another_delivers_is_told_that_it_is_published(
    serve: Serve, then: Callable[[Server, str], Awaitable[None]], once: str, size: int
) -> None:
    files = FaultyFiles()
    slow, other = await serve(files=files), await serve()
    await make_queue(slow)
    held = files.hold("rename", "/new/q:")
    publishing = asyncio.ensure_future(post(slow, once=once, body=b"s" * size))
    await comes_true(held.reached.is_set, "the links of the slow one")
    reply = await post(other, once=once)
    assert reply.status == (201 if once else 409)
    await then(other, reply.id)
    held.open()
    published = await publishing
    assert (published.status, published.id) == (201, reply.id)
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


async def test_a_failed_publish_whose_idempotency_key_cannot_be_taken_back_may_end(
    serve: Serve,
) -> None:
    """Its file stays, so that the key says nothing of a message that there never was."""
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.fail("rename", errno.EIO, "/new/q:", times=1)
    files.fail("open_kept", errno.EIO, "/idempotency/")
    assert (await post(server, "", "k")).status == 503
    [staged] = message_files(server.root)["new"]
    files.heal()
    reply = await post(server, "", "k")
    assert (reply.status, f"q:{reply.id}") == (201, staged)
    assert message_files(server.root)["new"] == []
    assert (await fetch(server)).id == reply.id


async def test_who_finds_another_at_the_key_s_folder_is_told_so(serve: Serve, root: Path) -> None:
    server = await serve()
    await make_queue(server)
    first = await post(server)
    (root / "queues" / "q" / first.id).unlink()
    path = root / "keys" / "q" / HASHED / ".lock"
    path.touch(0o600)
    with path.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_problem(await post(server), 503, "message-busy")
    assert message_files(root)["new"] == []
    assert (await post(server)).status == 201
