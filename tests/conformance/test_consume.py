"""`/-/consume`: what comes, credit, whose turn it is, and what becomes of messages."""

import asyncio
import json
from typing import Any

import pytest
from harness.api import (
    UNKNOWN_ID,
    StillClock,
    assert_problem,
    call,
    delete,
    fetch,
    make_queue,
    publish,
    publish_lines,
)
from harness.consuming import PATH, Consumer, consuming
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.server import Serve, Server, commit_modes
from harness.waiting import comes_true
from websockets.asyncio.client import connect

from mq.model.limits import BODY_HELD_BYTES_MAX, CHUNK_BYTES
from mq.protocol.consume.frames import CREDIT_MAX
from mq.protocol.consume.session import CLAIMED_AHEAD_MAX

LARGE = BODY_HELD_BYTES_MAX + 3 * CHUNK_BYTES + 7


async def description(server: Server, queue: str = "q") -> dict[str, Any]:
    found: dict[str, Any] = (await call(server, "GET", f"/{queue}")).json()
    return found


async def nothing_comes(consumer: Consumer) -> None:
    """That what was sent until now is all: a command is answered and nothing came before."""
    await consumer.statuses(ack=["unknown"])
    await consumer.statuses(ack=["unknown"])
    assert not consumer.messages


# Messages


@commit_modes
async def test_a_message_comes_with_all_that_it_says_and_is_acknowledged(
    serve: Serve, commit: str
) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    async with consuming(server, "q") as consumer:
        headers = {"Content-Type": "text/plain", "ce-type": "order.created"}
        message_id = await publish(server, b"two pizzas", headers=headers)
        message = await consumer.message()
        read = await call(server, "GET", f"/q/messages/{message_id}")
        assert message.body == b"two pizzas"
        assert message.said == {
            "queue": "q",
            "id": message_id,
            "receives": 1,
            "published": read.headers["X-Message-Published"],
            "due": read.headers["X-Message-Due"],
            "headers": {"content-type": "text/plain", "ce-type": "order.created"},
            "size": 10,
        }
        assert await consumer.results(ack=[message_id]) == [{"id": message_id, "status": 202}]
        assert message_files(server.root)["remove"] == [f"q:{message_id}"]
        assert await consumer.statuses(ack=[message_id]) == [404]
    assert (await description(server))["totals"]["deleted"] == 1


async def test_what_was_there_before_comes_in_order(server: Server) -> None:
    await make_queue(server)
    for n in range(50):
        await publish(server, b"%d" % n, params={"priority": str(n % 3)})
    expected = [b"%d" % n for priority in (2, 1, 0) for n in range(50) if n % 3 == priority]
    async with consuming(server, "q", credit=100) as consumer:
        assert await consumer.bodies(50) == expected


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, BODY_HELD_BYTES_MAX, LARGE])
async def test_bodies_of_any_size_are_one_binary_message(server: Server, size: int) -> None:
    await make_queue(server)
    body = bytes(n % 251 for n in range(size))
    message_id = await publish(server, body)
    async with consuming(server, "q") as consumer:
        message = await consumer.message()
        assert (message.id, message.body) == (message_id, body)


async def test_another_library_s_client_gets_a_large_body_in_fragments(server: Server) -> None:
    await make_queue(server)
    body = bytes(n % 251 for n in range(LARGE))
    large, small = await publish(server, body), await publish(server, b"small")
    async with connect(f"ws://127.0.0.1:{server.port}{PATH}", max_size=None) as socket:
        await socket.send(json.dumps({"subscribe": [{"queue": "q", "credit": 2}], "ref": "a"}))
        answer = json.loads(await socket.recv())
        assert answer == {"ref": "a", "results": [{"queue": "q", "status": 200}]}
        assert json.loads(await socket.recv())["id"] == large
        fragments = [fragment async for fragment in socket.recv_streaming()]
        assert all(isinstance(each, bytes) for each in fragments)
        assert max(map(len, fragments)) <= CHUNK_BYTES
        assert len(fragments) == -(-LARGE // CHUNK_BYTES)
        assert b"".join(map(bytes, fragments)) == body  # type: ignore[arg-type]
        assert json.loads(await socket.recv())["id"] == small
        assert await socket.recv() == b"small"
        await socket.send(json.dumps({"ack": [large, small]}))
        answer = json.loads(await socket.recv())
        assert [each["status"] for each in answer["results"]] == [202, 202]
        assert "permessage-deflate" not in socket.response.headers.get(
            "Sec-WebSocket-Extensions", ""
        )


async def test_a_message_goes_to_one_of_those_who_wait(server: Server) -> None:
    await make_queue(server)
    async with consuming(server, "q", credit=9) as one, consuming(server, "q", credit=9) as other:
        published = [await publish(server) for _ in range(6)]

        async def have_all() -> bool:
            for consumer in (one, other):
                await consumer.statuses(ack=["unknown"])
            return len(one.messages) + len(other.messages) >= 6

        await comes_true(have_all, "all are there")
        assert sorted(each.id for each in (*one.messages, *other.messages)) == sorted(published)
        assert len(one.messages) == len(other.messages)


async def test_what_is_due_later_comes_then(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    async with consuming(server, "q", visibility_s=7) as consumer:
        await publish(server)
        message = await consumer.message()
        assert message.said["due"] == "2023-11-14T22:13:27.000Z"


# Credit


async def test_without_credit_nothing_comes_and_an_ack_gives_none(server: Server) -> None:
    await make_queue(server)
    for n in range(4):
        await publish(server, b"%d" % n)
    async with consuming(server, "q", credit=0) as consumer:
        await nothing_comes(consumer)
        await consumer.credit("q", 1)
        first = await consumer.message()
        assert first.body == b"0"
        assert await consumer.statuses(ack=[first.id]) == [202]
        await nothing_comes(consumer)
        await consumer.credit("q", 1)
        await consumer.credit("q", 1)
        assert await consumer.bodies(2) == [b"1", b"2"]
        await nothing_comes(consumer)
    assert (await fetch(server)).status == 200


async def test_credit_that_is_given_while_there_is_nothing_counts(server: Server) -> None:
    await make_queue(server)
    async with consuming(server, "q", credit=1) as consumer:
        await consumer.credit("q", 2)
        for n in range(4):
            await publish(server, b"%d" % n)
        assert await consumer.bodies(3) == [b"0", b"1", b"2"]
        await nothing_comes(consumer)


async def test_credit_is_bounded(server: Server) -> None:
    for queue in ("q", "other"):
        await make_queue(server, queue)
    async with consuming(server, "q", credit=CREDIT_MAX) as consumer:
        [result] = await consumer.results(credit={"q": 1})
        assert result["problem"]["type"] == "urn:mq:problem:too-much-credit"
        assert result["problem"]["credit_max"] == CREDIT_MAX
        assert result["status"] == 409
        assert await consumer.statuses(subscribe=[{"queue": "other"}]) == [409]
        assert await consumer.statuses(unsubscribe=["q"]) == [200]
        assert await consumer.statuses(subscribe=[{"queue": "other"}]) == [200]


# Whose turn it is


async def test_queues_of_a_connection_take_turns(server: Server) -> None:
    names = ("a", "b", "c")
    for name in names:
        await make_queue(server, name)
        await publish_lines(server, [b"x"] * 200, name)
    async with consuming(server, *names, credit=1) as consumer:
        # All are listed by then.
        assert sorted([(await consumer.message()).queue for _ in names]) == sorted(names)
        assert await consumer.statuses(credit=dict.fromkeys(names, 199)) == [200] * 3
        got = [(await consumer.message()).queue for _ in range(597)]
    # Each has had its turn before another was served out.
    last = {name: max(at for at, each in enumerate(got) if each == name) for name in names}
    assert max(got.index(name) for name in names) < min(last.values())
    assert sorted(got) == sorted(names * 199)


async def test_a_queue_that_waits_for_room_has_its_turn_once_another_is_left(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    for name in ("a", "b"):
        await make_queue(server, name)
    await publish_lines(server, [b"x"] * CLAIMED_AHEAD_MAX, "a")
    await publish(server, b"b", "b")
    async with consuming(server) as consumer:
        gate = files.hold("open_claimed", "/queues/a/")
        await consumer.subscribe("a", credit=CLAIMED_AHEAD_MAX)
        await comes_true(gate.reached.is_set, "claims of all that may be claimed ahead")
        await consumer.subscribe("b")
        assert await consumer.statuses(unsubscribe=["a"]) == [200]
        gate.open()
        assert await consumer.bodies(1) == [b"b"]


async def test_a_consumer_of_a_higher_priority_goes_first(server: Server) -> None:
    await make_queue(server)
    async with (
        consuming(server, "q", credit=10) as low,
        consuming(server, "q", credit=3, priority=5) as high,
    ):
        for n in range(5):
            await publish(server, b"%d" % n)
        assert await high.bodies(3) == [b"0", b"1", b"2"]
        assert await low.bodies(2) == [b"3", b"4"]


async def test_a_selection_takes_what_it_says(server: Server) -> None:
    await make_queue(server)
    for n in range(10):
        await publish(server, b"%d" % n, params={"priority": str(n)})
    async with consuming(server, "q", credit=10, select="priority:3..4") as consumer:
        assert await consumer.bodies(2) == [b"4", b"3"]
        await nothing_comes(consumer)
        await publish(server, b"late", params={"priority": "4"})
        assert await consumer.bodies(1) == [b"late"]
        [result] = await consumer.results(subscribe=[{"queue": "q2", "select": "colour:red"}])
        assert result["problem"]["type"] == "urn:mq:problem:bad-select"
    assert (await fetch(server)).body == b"9"


# What becomes of messages


async def test_a_release_brings_the_message_back_at_once(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    async with consuming(server, "q", credit=2) as consumer:
        assert (await consumer.message()).receives == 1
        assert await consumer.results(release=[message_id]) == [{"id": message_id, "status": 200}]
        again = await consumer.message()
        assert (again.id, again.receives) == (message_id, 2)
        assert await consumer.statuses(ack=[message_id]) == [202]
        assert await consumer.statuses(release=[message_id]) == [404]


async def test_a_sideline_puts_the_message_aside(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server, b"poison")
    async with consuming(server, "q", credit=2) as consumer:
        await consumer.message()
        assert await consumer.results(sideline=[message_id]) == [{"id": message_id, "status": 200}]
        assert await consumer.statuses(sideline=[message_id]) == [404]
        await nothing_comes(consumer)
    reply = await fetch(server, "q_SIDELINE")
    assert (reply.id, reply.body) == (message_id, b"poison")


async def test_only_what_came_on_the_connection_is_its_to_settle(server: Server) -> None:
    await make_queue(server)
    fetched, others, own = [await publish(server) for _ in range(3)]
    assert (await fetch(server)).id == fetched
    async with consuming(server, "q") as one, consuming(server, "q") as other:
        both = {(await each.message()).id: each for each in (one, other)}
        assert both.keys() == {others, own}
        consumer = both[own]
        for verb in ("ack", "release", "sideline"):
            command = {verb: [fetched, others, UNKNOWN_ID, "no id", ""]}
            results = await consumer.results(**command)
            assert {each["problem"]["type"] for each in results} == {
                "urn:mq:problem:message-not-found"
            }
        assert await consumer.statuses(ack=[own, own]) == [202, 202]
    assert (await description(server))["totals"]["deleted"] == 1


async def test_what_was_delivered_again_is_not_the_connection_s(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    message_id = await publish(server)
    async with consuming(server, "q") as consumer:
        await consumer.message()
        released = await call(server, "PATCH", f"/q/messages/{message_id}", json={"due_in_s": 0})
        assert released.status == 200
        assert (await fetch(server)).headers["X-Message-Receives"] == "2"
        [result] = await consumer.results(ack=[message_id])
        assert result["status"] == 412
        assert result["problem"]["receives"] == 2
        assert await consumer.statuses(ack=[message_id]) == [404]
    assert (await call(server, "GET", f"/q/messages/{message_id}")).status == 200


async def test_what_lapsed_and_nobody_had_since_is_acknowledged(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    message_id = await publish(server)
    async with consuming(server, "q", visibility_s=1) as consumer:
        await consumer.message()
        clock.now += 2000
        assert await consumer.statuses(ack=[message_id]) == [202]


async def test_what_another_deleted_is_told(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    async with consuming(server, "q") as consumer:
        await consumer.message()
        assert (await delete(server, message_id)).status == 202
        # As a DELETE is answered again: it is gone for good.
        assert await consumer.statuses(ack=[message_id]) == [202]


# Queues


async def test_what_is_wrong_with_one_queue_is_its_own(server: Server) -> None:
    await make_queue(server)
    async with consuming(server) as consumer:
        wanted = [{"queue": each} for each in ("q", "missing", "no/name", "q", "")]
        results = await consumer.results(subscribe=wanted)
        assert [each["status"] for each in results] == [200, 404, 400, 409, 400]
        assert [each["queue"] for each in results] == [each["queue"] for each in wanted]
        types = [each.get("problem", {}).get("type", "").rpartition(":")[2] for each in results]
        assert types == ["", "queue-not-found", "bad-name", "already-subscribed", "bad-name"]
        assert await consumer.statuses(credit={"missing": 1, "q": 1}) == [404, 200]
        assert await consumer.statuses(unsubscribe=["missing", "q", "q"]) == [404, 200, 404]


async def test_after_an_unsubscribe_nothing_comes_and_what_came_is_held(server: Server) -> None:
    await make_queue(server)
    first = await publish(server)
    async with consuming(server, "q", credit=5) as consumer:
        await consumer.message()
        assert await consumer.statuses(unsubscribe=["q"]) == [200]
        second = await publish(server)
        await nothing_comes(consumer)
        assert (await fetch(server)).id == second
        assert await consumer.statuses(ack=[first]) == [202]
        await consumer.subscribe("q")
        third = await publish(server)
        assert (await consumer.message()).id == third


async def test_a_queue_that_is_deleted_is_told(server: Server) -> None:
    for queue in ("q", "other"):
        await make_queue(server, queue)
    async with consuming(server, "q", "other", credit=2) as consumer:
        assert (await call(server, "DELETE", "/q")).status == 200
        event = await consumer.event()
        assert (event["event"], event["queue"]) == ("unsubscribed", "q")
        assert event["problem"]["type"] == "urn:mq:problem:queue-not-found"
        assert await consumer.statuses(credit={"q": 1}) == [404]
        await publish(server, b"still", queue="other")
        assert await consumer.bodies(1) == [b"still"]
        await make_queue(server)
        await consumer.subscribe("q")
        await publish(server, b"anew")
        assert await consumer.bodies(1) == [b"anew"]


async def test_a_queue_that_was_deleted_without_credit_is_told_with_it(server: Server) -> None:
    await make_queue(server)
    async with consuming(server, "q", credit=0) as consumer:
        assert (await call(server, "DELETE", "/q")).status == 200
        await consumer.statuses(credit={"q": 1})
        assert (await consumer.event())["queue"] == "q"


@pytest.mark.certificate
async def test_what_another_process_does_is_told(serve: Serve) -> None:
    server, other = await serve(), await serve()
    await make_queue(server)
    async with consuming(server, "q", credit=5) as consumer:
        message_id = await publish(other)
        assert (await consumer.message()).id == message_id
        assert (await call(other, "DELETE", "/q")).status == 200
        assert (await consumer.event())["queue"] == "q"


# The end


async def test_what_was_held_is_released_when_the_client_goes(server: Server) -> None:
    await make_queue(server)
    await publish_lines(server, (b"%d" % n for n in range(200)))
    async with consuming(server, "q", credit=150) as consumer:
        acked = [await consumer.message() for _ in range(100)][:50]
        assert set(await consumer.statuses(ack=[each.id for each in acked])) == {202}

    async def released() -> bool:
        # At least those that it had: what was claimed ahead for it comes back too.
        found = (await description(server))["totals"]["released"]
        return found >= 100 and len(message_files(server.root)["queues"]) == 150

    await comes_true(released, "all are ready")
    async with consuming(server, "q", credit=200) as consumer:
        messages = [await consumer.message() for _ in range(150)]
    assert [each.body for each in messages] == [b"%d" % n for n in range(50, 200)]


async def test_a_large_body_that_is_on_its_way_is_released_when_the_client_goes(
    server: Server,
) -> None:
    await make_queue(server)
    message_id = await publish(server, bytes(8 * 1024 * 1024))
    async with consuming(server, "q") as consumer:
        said = json.loads(await consumer.socket.receive_str())
        assert said["id"] == message_id
        consumer.hang_up()
    await comes_true(lambda: len(message_files(server.root)["queues"]) == 1, "it is ready")


async def test_a_long_poll_gets_what_a_connection_held(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    async with consuming(server, "q") as consumer:
        await consumer.message()
        polling = asyncio.create_task(fetch(server, params={"wait": "20"}))
        await consumer.statuses(ack=["unknown"])
    assert (await polling).id == message_id


# No WebSocket


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Upgrade": "websocket"},
        {"Upgrade": "h2c", "Connection": "Upgrade"},
        {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"},
        {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "12",
            "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
        },
        {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "short",
        },
    ],
)
async def test_what_begins_no_websocket_is_told_so(server: Server, headers: dict[str, str]) -> None:
    reply = await call(server, "GET", PATH, headers=headers)
    assert_problem(reply, 426, "no-websocket")
    assert reply.headers["Upgrade"] == "websocket"
    assert reply.headers["Sec-WebSocket-Version"] == "13"


async def test_other_methods_and_parameters_are_refused(server: Server) -> None:
    reply = await call(server, "POST", PATH)
    assert_problem(reply, 405, "method-not-allowed")
    assert reply.headers["Allow"] == "GET, OPTIONS"
    assert_problem(await call(server, "GET", f"{PATH}?queue=q"), 400, "unknown-parameter")


async def test_a_page_of_another_origin_is_refused(server: Server) -> None:
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{server.port + 1}"):
        headers = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
            "Origin": origin,
        }
        assert_problem(await call(server, "GET", PATH, headers=headers), 403, "foreign-origin")
    async with server.session.ws_connect(server.url + PATH, origin=server.url) as socket:
        await socket.send_json({"ack": ["x"], "ref": 1})
        assert (await socket.receive_json())["ref"] == 1
