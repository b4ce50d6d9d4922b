"""Idempotency-Key: publishes of one are one publish, for as long as the queue's setting says."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.folders import message_files
from harness.raw import raw_head, raw_request
from harness.server import Serve, Server, body_sizes, commit_modes

from mq.model.limits import IDEMPOTENCY_S_DEFAULT
from mq.model.settings import QueueSettings


@pytest.fixture(autouse=True)
def audited(root: Path) -> Iterator[None]:
    """A root is in order after whatever a test did to it."""
    yield
    assert_audits_clean(root)


async def post(server: Server, body: bytes = b"hello", key: str = "K", query: str = "") -> Reply:
    return await call(
        server,
        "POST",
        f"/q/messages{query}",
        data=body,
        headers={"Idempotency-Key": key, "Content-Type": "application/octet-stream"},
    )


def links(root: Path, kind: str = "idempotency") -> list[str]:
    """What the links of queue q say."""
    folder = root / "queues" / "q" / f".{kind}"
    return [os.readlink(path) for path in folder.glob("*/*") if path.is_symlink()]


def ids(root: Path) -> list[str]:
    """All messages of the root."""
    found = message_files(root).values()
    return [name.partition(":")[2] for names in found for name in names]


async def _ready(server: Server, message_id: str) -> None:
    """As it was published."""


async def _fetched(server: Server, message_id: str) -> None:
    assert (await fetch(server)).id == message_id


async def _deleted(server: Server, message_id: str) -> None:
    assert (await delete(server, message_id)).status == 202


async def _reaped(server: Server, message_id: str) -> None:
    await _deleted(server, message_id)
    (server.root / "remove" / f"q:{message_id}").unlink()


State = Callable[[Server, str], Awaitable[None]]
STATES: tuple[State, ...] = (_ready, _fetched, _deleted, _reaped)


@pytest.mark.parametrize("state", STATES)
@commit_modes
@body_sizes
async def test_a_repeat_is_answered_as_the_first_was(
    serve: Serve, state: State, commit: str, size: int
) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    first = await post(server, b"x" * size)
    assert first.status == 201
    await state(server, first.id)
    second = await post(server, b"y" * size)
    assert (second.status, second.body, second.id) == (201, first.body, first.id)
    assert second.headers["Location"] == first.headers["Location"]
    left = message_files(server.root)
    assert left["new"] == []
    assert set(ids(server.root)) <= {first.id}
    if state is _ready:
        assert left["queues"] == [f"q:{first.id}"]


async def test_a_publish_that_a_crash_left_in_new_is_published_again(serve: Serve) -> None:
    """The publisher died between the link and the rename, and had no answer."""
    server = await serve()
    await make_queue(server)
    first = await post(server)
    (server.root / "queues" / "q" / first.id).rename(server.root / "new" / f"q:{first.id}")
    second = await post(server)
    assert second.status == 201
    assert second.id != first.id
    assert (await post(server)).id == second.id
    assert links(server.root) == [second.id]


@pytest.mark.parametrize("state", STATES)
async def test_a_key_may_be_used_again_when_its_time_is_over(serve: Serve, state: State) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    first = await post(server)
    await state(server, first.id)
    clock.advance(IDEMPOTENCY_S_DEFAULT - 1)
    assert (await post(server)).id == first.id
    clock.advance(2)
    second = await post(server)
    assert second.status == 201
    assert second.id != first.id
    assert links(server.root) == [second.id]
    # The new link is as old as the machine says.
    clock.set_ms(FakeClock().now_ms())
    assert (await post(server)).id == second.id


async def test_a_clock_that_is_set_ahead_ends_no_key(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    first = await post(server)
    clock.set_ms(clock.now_ms() + 10 * 1000 * round(IDEMPOTENCY_S_DEFAULT))
    assert (await post(server)).id == first.id
    clock.advance(IDEMPOTENCY_S_DEFAULT + 1)
    assert (await post(server)).id != first.id


async def test_the_time_is_the_queue_s(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock, queue=QueueSettings(idempotency_s=10))
    await make_queue(server)
    first = await post(server)
    clock.advance(9)
    assert (await post(server)).id == first.id
    clock.advance(2)
    assert (await post(server)).id != first.id


async def test_other_keys_are_other_publishes(server: Server) -> None:
    await make_queue(server)
    await make_queue(server, "q2")
    replies = [await post(server, key=key) for key in ("a", "b", '"c"', "c")]
    assert len({reply.id for reply in replies}) == 3
    assert replies[2].id == replies[3].id
    other = await call(server, "POST", "/q2/messages", data=b"x", headers={"Idempotency-Key": "a"})
    assert other.id != replies[0].id


async def test_many_at_once_are_one(server: Server) -> None:
    await make_queue(server)
    replies = await asyncio.gather(*(post(server, b"%d" % n) for n in range(30)))
    assert {reply.status for reply in replies} == {201}
    assert len({reply.id for reply in replies}) == 1
    assert ids(server.root) == [replies[0].id]
    totals = (await call(server, "GET", "/q")).json()["totals"]
    assert totals["published"] == 1


async def test_with_a_key_both_are_one(server: Server) -> None:
    await make_queue(server)
    first = await post(server, query="?key=k")
    again = await post(server, query="?key=k")
    assert (again.status, again.id) == (201, first.id)
    taken = await post(server, key="other", query="?key=k")
    assert (taken.status, taken.id) == (409, first.id)
    # Which was no publish, and may be one when the key is free.
    assert links(server.root) == [first.id]
    assert (await delete(server, first.id)).status == 202
    third = await post(server, key="other", query="?key=k")
    assert third.status == 201
    assert (await post(server, query="?key=k")).id == first.id


async def test_a_deleted_queue_s_publishes_are_forgotten(server: Server) -> None:
    await make_queue(server)
    first = await post(server)
    assert (await call(server, "DELETE", "/q")).status == 200
    assert_problem(await post(server), 404, "queue-not-found")
    await make_queue(server)
    second = await post(server)
    assert second.status == 201
    assert second.id != first.id


@pytest.mark.parametrize("key", ["", '""', "k" * 65, '"' + "k" * 65 + '"', "\xff\xfe"])
async def test_a_bad_idempotency_key_is_told(server: Server, key: str) -> None:
    await make_queue(server)
    head = raw_head("POST", "/q/messages", "Content-Length: 1").replace(
        b"\r\n\r\n", b"\r\nIdempotency-Key: " + key.encode("latin-1") + b"\r\n\r\n"
    )
    reply = await raw_request(server.port, head + b"x")
    members = assert_problem(reply, 400, "bad-idempotency-key")
    assert members["parameter"] == "idempotency-key"
    assert ids(server.root) == []
