"""Thousands of waiters of one queue, whatever they do: no message waits for no reason, and each is
for one of them. Real waiters, lines and claimers; a model says what is ready.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from harness.chance import examples
from harness.clock import FakeClock
from harness.waiting_model import Customer, ModelQueue, fetch, is_of, message, turns
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mq.broker.consumers import Fetch
from mq.model.errors import Busy, StorageFailed
from mq.model.names import MessageId
from mq.model.selection import Selection

T = TypeVar("T")

SELECTIONS = [None, *map(Selection.parse, ("priority:5..", "priority:..6", "priority:9"))]

counts = st.sampled_from([1, 1, 1, 2, 3, 1000])
which = st.integers(0, 1 << 30)
priorities = st.sampled_from([0, 0, 0, 4, 9])


class Waiting(RuleBasedStateMachine):
    """What waiters, publishers and other processes do, in any order."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.queue = self.do(lambda: ModelQueue(self.clock))
        self.consumers: list[Customer] = []
        self.fetches: list[Fetch] = []
        self.number = 0

    def teardown(self) -> None:
        self.loop.close()

    def do(self, act: Callable[[], T]) -> T:
        """Acts in the loop, and lets what that begins run."""

        async def acting() -> T:
            done = act()
            await turns()
            return done

        return self.loop.run_until_complete(acting())

    # Rules

    @rule(
        count=counts,
        credit=st.sampled_from([0, 1, 1, 2, 100]),
        priority=priorities,
        selection=st.sampled_from(SELECTIONS),
        room_for=st.sampled_from([0, 1, 3, 1000]),
    )
    def come(
        self, count: int, credit: int, priority: int, selection: Selection | None, room_for: int
    ) -> None:
        def begin() -> None:
            for _ in range(count):
                each = Customer(self.queue, credit, priority, None, selection, room_for=room_for)
                self.consumers.append(each)
                each.begin()

        self.do(begin)

    @rule(count=st.integers(1, 5), priority=st.integers(0, 9), together=st.booleans())
    def publish(self, count: int, priority: int, together: bool) -> None:
        ids = self.new(count, priority)
        if together:
            self.do(lambda: self.queue.publish(*ids))
            return
        for each in ids:
            self.do(lambda each=each: self.queue.publish(each))  # type: ignore[misc]

    @rule(count=st.sampled_from([1, 3, 100]), priority=st.integers(0, 9))
    def look(self, count: int, priority: int) -> None:
        ids = self.new(count, priority)
        self.do(lambda: self.queue.look(*ids))

    @rule(
        count=st.sampled_from([1, 1, 5, 1000]),
        error=st.sampled_from([None, None, None, Busy("locked"), StorageFailed("broken")]),
    )
    def claims_end(self, count: int, error: Exception | None) -> None:
        self.do(lambda: self.queue.end_claims(count, error))

    @rule(count=st.sampled_from([1, 5, 1000]), priority=st.integers(0, 9))
    def publish_as_claims_end(self, count: int, priority: int) -> None:
        ids = self.new(1, priority)
        self.do(lambda: (self.queue.end_claims(count), self.queue.publish(*ids)))

    @precondition(lambda self: self.queue.model.ready)
    @rule(which=which)
    def another_takes(self, which: int) -> None:
        ready = self.queue.model.ready
        self.do(lambda: self.queue.take(ready[which % len(ready)]))

    @rule(priority=priorities, selection=st.sampled_from(SELECTIONS))
    def fetch(self, priority: int, selection: Selection | None) -> None:
        self.fetches.append(self.do(lambda: fetch(self.queue, priority, selection)))

    @precondition(lambda self: self.fetches)
    @rule(which=which)
    def give_a_fetch_up(self, which: int) -> None:
        each = self.fetches.pop(which % len(self.fetches))
        if not each.future.done():
            self.do(each.abandon)

    @precondition(lambda self: self.consumers)
    @rule(which=which, act=st.sampled_from(["pause", "resume", "grant", "close", "room"]))
    def one_acts(self, which: int, act: str) -> None:
        each = self.consumers[which % len(self.consumers)]
        if act == "grant":
            self.do(lambda: each.consumer.grant(2))
        elif act == "room":
            each.room_for = 1000
            self.do(each.consumer.go_on)
        elif act == "close":
            self.consumers.remove(each)
            self.do(each.consumer.close)
        else:
            self.do(getattr(each, act))

    @precondition(lambda self: self.consumers)
    @rule(act=st.sampled_from(["pause", "resume", "close"]))
    def all_act(self, act: str) -> None:
        if act == "close":
            closing, self.consumers = self.consumers, []
            self.do(lambda: [each.consumer.close() for each in closing])
        else:
            self.do(lambda: [getattr(each, act)() for each in self.consumers])

    # What always holds

    @invariant()
    def no_message_waits_for_no_reason(self) -> None:
        """Once all claims have ended, no one in line could take what is a candidate."""
        if self.queue.model.claims:
            return
        for waiter in self.queue.lines:
            ready = self.queue.claimer(waiter.selection).ready
            above = self.queue.lines.above(waiter.priority)
            for name in ready.names():
                assert any(is_of(each, MessageId.parse(name)) for each in above), waiter

    @invariant()
    def a_fetch_is_answered_once_no_claim_goes_on(self) -> None:
        if not self.queue.model.claims:
            assert all(each.future.done() for each in self.fetches)

    @invariant()
    def lines_and_credit_agree(self) -> None:
        standing = set(self.queue.lines)
        for each in self.consumers:
            assert each.consumer.credit >= 0
            assert each.consumer.in_flight <= each.room_for
            assert each.claims == each.consumer.in_flight
            if each.consumer in standing:
                assert each.consumer.credit > 0
                assert not each.is_paused
        assert len(standing) == len(self.queue.lines)

    @invariant()
    def each_message_is_for_one(self) -> None:
        got = Counter(message_id for each in self.consumers for message_id in each.got_ids)
        got.update(
            delivery.id
            for each in self.fetches
            if not each.future.exception() and (delivery := each.future.result()) is not None
        ) if not self.queue.model.claims else None
        assert not got or max(got.values()) == 1
        for each in self.consumers:
            selection = each.consumer.selection
            assert all(is_of(selection, message_id) for message_id in each.got_ids)

    # How it is known

    def new(self, count: int, priority: int) -> list[MessageId]:
        self.number += count
        return [message(self.number - at, priority) for at in range(count)]


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
