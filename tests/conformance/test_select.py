"""`GET /{queue}/messages?select=TERMS`: a fetch of some of a queue's messages alone."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from harness.api import Reply, StillClock, assert_problem, call, delete, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.folders import message_files
from harness.internals import interested
from harness.processes import PATIENCE_S
from harness.server import Serve, Server
from harness.upkeep import move_due
from harness.waiting import comes_true

import mq.broker.watching
from mq.broker.selections import SELECTIONS_PER_QUEUE_MAX
from mq.model.limits import SELECT_CHARS_MAX
from mq.store.disk.files import Files

CREATED = {"ce-type": "order.created", "ce-id": "1"}
PAID = {"ce-type": "order.paid", "ce-id": "2"}


@pytest.fixture
async def server(serve: Serve) -> Server:
    """An mq with an empty queue, whose waits are ended by no clock."""
    started = await serve(clock=StillClock())
    await make_queue(started)
    return started


async def put(server: Server, query: str = "", **more: Any) -> str:
    """Publishes with a query; the id."""
    reply = await call(server, "POST", f"/q/messages?{query}", data=b"hello", **more)
    assert reply.status == 201, reply.body
    return reply.id


async def select(server: Server, *texts: str, more: str = "") -> Reply:
    """A fetch with these terms."""
    query = "&".join(f"select={quote(text)}" for text in texts)
    async with asyncio.timeout(PATIENCE_S):
        return await call(server, "GET", f"/q/messages?{query}{more}")


@contextlib.asynccontextmanager
async def selecting(server: Server, *texts: str) -> AsyncIterator[list["asyncio.Task[Reply]"]]:
    """Clients that each wait for what is of one selection, and have found none."""
    tasks = [asyncio.create_task(select(server, text, more="&wait=60")) for text in texts]
    await comes_true(lambda: interested(server, "q") >= len(texts), "their waiting")
    for text in texts:  # Whoever came before it has asked before it.
        assert (await select(server, text)).status == 204
    assert not any(task.done() for task in tasks)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


async def test_each_kind_of_term(server: Server) -> None:
    plain = await put(server)
    urgent = await put(server, "priority=7")
    keyed = await put(server, "key=eu-1")
    text = await put(server, headers={"Content-Type": "text/plain; charset=utf-8"})
    created = await put(server, headers=CREATED)
    assert (await select(server, "header:ce-type=order.created")).id == created
    assert (await select(server, "content-type:text/*")).id == text
    assert (await select(server, "key:eu-*")).id == keyed
    assert (await select(server, "priority:5..")).id == urgent
    assert (await select(server, "priority:5..")).status == 204
    assert (await fetch(server)).id == plain
    assert (await fetch(server)).status == 204


async def test_groups_and_ranges(server: Server) -> None:
    cheap = await put(server, "priority=9", headers={"x-attribute-eur": "9.50"})
    dear = await put(server, "key=eu-1", headers={"x-attribute-eur": "100"})
    text = "not(any(key:eu-*,header:x-attribute-eur<5)),header:x-attribute-eur"
    assert (await select(server, text)).headers["X-Message-Id"] == cheap
    assert (await select(server, "header:x-attribute-eur:10..")).headers["X-Message-Id"] == dear
    bad = await select(server, "key:a,any(key:b,colour:red)")
    assert "wrong from character 17 on" in bad.json()["detail"]


async def test_all_terms_must_hold_with_commas_or_said_one_by_one(server: Server) -> None:
    await put(server, "key=a,1&priority=3")
    await put(server, "key=a,2", headers=PAID)
    both = [await put(server, f"key=a,{n}&priority=3", headers=PAID) for n in (3, 4)]
    assert (await select(server, "key:a\\,*,priority:3,header:ce-type=order.paid")).id == both[0]
    texts = ("key:a\\,*", "priority:3..", "header:ce-id=2,header:ce-type")
    assert (await select(server, *texts)).id == both[1]
    assert (await select(server, *texts)).status == 204


async def test_in_the_order_of_delivery(server: Server) -> None:
    ids = [await put(server, f"priority={n % 3}&key=k{n}") for n in range(6)]
    found = [(await select(server, "key:k*")).id for _ in ids]
    assert found == [ids[n] for n in (2, 5, 1, 4, 0, 3)]


async def test_with_a_count_and_a_visibility(server: Server) -> None:
    ids = [await put(server, "key=a" if n == 4 else "", headers=PAID) for n in range(40)]
    await put(server, headers=CREATED)
    reply = await select(server, "header:ce-type=order.paid", more="&count=100&visibility=100")
    rows = [json.loads(row) for row in reply.body.splitlines()]
    assert [row["id"] for row in rows] == ids
    assert {row["due"] for row in rows} == {"2023-11-14T22:15:00.000Z"}
    assert (await select(server, "header:ce-type=order.paid", more="&count=100")).status == 204


async def test_what_is_selected_is_no_one_else_s(server: Server) -> None:
    ids = [await put(server, "key=a" if n == 0 else f"priority={n}") for n in range(4)]
    assert (await fetch(server)).id == ids[3]
    assert (await select(server, "key:*")).id == ids[0]
    assert (await select(server, "priority:1")).id == ids[1]
    assert (await fetch(server)).id == ids[2]
    assert (await fetch(server)).status == 204
    assert len(message_files(server.root)["delay"]) == 4


async def test_what_comes_back_is_selected_again(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    one = await put(server, headers=PAID)
    paid = "header:ce-type=order.paid"
    assert (await select(server, paid)).id == one
    await call(server, "PATCH", f"/q/messages/{one}", json={"due_in_s": 0})
    reply = await select(server, paid)
    assert (reply.id, reply.headers["X-Message-Receives"]) == (one, "2")
    clock.advance(60)
    assert move_due(server.root, clock) == 1
    assert (await select(server, paid)).headers["X-Message-Receives"] == "3"


@pytest.mark.certificate
async def test_what_was_purged_is_not_selected(server: Server) -> None:
    await put(server, "key=a")
    assert (await select(server, "key:b")).status == 204
    assert (await call(server, "DELETE", "/q/messages")).status == 202
    assert (await select(server, "key:*")).status == 204


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks now and then: whoever waits is told, or hears nothing."""
    monkeypatch.setattr(mq.broker.watching, "LOOK_INTERVAL_S", 3600.0)


@pytest.mark.usefixtures("no_looks")
async def test_a_publish_wakes_whom_it_matches_and_no_other(server: Server) -> None:
    terms_of_each = ("key:a", "header:ce-type=order.*", "content-type:image/*", "priority:9")
    async with selecting(server, *terms_of_each) as [keyed, created, image, urgent]:
        unmatched = await publish(server)
        assert (await select(server, "key:b")).status == 204
        assert not any(task.done() for task in (keyed, created, image, urgent))
        message_id = await put(server, headers=CREATED)
        assert (await created).id == message_id
        message_id = await put(server, "priority=9")
        assert (await urgent).id == message_id
        odd = {"Content-Type": "image/x-odd"}
        message_id = await put(server, headers=odd)
        assert (await image).id == message_id
        assert not keyed.done()
        message_id = await put(server, "key=a")
        assert (await keyed).id == message_id
        assert (await fetch(server)).id == unmatched


class ReadFiles(Files):
    """Counts the header blocks that are read for a selection."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = 0

    def read_file(self, path: str, size: int) -> bytes:
        self.blocks += 1
        return super().read_file(path, size)


@pytest.mark.usefixtures("no_looks")
async def test_what_is_published_here_needs_no_reading(serve: Serve) -> None:
    files = ReadFiles()
    server = await serve(files=files, clock=StillClock())
    await make_queue(server)
    async with selecting(server, "header:ce-type=order.paid") as [paid]:
        before = files.blocks
        await put(server, headers=CREATED)
        message_id = await put(server, headers=PAID)
        assert (await paid).id == message_id
        assert files.blocks == before


@pytest.mark.usefixtures("no_looks")
async def test_a_release_wakes_who_selects_by_a_header(server: Server) -> None:
    paid = "header:ce-type=order.paid"
    one = await put(server, headers=PAID)
    assert (await fetch(server)).id == one
    async with selecting(server, paid) as [task]:
        await call(server, "PATCH", f"/q/messages/{one}", json={"due_in_s": 0})
        assert (await task).id == one


async def test_a_deleted_queue_is_told_to_who_selects(server: Server) -> None:
    async with selecting(server, "key:a", "header:ce-id") as tasks:
        assert (await call(server, "DELETE", "/q")).status == 200
        for task in tasks:
            assert_problem(await task, 404, "queue-not-found")
    assert_problem(await select(server, "key:a"), 404, "queue-not-found")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "key",
        "key:",
        "priority:9..1",
        "colour:red",
        "header:x=1",
        "key:a,",
        "key:a*b",
        "key:a\\",
    ],
)
async def test_a_bad_selection_is_told(server: Server, text: str) -> None:
    for more in ("", "&count=2", "&wait=1"):
        problem = assert_problem(await select(server, text, more=more), 400, "bad-select")
        assert problem["parameter"] == "select"


async def test_a_selection_is_bounded(server: Server) -> None:
    reply = await select(server, "header:ce-type=" + "x" * SELECT_CHARS_MAX)
    assert_problem(reply, 400, "bad-select")


async def test_only_what_is_fetched_is_selected(server: Server) -> None:
    reply = await call(server, "POST", "/q/messages?select=key:a", data=b"hello")
    assert_problem(reply, 400, "unknown-parameter")


async def test_so_many_selections_at_a_time(server: Server) -> None:
    texts = [f"key:a{number}" for number in range(SELECTIONS_PER_QUEUE_MAX)]
    async with selecting(server, *texts) as tasks:
        for more in ("", "&wait=1", "&count=2"):
            reply = await select(server, "key:b", more=more)
            members = assert_problem(reply, 503, "too-many-selections")
            assert members["selections_max"] == SELECTIONS_PER_QUEUE_MAX
        assert (await select(server, "key:a1")).status == 204  # One that is there.
        message_id = await put(server, "key=a7")
        assert (await tasks[7]).id == message_id
        # Its place is free.
        assert (await select(server, "key:b")).status == 204
    assert len(tasks) == SELECTIONS_PER_QUEUE_MAX


@pytest.mark.certificate
async def test_what_matches_nobody_hides_nothing(serve: Serve) -> None:
    """Wherever it lies, and however much it is beside what is known of a queue at a time."""
    server = await serve(folder_max=40)
    await make_queue(server)
    for headers in ({}, CREATED):
        lines = b"\n".join(b"%d" % number for number in range(3000))
        reply = await call(
            server, "POST", "/q/messages?split=lines&priority=2", data=lines, headers=dict(headers)
        )
        assert reply.status == 200
    wanted = [await put(server, query) for query in ("key=z", "", "priority=1")]
    paid = await put(server, headers=PAID)
    assert (await select(server, "header:ce-type=order.paid")).id == paid
    assert (await select(server, "key:*")).id == wanted[0]
    assert (await select(server, "priority:1")).id == wanted[2]
    assert (await select(server, "priority:0")).id == wanted[1]
    for text in ("header:ce-type=order.paid", "key:*", "priority:..1"):
        assert (await select(server, text)).status == 204
    assert (await fetch(server)).body == b"0"


async def test_what_another_process_publishes_is_selected(serve: Serve) -> None:
    mine, other = await serve(), await serve()
    await make_queue(mine)
    async with selecting(mine, "key:a", "header:ce-type=order.paid") as [keyed, paid]:
        await put(other)
        first = await put(other, "key=a")
        assert (await keyed).id == first
        assert not paid.done()
        second = await put(other, headers=PAID)
        assert (await paid).id == second


async def test_two_processes_with_peers_select_all_there_is(serve: Serve) -> None:
    servers = [await serve(peers=1, folder_max=10) for _ in range(2)]
    await make_queue(servers[0])
    ids = {
        await put(servers[n % 2], f"key=a{n}" if n % 3 == 0 else "", headers=PAID)
        for n in range(60)
    }
    found: list[str] = []

    async def drain(server: Server, text: str) -> None:
        while (reply := await select(server, text)).status == 200:
            found.append(reply.id)

    texts = ("key:a*", "header:ce-id=2", "priority:0")
    await asyncio.gather(*(drain(server, text) for server in servers for text in texts))
    assert sorted(found) == sorted(ids)


async def test_selections_in_turn_with_plain_fetches_as_a_plain_model_says(server: Server) -> None:
    """Selections that overlap, each message once, each time the first that is there."""
    chance = random.Random(8)
    there: list[tuple[str, dict[str, str], int, str]] = []
    texts = {
        "key:a*": lambda key, headers, priority: key.startswith("a"),
        "key:ab": lambda key, headers, priority: key == "ab",
        "priority:1..": lambda key, headers, priority: priority >= 1,
        "header:ce-type=order.*": lambda key, headers, priority: bool(headers),
        "header:ce-type=order.paid,priority:0": lambda key, headers, priority: (
            headers == PAID and priority == 0
        ),
    }
    for number in range(150):
        if chance.random() < 0.5:
            key, priority = chance.choice(["", "a", "ab", "b"]), chance.choice([0, 0, 2])
            headers = chance.choice([{}, CREATED, PAID])
            query = f"priority={priority}" + (f"&key={key}" if key else "")
            reply = await call(
                server, "POST", f"/q/messages?{query}", data=b"", headers=dict(headers)
            )
            if reply.status == 201:
                there.append((reply.id, headers, priority, key))
            continue
        text = chance.choice([*texts, ""])
        reply = await (select(server, text) if text else fetch(server))
        takes = texts.get(text, lambda key, headers, priority: True)
        expected = min(
            (each for each in there if takes(each[3], each[1], each[2])),
            key=lambda each: (-each[2], each[0]),
            default=None,
        )
        assert (None if reply.status == 204 else reply.id) == (expected and expected[0]), number
        if expected:
            there.remove(expected)
            await delete(server, expected[0])
