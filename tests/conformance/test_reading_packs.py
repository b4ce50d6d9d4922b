"""Packs that lie in a root: every reader shows their items, each as a message."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.consuming import consuming
from harness.internals import broker
from harness.packs import body_of, new_pack, put_pack
from harness.scraped import scrape
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.headers import print_block
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.format.packs import Try

QUEUE = QueueName.parse("q")
STATES = (State.READY, State.DELAYED, State.REMOVED)
HEADERS = (("ce-type", "order.paid"), ("x-attribute-a", "ü"))
BLOCK = print_block(HEADERS)
LATER_MS = 4_000_000_000_000


def put(server: Server, state: State, items: int = 5, like: MessageId | None = None) -> MessageId:
    """A pack whose items have HEADERS, received twice."""
    like = like or MessageId(new_pack(2).uuid)
    pack = new_pack(items, MessageId(like.uuid, like.priority, header_bytes=len(BLOCK),
                                       extension="json"))  # fmt: skip
    folder = {State.READY: "queues/q/", State.DELAYED: "delay/q:", State.REMOVED: "remove/q:"}
    put_pack(Path(f"{server.root}/{folder[state]}{pack.text}"), pack, BLOCK, LATER_MS, 2)
    return pack


async def read(server: Server, message_id: MessageId, more: str = "", **sent: Any) -> Reply:
    return await call(server, "GET", f"/q/messages/{message_id.text}{more}", **sent)


async def described(server: Server) -> dict[str, Any]:
    found = (await call(server, "GET", "/q")).json()
    return {name: found[name] for name in ("ready", "in_flight", "removed", "foreign")}


async def shown(server: Server, **counts: int) -> None:
    """Waits for these counts; the others are 0. A count may be a moment old."""
    wanted = {"ready": 0, "in_flight": 0, "removed": 0, "foreign": 0, **counts}

    async def is_so() -> bool:
        return await described(server) == wanted

    await comes_true(is_so)


async def rows(server: Server, **params: Any) -> list[dict[str, Any]]:
    reply = await call(server, "GET", "/q/peek", params=params)
    assert reply.status == 200, reply.body
    return [json.loads(line) for line in reply.body.splitlines()]


@pytest.mark.parametrize("state", STATES)
async def test_a_item_is_read_in_every_state_of_its_pack(server: Server, state: State) -> None:
    await make_queue(server)
    pack = put(server, state)
    for item in pack.all_items():
        body = body_of(item)
        reply = await read(server, item)
        assert (reply.status, reply.body, reply.id) == (200, body, item.text)
        assert reply.headers["X-Message-State"] == state.value
        assert (reply.headers["X-Message-Receives"], reply.headers["ETag"]) == ("2", '"2"')
        assert (reply.headers["ce-type"], reply.headers["Content-Type"]) == (
            "order.paid", "application/json",
        )  # fmt: skip
        head = await call(server, "HEAD", f"/q/messages/{item.text}")
        assert (head.status, head.headers["Content-Length"]) == (200, str(len(body)))
        if body:
            part = await read(server, item, headers={"Range": "bytes=3-9"})
            assert (part.status, part.body) == (206, body[3:10])
            assert part.headers["Content-Range"] == f"bytes 3-9/{len(body)}"


async def test_a_body_for_which_there_is_no_memory_is_streamed(serve: Serve) -> None:
    server = await serve(memory_bytes=0)
    await make_queue(server)
    pack = put(server, State.READY)
    assert (await read(server, pack.item(2))).body == body_of(pack.item(2))


async def test_neither_a_pack_nor_a_place_that_it_has_not_is_a_message(server: Server) -> None:
    await make_queue(server)
    pack = put(server, State.READY)
    for each in (pack, pack.item(6), pack.item(0xFFF), new_pack(5).item(1)):
        for more in ("", "/history", "/failures"):
            assert_problem(await read(server, each, more), 404, "message-not-found")


async def test_a_damaged_pack_hides_no_other_message(server: Server) -> None:
    await make_queue(server)
    pack = put(server, State.READY)
    path = server.root / "queues" / "q" / pack.text
    path.write_bytes(path.read_bytes()[:-1])
    other = await publish(server, b"sound")
    assert (await read(server, pack.item(1))).status == 503
    found = await rows(server, count=10)
    assert [row["id"] for row in found] == [*(each.text for each in pack.all_items()), other]
    assert {row["size"] for row in found[:5]} == {0}


async def test_peek_and_counts_show_the_items(server: Server) -> None:
    await make_queue(server)
    packs = {state: [put(server, state, 3), put(server, state, 4)] for state in STATES}
    urgent = put(server, State.READY, 2, MessageId(new_pack(2).uuid, priority=9))
    single = await publish(server, b"single")
    assert await described(server) == {
        "ready": 3 + 4 + 2 + 1, "in_flight": 7, "removed": 7, "foreign": 0,
    }  # fmt: skip
    scraped = await scrape(server)
    assert [scraped(f"mq_queue_{state}", queue="q") for state in ("ready", "removed")] == [10, 7]
    for state in STATES:
        wanted = [each for pack in packs[state] for each in pack.all_items()]
        if state is State.READY:
            wanted = [*urgent.all_items(), *wanted, MessageId.parse(single)]
        found: list[dict[str, Any]] = []
        while page := await rows(
            server, state=state.value, count=2, **({"after": found[-1]["id"]} if found else {})
        ):
            found += page
        assert [row["id"] for row in found] == [each.text for each in wanted]
        for each, row in zip(wanted, found, strict=True):
            if each.pack_size:
                assert (row["body"], row["receives"]) == (body_of(each).decode(), 2)
                assert row["headers"]["ce-type"] == "order.paid"
    selected = await rows(server, select="header:ce-type=order.paid", state="ready", count=5)
    wanted = [each for pack in (urgent, packs[State.READY][0]) for each in pack.all_items()]
    assert [row["id"] for row in selected] == [each.text for each in wanted]


async def test_a_item_of_a_parted_pack_is_read_wherever_it_is(server: Server) -> None:
    """One is in a file of its own; the others are staged, in the state that the pack was in."""
    await make_queue(server)
    pack = put(server, State.READY, 3)
    root = broker(server).root
    await publish(server)
    parting = Try.begun(QUEUE, pack, State.DELAYED)
    Path(parting.folder(root.layout)).mkdir(parents=True)
    for item in pack.all_items():
        path = Path(parting.item_path(root.layout, item))
        path.write_bytes(BLOCK + body_of(item))
    # A try that has not ended: the pack counts.
    assert (await read(server, pack.item(2))).headers["X-Message-State"] == "ready"
    (server.root / "queues" / "q" / pack.text).rename(parting.pack_path(root.layout))
    first = pack.item(1)
    Path(parting.item_path(root.layout, first)).rename(server.root / "delay" / f"q:{first.text}")
    for item in pack.all_items():
        reply = await read(server, item)
        assert (reply.status, reply.body) == (200, body_of(item))
        assert reply.headers["X-Message-State"] == "delayed"
        assert (await read(server, item, "/history")).json()["events"] == []


async def test_a_item_has_the_events_and_failures_of_its_pack(server: Server) -> None:
    await make_queue(server)
    await call(server, "PATCH", "/q/settings", json={"history": True})
    pack, history = put(server, State.DELAYED), broker(server).root.history
    item = pack.item(3)
    for message_id, event in (
        (pack, Event.PUBLISHED), (pack, Event.FETCHED), (item, Event.RELEASED),
        (pack.item(4), Event.REMOVED),
    ):  # fmt: skip
        history.record(QUEUE, event, message_id, 1)
        await asyncio.sleep(0.002)  # The times of lines are milliseconds.
    reply = (await read(server, item, "/history")).json()
    assert [each["event"] for each in reply["events"]] == ["published", "fetched", "released"]
    assert reply["id"] == item.text
    folder = server.root / "failures" / pack.uuid[-2:]
    folder.mkdir(parents=True)
    said = {"event": "released", "queue": "q", "id": pack.text, "receives": 1, "text": "broken",
            "time": "2026-01-31T12:00:00.250Z"}  # fmt: skip
    (folder / pack.uuid).write_text(f"{json.dumps(said)}\n")
    for each in pack.all_items():
        await comes_true(lambda each=each: shows(server, each))
        reply = (await read(server, each, "/failures")).json()
        assert [(one["id"], one["text"]) for one in reply["failures"]] == [(each.text, "broken")]
    assert (await call(server, "GET", "/q")).json()["lifetime"]["published"] == 5


async def shows(server: Server, message_id: MessageId) -> bool:
    """Whether the process knows by now that there are failures."""
    return "X-Message-Reason" in (await read(server, message_id)).headers


@pytest.mark.parametrize("inotify", [True, False])
async def test_a_follower_sees_the_items_once(serve: Serve, inotify: bool) -> None:
    server = await serve(inotify=inotify)
    await make_queue(server)
    old = put(server, State.READY, 2)
    async with consuming(server) as consumer:
        assert await consumer.statuses(follow=[{"queue": "q", "last": 1}]) == [200]
        seen = [(await consumer.event())["message"] for _ in range(2)]
        pack = put(server, State.REMOVED, 3)
        place = server.root / "queues" / "q" / pack.text
        (server.root / "remove" / f"q:{pack.text}").rename(place)
        seen += [(await consumer.event())["message"] for _ in range(3)]
        wanted = [*old.all_items(), *pack.all_items()]
        assert [row["id"] for row in seen] == [each.text for each in wanted]
        assert [row["body"] for row in seen] == [body_of(each).decode() for each in wanted]
        # Its items become files of their own: they were seen.
        for item in pack.all_items():
            (server.root / "queues" / "q" / item.text).write_bytes(BLOCK + body_of(item))
        place.unlink()
        other = await publish(server, b"other")
        assert (await consumer.event())["message"]["id"] == other


async def test_single_messages_beside_packs_are_delivered_and_deleted(server: Server) -> None:
    await make_queue(server)
    put(server, State.DELAYED)
    message_id = await publish(server, b"single")
    assert (await fetch(server)).id == message_id
    assert (await delete(server, message_id)).status == 202
    await shown(server, in_flight=5, removed=1)


@pytest.mark.certificate
@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("whole", [True, False])
async def test_totals_that_last_count_messages(server: Server, history: bool, whole: bool) -> None:
    await make_queue(server)
    await call(server, "PATCH", "/q/settings", json={"history": history, "pack_messages_max": 100})
    lines = b"\n".join(b"%d" % number for number in range(20))
    reply = await call(server, "POST", "/q/messages?split=lines&pack=true", data=lines)
    ids = [json.loads(line)["id"] for line in reply.body.splitlines()]
    await shown(server, ready=20)
    reply = await call(server, "GET", f"/q/messages?count=100&packs={str(whole).lower()}")
    assert len(reply.body.splitlines()) == 20
    await shown(server, in_flight=20)
    rows = [{"id": each} for each in ids]
    reply = await call(server, "POST", "/q/acks", json={"messages": rows})
    assert {each["status"] for each in reply.json()["results"]} == {202}
    await shown(server, removed=20)
    found = (await call(server, "GET", "/q")).json()["lifetime"]
    wanted = {"published": 20, "fetched": 20, "deleted": 20, "redelivered": 0}
    assert {name: found[name] for name in wanted} == wanted
    if history:
        past = (await read(server, MessageId.parse(ids[7]), "/history")).json()["events"]
        told = [each["event"] for each in past]
        assert [each for each in told if each != "parted"] == ["published", "fetched", "removed"]
        assert ("parted" in told) is not whole


@pytest.mark.parametrize("others", [0, 3])
async def test_a_pack_of_before_a_limit_makes_room_whole(server: Server, others: int) -> None:
    await make_queue(server)
    put(server, State.READY, 100)
    for _ in range(others):
        await publish(server)
    limits = {"messages_max": 50, "overflow": "drop-oldest"}
    reply = await call(server, "PATCH", "/q/settings", json=limits)
    assert reply.status == 200
    message_id = await publish(server, b"new")
    await shown(server, ready=others + 1, removed=100)
    assert (await rows(server, count=100))[-1]["id"] == message_id
