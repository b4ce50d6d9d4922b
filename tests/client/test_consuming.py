"""Consumers whose connections fail, hang, or are not let through, over real sockets."""

import asyncio
import contextlib
import traceback
from typing import Any

import pytest
from harness.faults import FaultyFiles
from harness.lossy import Fault, Lossy, answer, problem
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq import AsyncClient
from mq.client.consuming.patience import CONSUME_AGAIN_S_MAX
from mq.client.errors import (
    ClientError,
    ConnectionLost,
    CouldNotConnect,
    DeliveredAgain,
    QueueNotFound,
    TimedOut,
    UpgradeRefused,
)
from mq.client.options import Retry, Timeouts

IN_THE_WAY = {
    "the connection ends": (Fault.END, ConnectionLost),
    "nothing comes": (Fault.HANG, TimedOut),
    "426": (answer("426 Upgrade Required"), UpgradeRefused),
    "a page": (answer("200 OK", b"<html>", "Content-Type: text/html"), UpgradeRefused),
    "404": (answer("404 Not Found"), UpgradeRefused),
    "502": (answer("502 Bad Gateway"), UpgradeRefused),
}
# An upgrade is waited for as long as a connection.
HASTY = Timeouts(connect_s=0.2, answer_s=5)


@pytest.mark.parametrize("what", IN_THE_WAY)
async def test_where_no_websocket_gets_through_it_polls(
    opened: Any, between: Lossy, what: str
) -> None:
    between.upgrades, _ = IN_THE_WAY[what]
    queue = opened(timeouts=HASTY).queue("orders")
    await queue.create()
    await queue.publish(b"1")
    await queue.publish(b"2")
    async with queue.consume() as consumer:
        for body in (b"1", b"2"):
            message = await consumer.next()
            assert message.body == body
            await message.delete()
    assert len([each for each in between.seen if each.path == "/-/consume"]) == 1


@pytest.mark.parametrize("what", IN_THE_WAY)
async def test_who_insists_on_a_websocket_is_told(opened: Any, between: Lossy, what: str) -> None:
    between.upgrades, kind = IN_THE_WAY[what]
    queue = opened(timeouts=HASTY).queue("orders")
    await queue.create()
    async with queue.consume(via="websocket") as consumer:
        for _ in range(2):
            with pytest.raises(kind):
                await consumer.next()


@pytest.mark.parametrize("via", ["auto", "websocket", "poll"])
async def test_nobody_is_there(opened: Any, server: Server, slept: Any, via: str) -> None:
    await server.daemon.drain()
    client = opened(url=server.url, retry=Retry(attempts=2))
    async with client.consume("orders", via=via) as consumer:
        with pytest.raises(CouldNotConnect, match="is mq running there"):
            await consumer.next()


async def test_a_connection_that_is_lost_is_made_again(queue: Any, between: Lossy) -> None:
    await queue.publish_many([str(n) for n in range(8)])
    async with queue.consume(prefetch=4) as consumer:
        mine = await consumer.next()
        between.cut()
        deleted = set()
        while len(deleted) < 8:
            message = await consumer.next()
            if message.text() == mine.text():
                # It was released with its connection, and is another delivery's now.
                assert message.receives == 2
                with pytest.raises(DeliveredAgain):
                    await mine.delete()
            # As others may be that had come before the connection was lost.
            with contextlib.suppress(DeliveredAgain):
                await message.delete()
                deleted.add(message.text())
    assert await queue.fetch() is None


async def test_what_was_taken_is_settled_by_a_request_when_its_connection_is_gone(
    queue: Any, between: Lossy
) -> None:
    await queue.publish(b"x")
    async with queue.consume(prefetch=1) as consumer:
        message = await consumer.next()
        between.upgrades = Fault.HANG
        between.cut()
        await comes_true(lambda: _asked(between, "/-/consume") == 2, "another attempt")
        await message.delete()
    [deleted] = between.requests("DELETE")
    assert deleted.headers["if-match"] == '"1"'


def _asked(between: Lossy, path: str) -> int:
    return len([each for each in between.seen if each.path == path])


async def test_a_server_that_starts_again_is_found(
    opened: Any, between: Lossy, serve: Serve, server: Server
) -> None:
    queue = opened().queue("orders")
    await queue.create()
    async with queue.consume() as consumer:
        await queue.publish(b"before")
        await (await consumer.next()).delete()
        waiting = asyncio.create_task(consumer.next())
        await server.daemon.drain()
        between.upstream = (await serve()).port
        await queue.publish(b"after")
        assert (await waiting).body == b"after"


async def test_polls_go_on_after_failures(opened: Any, between: Lossy, slept: Any) -> None:
    queue = opened().queue("orders")
    await queue.create()
    async with queue.consume(via="poll", prefetch=1) as consumer:
        await queue.publish(b"1")
        await (await consumer.next()).delete()
        for fault in (Fault.END, answer("502 No"), problem("unavailable", 503)):
            await _polls_fail(between, fault, fault)
            await queue.publish(b"2")
            await (await consumer.next()).delete()


async def test_a_consumer_hears_soon_that_mq_is_there_again(
    opened: Any, between: Lossy, slept: Any
) -> None:
    queue = opened().queue("orders")
    await queue.create()
    async with queue.consume(via="poll", prefetch=1) as consumer:
        await queue.publish(b"1")
        await (await consumer.next()).delete()
        await _polls_fail(between, problem("unavailable", 503, "Retry-After: 86400"))
        await queue.publish(b"2")
        await (await consumer.next()).delete()
    assert max(slept.pauses_s) == CONSUME_AGAIN_S_MAX


async def _polls_fail(between: Lossy, *faults: Fault | bytes) -> None:
    """What waits is cut, and each fault is met by a poll, before there is anything to lose: what a
    poll took whose answer is lost comes again when its visibility ends, not now.
    """
    between.faults.extend(faults)
    between.cut()
    await comes_true(lambda: not between.faults, "polls that failed")


async def test_who_asks_a_consumer_that_failed_again_and_again(opened: Any) -> None:
    async with opened().queue("nowhere").consume() as consumer:
        lengths = set()
        for _ in range(3):
            with pytest.raises(QueueNotFound) as failed:
                await consumer.next()
            lengths.add(len(traceback.extract_tb(failed.value.__traceback__)))
    assert len(lengths) == 1


async def test_a_hung_connection_neither_settles_nor_is_waited_for(
    opened: Any, between: Lossy
) -> None:
    queue = opened(timeouts=Timeouts(connect_s=5, answer_s=0.2)).queue("orders")
    await queue.create()
    await queue.publish(b"x")
    async with queue.consume(prefetch=1) as consumer:
        message = await consumer.next()
        between.deafen()
        await message.delete()
        assert message.settled == "deleted"
    [deleted] = between.requests("DELETE")
    assert deleted.headers["if-match"] == '"1"'


async def test_closing_does_not_wait_for_a_hung_connection(
    opened: Any, between: Lossy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("http_transport", "consuming.by_socket"):
        monkeypatch.setattr(f"mq.client.{module}.CLOSE_S", 0.1)
    client = opened(timeouts=Timeouts(connect_s=5, answer_s=60))
    queue = client.queue("orders")
    await queue.create()
    await queue.publish_many([b"x"] * 3)
    consumer = queue.consume(prefetch=3)
    message = await consumer.next()
    between.deafen()
    settling = asyncio.create_task(message.delete())
    await asyncio.sleep(0)
    between.upstream = 1
    await client.close()
    with pytest.raises(ClientError):
        await settling
    assert await consumer.next() is None


async def test_what_a_consumer_held_is_released_when_it_is_closed(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    async with AsyncClient(server.url) as client:
        queue = client.queue("orders")
        await queue.create()
        await queue.publish_many([b"1", b"2", b"3"])
        consumer = queue.consume(via="websocket", prefetch=3)
        assert await consumer.next() is not None

        async def has_all() -> bool:
            return (await queue.describe()).in_flight == 3

        await comes_true(has_all, "all were delivered")
        gate = files.hold("rename", "/delay/")
        closing = asyncio.create_task(consumer.close())
        await comes_true(gate.reached.is_set, "the first release")
        # It would be over long before this is answered.
        assert await client.is_alive()
        assert not closing.done()
        gate.open()
        await closing
        assert len(await queue.peek()) == 3


async def test_who_is_cancelled_in_a_block_leaves_nothing_behind(
    opened: Any, between: Lossy
) -> None:
    client = opened()
    queue = client.queue("orders")
    await queue.create()
    await queue.publish_many([b"x"] * 5)
    has_one = asyncio.Event()

    async def handler() -> None:
        async for message in queue.consume():
            async with message:
                has_one.set()
                await asyncio.get_running_loop().create_future()

    handling = asyncio.create_task(handler())
    await has_one.wait()
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    del handling

    async def all_are_back() -> bool:
        return len(await queue.peek()) == 5

    await comes_true(all_are_back, "all are given back")
    await client.close()
    await comes_true(lambda: not between.handlers(), "no connection is left")
