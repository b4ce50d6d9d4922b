"""Who is notified of a message, rule by rule: real consumers over a model of what is known."""

import asyncio
import random
from collections import Counter

import pytest
from harness.clock import FakeClock
from harness.waiting_model import Customer, ModelQueue, message

from mq.broker.waiting import NOTIFIED_S, TRANSITIONS, Event, State, Subscription, Subscriptions
from mq.model.errors import QueueNotFound
from mq.model.selection import Selection

URGENT = Selection.parse("priority:5..")
CALM = Selection.parse("priority:..4")


async def turns() -> None:
    """Lets callbacks run that callbacks begin."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def queue() -> ModelQueue:
    return ModelQueue(FakeClock())


def customer(queue: ModelQueue, credit: int = 1, *more: object, idle: bool = False) -> Customer:
    found = Customer(queue, credit, *more)
    found.is_idle = idle
    found.begin()
    return found


# The table

NOT, WAITS, TOLD = State.NOT_INTERESTED, State.INTERESTED, State.NOTIFIED
LEGAL = [
    (NOT, Event.WANTS, WAITS),
    (NOT, Event.PULLS, NOT),
    (NOT, Event.FOUND, NOT),
    (NOT, Event.FOUND_NOTHING, NOT),
    (NOT, Event.OUT_OF_CREDIT, NOT),
    (NOT, Event.PAUSED, NOT),
    (NOT, Event.CLOSED, NOT),
    (WAITS, Event.WANTS, WAITS),
    (WAITS, Event.NOTICE, TOLD),
    (WAITS, Event.PULLS, WAITS),
    (WAITS, Event.FOUND, WAITS),
    (WAITS, Event.FOUND_NOTHING, WAITS),
    (WAITS, Event.OUT_OF_CREDIT, NOT),
    (WAITS, Event.PAUSED, NOT),
    (WAITS, Event.CLOSED, NOT),
    (TOLD, Event.WANTS, TOLD),
    (TOLD, Event.PULLS, TOLD),
    (TOLD, Event.FOUND, TOLD),
    (TOLD, Event.FOUND_NOTHING, WAITS),
    (TOLD, Event.OUT_OF_CREDIT, NOT),
    (TOLD, Event.PAUSED, NOT),
    (TOLD, Event.STALLED, NOT),
    (TOLD, Event.CLOSED, NOT),
]


class Nothing:
    """A queue with nothing in it, of which every message is of every selection."""

    def work(self, selection: Selection | None) -> int:
        return 0

    def matches(self, selection: Selection, name: str) -> bool:
        return True

    def holds(self, selection: Selection | None, name: str) -> bool:
        return True


def subscription_in(state: State) -> tuple[Subscriptions, Subscription]:
    """An subscription in that state, among those of a queue with nothing in it."""
    subscriptions = Subscriptions(Nothing(), lambda: 0.0)
    subscription = Subscription()
    if state is not NOT:
        assert subscriptions.wants(subscription) == []
    if state is TOLD:
        assert subscriptions.arrived("m") == [subscription]
    assert subscription.state is state
    return subscriptions, subscription


def act(subscriptions: Subscriptions, subscription: Subscription, event: Event) -> None:
    """Does what is this event to the subscription."""
    if event is Event.WANTS:
        subscriptions.wants(subscription)
    elif event is Event.NOTICE:
        subscriptions.arrived("m")
    elif event is Event.PULLS:
        subscriptions.pulls(subscription)
    elif event is Event.FOUND:
        subscriptions.found(subscription)
    elif event is Event.FOUND_NOTHING:
        subscriptions.found_nothing(subscription, subscriptions.news(subscription))
    else:
        subscriptions.stops(subscription, event)


@pytest.mark.parametrize(("before", "event", "after"), LEGAL)
def test_an_event_leads_to_a_state(before: State, event: Event, after: State) -> None:
    subscriptions, subscription = subscription_in(before)
    act(subscriptions, subscription, event)
    assert subscription.state is after
    assert TRANSITIONS[before][event] is after
    assert list(subscriptions) == ([] if after is NOT else [subscription])
    assert subscriptions.waiting == ({None} if after is WAITS else set())


def test_the_table_says_what_cannot_happen() -> None:
    told = [(NOT, Event.NOTICE), (NOT, Event.STALLED), (WAITS, Event.STALLED), (TOLD, Event.NOTICE)]
    assert [
        (state, event) for state in State for event in Event if event not in TRANSITIONS[state]
    ] == told


@pytest.mark.parametrize("state", [NOT, WAITS])
def test_who_was_not_notified_cannot_stall(state: State) -> None:
    subscriptions, subscription = subscription_in(state)
    with pytest.raises(ValueError, match=f"STALLED of one that is {state.name}"):
        subscriptions.stops(subscription, Event.STALLED)
    assert subscription.state is state


@pytest.mark.parametrize("state", [NOT, TOLD])
def test_a_message_is_no_notice_to_who_is_not_in_the_line(state: State) -> None:
    subscriptions, subscription = subscription_in(state)
    assert subscriptions.arrived("n") == []
    assert subscription.state is state


# Whose turn it is


async def test_a_message_wakes_the_first_and_only_that_one(queue: ModelQueue) -> None:
    first, second = customer(queue), customer(queue)
    queue.publish(message(1))
    assert queue.woken == [first]
    queue.publish(message(2))
    assert queue.woken == [first, second]


async def test_each_of_many_messages_wakes_one(queue: ModelQueue) -> None:
    waiting = [customer(queue, idle=True) for _ in range(10)]
    queue.look(*map(message, range(7)))
    assert queue.woken == waiting[:7]


async def test_more_messages_than_consumers_wake_each_once(queue: ModelQueue) -> None:
    waiting = [customer(queue, 10, idle=True) for _ in range(3)]
    queue.publish(*map(message, range(7)))
    queue.look(message(8))
    assert queue.woken == waiting


async def test_the_highest_priority_goes_first(queue: ModelQueue) -> None:
    low, high, higher = (customer(queue, 1, priority) for priority in (0, 5, 9))
    for number in range(3):
        queue.publish(message(number))
    assert queue.woken == [higher, high, low]


async def test_only_whom_it_matches_is_woken(queue: ModelQueue) -> None:
    urgent, calm, any_of_them = (
        customer(queue, 1, 0, None, selection) for selection in (URGENT, CALM, None)
    )
    queue.publish(message(1, priority=3))
    assert queue.woken == [calm]
    queue.publish(message(2, priority=4))
    assert queue.woken == [calm, any_of_them]
    queue.publish(message(3, priority=1))
    assert queue.woken == [calm, any_of_them]
    queue.publish(message(4, priority=9))
    assert queue.woken == [calm, any_of_them, urgent]


async def test_a_message_wakes_one_of_those_of_several_selections(queue: ModelQueue) -> None:
    urgent = customer(queue, 1, 0, None, URGENT, idle=True)
    customer(queue, 1, 0, None, None, idle=True)
    queue.publish(message(1, priority=9))
    queue.asks_ended()
    customer(queue, 1, 0, None, None, idle=True)
    assert queue.woken == [urgent]


async def test_who_was_notified_pulls_until_nothing_is_left_and_goes_to_the_tail(
    queue: ModelQueue,
) -> None:
    first, second = customer(queue, 100), customer(queue, 100, idle=True)
    queue.publish(message(1))
    queue.publish(message(2))
    assert queue.woken == [first, second]
    while queue.asks:
        queue.serve()
        await turns()
    assert first.got == [message(1), message(2)]
    assert first.state is State.INTERESTED
    second.act()
    queue.serve()
    await turns()
    assert second.state is State.INTERESTED
    queue.publish(message(3))
    assert queue.woken == [first, second, first]


async def test_equals_ask_for_equal_shares_at_once(queue: ModelQueue) -> None:
    equals = [customer(queue, 100, idle=True) for _ in range(3)]
    low = customer(queue, 100, 0, None, CALM, idle=True)
    queue.look(*map(message, range(10)))
    assert low.is_notified
    assert [len(each.pull(32)) for each in equals] == [4, 2, 2]


async def test_who_is_new_is_woken_by_what_nobody_answers_for(queue: ModelQueue) -> None:
    queue.publish(message(1))
    first = customer(queue, idle=True)
    assert queue.woken == [first]
    customer(queue, idle=True)
    assert queue.woken == [first]


async def test_what_somebody_asked_for_wakes_nobody(queue: ModelQueue) -> None:
    queue.publish(message(1))
    queue.claimer().begin(None)
    customer(queue)
    assert queue.woken == []


@pytest.mark.parametrize("way", ["publish", "look"])
async def test_who_waits_for_another_message_answers_for_none_that_comes(
    queue: ModelQueue, way: str
) -> None:
    waiting = customer(queue, 3)
    queue.publish(message(1))
    waiting.pause()
    waiting.resume()
    free, behind = customer(queue), customer(queue)
    getattr(queue, way)(message(2))
    assert queue.woken == [waiting, waiting, free]
    assert [waiting.in_flight, free.in_flight, behind.in_flight] == [1, 1, 0]
    queue.serve(2)
    await turns()
    assert [waiting.got, free.got] == [[message(1)], [message(2)]]


async def test_a_fetch_that_was_given_up_wakes_the_next(queue: ModelQueue) -> None:
    queue.publish(message(1))
    asked = queue.claimer().begin(None)
    waiting = customer(queue)
    asked.cancel()
    queue.serve()
    assert queue.woken == [waiting]


# Those above


async def test_those_below_are_not_served_while_one_above_has_interest_and_credit(
    queue: ModelQueue,
) -> None:
    high, low = customer(queue, 2, 5, idle=True), customer(queue, 2)
    for number in range(4):
        queue.publish(message(number))
    assert queue.woken == [high]
    assert queue.subscriptions.holds_back(0)
    assert not queue.subscriptions.may_take(0, message(0).text)
    high.is_idle = False
    high.act()
    while queue.asks:
        queue.serve()
        await turns()
    assert (high.got, low.got) == ([message(0), message(1)], [message(2), message(3)])


async def test_those_below_are_not_woken_by_what_is_found_either(queue: ModelQueue) -> None:
    high = customer(queue, 9, 5, idle=True)
    customer(queue, 9)
    queue.look(*map(message, range(9)))
    assert queue.woken == [high]


async def test_an_interested_one_above_holds_back_what_it_matches(queue: ModelQueue) -> None:
    customer(queue, 1, 5, None, URGENT, idle=True)
    assert queue.subscriptions.holds_back(0)
    assert not queue.subscriptions.may_take(0, message(1, priority=7).text)
    assert queue.subscriptions.may_take(0, message(1, priority=4).text)
    assert queue.subscriptions.may_take(5, message(1, priority=7).text)


@pytest.mark.parametrize("gone", ["pause", "close"])
async def test_those_below_are_served_once_the_one_above_is_gone(
    queue: ModelQueue, gone: str
) -> None:
    high, low = customer(queue, 9, 5, idle=True), customer(queue, 9)
    queue.publish(message(1), message(2))
    getattr(high, gone)()
    assert queue.woken == [high, low]


async def test_what_comes_while_nobody_waits_wakes_who_comes_back(queue: ModelQueue) -> None:
    first = customer(queue, 9)
    queue.publish(message(1))
    queue.take(message(1))
    queue.serve()
    await turns()
    first.pause()
    queue.publish(message(2))
    first.resume()
    assert queue.woken == [first, first]


async def test_what_comes_as_nothing_was_found_wakes_again(queue: ModelQueue) -> None:
    first = customer(queue, 9)
    queue.publish(message(1))
    queue.take(message(1))
    queue.serve()
    queue.publish(message(2))
    await turns()
    assert queue.woken == [first, first]


async def test_who_finds_nothing_that_it_may_take_is_not_woken_again_for_it(
    queue: ModelQueue,
) -> None:
    high = customer(queue, 1, 5, None, URGENT, idle=True)
    low = customer(queue)
    queue.publish(message(1, priority=9))
    queue.look(message(2, priority=8))
    for _ in range(5):
        queue.serve()
        await turns()
        queue.asks_ended()
    assert queue.woken == [high, low]
    queue.publish(message(3))
    assert queue.woken == [high, low, low]


# Handing on


@pytest.mark.parametrize("gone", ["pause", "close"])
async def test_who_goes_hands_its_notification_on(queue: ModelQueue, gone: str) -> None:
    first, second = customer(queue, idle=True), customer(queue, idle=True)
    queue.publish(message(1))
    getattr(first, gone)()
    assert queue.woken == [first, second]
    getattr(second, gone)()
    assert queue.subscriptions.waiting == set()


@pytest.mark.parametrize("gone", ["pause", "close"])
async def test_it_is_handed_on_to_who_has_found_nothing_before(
    queue: ModelQueue, gone: str
) -> None:
    first, second = customer(queue, 9), customer(queue, 9)
    queue.publish(message(1))
    queue.serve()
    await turns()
    second.is_idle = True
    queue.woken.clear()
    queue.publish(message(2))
    assert queue.woken == [second]
    getattr(second, gone)()
    assert queue.woken == [second, first]


async def test_who_goes_hands_on_what_another_selection_matches(queue: ModelQueue) -> None:
    first = customer(queue, 1, 0, None, URGENT, idle=True)
    second = customer(queue, 1, 0, None, None, idle=True)
    queue.publish(message(1, priority=9))
    first.close()
    assert queue.woken == [first, second]


async def test_who_does_not_pull_in_time_hands_its_notification_on(queue: ModelQueue) -> None:
    first, second = customer(queue, idle=True), customer(queue, idle=True)
    queue.publish(message(1))
    queue.clock.advance(NOTIFIED_S / 2)
    queue.check_stalled(queue.clock.steady_s())
    assert queue.woken == [first]
    queue.clock.advance(NOTIFIED_S / 2)
    queue.check_stalled(queue.clock.steady_s())
    assert queue.woken == [first, second]
    assert first.state is State.NOT_INTERESTED


async def test_a_stalled_one_is_not_interested_until_it_acts_again(queue: ModelQueue) -> None:
    first = customer(queue, idle=True)
    queue.publish(message(1))
    queue.clock.advance(NOTIFIED_S)
    queue.check_stalled(queue.clock.steady_s())
    queue.publish(message(2))
    assert queue.woken == [first]
    first.resume()
    assert queue.woken == [first, first]


async def test_who_waits_for_what_it_asked_for_is_not_stalled(queue: ModelQueue) -> None:
    first = customer(queue, 9)
    queue.publish(message(1))
    queue.clock.advance(10 * NOTIFIED_S)
    queue.check_stalled(queue.clock.steady_s())
    assert first.state is State.NOTIFIED


async def test_who_stops_in_the_middle_hands_on(queue: ModelQueue) -> None:
    first, second = customer(queue, 9), customer(queue, 9, idle=True)
    queue.publish(message(1))
    first.is_idle = True
    queue.look(message(2), message(3))
    second.close()
    third = customer(queue, 9, idle=True)
    queue.serve()
    await turns()
    assert first.got == [message(1)]
    assert first.is_notified
    queue.clock.advance(NOTIFIED_S)
    queue.woken.clear()
    fourth = customer(queue, 9, idle=True)
    queue.check_stalled(queue.clock.steady_s())
    assert first.state is third.state is State.NOT_INTERESTED
    assert queue.woken == [fourth]


# Credit


async def test_who_has_no_credit_is_not_interested(queue: ModelQueue) -> None:
    first = customer(queue, 0)
    queue.publish(message(1))
    assert queue.woken == []
    first.grant(1)
    assert queue.woken == [first]
    queue.serve()
    await turns()
    assert (first.got, first.credit, first.state) == ([message(1)], 0, State.NOT_INTERESTED)
    queue.publish(message(2))
    assert queue.woken == [first]


async def test_no_more_comes_than_there_is_credit_for(queue: ModelQueue) -> None:
    queue.publish(*map(message, range(9)))
    first = Customer(queue, 5, pull_size=3)
    first.begin()
    while queue.asks:
        queue.serve()
        await turns()
    assert first.got == [message(number) for number in range(5)]
    first.grant(1)
    first.grant(1)
    assert len(queue.asks) == 2 - first.credit
    while queue.asks:
        queue.serve()
        await turns()
    assert len(first.got) == 7


async def test_what_did_not_come_takes_no_credit(queue: ModelQueue) -> None:
    first = customer(queue, 1)
    queue.publish(message(1))
    queue.take(message(1))
    queue.serve()
    await turns()
    assert (first.credit, first.state) == (1, State.INTERESTED)


async def test_a_paused_one_gets_what_it_asked_for_and_no_more(queue: ModelQueue) -> None:
    first = customer(queue, 9)
    queue.publish(message(1))
    first.pause()
    queue.publish(message(2))
    queue.serve()
    await turns()
    assert (first.got, first.state) == ([message(1)], State.NOT_INTERESTED)
    assert not queue.asks
    first.resume()
    queue.serve()
    await turns()
    assert first.got == [message(1), message(2)]


# Ends


async def test_what_a_closed_one_asked_for_goes_to_others(queue: ModelQueue) -> None:
    first, second = customer(queue), customer(queue)
    queue.publish(message(1))
    first.close()
    queue.serve()
    await turns()
    queue.serve()
    await turns()
    assert (first.got, second.got) == ([], [message(1)])


async def test_all_hear_that_the_queue_is_gone(queue: ModelQueue) -> None:
    told, waits, idle = customer(queue, idle=True), customer(queue), customer(queue, 0)
    queue.publish(message(1))
    queue.was_forgotten()
    for each in (told, waits, idle):
        assert [type(error) for error in each.errors] == [QueueNotFound]
        assert each.is_closed
    with pytest.raises(QueueNotFound):
        customer(queue)


async def test_a_consumer_that_raises_stops_no_other(
    queue: ModelQueue, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = customer(queue), customer(queue)
    first.pull_size = None  # type: ignore[assignment]
    queue.publish(message(1), message(2))
    assert "a consumer failed" in caplog.text
    queue.serve()
    await turns()
    assert second.got == [message(1)]


# Fairness


@pytest.mark.certificate
@pytest.mark.parametrize("pull_size", [1, 32])
async def test_equals_get_equal_shares(queue: ModelQueue, pull_size: int) -> None:
    """Of 10,000 messages, now one and now many at a time, each of ten has its tenth within 5 %."""
    equals = [Customer(queue, 100_000, pull_size=pull_size) for _ in range(10)]
    for each in equals:
        each.begin()
    number, chance = 0, random.Random(8)
    while number < 10_000:
        burst = chance.choice([1, 1, 1, 3, 10, 17, 50, 117])
        queue.publish(*map(message, range(number, number + burst)))
        number += burst
        while queue.asks:
            queue.serve(4)
            await turns()
    counts = Counter({each: len(each.got) for each in equals})
    assert sum(counts.values()) == number
    assert max(counts.values()) <= 1.05 * number / 10
    assert min(counts.values()) >= 0.95 * number / 10
