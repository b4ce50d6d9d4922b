"""Who gets a message, rule by rule: real waiters over a model of what is ready."""

import asyncio

import pytest
from harness.clock import FakeClock
from harness.waiting import comes_true
from harness.waiting_model import Customer, ModelQueue, fetch, message, poll, turns

from mq.broker.waiting import Waiter
from mq.model.errors import Busy, QueueNotFound, StorageFailed
from mq.model.limits import LOOK_INTERVAL_S
from mq.model.selection import Selection

URGENT = Selection.parse("priority:5..")
CALM = Selection.parse("priority:..4")


@pytest.fixture
async def queue() -> ModelQueue:
    return ModelQueue(FakeClock())


async def customer(
    queue: ModelQueue,
    credit: int = 1,
    priority: int = 0,
    selection: Selection | None = None,
    room_for: int = 1000,
) -> Customer:
    """One that stands in its line, if it has credit."""
    found = Customer(queue, credit, priority, None, selection, room_for=room_for)
    found.begin()
    await turns()
    return found


async def served(queue: ModelQueue, count: int = 1000) -> None:
    """Claims end until none is left."""
    while queue.model.claims:
        queue.end_claims(count)
        await turns()


def flying(*customers: Customer) -> list[int]:
    return [each.consumer.in_flight for each in customers]


async def test_a_message_is_for_the_first_and_only_that_one(queue: ModelQueue) -> None:
    first, second, third = [await customer(queue) for _ in range(3)]
    queue.publish(message(1))
    assert flying(first, second, third) == [1, 0, 0]
    await served(queue)
    assert (first.got_ids, second.got_ids, third.got_ids) == ([message(1)], [], [])


async def test_one_that_was_served_goes_to_the_end(queue: ModelQueue) -> None:
    first, second = await customer(queue, 10), await customer(queue, 10)
    for number in range(4):
        queue.publish(message(number))
    await served(queue)
    assert first.got_ids == [message(0), message(2)]
    assert second.got_ids == [message(1), message(3)]


async def test_equals_have_equal_shares_of_what_is_there(queue: ModelQueue) -> None:
    equals = [await customer(queue, 100) for _ in range(3)]
    queue.look(*map(message, range(10)))
    await turns()
    assert sorted(flying(*equals)) == [3, 3, 4]


async def test_higher_priorities_go_first(queue: ModelQueue) -> None:
    low, high, higher = [await customer(queue, 1, priority) for priority in (0, 5, 9)]
    for number, expected in enumerate([(0, 0, 1), (0, 1, 1), (1, 1, 1)]):
        queue.publish(message(number))
        assert tuple(flying(low, high, higher)) == expected


async def test_a_message_is_for_one_whom_it_matches(queue: ModelQueue) -> None:
    urgent, calm, any_message = [
        await customer(queue, 1, 0, selection) for selection in (URGENT, CALM, None)
    ]
    queue.publish(message(1, priority=3))
    assert flying(urgent, calm, any_message) == [0, 1, 0]
    queue.publish(message(2, priority=4))
    assert flying(urgent, calm, any_message) == [0, 1, 1]
    queue.publish(message(3, priority=1))
    assert flying(urgent, calm, any_message) == [0, 1, 1]
    queue.publish(message(4, priority=9))
    assert flying(urgent, calm, any_message) == [1, 1, 1]


async def test_lower_priorities_get_what_no_higher_one_matches(queue: ModelQueue) -> None:
    low, high = await customer(queue, 5), await customer(queue, 1, 5, URGENT)
    queue.publish(message(1, priority=3), message(2, priority=9), message(3, priority=9))
    await served(queue)
    assert high.got_ids == [message(2, priority=9)]
    assert low.got_ids == [message(3, priority=9), message(1, priority=3)]


@pytest.mark.parametrize("goes", ["pause", "close", "credit", "room"])
async def test_lower_priorities_are_served_once_the_higher_one_takes_nothing(
    queue: ModelQueue, goes: str
) -> None:
    high, low = await customer(queue, 3, 9), await customer(queue, 9)
    if goes == "credit":
        queue.publish(*map(message, range(10, 13)))
        await served(queue)
    elif goes == "room":
        high.room_for = 0
    elif goes == "close":
        high.consumer.close()
    else:
        high.pause()
    queue.publish(message(1))
    assert flying(high, low) == [0, 1]


async def test_a_fetch_finds_nothing_where_all_is_for_a_higher_priority(queue: ModelQueue) -> None:
    await customer(queue, 1000, 9, room_for=0)
    found = fetch(queue)
    await turns()
    assert found.future.result() is None


async def test_a_fetch_has_what_its_scan_finds_or_nothing(queue: ModelQueue) -> None:
    queue.model.put(message(1))
    first, second = fetch(queue), fetch(queue)
    await turns()
    await served(queue)
    delivery = first.future.result()
    assert delivery is not None
    assert (delivery.id, second.future.result()) == (message(1), None)


@pytest.mark.parametrize("lost", [None, Busy("locked")], ids=["gone", "locked"])
async def test_one_whose_claim_is_lost_goes_on_in_front(
    queue: ModelQueue, lost: Exception | None
) -> None:
    first, second = await customer(queue), await customer(queue)
    queue.publish(message(1))
    queue.take(message(1))
    queue.end_claims(1, lost)
    await turns()
    queue.publish(message(2))
    assert flying(first, second) == [1, 0]
    await served(queue)
    assert first.got_ids == [message(2)]


async def test_a_fetch_whose_claim_is_lost_has_the_next(queue: ModelQueue) -> None:
    queue.model.put(message(1), message(2))
    found = fetch(queue)
    await turns()
    queue.take(message(1))
    await served(queue)
    delivery = found.future.result()
    assert delivery is not None
    assert delivery.id == message(2)


async def test_a_fetch_whose_claim_is_lost_with_its_queue_is_told(queue: ModelQueue) -> None:
    queue.model.put(message(1))
    found = fetch(queue)
    await turns()
    queue.failed(QueueNotFound("q"))
    queue.take(message(1))
    queue.end_claims()
    await turns()
    assert isinstance(found.future.exception(), QueueNotFound)


async def test_a_poll_whose_claim_is_lost_waits_no_longer_than_it_asked(queue: ModelQueue) -> None:
    queue.model.put(message(1))
    found = poll(queue, 5)
    await turns()
    queue.take(message(1))
    queue.end_claims()
    await turns()
    assert not found.future.done()
    queue.clock.advance(5)
    assert await comes_true(found.future.done, "the end of the wait")
    assert found.future.result() is None


async def test_a_claim_that_fails_is_one_fetch_s_error(queue: ModelQueue) -> None:
    queue.model.put(message(1), message(2))
    first, second = fetch(queue), fetch(queue)
    await turns()
    queue.end_claims(1, StorageFailed("broken"))
    await turns()
    await served(queue)
    assert isinstance(first.future.exception(), StorageFailed)
    assert second.future.result() is not None


async def test_a_consumer_whose_claim_fails_is_told_and_goes_on_after_a_moment(
    queue: ModelQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[float] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda s, act: later.append(s) or loop.call_soon(act))
    one = await customer(queue, 5)
    queue.publish(message(1), message(2))
    queue.end_claims(1, StorageFailed("broken"))
    await turns()
    assert [type(each) for each in one.errors] == [StorageFailed]
    assert later == [LOOK_INTERVAL_S]
    await served(queue)
    assert one.got_ids == [message(2)]
    assert one.consumer.credit == 4


async def test_what_is_claimed_for_one_that_left_is_released_for_the_next(
    queue: ModelQueue,
) -> None:
    first, second = await customer(queue), await customer(queue)
    queue.publish(message(1))
    first.consumer.close()
    await served(queue)
    await served(queue)
    assert queue.model.released == [message(1)]
    assert (first.got_ids, second.got_ids) == ([], [message(1)])


async def test_an_abandoned_fetch_takes_nothing(queue: ModelQueue) -> None:
    found = fetch(queue)
    found.abandon()
    assert found.future.cancelled()
    await turns()
    queue.publish(message(1))
    assert not queue.model.claims
    assert not len(queue.lines)


async def test_one_without_room_stands_in_no_line_until_it_goes_on(queue: ModelQueue) -> None:
    one = await customer(queue, 10, room_for=2)
    queue.publish(*map(message, range(5)))
    assert flying(one) == [2]
    assert one.consumer not in queue.lines
    await served(queue)
    assert len(one.got_ids) == 5


async def test_credit_counts_messages_that_came(queue: ModelQueue) -> None:
    one = await customer(queue, 3)
    queue.publish(*map(message, range(5)))
    assert flying(one) == [3]
    queue.take(message(1))
    await served(queue)
    assert one.got_ids == [message(0), message(2), message(3)]
    assert one.consumer.credit == 0
    one.consumer.grant(1)
    await served(queue)
    assert one.got_ids[3:] == [message(4)]


async def test_a_paused_one_gets_what_is_being_claimed_and_no_more(queue: ModelQueue) -> None:
    one = await customer(queue, 10)
    queue.publish(message(1))
    one.pause()
    queue.publish(message(2))
    await served(queue)
    assert one.got_ids == [message(1)]
    one.resume()
    await served(queue)
    assert one.got_ids == [message(1), message(2)]


async def test_what_comes_while_no_one_waits_is_for_the_next_that_comes(queue: ModelQueue) -> None:
    queue.publish(*map(message, range(3)))
    one = await customer(queue, 10)
    await served(queue)
    assert one.got_ids == [message(each) for each in range(3)]


async def test_a_claim_that_finds_no_queue_ends_all_and_each_knows_its_claims(
    queue: ModelQueue,
) -> None:
    one = await customer(queue, 5)
    queue.publish(message(1), message(2))
    queue.end_claims(1, QueueNotFound("q"))
    await turns()
    assert [type(each) for each in one.errors] == [QueueNotFound]
    assert one.consumer.is_gone
    assert one.claims == 1


async def test_all_are_told_of_the_queue_s_end(queue: ModelQueue) -> None:
    waits, has_no_credit, found = await customer(queue), await customer(queue, 0), fetch(queue)
    queue.failed(QueueNotFound("q"))
    for each in (waits, has_no_credit):
        assert [type(error) for error in each.errors] == [QueueNotFound]
        assert each.consumer.is_gone
    assert isinstance(found.future.exception(), QueueNotFound)
    assert not list[Waiter](queue.lines)
