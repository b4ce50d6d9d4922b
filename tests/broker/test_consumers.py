"""Consumers of real queues, beside plain fetches and other processes."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.processes import PATIENCE_S
from harness.waiting import comes_true

from mq.broker.broker import Broker
from mq.broker.consumers import Consumer, Terms
from mq.broker.watching import Listening
from mq.model.clock import SystemClock
from mq.model.errors import MqError, QueueNotFound
from mq.model.message import Delivery, Envelope
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.model.settings import QueueSettings
from mq.store.core.arrivals import open_arrivals
from mq.store.disk.commit import Committer
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root

QUEUE = QueueName.parse("q")
Process = Callable[[], Broker]


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    """Another process over the same root."""
    started = []

    def start() -> Broker:
        root = open_root(str(tmp_path / "root"), Files(), SystemClock())
        started.append(Broker(root, Committer(NoFlusher()), QueueSettings()))
        return started[-1]

    yield start
    for each in started:
        each.stop_waiting()
        await each.drain()


@pytest.fixture
async def broker(process: Process) -> Broker:
    started = process()
    await started.create_queue(QUEUE)
    return started


class Taking:
    """A consumer's owner, which takes what it gets. One that is idle has no room for more."""

    def __init__(self) -> None:
        self.taken: list[Delivery] = []
        self.errors: list[MqError] = []
        self.is_idle = False
        self.consumer: Consumer

    @property
    def ids(self) -> list[MessageId]:
        return [each.id for each in self.taken]

    def room(self) -> int:
        return 0 if self.is_idle else 32

    def begins(self) -> None: ...

    def got(self, delivery: Delivery) -> None:
        self.taken.append(delivery)

    def missed(self) -> None: ...

    def failed(self, error: MqError) -> None:
        self.errors.append(error)


async def taking(
    broker: Broker, credit: int = 100, priority: int = 0, select: str = "", idle: bool = False
) -> Taking:
    found = Taking()
    found.is_idle = idle
    terms = Terms(credit, priority, selection=Selection.parse(select) if select else None)
    found.consumer = await broker.consuming.subscribe(QUEUE, terms, found)
    return found


async def publish(broker: Broker, count: int = 1, priority: int = 0) -> list[MessageId]:
    envelope = Envelope(priority=priority)
    return [await broker.publish(QUEUE, b"x", envelope) for _ in range(count)]


async def settled(consumer: Consumer) -> None:
    """Until it has looked, and waits."""
    claimer = consumer.queue.claimer(consumer.selection)
    await comes_true(lambda: not consumer.in_flight and not claimer.pending(), "it waits")


async def test_a_consumer_gets_what_is_there_and_what_comes(broker: Broker) -> None:
    there = await publish(broker, 40)
    one = await taking(broker)
    await comes_true(lambda: len(one.taken) == 40)
    await settled(one.consumer)
    more = await publish(broker, 3)
    await comes_true(lambda: len(one.taken) == 43)
    assert one.ids == there + more
    assert one.consumer.credit == 57


async def test_no_more_come_than_there_is_credit_for(broker: Broker) -> None:
    there = await publish(broker, 5)
    one = await taking(broker, credit=2)
    await comes_true(lambda: len(one.taken) == 2)
    one.consumer.grant(2)
    await comes_true(lambda: len(one.taken) == 4)
    delivery = await broker.consuming.fetch(QUEUE)
    assert delivery is not None
    assert [*one.ids, delivery.id] == there


@pytest.mark.certificate
async def test_another_process_s_messages_come(broker: Broker, process: Process) -> None:
    one = await taking(broker)
    await settled(one.consumer)
    other = process()
    ids = await publish(other, 3)
    await comes_true(lambda: len(one.taken) == 3)
    assert one.ids == ids


async def test_a_fetch_has_what_its_scan_finds_though_a_consumer_takes_of_it(
    broker: Broker, process: Process
) -> None:
    one = await taking(broker, credit=1)
    await settled(one.consumer)
    assert await broker.consuming.fetch(QUEUE) is None
    there = await publish(process(), 2)
    delivery = await broker.consuming.fetch(QUEUE)
    assert delivery is not None
    await comes_true(lambda: len(one.taken) == 1)
    assert {delivery.id, *one.ids} == set(there)
    assert [each.stamp.receives for each in (delivery, *one.taken)] == [1, 1]


@pytest.mark.certificate
async def test_what_another_process_releases_comes(broker: Broker, process: Process) -> None:
    one = await taking(broker)
    await settled(one.consumer)
    taken = await publish(broker, 1)
    await comes_true(lambda: one.ids == taken)
    await settled(one.consumer)
    other = process()
    [message_id] = await publish(other)
    delivery = await other.consuming.fetch(QUEUE)
    assert delivery is not None
    (await other.queue(QUEUE)).release(delivery)
    await comes_true(lambda: one.ids == [*taken, message_id])


async def claimed(broker: Broker) -> MessageId | None:
    delivery = await broker.consuming.fetch(QUEUE)
    return None if delivery is None else delivery.id


async def test_a_poll_below_is_served_once_the_one_above_has_no_credit(broker: Broker) -> None:
    high = await taking(broker, 2, 9)
    await settled(high.consumer)
    poll = asyncio.create_task(broker.consuming.fetch(QUEUE, wait_s=60))
    await comes_true(lambda: len(high.consumer.queue.lines) == 2)
    ids = await publish(broker, 3)
    delivery = await poll
    assert delivery is not None
    assert [*high.ids, delivery.id] == ids


async def test_each_selection_gets_its_own_in_order(broker: Broker) -> None:
    urgent = await taking(broker, select="priority:5..")
    calm = await taking(broker, select="priority:..4")
    await settled(urgent.consumer)
    await settled(calm.consumer)
    ids = {priority: await publish(broker, 3, priority) for priority in (1, 9, 4, 5)}
    await comes_true(lambda: len(urgent.taken) + len(calm.taken) == 12)
    assert urgent.ids == ids[9] + ids[5]
    assert calm.ids == ids[1] + ids[4]


async def test_what_one_of_two_selections_takes_the_other_does_not_look_for(broker: Broker) -> None:
    ids = await publish(broker, 30, 5)
    both = [await taking(broker, select=text) for text in ("priority:5..", "priority:..5")]
    both.append(await taking(broker))
    await comes_true(lambda: sum(len(each.taken) for each in both) == 30)
    assert sorted(each.text for one in both for each in one.ids) == [each.text for each in ids]
    assert both[0].consumer.queue.totals.lost_races == 0


async def deleted(broker: Broker, process: Process) -> None:
    await broker.delete_queue(QUEUE)


async def deleted_by_another(broker: Broker, process: Process) -> None:
    await process().delete_queue(QUEUE)


@pytest.mark.parametrize("delete", [deleted, deleted_by_another])
async def test_all_hear_that_the_queue_was_deleted(
    broker: Broker, process: Process, delete: Callable[[Broker, Process], Awaitable[None]]
) -> None:
    waits, has_no_credit = await taking(broker), await taking(broker, credit=0)
    poll = asyncio.create_task(broker.consuming.fetch(QUEUE, wait_s=60))
    await settled(waits.consumer)
    await delete(broker, process)
    await comes_true(lambda: waits.errors, "it hears")
    assert [type(each) for each in waits.errors + has_no_credit.errors] == [QueueNotFound] * 2
    assert waits.consumer.is_gone
    with pytest.raises(QueueNotFound):
        await poll
    with pytest.raises(QueueNotFound):
        await taking(broker)


@pytest.mark.certificate
async def test_a_purge_leaves_nothing_and_what_comes_later_is_served(broker: Broker) -> None:
    high = await taking(broker, idle=True, priority=1)
    await publish(broker, 3)
    await broker.purge(QUEUE)
    high.is_idle = False
    high.consumer.go_on()
    await settled(high.consumer)
    assert high.ids == []
    ids = await publish(broker, 2)
    await comes_true(lambda: high.ids == ids)


async def test_a_poll_that_is_given_up_as_it_is_answered_gives_back(broker: Broker) -> None:
    poll = broker.consuming.begin_poll(await broker.queue(QUEUE), 60)
    [message_id] = await publish(broker)
    await comes_true(poll.future.done, "an answer")
    poll.abandon()
    delivery = await comes_true(lambda: broker.consuming.fetch(QUEUE), "it is back")
    assert (delivery.id, delivery.stamp.receives) == (message_id, 2)


async def test_a_poll_that_looks_as_all_stop_waiting_waits_no_more(broker: Broker) -> None:
    poll = broker.consuming.begin_poll(await broker.queue(QUEUE), 60)
    broker.stop_waiting()
    async with asyncio.timeout(PATIENCE_S):
        assert await poll.future is None
        assert await broker.consuming.fetch(QUEUE, wait_s=60) is None


async def test_an_answered_poll_is_not_kept(broker: Broker) -> None:
    gc.disable()
    try:
        poll = broker.consuming.begin_poll(await broker.queue(QUEUE), 60)
        await publish(broker)
        assert await poll.future is not None
        reference = weakref.ref(poll.future)
        del poll
        await comes_true(lambda: reference() is None, "it is gone")
    finally:
        gc.enable()


@pytest.mark.certificate
async def test_ten_thousand_polls_are_served_each_a_message(broker: Broker) -> None:
    queue = await broker.queue(QUEUE)
    polls = [broker.consuming.begin_poll(queue, 60) for _ in range(10_000)]
    await comes_true(lambda: len(queue.lines) == 10_000, "all wait")
    ids = await publish(broker, 20)
    await comes_true(lambda: sum(each.future.done() for each in polls) == 20)
    # A look that finds nothing sends the first of the line to its end: any may be served.
    waiting = [each for each in polls if not each.future.done()]
    broker.stop_waiting()
    await asyncio.wait([each.future for each in polls])
    found = [delivery.id for each in polls if (delivery := each.future.result()) is not None]
    assert sorted(found, key=str) == sorted(ids, key=str)
    assert not any(each.future.result() for each in waiting)


@pytest.mark.parametrize("count", [2, 5, 6])
async def test_a_message_whose_headers_are_unknown_comes_to_the_selection_that_takes_it(
    broker: Broker, count: int
) -> None:
    failed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    those = [await taking(broker, select=f"header:x-attribute-c=v{n}") for n in range(count)]
    for one in those:
        await settled(one.consumer)
    headers = (("x-attribute-c", f"v{count - 1}"),)
    later = Envelope(headers=headers, due_ms=broker.root.now_ms() + 3_600_000)
    message_id = await broker.publish(QUEUE, b"x", later)
    await broker.reschedule(QUEUE, message_id, 0)
    await comes_true(lambda: those[-1].ids == [message_id])
    assert not failed


@pytest.mark.certificate
async def test_settings_that_hang_are_looked_at_by_one_thread(tmp_path: Path) -> None:
    """Consumers that wait have them looked at again and again, and a mount may hang for minutes."""
    files = FaultyFiles()
    root = open_root(str(tmp_path / "root"), files, SystemClock())
    broker = Broker(root, Committer(NoFlusher()), QueueSettings())
    await broker.create_queue(QUEUE)
    queue = await broker.queue(QUEUE)
    await comes_true(lambda: not broker.refresher.is_fresh(queue), "the settings are old")
    gate = files.hold("status", root.layout.settings_of(QUEUE))
    first = asyncio.create_task(broker.refresher.refresh_all([queue]))
    await comes_true(gate.reached.is_set, "a look that hangs")
    again = [asyncio.create_task(broker.refresher.refresh_all([queue])) for _ in range(3)]
    try:
        async with asyncio.timeout(PATIENCE_S / 4):
            await asyncio.gather(*again)
        assert gate.arrivals == 1
    finally:
        gate.open()
    await first
    assert broker.refresher.is_fresh(queue)
    await broker.drain()


async def test_a_request_does_not_wait_for_looks_at_other_queues(tmp_path: Path) -> None:
    files, other = FaultyFiles(), QueueName("other")
    root = open_root(str(tmp_path / "root"), files, SystemClock())
    broker = Broker(root, Committer(NoFlusher()), QueueSettings())
    for each in (QUEUE, other):
        await broker.create_queue(each)
    queues = [await broker.queue(each) for each in (QUEUE, other)]
    refresher = broker.refresher
    await comes_true(lambda: not any(map(refresher.is_fresh, queues)), "the settings are old")
    gate = files.hold("status", root.layout.settings_of(other))
    looking = asyncio.create_task(refresher.refresh_all(queues))
    await comes_true(gate.reached.is_set, "a look that hangs")
    await comes_true(lambda: not refresher.is_fresh(queues[0]), "what it has seen is old")
    try:
        async with asyncio.timeout(PATIENCE_S / 4):
            assert refresher.is_fresh(await broker.queue(QUEUE))
    finally:
        gate.open()
    await looking
    await broker.drain()


async def test_a_scan_that_was_asked_for_in_a_pause_is_made_at_its_end(tmp_path: Path) -> None:
    # In its time nothing else is due that would look, and it hears all.
    root = open_root(str(tmp_path / "root"), Files(), FakeClock())
    listening = Listening(open_arrivals(root.layout), hears_all=True)
    broker = Broker(root, Committer(NoFlusher()), QueueSettings(), listening=listening)
    await broker.create_queue(QUEUE)
    one = await taking(broker)
    await settled(one.consumer)
    queue = await broker.queue(QUEUE)
    await broker.refresher.change(queue, {"paused": "deliveries"}, None)
    # In a bucket, of which inotify reports no names.
    into_buckets = open_root(str(tmp_path / "root"), Files(), SystemClock(), folder_max=0)
    other = Broker(into_buckets, Committer(NoFlusher()), QueueSettings())
    (message_id,) = await publish(other)
    [claimer] = queue.claimers
    claimer.scan_again()
    await settled(one.consumer)
    assert not one.taken
    await broker.refresher.change(queue, {"paused": "none"}, None)
    await comes_true(lambda: one.ids == [message_id], "its message")
    for each in (broker, other):
        each.stop_waiting()
        await each.drain()
