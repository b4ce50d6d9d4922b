"""The operations, the mover, the sweeper and the reaper against a model, over a real directory.

After every step the folders and the keys hold exactly what the model says: nothing lost, invented,
torn, served out of order, before its time, or in two places.
"""

import asyncio
from collections.abc import Sequence

from harness.model.keys import WithKeys
from harness.model.looks import WithLooks
from harness.model.machine import expected_receives, messages, precondition, queues
from harness.model.queues import WithQueues
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import multiple, rule

from mq.broker.batches import fetch_many, publish_many, remove_many
from mq.model.errors import PublishPurged, QueueNotFound
from mq.model.message import Envelope
from mq.model.names import MessageId, QueueName
from mq.store.operations.queues import WantedShape


class QueuesAgainstAModel(WithQueues, WithKeys, WithLooks):
    @rule(
        target=messages,
        queue=queues,
        bodies=st.lists(st.binary(max_size=50), min_size=1, max_size=4),
        extension=st.sampled_from(["", "json"]),
        priority=st.sampled_from([None, None, 0, 1, 9]),
        visibility_s=st.sampled_from([None, None, 1, 100]),
        delay_s=st.sampled_from([None, None, None, 0, 0.5, 20, 3600]),
        headers=st.sampled_from([(), (), (("ce-id", "7"), ("X-Attribute-a", "ä"))]),
        as_a_batch=st.booleans(),
    )
    def publish(
        self,
        queue: QueueName,
        bodies: list[bytes],
        extension: str,
        priority: int | None,
        visibility_s: int | None,
        delay_s: float | None,
        headers: tuple[tuple[str, str], ...],
        as_a_batch: bool,
    ) -> object:
        now_ms = self.clock.now_ms()
        due_ms = None if delay_s is None else now_ms + round(delay_s * 1000)
        envelope = Envelope(extension, priority, None, visibility_s, due_ms, headers)
        published = []
        for body, result in self.published(queue, bodies, envelope, as_a_batch):
            if queue not in self.model.queues:
                assert isinstance(result, QueueNotFound)
                continue
            assert isinstance(result, MessageId)
            default = self.model.queues[queue].priority_default
            assert result.priority == (default if priority is None else priority)
            assert result.visibility_s == visibility_s
            self.model.published(queue, result, body, headers, due_ms or now_ms, now_ms)
            published.append((queue, result))
        return multiple(*published)

    def published(
        self, queue: QueueName, bodies: list[bytes], envelope: Envelope, as_a_batch: bool
    ) -> list[tuple[bytes, MessageId | BaseException]]:
        """Each body, and what came of it; what a purge refused is said again."""

        async def publish() -> Sequence[MessageId | BaseException]:
            if as_a_batch and queue in self.model.queues:
                return await publish_many(self.broker, queue, bodies, envelope)
            publishes = (self.broker.publish(queue, body, envelope) for body in bodies)
            return await asyncio.gather(*publishes, return_exceptions=True)

        ends = self.run(publish())
        if any(isinstance(each, PublishPurged) for each in ends):
            assert self.model.marks_ms[queue] >= self.clock.now_ms()
            assert all(isinstance(each, PublishPurged) for each in ends)
            ends = self.run(publish())
        return list(zip(bodies, ends, strict=True))

    @rule(
        queue=queues,
        times=st.integers(1, 3),
        visibility_s=st.sampled_from([None, None, 0.5, 5, 3600]),
    )
    def fetch(self, queue: QueueName, times: int, visibility_s: float | None) -> None:
        for _ in range(times):
            delivery = self.run(
                self.broker.consuming.fetch(queue, visibility_s), self.unless_there(queue)
            )
            known = self.model.fetch(queue, visibility_s, self.clock.now_ms())
            self.assert_is(delivery, known)

    @rule(queue=queues, times=st.integers(1, 5), visibility_s=st.sampled_from([None, 5, 3600]))
    def fetch_many(self, queue: QueueName, times: int, visibility_s: float | None) -> None:
        fetching = fetch_many(self.broker, queue, times, visibility_s)
        found = self.run(fetching, self.unless_there(queue)) or []
        now_ms = self.clock.now_ms()
        known = [self.model.fetch(queue, visibility_s, now_ms) for _ in range(times)]
        there = [each for each in known if each is not None]
        assert len(found) == len(there)
        for delivery, each in zip(found, there, strict=True):
            self.assert_is(delivery, each)

    @rule(message=messages, receives=expected_receives)
    def remove(self, message: tuple[QueueName, MessageId], receives: int | None) -> None:
        queue, message_id = message
        removing = self.broker.remove(queue, message_id, precondition(receives))
        self.run(removing, self.model.remove(queue, message_id, receives))

    @rule(named=st.lists(messages, min_size=1, max_size=4))
    def acknowledge(self, named: list[tuple[QueueName, MessageId]]) -> None:
        queue = named[0][0]
        ids = [message_id for of, message_id in named if of == queue]
        ends = self.run(remove_many(self.broker, queue, ids), self.unless_there(queue)) or {}
        assert queue not in self.model.queues or ends.keys() == set(ids)
        for message_id, error in ends.items():
            expected = self.model.remove(queue, message_id, None)
            assert expected is None if error is None else isinstance(error, expected or ())

    @rule(
        message=messages,
        due_in_s=st.sampled_from([0, 0, 0.5, 45.5, 7200]),
        receives=expected_receives,
    )
    def reschedule(
        self, message: tuple[QueueName, MessageId], due_in_s: float, receives: int | None
    ) -> None:
        queue, message_id = message
        changing = self.broker.reschedule(queue, message_id, due_in_s, precondition(receives))
        refusal = self.model.reschedule(queue, message_id, due_in_s, receives, self.clock.now_ms())
        stamp = self.run(changing, refusal)
        if refusal is None:
            known = self.model.find(queue, message_id)
            assert known is not None
            assert stamp.receives == known.receives
            assert stamp.due_ms == known.due_ms or due_in_s == 0


class TinyFolders(QueuesAgainstAModel):
    """The same with buckets and what lies below them, and daemons that judge differently."""

    folder_max = 1

    @rule(seconds=st.sampled_from([1, 100, 10_000]))
    def pass_windows(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(folder_max=st.integers(1, 3))
    def restart_with_another_limit(self, folder_max: int) -> None:
        self.folder_max = folder_max
        self.restart()


class OtherShapes(TinyFolders):
    shape = WantedShape(digits=7, shards=3)


for machine in (QueuesAgainstAModel, TinyFolders, OtherShapes):
    machine.TestCase.settings = settings(
        max_examples=60,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
TestQueuesAgainstAModel = QueuesAgainstAModel.TestCase
TestTinyFolders = TinyFolders.TestCase
TestOtherShapes = OtherShapes.TestCase
