"""Consuming, by WebSockets and by long polls."""

import asyncio
from typing import Any

import pytest
from harness.waiting import comes_true

from mq.client.errors import DeliveredAgain, QueueExpired, QueueNotFound, Refused
from mq.client.values import Subscription
from mq.model.failure import Failure

VIA = pytest.mark.parametrize("via", ["websocket", "poll"])


@VIA
async def test_messages_come_as_they_become_ready(queue: Any, via: str) -> None:
    async with queue.consume(via=via, prefetch=3) as consumer:
        assert await consumer.next(wait_s=0.01) is None
        for n in range(10):
            await queue.publish(str(n), headers={"ce-id": str(n)}, key=f"k{n}")
        found = []
        async for message in consumer:
            async with message:
                found.append((message.text(), message.headers["ce-id"], message.key))
            assert message.receives == 1
            if len(found) == 10:
                break
    assert sorted(found) == [(str(n), str(n), f"k{n}") for n in range(10)]
    assert len(await queue.peek(states=("removed",))) == 10


async def test_following_shows_messages_and_consumes_none(client: Any, queue: Any) -> None:
    await queue.publish("older")
    await queue.publish("old")
    found = []
    async for message in queue.follow(last=1, select=("priority:0", "not(key:x)")):
        found.append((message.text(), message.state, message.size, message.dropped))
        if len(found) == 2:
            break
        await queue.publish("hidden", key="x")
        await queue.publish("new")
    assert found == [("old", "ready", 3, 0), ("new", "ready", 3, 0)]
    assert len(await queue.peek()) == 4
    with pytest.raises(QueueNotFound):
        async for _ in client.queue("none").follow():
            pass
    with pytest.raises(Refused):
        async for _ in queue.follow(select="colour:red"):
            pass


@VIA
async def test_a_consumer_begins_with_its_block(queue: Any, via: str) -> None:
    await queue.publish("x")
    async with queue.consume(via=via, prefetch=1):

        async def has_it() -> bool:
            return (await queue.describe()).in_flight == 1

        await comes_true(has_it, "it was fetched")


@VIA
async def test_what_was_not_taken_is_given_back(queue: Any, via: str) -> None:
    await queue.publish_many([str(n) for n in range(9)])
    async with queue.consume(via=via, prefetch=4) as consumer:
        await (await consumer.next()).delete()
    assert len(await queue.fetch_many(10)) == 8


@pytest.mark.certificate
@VIA
async def test_what_the_program_never_had_counts_as_no_attempt(
    client: Any, queue: Any, via: str
) -> None:
    await queue.change_settings({"max_receives": 3})
    await queue.publish_many([str(n) for n in range(10)])
    for taken in range(4):
        async with queue.consume(via=via, prefetch=10) as consumer:

            async def has_all(left: int = 10 - taken) -> bool:
                return (await queue.describe()).in_flight == left

            message = await consumer.next()
            await comes_true(has_all)
            await message.delete()

        async def is_back(left: int = 9 - taken) -> bool:
            return (await queue.describe()).ready == left

        await comes_true(is_back)
    for message in await queue.fetch_many(10):
        assert message.receives == 5
        await message.delete()
    assert [found.name async for found in client.queues()] == ["orders"]


@VIA
async def test_what_the_program_had_counts(queue: Any, via: str) -> None:
    await queue.change_settings({"max_receives": 1})
    await queue.publish("x")
    async with queue.consume(via=via, prefetch=10) as consumer:
        message = await consumer.next()
        if via == "poll":
            await message.release()

    async def is_over() -> bool:
        found = await queue.describe()
        return (found.ready, found.in_flight) == (0, 1) or found.sidelined == 1

    await comes_true(is_over)


async def test_a_message_is_given_back_unhandled(queue: Any) -> None:
    await queue.change_settings({"max_receives": 1})
    await queue.publish("x")
    message = await queue.fetch()
    with pytest.raises(ValueError, match="unhandled"):
        await message.release(1, unhandled=True)
    await message.release(unhandled=True)
    again = await queue.fetch()
    assert (again.id, again.receives) == (message.id, 2)


@VIA
async def test_bodies_come_whole(queue: Any, via: str) -> None:
    bodies = [b"", b"\xff\x00", bytes(range(256)) * 8200]
    for body in bodies:
        await queue.publish(body)
    async with queue.consume(via=via, prefetch=1) as consumer:
        for body in bodies:
            message = await consumer.next()
            assert message.body == body
            await message.delete()


@VIA
async def test_every_way_to_settle(client: Any, queue: Any, via: str) -> None:
    words = ("delete", "release", "sideline", "delete", "sideline")
    await queue.publish_many(list(words))
    async with queue.consume(via=via) as consumer:
        by_word: dict[str, list[Any]] = {}
        for _ in words:
            message = await consumer.next()
            by_word.setdefault(message.text(), []).append(message)
        first, second = by_word["sideline"]
        await asyncio.gather(*(each.delete() for each in by_word["delete"]))
        await first.extend(100)
        await first.sideline()
        await second.sideline(Failure("x", "E"))
        await by_word["release"][0].release(delay_s=100)
    found = {each.id: each async for each in queue.browse(["ready", "delayed", "removed"])}
    assert found[by_word["release"][0].id].state == "delayed"
    assert all(found[each.id].state == "removed" for each in by_word["delete"])
    aside = await client.queue("orders_SIDELINE").peek()
    assert {each.id: (each.sidelined, each.reason) for each in aside} == {
        first.id: ("rejected", None),
        second.id: ("exception", "E: x"),
    }


@VIA
async def test_a_message_that_was_released_comes_again(queue: Any, via: str) -> None:
    await queue.publish(b"x")
    async with queue.consume(via=via) as consumer:
        first = await consumer.next()
        await first.release(reason="busy")
        second = await consumer.next()
        assert (second.id, second.receives, second.reason) == (first.id, 2, "busy")
        await second.delete()


@VIA
async def test_a_delivery_does_not_settle_the_next_one(queue: Any, via: str) -> None:
    await queue.publish(b"x")
    async with queue.consume(via=via) as consumer:
        first = await consumer.next()
        await queue.release(first.id)
        second = await consumer.next()
        assert second.receives == 2
        for word in ("delete", "release", "sideline"):
            with pytest.raises(DeliveredAgain):
                await getattr(first, word)()
        assert (await queue.read(first.id)).state == "delayed"
        await second.delete()


@VIA
async def test_a_message_can_be_settled_when_its_consumer_is_gone(queue: Any, via: str) -> None:
    await queue.publish(b"x")
    async with queue.consume(via=via) as consumer:
        message = await consumer.next()
    await message.delete()
    assert (await queue.read(message.id)).state == "removed"


@VIA
async def test_several_queues_in_one_consumer(client: Any, via: str) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await client.queue(name).create()
        await client.queue(name).publish_many([f"{name}{n}" for n in range(4)])
    wanted = ["a", Subscription("b", prefetch=1), Subscription("c", visibility_s=100)]
    found = set()
    async with client.consume(*wanted, via=via, prefetch=2) as consumer:
        while len(found) < 12:
            message = await consumer.next()
            found.add((message.queue, message.text()))
            await message.delete()
    assert found == {(name, f"{name}{n}") for name in names for n in range(4)}


@VIA
async def test_a_selection_is_consumed(queue: Any, via: str) -> None:
    await queue.publish(b"low", priority=1)
    await queue.publish(b"high", priority=8)
    async with queue.consume(via=via, select="priority:..5", visibility_s=50) as consumer:
        assert (await consumer.next()).body == b"low"
        assert await consumer.next(wait_s=0.05) is None


@VIA
async def test_what_is_final_is_raised(client: Any, queue: Any, via: str) -> None:
    async with client.queue("nowhere").consume(via=via) as consumer:
        with pytest.raises(QueueNotFound):
            await consumer.next()
        with pytest.raises(QueueNotFound):
            await consumer.next()
    async with queue.consume(via=via, select="nothing") as consumer:
        with pytest.raises(Refused):
            await consumer.next()
    await queue.change_settings({"expires_at": "2001-01-01T00:00:00Z"})
    async with queue.consume(via=via) as consumer:
        with pytest.raises(QueueExpired):
            await consumer.next()


@VIA
async def test_a_queue_that_is_deleted_ends_it(queue: Any, via: str) -> None:
    async with queue.consume(via=via) as consumer:
        await queue.publish(b"x")
        await (await consumer.next()).delete()
        waiting = asyncio.create_task(consumer.next())
        await asyncio.sleep(0)
        await queue.delete()
        with pytest.raises(QueueNotFound):
            await waiting


@VIA
async def test_a_consumer_is_closed_while_it_waits(queue: Any, via: str) -> None:
    consumer = queue.consume(via=via)
    waiting = asyncio.create_task(consumer.next())
    await queue.publish(b"x")
    assert (await waiting).body == b"x"
    waiting = asyncio.create_task(consumer.next())
    await asyncio.sleep(0)
    await consumer.close()
    assert await waiting is None
    assert await consumer.next() is None
    assert [each async for each in consumer] == []
    await consumer.close()


@VIA
async def test_a_client_that_is_closed_ends_its_consumers(opened: Any, via: str) -> None:
    client = opened()
    queue = client.queue("orders")
    await queue.create()
    await queue.publish_many([b"1", b"2", b"3"])
    consumer = queue.consume(via=via)
    assert (await consumer.next()).body
    await client.close()
    other = opened()
    # What came over a WebSocket is given back with it, taken or not.
    expected = 3 if via == "websocket" else 2
    fetched: set[str] = set()
    while len(fetched) < expected:
        # mq hears of the end in its own time.
        again = await other.queue("orders").fetch_many(5, wait_s=1, visibility_s=60)
        fetched |= {message.id for message in again}
    assert not await other.queue("orders").fetch_many(5)


@VIA
async def test_a_consumer_that_is_dropped_gives_back(queue: Any, via: str) -> None:
    await queue.publish_many([b"1", b"2", b"3"])
    async for message in queue.consume(via=via):
        await message.delete()
        break

    async def is_back() -> bool:
        return len(await queue.peek()) == 2

    await comes_true(is_back, "what was prefetched is given back")


async def test_what_a_consumer_cannot_be_is_refused(client: Any, queue: Any) -> None:
    for wrong in ({"prefetch": 0}, {"prefetch": 1001}, {"via": "pigeon"}):
        with pytest.raises(ValueError, match=r"prefetch|via"):
            queue.consume(**wrong)
    with pytest.raises(ValueError, match="queue"):
        client.consume()
    with pytest.raises(ValueError, match="once"):
        client.consume("a", "a")
    with pytest.raises(ValueError, match="name"):
        client.consume("a/b")
