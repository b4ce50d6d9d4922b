"""Settling over a WebSocket: by delivery, in batches, and by requests where that cannot be."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from harness.scripted import Scripted, brings, done, refused, scripted
from pytest_aiohttp import AiohttpServer

from mq import AsyncClient
from mq.client.consuming.holding import COMMANDS_IN_FLIGHT_MAX
from mq.client.errors import DeliveredAgain, NotMq
from mq.client.options import Retry, Seams
from mq.model.failure import Failure


def name(n: int) -> str:
    return f"0192f3a2-7c4e-7d2a-9b1e-{n:012d}.json"


ONE = name(1)


@pytest.fixture
async def mq(aiohttp_server: AiohttpServer) -> Scripted:
    return await scripted(aiohttp_server)


@pytest.fixture
async def consumer(mq: Scripted) -> AsyncIterator[Any]:
    seams = Seams(sleep=lambda _: asyncio.sleep(0))
    async with (
        AsyncClient(mq.url, seams=seams, retry=Retry(first_s=0)) as client,
        client.consume("orders", via="websocket", prefetch=100) as made,
    ):
        yield made


async def test_a_delivery_is_settled_where_it_came(mq: Scripted, consumer: Any) -> None:
    socket = await mq.connected()
    for word, command in (("delete", "ack"), ("release", "release"), ("sideline", "sideline")):
        await brings(socket, ONE)
        settling = asyncio.create_task(getattr(await consumer.next(), word)())
        said = await mq.command()
        assert said[command] == [ONE]
        await done(socket, said)
        await settling
    assert mq.requests == []


async def test_what_waits_goes_together_with_what_has_its_reason(
    mq: Scripted, consumer: Any
) -> None:
    socket = await mq.connected()
    for n in range(COMMANDS_IN_FLIGHT_MAX + 4):
        await brings(socket, name(n))
    messages = [await consumer.next() for _ in range(COMMANDS_IN_FLIGHT_MAX + 4)]
    settling = [asyncio.create_task(each.sideline()) for each in messages[:-4]]
    said = [await mq.command() for _ in range(COMMANDS_IN_FLIGHT_MAX)]
    reasons = ("a", "a", Failure("b", "E"), "exception")
    settling += [
        asyncio.create_task(each.sideline(why))
        for each, why in zip(messages[-4:], reasons, strict=True)
    ]
    await asyncio.sleep(0)
    for each in said:
        assert "reason" not in each
        await done(socket, each)
    found = []
    for count in (2, 1, 1):
        found.append(await mq.command())
        await done(socket, found[-1], count)
    await asyncio.gather(*settling)
    assert [(len(each["sideline"]), each["reason"]) for each in found] == [
        (2, {"text": "a"}),
        (1, {"text": "b", "type": "E"}),
        (1, "exception"),
    ]
    assert mq.requests == []


async def test_what_waits_while_commands_are_in_hand_goes_together(
    mq: Scripted, consumer: Any
) -> None:
    socket = await mq.connected()
    count = COMMANDS_IN_FLIGHT_MAX + 20
    for n in range(count):
        await brings(socket, name(n))
    messages = [await consumer.next() for _ in range(count)]
    settling = [asyncio.create_task(each.delete()) for each in messages]
    said = [await mq.command() for _ in range(COMMANDS_IN_FLIGHT_MAX)]
    assert [each["ack"] for each in said] == [[name(n)] for n in range(COMMANDS_IN_FLIGHT_MAX)]
    await done(socket, said[0])
    rest = await mq.command()
    assert rest["ack"] == [name(n) for n in range(COMMANDS_IN_FLIGHT_MAX, count)]
    await done(socket, rest, 20)
    for each in said[1:]:
        await done(socket, each)
    await asyncio.gather(*settling)


async def test_what_waits_does_not_settle_a_later_delivery(mq: Scripted, consumer: Any) -> None:
    mq.problems["DELETE"] = (412, "delivered-again")
    socket = await mq.connected()
    for n in range(COMMANDS_IN_FLIGHT_MAX + 1):
        await brings(socket, name(n))
    messages = [await consumer.next() for _ in range(COMMANDS_IN_FLIGHT_MAX + 1)]
    settling = [asyncio.create_task(each.delete()) for each in messages]
    said = [await mq.command() for _ in range(COMMANDS_IN_FLIGHT_MAX)]
    # The last one's ack waits; meanwhile the same message comes once more.
    await brings(socket, messages[-1].id, receives=2)
    newer = await consumer.next()
    assert newer.receives == 2
    for each in said:
        await done(socket, each)
    await asyncio.gather(*settling[:-1])
    with pytest.raises(DeliveredAgain):
        await settling[-1]
    assert mq.requests == [("DELETE", f"/orders/messages/{newer.id}", '"1"')]
    settling = [asyncio.create_task(newer.delete())]
    said = [await mq.command()]
    await done(socket, said[0])
    await settling[0]


async def test_what_may_be_another_s_by_now_is_settled_by_a_request(
    mq: Scripted, consumer: Any
) -> None:
    socket = await mq.connected()
    await brings(socket, ONE, due_in_s=0.5)
    message = await consumer.next()
    await message.delete()
    await brings(socket, ONE, due_in_s=0.5)
    message = await consumer.next()
    await message.extend(60)
    settling = asyncio.create_task(message.delete())
    said = await mq.command()
    assert said["ack"] == [ONE]
    await done(socket, said)
    await settling
    path = f"/orders/messages/{ONE}"
    assert mq.requests == [("DELETE", path, '"1"'), ("PATCH", path, '"1"')]


async def test_what_the_server_says_of_it(mq: Scripted, consumer: Any) -> None:
    socket = await mq.connected()
    await brings(socket, ONE)
    message = await consumer.next()
    settling = asyncio.create_task(message.delete())
    await refused(socket, await mq.command(), "delivered-again", 412)
    with pytest.raises(DeliveredAgain):
        await settling
    assert mq.requests == []
    for slug, status in (("message-not-found", 404), ("storage-failed", 503)):
        mq.requests.clear()
        await brings(socket, ONE)
        settling = asyncio.create_task((await consumer.next()).delete())
        await refused(socket, await mq.command(), slug, status)
        await settling
        assert mq.requests == [("DELETE", f"/orders/messages/{ONE}", '"1"')]


async def test_who_waits_for_an_answer_goes_on_when_the_connection_ends(
    mq: Scripted, consumer: Any
) -> None:
    # It was deleted by the command, and its file is gone by now.
    mq.problems["DELETE"] = (404, "message-not-found")
    socket = await mq.connected()
    await brings(socket, ONE)
    settling = asyncio.create_task((await consumer.next()).delete())
    await mq.command()
    await socket.close()
    await settling
    assert mq.requests == [("DELETE", f"/orders/messages/{ONE}", '"1"')]


async def test_what_was_released_by_a_connection_that_ended_is_another_s_by_now(
    mq: Scripted, consumer: Any
) -> None:
    mq.problems["PATCH"] = (412, "delivered-again")
    socket = await mq.connected()
    await brings(socket, ONE)
    settling = asyncio.create_task((await consumer.next()).release())
    await mq.command()
    await socket.close()
    await settling
    assert mq.requests == [("PATCH", f"/orders/messages/{ONE}", '"1"')]


async def test_an_older_delivery_that_nobody_took_is_not_given_out(
    mq: Scripted, consumer: Any
) -> None:
    socket = await mq.connected()
    await brings(socket, name(0))
    await brings(socket, ONE, b"older")
    await brings(socket, ONE, b"newer", receives=2)
    await consumer.next()
    found = await consumer.next()
    assert (found.body, found.receives) == (b"newer", 2)
    assert await consumer.next(wait_s=0.01) is None


async def test_what_nobody_took_goes_with_its_connection(mq: Scripted, consumer: Any) -> None:
    socket = await mq.connected()
    await brings(socket, ONE)
    taken = await consumer.next()
    await brings(socket, name(2))
    await socket.close()
    again = await mq.connected()
    assert await consumer.next(wait_s=0.01) is None
    await brings(again, name(3))
    assert (await consumer.next()).id == name(3)
    await taken.delete()
    # The end does not show whether mq released what was not taken, or was killed: it is returned.
    returned = ("POST", "/orders/releases", None)
    assert mq.requests == [returned, ("DELETE", f"/orders/messages/{ONE}", '"1"')]


async def test_credit_is_granted_as_messages_are_taken(mq: Scripted) -> None:
    async with AsyncClient(mq.url) as client, client.consume("orders", prefetch=4) as consumer:
        socket = await mq.sockets.get()
        said = await mq.command()
        assert said["subscribe"] == [{"queue": "orders", "priority": 0, "credit": 4}]
        await done(socket, said)
        for n in range(4):
            await brings(socket, name(n))
        await consumer.next()
        await consumer.next()
        said = await mq.command()
        assert said["credit"] == {"orders": 2}
        await refused(socket, said, "too-much-credit", 409)
        # It is asked for again, once something has happened.
        await consumer.next()
        said = await mq.command()
        assert said["credit"] == {"orders": 3}
        await done(socket, said)


@pytest.mark.parametrize(
    "frames",
    [
        ["no JSON"],
        ["[]"],
        ['{"nothing": 1}'],
        ['{"ref": 77}'],
        [b"a body alone"],
        ['{"ref": "x", "results": []}'],
        ['{"id": "x"}'],
    ],
)
async def test_what_mq_would_not_say_ends_the_connection(
    mq: Scripted, consumer: Any, frames: list[Any]
) -> None:
    socket = await mq.connected()
    for frame in frames:
        await (socket.send_str(frame) if isinstance(frame, str) else socket.send_bytes(frame))
    with pytest.raises(NotMq):
        await consumer.next()


async def test_a_body_that_is_not_whole_ends_the_connection(mq: Scripted, consumer: Any) -> None:
    socket = await mq.connected()
    await brings(socket, ONE, b"four")
    assert (await consumer.next()).body == b"four"
    said = '{"queue": "orders", "id": "x", "receives": 1, "published": "2026-01-31T12:00:00Z", '
    said += '"due": "2026-01-31T12:00:30Z", "headers": {}, "size": 5}'
    await socket.send_str(said)
    await socket.send_bytes(b"four")
    with pytest.raises(NotMq):
        await consumer.next()
