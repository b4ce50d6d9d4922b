"""Thousands of consumers of one queue, whatever they do: no wake-up is lost, none is woken in vain.

Real consumers and interests; a model says what is known, and answers what they ask for.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable

from harness.chance import examples
from harness.clock import FakeClock
from harness.waiting_model import Customer, ModelQueue, message
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mq.broker.waiting import NOTIFIED_S, State
from mq.model.limits import PRIORITY_MAX
from mq.model.names import MessageId
from mq.model.selection import Selection

SELECTIONS = [None, *map(Selection.parse, ("priority:5..", "priority:..6", "priority:9"))]

counts = st.sampled_from([1, 1, 1, 2, 3, 1000])
which = st.integers(0, 1 << 30)
priorities = st.sampled_from([0, 0, 0, 4, 9])


class Consumers(RuleBasedStateMachine):
    """What consumers, publishers and other processes do, in any order."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.queue = self.do(lambda: ModelQueue(self.clock))
        self.consumers: list[Customer] = []
        self.number = 0

    def teardown(self) -> None:
        self.loop.close()

    def do(self, act: Callable[[], object]) -> "ModelQueue":
        """Acts in the loop, and lets what that begins run."""

        async def acting() -> object:
            done = act()
            for _ in range(5):
                await asyncio.sleep(0)
            return done

        return self.loop.run_until_complete(acting())  # type: ignore[return-value]

    # Rules

    @rule(
        count=counts,
        credit=st.sampled_from([0, 1, 1, 2, 100]),
        priority=priorities,
        selection=st.integers(0, 3),
        pull_size=st.sampled_from([1, 1, 3, 32]),
        is_idle=st.booleans(),
    )
    def come(
        self,
        count: int,
        credit: int,
        priority: int,
        selection: int,
        pull_size: int,
        is_idle: bool,
    ) -> None:
        chosen = SELECTIONS[selection]
        new = [
            Customer(self.queue, credit, priority, None, chosen, pull_size=pull_size)
            for _ in range(count)
        ]
        self.consumers += new
        for each in new:
            each.is_idle = is_idle
        self.do(lambda: [each.begin() for each in new])

    @rule(count=st.integers(1, 5), priority=st.integers(0, 9), together=st.booleans())
    def publish(self, count: int, priority: int, together: bool) -> None:
        ids = self.new(count, priority)
        if together:
            self.do(lambda: self.queue.publish(*ids))
            return
        for each in ids:
            self.do(lambda each=each: self.queue.publish(each))

    @rule(count=st.sampled_from([1, 3, 100]), priority=st.integers(0, 9))
    def look(self, count: int, priority: int) -> None:
        ids = self.new(count, priority)
        self.do(lambda: self.queue.look(*ids))

    @rule(count=st.sampled_from([1, 1, 5, 1000]))
    def serve(self, count: int) -> None:
        self.do(lambda: self.queue.serve(count))

    @rule(count=st.sampled_from([1, 5, 1000]), priority=st.integers(0, 9))
    def publish_as_asks_are_answered(self, count: int, priority: int) -> None:
        ids = self.new(1, priority)
        self.do(lambda: (self.queue.serve(count), self.queue.publish(*ids)))

    @precondition(lambda self: self.queue.known)
    @rule(which=which)
    def another_takes(self, which: int) -> None:
        self.do(lambda: self.queue.take(self.queue.known[which % len(self.queue.known)]))

    @rule()
    def fetch(self) -> None:
        self.do(lambda: self.queue.claimer().begin(None))

    @rule(which=which)
    def give_a_fetch_up(self, which: int) -> None:
        owned = {future for each in self.consumers for future in each.asked}
        if plain := [ask for ask in self.queue.asks if ask.future not in owned]:
            plain[which % len(plain)].future.cancel()
            self.queue.asks = [ask for ask in self.queue.asks if not ask.future.done()]
            self.do(self.queue.asks_ended)

    @precondition(lambda self: self.consumers)
    @rule(which=which, act=st.sampled_from(["act", "act", "pause", "resume", "grant", "close"]))
    def one_acts(self, which: int, act: str) -> None:
        each = self.consumers[which % len(self.consumers)]
        if act == "grant":
            self.do(lambda: each.grant(2))
        else:
            self.do(getattr(each, act))
        if act == "close":
            self.consumers.remove(each)
            self.queue.asks = [ask for ask in self.queue.asks if not ask.future.done()]
            self.do(self.queue.asks_ended)

    @precondition(lambda self: self.consumers)
    @rule(act=st.sampled_from(["pause", "resume", "close"]))
    def all_act(self, act: str) -> None:
        self.do(lambda: [getattr(each, act)() for each in self.consumers])
        if act == "close":
            self.consumers.clear()
            self.queue.asks = [ask for ask in self.queue.asks if not ask.future.done()]
            self.do(self.queue.asks_ended)

    @precondition(lambda self: self.consumers)
    @rule(is_idle=st.booleans(), which=which)
    def one_changes_its_mind(self, is_idle: bool, which: int) -> None:
        each = self.consumers[which % len(self.consumers)]
        each.is_idle = is_idle
        if not is_idle:
            self.do(each.act)

    @rule(share=st.sampled_from([0.4, 1.0]))
    def time_passes(self, share: float) -> None:
        self.clock.advance(share * NOTIFIED_S)
        self.do(lambda: self.queue.check_stalled(self.clock.steady_s()))
        now_s = self.clock.steady_s()
        assert not any(
            each.is_armed and now_s - each.since_s >= NOTIFIED_S for each in self.consumers
        )

    # What always holds

    @invariant()
    def no_wake_up_is_lost(self) -> None:
        """Of what an interested one could take, all is somebody's who is to ask for it, or asks."""
        interests = self.queue.subscriptions
        asking = Counter(each.selection for each in self.consumers if each.is_armed)
        asking.update(ask.selection for ask in self.queue.asks)
        waiting = {
            (each.priority, each.selection)
            for each in self.consumers
            if each.state is State.INTERESTED
        }
        for priority, selection in waiting:
            takeable = [
                message_id
                for message_id in self.queue.of(selection)
                if interests.may_take(priority, message_id.text)
            ]
            answering = sum(
                count
                for other, count in asking.items()
                if any(self.queue.is_of(other, message_id) for message_id in takeable)
            )
            assert len(takeable) <= answering

    @invariant()
    def a_message_has_woken_one_at_most(self) -> None:
        told = Counter(each.woken_for for each in self.consumers if each.woken_for is not None)
        assert not told or max(told.values()) == 1

    @invariant()
    def states_and_credit_agree(self) -> None:
        for each in self.consumers:
            would = each.credit > 0 and not each.is_paused
            assert would or each.state is State.NOT_INTERESTED
            assert each.credit >= 0
            assert each.is_armed <= each.is_notified
        told = Counter(each.state for each in self.consumers)
        interests = self.queue.subscriptions
        assert sum(1 for _ in interests) == told[State.INTERESTED] + told[State.NOTIFIED]
        active = Counter(
            (each.priority, each.selection)
            for each in self.consumers
            if each.state is not State.NOT_INTERESTED
        )
        assert bool(interests) == bool(active)
        for priority in range(PRIORITY_MAX + 1):
            above = any(other > priority for other, _ in active)
            assert interests.holds_back(priority) == above
        for each in {(each.priority, each.selection): each for each in self.consumers}.values():
            equals = max(1, active[each.priority, each.selection])
            share = max(1, math.ceil(self.queue.work(each.selection) / equals))
            assert interests.share(each) == share

    @invariant()
    def nobody_gets_what_is_another_s(self) -> None:
        got = Counter(message_id for each in self.consumers for message_id in each.got)
        assert not got or max(got.values()) == 1
        for each in self.consumers:
            assert all(self.queue.is_of(each.selection, message_id) for message_id in each.got)

    # How it is known

    def new(self, count: int, priority: int) -> list[MessageId]:
        self.number += count
        return [message(self.number - at, priority) for at in range(count)]


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
