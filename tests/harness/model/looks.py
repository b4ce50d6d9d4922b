"""Rules of looking: counts, reading by id, pages of a queue. Nothing changes by them."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from harness.model.machine import Machine, all_of_it, messages, queues
from harness.model.messages import DELAYED, READY, REMOVED, Known
from mq.model.errors import QueueNotFound
from mq.model.lifecycle import State
from mq.model.message import Page, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.operations.read import Reading
from mq.store.scan.census import Census, count

STATES = {READY: State.READY, DELAYED: State.DELAYED, REMOVED: State.REMOVED}


class WithLooks(Machine):
    """Looking at what is there."""

    @rule(queue=queues)
    def describe(self, queue: QueueName) -> None:
        if queue in self.model.queues:
            counts = count(Census(self.root), queue)
            delayed = self.model.within(queue, DELAYED)
            in_flight = sum(1 for each in delayed if each.receives)
            assert counts.ready == len(self.model.within(queue, READY))
            assert (counts.delayed, counts.in_flight) == (len(delayed) - in_flight, in_flight)
            assert counts.removed == len(self.model.within(queue, REMOVED))

    @rule(message=messages, with_removed=st.booleans())
    def read(self, message: tuple[QueueName, MessageId], with_removed: bool) -> None:
        queue, message_id = message
        known = self.model.read(queue, message_id, with_removed)
        reading = self.broker.read(queue, message_id, all_of_it, with_removed)
        if isinstance(known, Known):
            self.assert_shows(self.run(reading), known)
        else:
            self.run(reading, known)

    @rule(queue=queues, state=st.sampled_from([READY, DELAYED, REMOVED]), size=st.integers(1, 3))
    def peek_page_by_page(self, queue: QueueName, state: str, size: int) -> None:
        found: list[Reading] = []
        while True:
            after = found[-1].id if found else None
            page = self.peek(queue, Page((STATES[state],), size, after))
            if not page:
                break
            found += page
        self.assert_shown(found, self.in_order(queue, state))

    @rule(
        queue=queues,
        states=st.lists(st.sampled_from([READY, DELAYED, REMOVED]), min_size=2, unique=True),
        size=st.integers(1, 20),
    )
    def peek_several_states(self, queue: QueueName, states: list[str], size: int) -> None:
        found = self.peek(queue, Page(tuple(STATES[each] for each in states), size))
        known = [each for state in states for each in self.in_order(queue, state)]
        self.assert_shown(found, known[:size])

    def peek(self, queue: QueueName, page: Page) -> list[Reading]:
        refusal = None if queue in self.model.queues else QueueNotFound
        peeked = self.run(self.broker.peek(queue, page), refusal)
        return peeked.found if peeked else []

    def in_order(self, queue: QueueName, state: str) -> list[Known]:
        """Ready ones in the order of delivery, others by id."""
        if queue not in self.model.queues:
            return []
        known = self.model.within(queue, state)
        return known if state == READY else sorted(known, key=lambda each: each.id.text)

    def assert_shown(self, found: list[Reading], known: list[Known]) -> None:
        assert [each.id for each in found] == [each.id for each in known]
        for reading, each in zip(found, known, strict=True):
            self.assert_shows(reading, each)

    def assert_shows(self, reading: Reading, known: Known) -> None:
        assert (reading.id, reading.body, reading.headers) == (known.id, known.body, known.headers)
        assert (reading.state, reading.size) == (STATES[known.folder], len(known.body))
        assert reading.stamp.receives == known.receives
        if known.folder == DELAYED:
            assert reading.stamp == Stamp(known.due_ms, known.receives)
