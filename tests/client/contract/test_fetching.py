"""Fetching, and settling what was fetched."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mq.client.errors import AlreadySettled, DeliveredAgain, MessageNotFound, QueueNotFound, Refused


async def test_nothing_is_none(queue: Any) -> None:
    assert await queue.fetch() is None
    assert await queue.fetch_many(10) == []
    assert await queue.fetch(wait_s=0.01) is None


async def test_messages_come_in_order(queue: Any) -> None:
    for n in range(5):
        await queue.publish(str(n))
    assert (await queue.fetch()).text() == "0"
    assert [each.text() for each in await queue.fetch_many(3)] == ["1", "2", "3"]
    assert [each.text() for each in await queue.fetch_many(3)] == ["4"]


async def test_bodies_that_are_no_text_come_in_batches_too(queue: Any) -> None:
    bodies = [b"\xff\xfe", b"", "ü".encode(), bytes(range(256)) * 8000]
    for body in bodies:
        await queue.publish(body)
    assert [each.body for each in await queue.fetch_many(4)] == bodies


async def test_a_fetch_waits_until_there_is_something(queue: Any) -> None:
    waiting = asyncio.create_task(queue.fetch(wait_s=30))
    await queue.publish(b"x")
    assert (await waiting).body == b"x"


async def test_who_waits_hears_that_the_queue_is_gone(queue: Any) -> None:
    waiting = asyncio.create_task(queue.fetch_many(2, wait_s=30))
    await queue.publish(b"x")
    await (await waiting)[0].delete()
    waiting = asyncio.create_task(queue.fetch_many(2, wait_s=30))
    await asyncio.sleep(0)
    await queue.delete()
    with pytest.raises(QueueNotFound):
        await waiting


async def test_visibility_and_selection(queue: Any) -> None:
    await queue.publish(b"a", key="us-1")
    await queue.publish(b"b", key="eu-1", priority=3)
    found = await queue.fetch(visibility_s=100.5, select=["key:us-*", "priority:..2"])
    assert found.body == b"a"
    assert timedelta(seconds=90) < found.due - datetime.now(UTC) < timedelta(seconds=110)
    assert (await queue.fetch_many(5, select="key:eu-*"))[0].body == b"b"
    with pytest.raises(Refused) as refused:
        await queue.fetch(select="nothing")
    assert refused.value.slug == "bad-select"


async def test_a_block_that_ends_well_deletes(queue: Any) -> None:
    await queue.publish(b"x")
    async with await queue.fetch() as message:
        assert message.queue == "orders"
        assert message.settled is None
    assert message.settled == "deleted"
    assert (await queue.read(message.id)).state == "removed"


async def test_a_block_that_fails_releases(queue: Any) -> None:
    await queue.publish(b"x")
    with pytest.raises(LookupError):
        async with await queue.fetch() as message:
            raise LookupError
    assert message.settled == "released"
    again = await queue.fetch()
    assert (again.id, again.receives) == (message.id, 2)


async def test_what_was_settled_in_a_block_stays_so(queue: Any) -> None:
    await queue.publish(b"x")
    async with await queue.fetch() as message:
        await message.release(delay_s=100)
    assert (await queue.read(message.id)).state == "delayed"
    await queue.release(message.id)
    message = await queue.fetch()

    async def deals_and_fails() -> None:
        async with message:
            await message.delete()
            raise LookupError

    with pytest.raises(LookupError):
        await deals_and_fails()
    assert message.settled == "deleted"


async def test_the_same_again_does_nothing_and_another_word_raises(queue: Any) -> None:
    for word, others in (
        ("delete", ("release", "sideline")),
        ("release", ("delete", "sideline")),
        ("sideline", ("delete", "release")),
    ):
        await queue.publish(b"x")
        message = await queue.fetch()
        await getattr(message, word)()
        await getattr(message, word)()
        for other in others:
            with pytest.raises(AlreadySettled):
                await getattr(message, other)()
        with pytest.raises(AlreadySettled):
            await message.extend(10)
        if word == "release":
            await (await queue.fetch()).delete()


async def test_a_message_is_extended(queue: Any) -> None:
    await queue.publish(b"x")
    message = await queue.fetch()
    until = await message.extend(1000)
    assert message.due == until
    assert timedelta(seconds=900) < until - datetime.now(UTC) < timedelta(seconds=1100)
    await message.delete()


async def test_a_message_goes_to_the_sideline(client: Any, queue: Any) -> None:
    for reason in ("rejected", "exception"):
        await queue.publish(b"x")
        await (await queue.fetch()).sideline(reason)
    first, second = await client.queue("orders_SIDELINE").fetch_many(5)
    assert (first.sidelined, second.sidelined) == ("rejected", "exception")
    with pytest.raises(MessageNotFound):
        await queue.read(first.id)
    with pytest.raises(Refused) as refused:
        await first.sideline()
    assert refused.value.slug == "already-sideline"


async def test_what_was_delivered_again_is_another_s(queue: Any) -> None:
    await queue.publish(b"x")
    mine = await queue.fetch()
    await queue.release(mine.id)
    theirs = await queue.fetch()
    for lost in (mine.delete(), mine.release(), mine.extend(10), mine.sideline()):
        with pytest.raises(DeliveredAgain) as told:
            await lost
        assert told.value.receives == 2
    assert mine.settled is None
    with pytest.raises(DeliveredAgain):
        async with mine:
            pass
    await theirs.delete()


async def test_a_block_s_own_exception_goes_first(queue: Any) -> None:
    await queue.publish(b"x")
    mine = await queue.fetch()
    await queue.release(mine.id)
    await queue.fetch()
    with pytest.raises(LookupError) as raised:
        async with mine:
            raise LookupError
    assert "could not be released" in raised.value.__notes__[0]


async def test_a_message_of_another_s_queue_is_not_found(queue: Any) -> None:
    await queue.publish(b"x")
    message = await queue.fetch()
    await queue.delete()
    with pytest.raises(QueueNotFound):
        await message.delete()
