"""Rules of queues: making, deleting, changing settings, purging."""

import asyncio
from dataclasses import asdict

from hypothesis import strategies as st
from hypothesis.stateful import rule

from harness.model.machine import Machine, queues
from mq.model.errors import MqError, QueueNotFound
from mq.model.names import QueueName, UuidSource
from mq.model.settings import QueueSettings
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.operations.purge import purge

patches = st.fixed_dictionaries(
    {},
    optional={
        "visibility_s": st.sampled_from([None, 0.5, 45]),
        "priority_default": st.sampled_from([None, 0, 5]),
        "idempotency_s": st.sampled_from([None, 0, 2.5, 7200]),
    },
)


class WithQueues(Machine):
    """What is done to a queue as a whole."""

    @rule(queue=queues)
    def create(self, queue: QueueName) -> None:
        assert self.run(self.broker.create_queue(queue, self.shape)) == self.model.create(queue)

    @rule(queue=queues, really=st.sampled_from([False, False, True]))
    def delete_queue(self, queue: QueueName, really: bool) -> None:
        if not really:  # Seldom, or queues would hardly ever hold anything.
            return
        self.run(self.settled(self.broker.delete_queue(queue)), self.model.drop(queue))

    @rule(queue=queues, patch=patches)
    def change_settings(self, queue: QueueName, patch: dict[str, object]) -> None:
        refusal = self.unless_there(queue)
        found = self.run(self.broker.change_settings(queue, patch, None), refusal)
        if refusal is not None:
            return
        fields = asdict(self.model.queues[queue])
        default = asdict(self.model.defaults)
        for name, value in patch.items():
            fields[name] = default[name] if value is None else value
        self.model.queues[queue] = QueueSettings(**fields)
        assert found.settings == self.model.queues[queue]

    @rule(queue=queues)
    def read_settings(self, queue: QueueName) -> None:
        found = self.run(self.broker.settings(queue), self.unless_there(queue))
        assert found is None or found.settings == self.model.queues[queue]

    @rule(queue=queues, really=st.sampled_from([False, True]))
    def purge(self, queue: QueueName, really: bool) -> None:
        if not really:
            return

        async def purge_and_fetch() -> int:
            marked_ms = await self.broker.purge(queue)
            # What is taken away in the background is served no more before that.
            assert (
                await asyncio.gather(*(self.broker.consuming.fetch(queue) for _ in range(3)))
                == [None] * 3
            )
            return marked_ms

        marked_ms = self.run(self.settled(purge_and_fetch()), self.unless_there(queue))
        if marked_ms is None:
            return
        assert marked_ms >= max(self.clock.now_ms(), self.model.marks_ms.get(queue, -1))
        self.model.purge(queue, marked_ms)
        self.model.take_purged(queue, self.whole())
        left = [each for each in self.model.messages.values() if each.queue == queue]
        assert not any(map(self.model.lives, left))

    @rule(queue=queues)
    def purge_and_die(self, queue: QueueName) -> None:
        """Another process does, and ends before it takes anything away."""
        if queue not in self.model.queues:
            return
        before_ms = UuidSource(self.clock).end_moment()
        self.model.purge(queue, before_ms)
        marked_ms = run_alone(purge(self.root, queue, before_ms), NoFlusher())
        assert marked_ms == self.model.marks_ms[queue]

    def unless_there(self, queue: QueueName) -> type[MqError] | None:
        return None if queue in self.model.queues else QueueNotFound
