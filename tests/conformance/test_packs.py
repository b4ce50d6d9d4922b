"""Packs over HTTP: messages that are published together share a file, until their ways part."""

import asyncio
import contextlib
import json
import os
from typing import Any

import pytest
from harness.api import assert_problem, call, delete, fetch, make_queue, totals
from harness.consuming import Consumer, consuming
from harness.folders import message_files
from harness.internals import broker
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.clock import SystemClock
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import claimed_path
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import Place
from mq.store.opening import open_root
from mq.store.operations.purge import purge
from mq.store.packs.parting import part

LINES = [b"%d" % number for number in range(10)]
BATCH = b"\n".join(LINES)


async def packed(server: Server, most: int = 100, name: str = "q") -> None:
    """Makes a queue that takes packs."""
    await make_queue(server, name)
    await change(server, {"pack_messages_max": most}, name)


async def change(server: Server, settings: dict[str, object], name: str = "q") -> None:
    reply = await call(server, "PATCH", f"/{name}/settings", json=settings)
    assert reply.status == 200, reply.body


async def post(
    server: Server, body: bytes = BATCH, query: str = "", split: str = "lines", **more: Any
) -> list[str]:
    """Publishes a batch in packs; the ids."""
    target = f"/q/messages?split={split}&pack=true{query}"
    reply = await call(server, "POST", target, data=body, **more)
    assert reply.status == 200, reply.body
    return [json.loads(row)["id"] for row in reply.body.splitlines()]


async def take(
    server: Server, count: int = 100, query: str = "&packs=true", name: str = "q"
) -> list[dict[str, Any]]:
    """Fetches many; the rows."""
    reply = await call(server, "GET", f"/{name}/messages?count={count}{query}")
    assert reply.status in (200, 204), reply.body
    return [json.loads(row) for row in reply.body.splitlines()]


async def settle(server: Server, way: str, ids: list[str], **more: Any) -> list[dict[str, Any]]:
    rows = [{"id": each, **more} for each in ids]
    reply = await call(server, "POST", f"/q/{way}", json={"messages": rows})
    assert reply.status == 200, reply.body
    results: list[dict[str, Any]] = reply.json()["results"]
    assert [each["id"] for each in results] == ids
    return results


def statuses(results: list[dict[str, Any]]) -> set[int]:
    return {each["status"] for each in results}


def files(server: Server, folder: str = "queues") -> list[str]:
    return sorted(each.removeprefix("q:") for each in message_files(server.root)[folder])


def packs(server: Server, folder: str = "queues") -> int:
    """How many packs are in a folder."""
    return sum(",n=" in each and each[20:23] == "000" for each in files(server, folder))


async def test_a_batch_is_one_file_and_its_messages_have_ids(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    assert len(set(ids)) == 10
    assert ids == sorted(ids)
    assert len(files(server)) == packs(server) == 1
    rows = await take(server)
    assert [(row["id"], row["body"].encode()) for row in rows] == list(zip(ids, LINES, strict=True))
    assert {row["receives"] for row in rows} == {1}
    assert packs(server, "delay") == 1
    assert statuses(await settle(server, "acks", ids)) == {202}
    assert packs(server, "remove") == 1
    # Again, in part and by itself.
    assert statuses(await settle(server, "acks", ids[:3])) == {202}
    assert (await delete(server, ids[4])).status == 202
    found = await totals(server)
    assert {name: found[name] for name in ("published", "fetched", "deleted")} == {
        "published": 10,
        "fetched": 10,
        "deleted": 10,
    }


async def test_a_queue_without_packs_stores_single_messages(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    ids = await post(server)
    assert files(server) == ids


@pytest.mark.parametrize(
    "settings",
    [
        {"in_flight_max": 5},
        {"deliveries_per_s_max": 100},
        {"messages_max": 50},
        {"bytes_max": 100_000},
    ],
)
async def test_a_limited_queue_stores_and_delivers_single_messages(
    serve: Serve, settings: dict[str, object]
) -> None:
    server = await serve()
    await packed(server)
    before = await post(server)
    assert packs(server) == 1
    await change(server, settings)
    after = await post(server)
    assert files(server) == [*files(server)[:1], *after]
    rows = await take(server, 3)
    assert [row["id"] for row in rows] == before[:3]
    assert packs(server) == packs(server, "delay") == 0
    assert len(files(server, "delay")) == 3


async def test_cutting_keeps_the_order_and_what_is_too_large_has_its_own_file(serve: Serve) -> None:
    server = await serve()
    await packed(server, 4)
    large = b"x" * (1 << 20)
    lines = [b"1", b"2", b"3", b"4", b"5", large, b"6", b"7"]
    ids = await post(server, b"\n".join(lines))
    assert [each.count(",n=4") for each in ids] == [1, 1, 1, 1, 0, 0, 0, 0]
    assert [each.count(",n=2") for each in ids] == [0, 0, 0, 0, 0, 0, 1, 1]
    assert len(files(server)) == 4
    found = await take(server)
    assert [row["id"] for row in found] == ids
    assert [row["body"].encode() for row in found] == lines


async def test_a_body_too_large_for_the_queue_fails_alone(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    await change(server, {"body_bytes_max": 3})
    reply = await call(server, "POST", "/q/messages?split=lines&pack=true", data=b"1\n12345\n2\n3")
    rows = [json.loads(row) for row in reply.body.splitlines()]
    assert ["id" in row for row in rows] == [True, False, True, True]
    assert rows[1]["problem"]["status"] == 413
    assert [row["body"] for row in await take(server)] == ["1", "2", "3"]
    assert len({row["id"][:20] for row in rows if "id" in row}) == 1


async def test_rows_of_other_attributes_have_files_of_their_own(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    rows: list[dict[str, object]] = [
        {"body": "1"}, {"body": "2"}, {"body": "3", "key": "k"}, {"body": "4", "group": "g"},
        {"body": "5", "tags": ["t"]}, {"body": "6", "ttl_s": 60}, {"body": "7"},
        {"body": "8", "priority": 5}, {"body": "9", "priority": 5}, {"body": "10"},
        {"body": "11", "idempotency_key": "i"}, {"body": "12"}, {"body": "13"},
    ]  # fmt: skip
    body = b"\n".join(json.dumps(each).encode() for each in rows)
    ids = await post(server, body, split="rows")
    shared = [",n=" in each for each in ids]
    assert shared == [True] * 2 + [False] * 5 + [True] * 2 + [False] * 2 + [True] * 2
    found = await take(server)
    assert [row["body"] for row in found] == [
        *("8", "9"),
        *(str(number) for number in (1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13)),
    ]


async def test_headers_and_a_delay_are_those_of_all(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    headers = {"ce-type": "order.paid", "Content-Type": "application/json"}
    ids = await post(server, b"1\n2", "&priority=3&visibility=60", headers=headers)
    assert len(files(server)) == 1
    late = await post(server, b"3\n4", "&delay=3600")
    assert packs(server, "delay") == 1
    rows = await take(server)
    assert [row["id"] for row in rows] == ids
    assert {row["headers"]["ce-type"] for row in rows} == {"order.paid"}
    assert {row["headers"]["content-type"] for row in rows} == {"application/json"}
    assert not await take(server)
    assert statuses(await settle(server, "extensions", late, due_in_s=0)) == {200}
    assert [row["body"] for row in await take(server)] == ["3", "4"]


async def test_a_single_fetch_parts_a_pack(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    reply = await fetch(server)
    assert (reply.id, reply.body) == (ids[0], b"0")
    assert files(server, "delay") == ids[:1]
    assert files(server) == ids[1:]
    rest = await take(server, 100, "")
    assert [row["id"] for row in rest] == ids[1:]


async def test_a_pack_that_was_delivered_before_is_parted(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    await take(server)
    results = await settle(server, "releases", ids)
    assert statuses(results) == {200}
    assert packs(server) == 1
    rows = await take(server)
    assert [row["id"] for row in rows] == ids
    assert {row["receives"] for row in rows} == {2}
    assert files(server, "delay") == ids


@pytest.mark.parametrize("way", ["acks", "releases", "sidelines", "shorter"])
async def test_some_of_a_pack_part_it(serve: Serve, way: str) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    rows = await take(server)
    some, others = ids[2:5], ids[:2] + ids[5:]
    if way == "shorter":
        results = await settle(server, "extensions", some, due_in_s=1)
    else:
        results = await settle(server, way, some, receives=1)
    assert statuses(results) == {202 if way == "acks" else 200}
    assert files(server, "delay") == sorted(others + (some if way == "shorter" else []))
    # The others are still the consumer's.
    assert statuses(await settle(server, "acks", others, receives=rows[0]["receives"])) == {202}


async def test_an_extension_of_some_to_a_later_time_extends_all(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    await take(server)
    results = await settle(server, "extensions", ids[:3], due_in_s=600)
    assert statuses(results) == {200}
    assert packs(server, "delay") == 1
    reply = await call(server, "PATCH", f"/q/messages/{ids[5]}", json={"due_in_s": 900})
    assert reply.status == 200
    assert reply.json()["id"] == ids[5]
    assert packs(server, "delay") == 1


@pytest.mark.parametrize("way", ["extensions", "releases", "sidelines"])
async def test_all_of_a_pack_move_by_one_rename(serve: Serve, way: str) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    await take(server)
    more = {"due_in_s": 60} if way == "extensions" else {}
    assert statuses(await settle(server, way, ids, receives=1, **more)) == {200}
    folder = "delay" if way == "extensions" else "queues"
    found = message_files(server.root)[folder]
    assert len(found) == 1
    if way == "sidelines":
        assert found[0].startswith("q_SIDELINE:")
        rows = await take(server, name="q_SIDELINE")
        assert [row["id"] for row in rows] == ids
        assert {row["sidelined"]["reason"] for row in rows} == {"rejected"}


async def test_a_failure_is_kept_with_each(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    await take(server)
    assert statuses(await settle(server, "sidelines", ids, reason="no such customer")) == {200}
    reply = await call(server, "GET", f"/q_SIDELINE/messages/{ids[7]}/failures")
    assert reply.json()["failures"][0]["text"] == "no such customer"


async def test_other_receives_in_one_request_part_a_pack(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    await take(server)
    rows = [{"id": each, "receives": 1 + (each == ids[0])} for each in ids]
    reply = await call(server, "POST", "/q/acks", json={"messages": rows})
    assert [each["status"] for each in reply.json()["results"]] == [412, *[202] * 9]
    assert files(server, "delay") == ids[:1]


async def test_one_by_its_id(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    assert (await delete(server, ids[3])).status == 202
    assert files(server) == ids[:3] + ids[4:]
    assert (await delete(server, ids[3])).status == 202
    reply = await call(server, "PATCH", f"/q/messages/{ids[0]}", json={"due_in_s": 600})
    assert reply.status == 200
    assert files(server, "delay") == ids[:1]
    reply = await call(server, "POST", f"/q/messages/{ids[1]}/sideline")
    assert reply.status == 200
    assert reply.json()["id"] == ids[1]


@pytest.mark.parametrize("place", ["000", "00b", "fff"])
async def test_no_message_has_a_packs_id_or_a_place_beyond_it(serve: Serve, place: str) -> None:
    server = await serve()
    await packed(server)
    [first, *_] = await post(server)
    other = first[:20] + place + first[23:]
    assert_problem(await delete(server, other), 404, "message-not-found")
    patch = {"due_in_s": 5}
    reply = await call(server, "PATCH", f"/q/messages/{other}", json=patch)
    assert_problem(reply, 404, "message-not-found")
    assert statuses(await settle(server, "acks", [other])) == {404}
    assert packs(server) == 1


async def test_packs_may_exceed_the_count_once(serve: Serve) -> None:
    server = await serve()
    await packed(server, 4)
    ids = await post(server, b"\n".join(b"%d" % number for number in range(20)))
    assert packs(server) == 5
    rows = await take(server, 6)
    assert [row["id"] for row in rows] == ids[:8]
    rows = await take(server, 1)
    assert [row["id"] for row in rows] == ids[8:12]
    rows = await take(server, 100)
    assert [row["id"] for row in rows] == ids[12:]


# One Idempotency-Key for a pack

KEY = {"Idempotency-Key": "k"}


async def publish_keyed(server: Server, body: bytes, split: str = "lines") -> Any:
    target = f"/q/messages?split={split}&pack=true"
    return await call(server, "POST", target, data=body, headers=KEY)


@pytest.mark.parametrize("then", ["whole", "acked", "parted", "no packs"])
async def test_a_repeated_key_gets_the_first_ids(serve: Serve, then: str) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server, headers=KEY)
    if then == "acked":
        await take(server)
        await settle(server, "acks", ids)
    elif then == "parted":
        await fetch(server)
    elif then == "no packs":
        await change(server, {"pack_messages_max": 0})
    assert await post(server, headers=KEY) == ids
    found = await totals(server)
    assert found["published"] == 10
    reply = await publish_keyed(server, b"1\n2\n3")
    assert_problem(reply, 409, "publish-differs")


async def test_a_key_is_for_one_pack(serve: Serve) -> None:
    server = await serve()
    await packed(server, 4)
    assert_problem(await publish_keyed(server, BATCH), 400, "bad-pack")
    await change(server, {"body_bytes_max": 1})
    assert_problem(await publish_keyed(server, b"1\n22"), 413, "body-too-large")
    await change(server, {"pack_messages_max": 0})
    assert_problem(await publish_keyed(server, b"1\n2"), 409, "not-packed")
    assert not files(server)
    reply = await publish_keyed(server, b"1")
    assert reply.status == 200
    assert files(server) == [json.loads(reply.body)["id"]]
    assert (await publish_keyed(server, b"")).body == b""
    assert_problem(await call(server, "POST", "/q/messages?pack=1", data=b"x"), 400, "bad-pack")


async def test_a_key_of_rows_needs_equal_attributes(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    rows = [{"body": "1"}, {"body": "2"}]
    body = b"\n".join(json.dumps(each).encode() for each in rows)
    ids = await post(server, body, split="rows", headers=KEY)
    assert await post(server, body, split="rows", headers=KEY) == ids
    for other in ({"body": "3", "priority": 2}, {"body": "3", "idempotency_key": "i"}, {}):
        more = b"\n".join((body, json.dumps(other).encode()))
        assert (await publish_keyed(server, more, "rows")).status == 400
    assert packs(server) == len(files(server)) == 1


# Consumers


async def held(consumer: Consumer, count: int) -> list[str]:
    return [(await consumer.message()).id for _ in range(count)]


async def test_a_consumer_of_packs_gets_them_whole_beyond_its_credit(serve: Serve) -> None:
    server = await serve()
    await packed(server, 4)
    ids = await post(server, b"\n".join(b"%d" % number for number in range(12)))
    async with consuming(server) as consumer:
        await consumer.subscribe("q", credit=2, packs=True)
        assert await held(consumer, 4) == ids[:4]
        assert await consumer.statuses(ack=ids[:4]) == [202] * 4
        assert packs(server, "remove") == 1
        assert packs(server) == 2
        # Its credit is -2 now.
        await consumer.credit("q", 2)
        assert packs(server) == 2
        await consumer.credit("q", 1)
        assert await held(consumer, 4) == ids[4:8]
        assert await consumer.statuses(ack=ids[4:6]) == [202] * 2
        assert files(server, "delay") == ids[6:8]
        assert await consumer.statuses(release=ids[6:8]) == [200] * 2
        await consumer.credit("q", 100)
        assert await held(consumer, 6) == ids[6:12]


async def test_a_consumer_that_goes_away_gives_back_whole(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    async with consuming(server) as consumer:
        await consumer.subscribe("q", credit=20, packs=True)
        assert await held(consumer, 10) == ids
        assert packs(server, "delay") == 1
    await comes_true(lambda: packs(server) == 1)
    rows = await take(server)
    assert [row["id"] for row in rows] == ids
    async with consuming(server) as consumer:
        await consumer.subscribe("q", credit=20, packs=True)
        await settle(server, "releases", ids)
        assert await held(consumer, 10) == ids
        assert await consumer.statuses(ack=ids[:2]) == [202] * 2
    await comes_true(lambda: files(server) == ids[2:])


async def test_those_who_wait_are_served_from_one_pack(serve: Serve) -> None:
    server = await serve()
    await packed(server, 5)
    waiting = [asyncio.create_task(fetch(server, params={"wait": "20"})) for _ in range(8)]
    await asyncio.sleep(0)
    ids = await post(server)
    replies = await asyncio.gather(*waiting)
    assert sorted(each.id for each in replies) == ids[:8]
    assert packs(server) == 0
    assert [row["id"] for row in await take(server)] == ids[8:]


async def test_packs_and_single_messages_keep_their_order(serve: Serve) -> None:
    server = await serve()
    await packed(server, 3)
    ids = []
    for number in range(4):
        ids += await post(server, b"%d" % number)
        ids += await post(server, b"a\nb\nc")
    mixed: list[str] = []
    while True:
        mixed += [row["id"] for row in await take(server, 2)]
        reply = await fetch(server)
        if reply.status == 204:
            break
        mixed.append(reply.id)
    assert mixed == ids


async def test_a_selection_takes_packs(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    other = await post(server, headers={"ce-type": "b"})
    ids = await post(server, headers={"ce-type": "a"})
    select = "&select=header:ce-type=a"
    assert [row["id"] for row in await take(server, 100, f"&packs=true{select}")] == ids
    assert packs(server) == packs(server, "delay") == 1
    assert (await fetch(server, params={"select": "header:ce-type=b"})).id == other[0]


async def test_an_active_consumer_gets_packs_in_order(serve: Serve) -> None:
    server = await serve()
    await packed(server, 3)
    await change(server, {"active_consumer": "single"})
    ids = await post(server)
    async with consuming(server) as consumer:
        await consumer.subscribe("q", credit=4)
        assert await held(consumer, 4) == ids[:4]
        assert await consumer.statuses(ack=ids[:4]) == [202] * 4
        await consumer.credit("q", 6)
        assert await held(consumer, 6) == ids[4:]


async def test_a_pack_without_room_in_memory_is_parted(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server, b"\n".join([b"x" * 9000] * 20))
    memory = broker(server).memory
    taken = []
    while (reservation := memory.hold(20 * 9000)) is not None:
        taken.append(reservation)
    rows = await take(server)
    assert [row["id"] for row in rows] == ids
    assert files(server, "delay") == ids


async def test_what_is_behind_a_pack_that_is_parted_waits(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    first = await post(server)
    await take(server)
    await settle(server, "releases", first)
    then = await post(server) + await post(server, b"x")
    assert [row["id"] for row in await take(server)] == first + then
    assert packs(server, "delay") == 1


async def test_a_pack_that_is_no_more_what_it_was_goes_to_the_sideline(serve: Serve) -> None:
    server = await serve()
    await packed(server, 3)
    ids = await post(server, b"1\n2\n3")
    [pack] = files(server)
    path = server.root / "queues" / "q" / pack
    mtime_ns = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:-1])
    os.utime(path, ns=(mtime_ns, mtime_ns))
    more = await post(server, b"4\n5")
    assert [row["id"] for row in await take(server)] == more

    async def is_aside() -> bool:  # Once there is a sideline.
        await take(server)
        return message_files(server.root)["queues"] == [f"q_SIDELINE:{pack}"]

    await comes_true(is_aside)
    assert not await take(server, name="q_SIDELINE")
    assert (await fetch(server, "q_SIDELINE")).status in (204, 503)
    assert message_files(server.root)["queues"] == [f"q_SIDELINE:{pack}"]
    assert (await delete(server, ids[0], "q_SIDELINE")).status != 202


@pytest.mark.certificate
async def test_a_purged_pack_stays_as_it_is(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    await take(server)
    ready = MessageId.parse((await post(server))[0]).pack()
    # By another mq, which dies before it takes the messages away.
    root = open_root(str(server.root), Files(), SystemClock())
    run_alone(purge(root, QueueName.parse("q"), root.now_ms()), NoFlusher())

    async def is_known() -> bool:
        return (await call(server, "GET", f"/q/messages/{ids[0]}")).status == 404

    await comes_true(is_known)
    assert statuses(await settle(server, "releases", ids[:3])) == {404}
    assert not await broker(server).packs.part(QueueName("q"), ready)
    assert packs(server, "delay") == packs(server) == 1


@pytest.mark.parametrize("flushes", [1, 2], ids=["staged", "parted"])
async def test_a_fetch_waits_for_a_pack_that_another_process_parts(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, flushes: int
) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    root = open_root(str(server.root), Files(), SystemClock())
    pack = MessageId.parse(files(server)[0])
    other = part(root, Place(State.READY, QueueName("q"), pack, ""))
    for _ in range(flushes):
        next(other)
    known = broker(server).packs
    looks = known.rolls_on

    async def rolls_on(name: QueueName) -> bool:
        is_coming = await looks(name)
        with contextlib.suppress(StopIteration):
            while True:
                next(other)
        return is_coming

    monkeypatch.setattr(known, "rolls_on", rolls_on)
    assert (await fetch(server)).id == ids[0]
    assert [row["id"] for row in await take(server)] == ids[1:]


async def test_a_request_waits_for_a_pack_that_another_process_holds(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve()
    await packed(server)
    ids = await post(server)
    path = str(server.root / "queues" / "q" / files(server)[0])
    root = open_root(str(server.root), Files(), SystemClock())
    tries = 0
    with contextlib.ExitStack() as held:
        held.enter_context(claimed_path(root, path))

        async def waits(seconds: float) -> None:
            nonlocal tries
            tries += 1
            if tries == 2:
                held.close()

        monkeypatch.setattr(broker(server).packs, "waits", waits)
        assert (await delete(server, ids[3])).status == 202
    assert tries == 2
    assert files(server) == ids[:3] + ids[4:]


async def test_packs_of_two_selections_are_parted_one_after_the_other(serve: Serve) -> None:
    server = await serve()
    await packed(server)
    ids = {kind: await post(server, headers={"ce-type": kind}) for kind in "ab"}
    await take(server)
    for of in ids.values():
        await settle(server, "releases", of)
    assert packs(server) == 2
    rows = await asyncio.gather(
        *(take(server, 100, f"&packs=true&select=header:ce-type={kind}") for kind in ids)
    )
    assert [[row["id"] for row in each] for each in rows] == list(ids.values())
    assert not await take(server)
