"""Random use of schedules, compared with `mq.model.schedule`."""

import itertools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.chance import examples
from harness.schedules import QUEUE, TimedRoot
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mq.model.errors import ScheduleNotFound
from mq.model.names import Key, MessageId, ScheduleName
from mq.model.recurrence import Cron, Every
from mq.model.schedule import After, Armed, Misfire, Overlap, Schedule
from mq.store.schedules.firing import Firing, MovedOn
from mq.store.schedules.schedules import delete_schedule

names = st.sampled_from(["a", "b", "c"])
recurrences = st.sampled_from(
    [Every.parse(60), Every.parse(60, 0), Every.parse(7.5, 3), Cron.parse("*/5 * * * *")]
)


@dataclass
class Fired:
    """What a mover did before it died, or while it is stopped: the schedule it was at, and when."""

    name: str
    state: int
    firing: Firing


class Schedules(RuleBasedStateMachine):
    """Makes, changes and deletes schedules; fires them, dies in the middle, or goes on late."""

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp(prefix="mq-schedules-"))
        self.place = TimedRoot(self.top / "root")
        self.armed: dict[str, Armed] = {}
        self.states: dict[str, int] = {}
        """Each time that a schedule becomes another, or goes on, it has another number."""
        self.numbers = itertools.count()
        self.published: dict[str, MessageId] = {}
        """The message of the firing that is due, where that was published already."""
        self.stopped: list[Fired] = []
        self.seen: set[MessageId] = set()
        self.count = 0

    def teardown(self) -> None:
        shutil.rmtree(self.top)

    # What programs and consumers do

    @rule(
        name=names,
        recurrence=recurrences,
        count=st.sampled_from([None, 1, 3]),
        until_in_s=st.sampled_from([None, 0, 100]),
        overlap=st.sampled_from(["allow", "skip"]),
        after=st.sampled_from(["due", "done"]),
        misfire=st.sampled_from(["once", "skip", "all"]),
        is_keyed=st.booleans(),
    )
    def put(
        self,
        name: str,
        recurrence: Every | Cron,
        count: int | None,
        until_in_s: int | None,
        overlap: Overlap,
        after: After,
        misfire: Misfire,
        is_keyed: bool,
    ) -> None:
        now_ms = self.place.clock.now_ms()
        until_ms = None if until_in_s is None else now_ms + 1 + until_in_s * 1000
        key = Key.parse(name) if is_keyed else None
        said = Schedule(
            recurrence, count, until_ms, overlap, after, misfire, key=key, body=b"again"
        )
        self._put(name, said)

    @precondition(lambda self: self.armed)
    @rule(data=st.data())
    def put_again(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.armed)))
        self._put(name, self.armed[name].schedule)

    def _put(self, name: str, schedule: Schedule) -> None:
        # A firing is known by its due time: one is not fired, and replaced by another that is due
        # at once, in the same millisecond.
        self.place.pass_s(0.001)
        before = self.armed.get(name)
        if before is None or before.schedule != schedule:
            self._becomes(name, schedule.armed(self.place.clock.now_ms()))
        assert self.place.put(schedule, name) == self.armed[name]

    @rule(name=names)
    def delete(self, name: str) -> None:
        try:
            self.place.run(delete_schedule(self.place.root, QUEUE, ScheduleName.parse(name)))
        except ScheduleNotFound:
            assert name not in self.armed
        else:
            del self.armed[name], self.states[name]
            self.published.pop(name, None)

    @rule(seconds=st.sampled_from([0.001, 1, 5, 30, 60, 61, 300, 5000]))
    def time_passes(self, seconds: float) -> None:
        self.place.pass_s(seconds)

    @rule()
    def all_is_consumed(self) -> None:
        self.place.take_away()

    # What movers do

    @rule()
    def a_mover_comes_by(self) -> None:
        alive = set(self.place.ready())
        due = [name for name in self.armed if self._is_due(name, alive)]
        publishes = {name: self._publishes(name, alive) for name in due}
        scheduler = self.place.scheduler()
        assert scheduler.run_once() == sum(publishes.values())
        for name in due:
            message = self._new_message(name) if publishes[name] else self.published.get(name)
            self._goes_on(name, message)
        if not any(self._is_due(name, set(self.place.ready())) for name in self.armed):
            assert scheduler.run_once() == 0

    @precondition(lambda self: self.armed)
    @rule(data=st.data())
    def a_mover_stops_before_it_writes_what_is_next(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.armed)))
        alive = set(self.place.ready())
        is_due = self._is_due(name, alive)
        try:
            firing = self.place.fire(name)
        except MovedOn:
            assert not is_due
            return
        assert is_due
        assert firing.is_ours == self._publishes(name, alive)
        if firing.is_ours:
            self.published[name] = self._new_message(name)
        assert firing.message == self.published.get(name)
        self.stopped.append(Fired(name, self.states[name], firing))

    @precondition(lambda self: self.stopped)
    @rule(data=st.data())
    def one_that_was_stopped_goes_on(self, data: st.DataObject) -> None:
        fired = self.stopped.pop(data.draw(st.integers(0, len(self.stopped) - 1)))
        (written,) = self.place.rearm(fired.firing)
        is_late = self.states.get(fired.name) != fired.state
        # It has seen nothing to fire; but meanwhile another has.
        is_wrong = fired.firing.message is None and fired.name in self.published
        if is_late or is_wrong:
            assert written is None
        else:
            self._goes_on(fired.name, fired.firing.message)
            assert written == self.armed[fired.name]

    # What must be so

    @invariant()
    def each_is_as_was_decided(self) -> None:
        there = [name for name in self.place.names() if name != ".lock"]
        assert there == sorted(f"q:{name}" for name in self.armed)
        for name, armed in self.armed.items():
            assert self.place.read(name) == armed

    @invariant()
    def each_firing_is_one_message(self) -> None:
        self.seen |= set(self.place.ready())
        assert len(self.seen) == self.count

    # The model

    def _is_due(self, name: str, alive: set[MessageId]) -> bool:
        """For a firing, or to be counted from the end of its last message."""
        armed = self.armed[name]
        is_late = armed.next_ms is not None and armed.next_ms <= self.place.clock.now_ms()
        return is_late and not (armed.waiting and armed.last in alive)

    def _publishes(self, name: str, alive: set[MessageId]) -> bool:
        armed = self.armed[name]
        if not self._is_due(name, alive) or name in self.published or armed.waiting:
            return False
        assert armed.next_ms is not None
        if armed.schedule.is_missed(armed.next_ms, self.place.clock.now_ms()):
            return False
        if armed.schedule.overlap == "skip" and armed.last in alive:
            return False
        key = armed.schedule.key
        return key is None or all(message.key != key for message in alive)

    def _new_message(self, name: str) -> MessageId:
        """The one that is there since a moment ago."""
        self.count += 1
        firing = self.place.read(name).last
        new = set(self.place.ready()) - self.seen
        found = firing if firing in new else new.pop()
        self.seen.add(found)
        return found

    def _goes_on(self, name: str, message: MessageId | None) -> None:
        armed, now_ms = self.armed[name], self.place.clock.now_ms()
        if armed.waiting:
            self._becomes(name, armed.done_at(now_ms))
        elif message is None:
            self._becomes(name, armed.skipped_at(now_ms))
        else:
            self._becomes(name, armed.fired_at(now_ms, message))

    def _becomes(self, name: str, armed: Armed) -> None:
        self.armed[name] = armed
        self.states[name] = next(self.numbers)
        self.published.pop(name, None)


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=examples(40), stateful_step_count=40)
