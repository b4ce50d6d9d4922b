"""A stream against a model: publishes, batches, deaths anywhere, lost checkpoints, leases that
lapse, deletes and a mover, in any order. Nothing is lost, and what comes twice is what may.
"""

import itertools
import tempfile
from pathlib import Path

import pytest
from harness.leases import LEASE_S, QUEUE, LeasingRoot
from harness.query import DEATHS, Checkpoint, Query
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mq.model.errors import ConsumerBusy, LeaseLost
from mq.model.lifecycle import State
from mq.model.names import ConsumerName, MessageId
from mq.spark.listener import Processed, acknowledge_up_to
from mq.spark.listing import blocks_of
from mq.spark.options import Subscription
from mq.store.leases.releasing import Released, give_back
from mq.store.operations.remove import remove

LIMIT = 3


class Streams(RuleBasedStateMachine):
    """One consumer's queries over one queue."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = LeasingRoot(Path(self.folder.name) / "root")
        self.query = self.new_query()
        self.published: dict[str, MessageId] = {}
        self.deleted: set[str] = set()
        self.came_back: set[str] = set()
        """What a lease held that lapsed: it comes again."""
        self.past: list[Checkpoint] = []

    def teardown(self) -> None:
        self.query.die()
        self.folder.cleanup()

    def new_query(self) -> Query:
        return Query(self.place.top, self.place.clock, LIMIT)

    # What happens.

    @rule(count=st.integers(1, 5), priority=st.sampled_from([0, 0, 4]))
    def publish(self, count: int, priority: int) -> None:
        ids = self.place.publish(count, priority=priority)
        self.published |= {message_id.text: message_id for message_id in ids}

    @rule()
    def trigger(self) -> None:
        self._trigger()

    @rule(changes_left=st.integers(0, 25))
    def trigger_and_die_at_a_change(self, changes_left: int) -> None:
        self._trigger(changes_left=changes_left)

    @rule(death=st.sampled_from(DEATHS))
    def trigger_and_die_at_a_step(self, death: str) -> None:
        self._trigger(death=death)

    @rule()
    def die(self) -> None:
        self.query.die()

    @rule()
    def lose_the_checkpoint(self) -> None:
        log = self.query.checkpoint
        self.query.forget()
        self.past.append(log)

    @rule()
    def end_well(self) -> None:
        """As the listener sees it: without an exception, so of a run that has not died."""
        log = self.query.checkpoint
        if self.query.stream is not None and log.committed_seq is not None:
            self.query.die()
            acknowledge_up_to(Processed(self.place.top, ConsumerName.parse("c"), log.committed_seq))

    @precondition(lambda self: self.query.stream is not None)
    @rule()
    def another_query_begins(self) -> None:
        if self.query.stream is not None and self.query.files.changes:
            with pytest.raises(ConsumerBusy):
                self.new_query().start().latest_seq(0, LIMIT)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        there = sorted(self.published.keys() - self.deleted - self.in_state(State.REMOVED))
        if there:
            name = data.draw(st.sampled_from(there))
            self.place.run(remove(self.place.root, QUEUE, self.published[name]))
            self.deleted.add(name)

    @rule(seconds=st.floats(1, LEASE_S / 2), is_renewed=st.booleans())
    def time_passes(self, seconds: float, is_renewed: bool) -> None:
        self.place.clock.advance(seconds)
        if is_renewed:
            self.query.renew()
        self._mover_passes()

    @rule()
    def lapse(self) -> None:
        self.place.clock.advance(LEASE_S + 1)
        self._mover_passes()

    def _mover_passes(self) -> None:
        for lease in self.place.leases():
            held = {path.name.rpartition(":")[2] for path in Path(lease.folder).glob("*")}
            if isinstance(
                self.place.run(give_back(self.place.root, lease.name, only_due=True)), Released
            ):
                self.came_back |= held

    def _trigger(self, **death: object) -> bool:
        try:
            return self.query.trigger(**death)  # type: ignore[arg-type]
        except LeaseLost:
            raise AssertionError("a lease lapsed that nobody let lapse") from None

    # What is so at any time.

    def in_state(self, state: State) -> set[str]:
        blocks = blocks_of(self.place.root, Subscription((QUEUE,)), state)
        return {name.rpartition(":")[2] for block in blocks for name in block.names}

    def delivered(self) -> list[str]:
        """What the committed batches of all checkpoints brought."""
        return [
            name
            for log in (*self.past, self.query.checkpoint)
            for number in range(log.committed)
            for name in log.sink[number]
        ]

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        states = [self.in_state(state) for state in (State.READY, State.LEASED, State.REMOVED)]
        assert sum(map(len, states)) == len(self.published)
        assert set().union(*states) == self.published.keys()

    @invariant()
    def nothing_is_removed_that_was_not_delivered(self) -> None:
        assert self.in_state(State.REMOVED) <= self.deleted.union(self.delivered())

    @invariant()
    def no_batch_changes(self) -> None:
        """But for what was deleted, or went back to its queue."""
        for readings in self.query.read.values():
            for before, after in itertools.pairwise(readings):
                assert after <= before
                assert before - after <= self.deleted | self.came_back

    @invariant()
    def one_lease_is_open(self) -> None:
        assert sum(lease.is_open for lease in self.place.leases()) <= 1

    @invariant()
    def what_comes_twice_may(self) -> None:
        """It lapsed, or a checkpoint was lost that knew it as processed: at most its last batch."""
        delivered = self.delivered()
        twice = {name for name in delivered if delivered.count(name) > 1}
        last = {name for log in self.past if log.committed for name in log.sink[log.committed - 1]}
        assert twice <= self.came_back | last

    def check_end(self) -> None:
        """Left alone, all comes to be delivered and removed."""
        self.lapse()
        while self._trigger() or len(self.query.checkpoint.ends) > self.query.checkpoint.committed:
            pass
        assert self.in_state(State.REMOVED) == self.published.keys()
        assert self.published.keys() - self.deleted <= set(self.delivered())


class StreamsToTheEnd(Streams):
    """The same, and then it is left alone."""

    def teardown(self) -> None:
        try:
            self.check_end()
        finally:
            super().teardown()


TestStreams = StreamsToTheEnd.TestCase
TestStreams.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
