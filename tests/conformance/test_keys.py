"""Lookup keys: one living message has one, it is found and deleted by it, and it is free again."""

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.folders import message_files
from harness.raw import raw_head, raw_request
from harness.server import Serve, Server, body_sizes, commit_modes

from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.mover import Mover
from mq_reaper.reaper import Reaper

KEY = "night ly/\u03b1"
QUOTED = quote(KEY, safe="")


@pytest.fixture(autouse=True)
def audited(root: Path) -> Iterator[None]:
    """A root is in order after whatever a test did to it."""
    yield
    assert_audits_clean(root)


async def publish_keyed(
    server: Server, key: str = QUOTED, body: bytes = b"hello", more: str = ""
) -> Reply:
    path = f"/q/messages?key={key}{more}"
    return await call(server, "POST", path, data=body)


def links(root: Path, kind: str = "keys") -> dict[str, str]:
    """Every key of queue q as it is written, and what its link says."""
    return {
        path.name: os.readlink(path)
        for path in (root / "queues" / "q" / f".{kind}").glob("*/*")
        if path.is_symlink() and not path.name.startswith(".")
    }


async def test_a_key_is_in_the_id_and_its_link_says_the_id(server: Server) -> None:
    await make_queue(server)
    reply = await publish_keyed(server)
    assert reply.status == 201
    assert reply.id[36:] == ",k=night=20ly=2F=CE=B1"
    assert reply.headers["Location"] == f"/q/messages/{reply.id}"
    assert links(server.root) == {"night=20ly=2F=CE=B1": reply.id}
    assert (await fetch(server)).id == reply.id


async def _ready(server: Server) -> None:
    """As it was published."""


async def _fetched(server: Server) -> None:
    assert (await fetch(server)).status == 200


async def _put_off(server: Server) -> None:
    [name] = message_files(server.root)["queues"]
    path = f"/q/messages/{name.partition(':')[2]}"
    assert (await call(server, "PATCH", path, json={"due_in_s": 60})).status == 200


State = Callable[[Server], Awaitable[None]]
ALIVE: tuple[State, ...] = (_ready, _fetched, _put_off)


@pytest.mark.parametrize("state", ALIVE)
@pytest.mark.parametrize("folder_max", [0, 10_000], ids=["in-buckets", "flat"])
async def test_a_key_is_taken_while_its_message_lives(
    serve: Serve, state: State, folder_max: int
) -> None:
    server = await serve(folder_max=folder_max)
    await make_queue(server)
    first = await publish_keyed(server)
    await state(server)
    before = message_files(server.root)
    second = await publish_keyed(server)
    members = assert_problem(second, 409, "key-taken")
    assert second.id == members["id"] == first.id
    assert members["key"] == KEY
    assert message_files(server.root) == before
    other = await publish_keyed(server, "other")
    assert other.status == 201


async def test_a_key_is_taken_while_its_message_is_scheduled(server: Server) -> None:
    await make_queue(server)
    first = await publish_keyed(server, more="&delay=60")
    assert (await publish_keyed(server)).id == first.id
    assert message_files(server.root)["delay"] == [f"q:{first.id}"]
    assert (await publish_keyed(server)).status == 409


async def test_a_key_is_its_queue_s_own(server: Server) -> None:
    for queue in ("q", "q.2"):
        await make_queue(server, queue)
        reply = await call(server, "POST", f"/{queue}/messages?key=k", data=b"x")
        assert reply.status == 201


@pytest.mark.parametrize("state", ALIVE)
@pytest.mark.parametrize("by", ["id", "key"])
async def test_a_delete_frees_the_key(server: Server, state: State, by: str) -> None:
    await make_queue(server)
    first = await publish_keyed(server)
    await state(server)
    path = f"/q/messages/{first.id}" if by == "id" else f"/q/keys/{QUOTED}"
    assert (await call(server, "DELETE", path)).status == 202
    assert links(server.root) == {}
    second = await publish_keyed(server)
    assert second.status == 201
    assert second.id != first.id
    assert links(server.root) == {"night=20ly=2F=CE=B1": second.id}


@pytest.mark.parametrize("left", ["remove", "nowhere", "nobody's"])
async def test_a_link_whose_message_is_gone_is_replaced(server: Server, left: str) -> None:
    """As a crash leaves it, or somebody who removed it by hand."""
    await make_queue(server)
    first = await publish_keyed(server)
    ready = server.root / "queues" / "q" / first.id
    if left == "remove":
        ready.rename(server.root / "remove" / f"q:{first.id}")
    else:
        ready.unlink()
    if left == "nobody's":
        [link] = (server.root / "queues" / "q" / ".keys").glob("*/night*")
        link.unlink()
        link.symlink_to("../../../etc/passwd")
    second = await publish_keyed(server)
    assert second.status == 201
    assert links(server.root) == {"night=20ly=2F=CE=B1": second.id}
    assert (await publish_keyed(server)).id == second.id


async def test_a_reaped_message_frees_its_key(serve: Serve, root: Path) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    first = await publish_keyed(server)
    # Removed by one that died before it freed the key.
    (root / "queues" / "q" / first.id).rename(root / "remove" / f"q:{first.id}")
    clock.advance(10)
    assert Reaper(Files(), clock, str(root / "remove"), 0).run_once() == 1
    assert links(root) == {}
    assert message_files(root)["remove"] == []


async def test_a_reaper_leaves_the_key_of_another_message(serve: Serve, root: Path) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    assert (await delete(server, (await publish_keyed(server)).id)).status == 202
    second = await publish_keyed(server)
    clock.advance(10)
    assert Reaper(Files(), clock, str(root / "remove"), 0).run_once() == 1
    assert list(links(root).values()) == [second.id]


async def test_a_redelivered_message_has_its_key(serve: Serve, root: Path) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    first = await publish_keyed(server)
    await fetch(server)
    clock.advance(60)
    flusher = FsyncFlusher(Files(), 1)
    mover = Mover(open_root(str(root), Files(), clock), flusher, Timer())
    moved = mover.run_once()
    clock.advance(2)
    assert moved + mover.run_once() == 1
    flusher.close()
    assert (await publish_keyed(server)).id == first.id
    assert (await fetch(server)).id == first.id


async def test_a_message_is_read_by_its_key_wherever_it_lives(server: Server) -> None:
    await make_queue(server)
    first = await publish_keyed(server, body=b"body")
    for state in ("ready", "delayed"):
        reply = await call(server, "GET", f"/q/keys/{QUOTED}")
        assert (reply.status, reply.body, reply.id) == (200, b"body", first.id)
        assert reply.headers["X-Message-State"] == state
        if state == "ready":
            await fetch(server)
    head = await call(server, "HEAD", f"/q/keys/{QUOTED}")
    assert (head.status, head.id, head.body) == (200, first.id, b"")
    part = await call(server, "GET", f"/q/keys/{QUOTED}", headers={"Range": "bytes=1-2"})
    assert (part.status, part.body) == (206, b"od")


async def test_what_is_removed_is_not_read_by_its_key(server: Server) -> None:
    await make_queue(server)
    first = await publish_keyed(server)
    removed = server.root / "remove" / f"q:{first.id}"
    (server.root / "queues" / "q" / first.id).rename(removed)
    members = assert_problem(await call(server, "GET", f"/q/keys/{QUOTED}"), 404, "key-not-found")
    assert members["key"] == KEY
    # But deleted, as by its id.
    assert (await call(server, "DELETE", f"/q/keys/{QUOTED}")).status == 202
    assert removed.exists()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_key_of_nothing_is_not_found(server: Server, method: str) -> None:
    reply = await call(server, method, "/q/keys/k")
    assert_problem(reply, 404, "queue-not-found")
    await make_queue(server)
    assert_problem(await call(server, method, "/q/keys/k"), 404, "key-not-found")
    await publish_keyed(server, "k")
    assert (await call(server, "DELETE", "/q/keys/k")).status == 202
    assert_problem(await call(server, method, "/q/keys/k"), 404, "key-not-found")


async def test_a_delete_by_key_asks_what_if_match_says(server: Server) -> None:
    await make_queue(server)
    await publish_keyed(server, "k")
    await fetch(server)
    for tag, status in (('"0"', 412), ('"1"', 202)):
        reply = await call(server, "DELETE", "/q/keys/k", headers={"If-Match": tag})
        assert reply.status == status
    assert (await call(server, "DELETE", "/q/keys/k", headers={"If-Match": "x"})).status == 400


@pytest.mark.parametrize("key", ["-", "a.b", "..", "%2F", "=41", "k" * 64, "%20"])
async def test_any_short_text_is_a_key(server: Server, key: str) -> None:
    await make_queue(server)
    reply = await publish_keyed(server, key)
    assert reply.status == 201
    head = raw_head("GET", f"/q/keys/{key.replace('..', '%2E%2E')}")
    assert (await raw_request(server.port, head)).status == 200
    assert list(links(server.root).values()) == [reply.id]


@pytest.mark.parametrize("key", ["%00", "a%0A", "%7F"])
async def test_a_control_character_is_no_key_s(server: Server, key: str) -> None:
    await make_queue(server)
    assert_problem(await publish_keyed(server, key), 400, "bad-key")


@pytest.mark.parametrize("key", ["", "k" * 65, "k" * 400, "%CE%B1" * 11, "%FF", "%ED%A0%80"])
async def test_a_bad_key_is_told(server: Server, key: str) -> None:
    await make_queue(server)
    head = raw_head("POST", f"/q/messages?key={key}", "Content-Length: 1")
    members = assert_problem(await raw_request(server.port, head + b"x"), 400, "bad-key")
    assert members["parameter"] == "key"
    assert message_files(server.root)["new"] == []
    if key:
        for method in ("GET", "DELETE"):
            reply = await raw_request(server.port, raw_head(method, f"/q/keys/{key}"))
            assert assert_problem(reply, 400, "bad-key")["parameter"] == "key"


async def test_a_key_said_twice_is_bad(server: Server) -> None:
    await make_queue(server)
    assert_problem(await publish_keyed(server, "a&key=a"), 400, "bad-key")


@body_sizes
@commit_modes
async def test_streamed_and_held_bodies_have_keys(serve: Serve, size: int, commit: str) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    first = await publish_keyed(server, body=b"x" * size)
    assert first.status == 201
    second = await publish_keyed(server, body=b"y" * size)
    assert (second.status, second.id) == (409, first.id)
    assert message_files(server.root)["new"] == []
    assert (await fetch(server)).body == b"x" * size


async def test_a_deleted_queue_s_keys_are_gone(server: Server) -> None:
    await make_queue(server)
    first = await publish_keyed(server)
    await fetch(server)
    assert (await call(server, "DELETE", "/q")).status == 200
    assert links(server.root) == {}
    assert_problem(await publish_keyed(server), 404, "queue-not-found")
    assert not (server.root / "queues" / "q" / ".keys").exists()
    await make_queue(server)
    second = await publish_keyed(server)
    assert second.status == 201
    assert second.id != first.id


async def test_a_file_that_is_no_link_is_left_alone(server: Server) -> None:
    await make_queue(server)
    await publish_keyed(server)
    [link] = (server.root / "queues" / "q" / ".keys").glob("*/night*")
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    link.write_text("mine")
    assert (await publish_keyed(server)).status == 503
    assert link.read_text() == "mine"
    assert message_files(server.root)["new"] == []
    link.unlink()
    # Its message has no key then, which an audit tells of.
    assert (await call(server, "DELETE", "/q")).status == 200


@pytest.mark.parametrize("more", ["", "&delay=60"])
async def test_a_publish_that_a_crash_left_in_new_has_no_key(server: Server, more: str) -> None:
    """The publisher died between the link and the rename, and had no answer."""
    await make_queue(server)
    first = await publish_keyed(server, more=more)
    shown = server.root / (f"delay/q:{first.id}" if more else f"queues/q/{first.id}")
    shown.rename(server.root / "new" / f"q:{first.id}")
    for method in ("GET", "DELETE"):
        assert (await call(server, method, f"/q/keys/{QUOTED}")).status == 404
    second = await publish_keyed(server, more=more)
    assert second.status == 201
    assert second.id != first.id
    assert (await call(server, "GET", f"/q/keys/{QUOTED}")).id == second.id
    assert_audits_clean(server.root)


async def test_messages_without_keys_make_no_links(server: Server) -> None:
    await make_queue(server)
    await publish(server)
    assert not (server.root / "queues" / "q" / ".keys").exists()
    assert not (server.root / "queues" / "q" / ".idempotency").exists()
