"""The operations, the mover, the sweeper and the reaper against a model, over a real directory.

After every step the folders and the keys hold exactly what the model says: nothing lost, invented,
torn, served out of order, before its time, or in two places.
"""

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from harness.chance import examples
from harness.model.keys import WithKeys
from harness.model.looks import WithLooks
from harness.model.machine import expected_receives, messages, precondition, queues
from harness.model.messages import DELAYED
from harness.model.queues import WithQueues
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, multiple, rule

from mq.broker.batches import publish_many
from mq.broker.consumers import Terms
from mq.broker.fetching import fetch_many
from mq.broker.settling import Remove, Reschedule, settle, settle_many
from mq.model.errors import PublishPurged, QueueNotFound
from mq.model.message import Envelope
from mq.model.names import Key, MessageId, QueueName
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
        how=st.sampled_from(["alone", "a batch", "packs", "packs"]),
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
        how: str,
    ) -> MultipleResults[tuple[QueueName, MessageId]]:
        now_ms = self.clock.now_ms()
        due_ms = None if delay_s is None else now_ms + round(delay_s * 1000)
        envelope = Envelope(extension, priority, None, visibility_s, due_ms, headers)
        published = []
        for body, result in self.published(queue, bodies, envelope, how):
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
        self, queue: QueueName, bodies: list[bytes], envelope: Envelope, how: str
    ) -> list[tuple[bytes, MessageId | BaseException]]:
        """Each body, and what came of it; what a purge refused is said again."""

        async def publish() -> Sequence[MessageId | BaseException]:
            if how != "alone" and queue in self.model.queues:
                in_packs = how == "packs"
                return await publish_many(self.broker, queue, bodies, envelope, in_packs)
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
                self.broker.consuming.fetch(queue, Terms(visibility_s=visibility_s)),
                self.unless_there(queue),
            )
            known = self.model.fetch(queue, visibility_s, self.clock.now_ms())
            self.assert_is(delivery, known)

    @rule(queue=queues, times=st.integers(1, 5), visibility_s=st.sampled_from([None, 5, 3600]))
    def fetch_many(self, queue: QueueName, times: int, visibility_s: float | None) -> None:
        fetching = fetch_many(self.broker, queue, times, Terms(visibility_s=visibility_s))
        found = self.run(fetching, self.unless_there(queue)) or []
        now_ms = self.clock.now_ms()
        known = [self.model.fetch(queue, visibility_s, now_ms) for _ in range(times)]
        there = [each for each in known if each is not None]
        assert len(found) == len(there)
        for delivery, each in zip(found, there, strict=True):
            self.assert_is(delivery, each)

    @rule(queue=queues, times=st.integers(1, 5), visibility_s=st.sampled_from([None, 5, 3600]))
    def fetch_packs(self, queue: QueueName, times: int, visibility_s: float | None) -> None:
        """The last pack may come beyond what was asked for, whole."""
        terms = Terms(visibility_s=visibility_s, packs=True)
        fetching = fetch_many(self.broker, queue, times, terms)
        found = self.run(fetching, self.unless_there(queue)) or []
        now_ms = self.clock.now_ms()
        for delivery in found:
            self.assert_is(delivery, self.model.fetch(queue, visibility_s, now_ms))
        if len(found) < times:
            assert self.model.fetch(queue, visibility_s, now_ms) is None
        for delivery in found[times:]:
            assert delivery.id.pack() == found[times - 1].id.pack()
            assert found[-1].id.place == delivery.id.pack_size

    @rule(
        target=messages,
        queue=queues,
        count=st.integers(2, 6),
        due_in_s=st.sampled_from([None, None, 0, 45.5, 7200]),
    )
    def begin_with_packs_in_flight(
        self, queue: QueueName, count: int, due_in_s: float | None
    ) -> MultipleResults[tuple[QueueName, MessageId]]:
        published = self.publish(queue, [b"x"] * count, "", 9, None, None, (), "packs")
        self.fetch_packs(queue, count, 3600)
        if due_in_s is not None and published.values:
            self.reschedule(published.values[0], due_in_s, None)
        return published

    @rule(message=messages, receives=expected_receives)
    def remove(self, message: tuple[QueueName, MessageId], receives: int | None) -> None:
        queue, message_id = message
        removing = settle(self.broker, queue, message_id, Remove(precondition(receives)))
        self.run(removing, self.model.remove(queue, message_id, receives))

    @rule(named=st.lists(messages, min_size=1, max_size=4), with_their_packs=st.booleans())
    def acknowledge(self, named: list[tuple[QueueName, MessageId]], with_their_packs: bool) -> None:
        queue = named[0][0]
        ids = list(dict.fromkeys(message_id for of, message_id in named if of == queue))
        if with_their_packs:
            packs = [each.pack().all_items() for each in ids if each.pack_size]
            ids = list(dict.fromkeys([*ids, *itertools.chain.from_iterable(packs)]))
        removing = settle_many(self.broker, queue, dict.fromkeys(ids, Remove()))
        ends = self.run(removing, self.unless_there(queue)) or {}
        assert queue not in self.model.queues or ends.keys() == set(ids)
        for message_id, end in ends.items():
            expected = self.model.remove(queue, message_id, None)
            is_done = isinstance(end, bool)
            assert expected is None if is_done else isinstance(end, expected or ())

    @rule(
        message=messages,
        due_in_s=st.sampled_from([0, 0, 0.5, 45.5, 7200]),
        receives=expected_receives,
    )
    def reschedule(
        self, message: tuple[QueueName, MessageId], due_in_s: float, receives: int | None
    ) -> None:
        queue, message_id = message
        how = Reschedule(due_in_s, precondition(receives))
        changing = settle(self.broker, queue, message_id, how)
        now_ms, of_all = self.clock.now_ms(), self.extended(queue, message_id, due_in_s)
        refusal = self.model.reschedule(queue, message_id, due_in_s, receives, now_ms)
        for each in of_all if refusal is None else ():
            self.model.reschedule(queue, each, due_in_s, None, now_ms)
        stamp = self.run(changing, refusal)
        if refusal is None:
            known = self.model.find(queue, message_id)
            assert known is not None
            assert stamp.receives == known.receives
            assert stamp.due_ms == known.due_ms or due_in_s == 0

    def extended(self, queue: QueueName, message_id: MessageId, due_in_s: float) -> list[MessageId]:
        """The items that are extended with one of them, since their pack is in flight until an
        earlier time.
        """
        known = self.model.find(queue, message_id)
        if known is None or not message_id.pack_size or not known.receives:
            return []
        is_later = known.due_ms <= self.clock.now_ms() + round(due_in_s * 1000)
        is_whole = f"{queue}:{message_id.pack()}" in self.packs(DELAYED)
        return message_id.pack().all_items() if is_later and is_whole else []


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
        max_examples=examples(60),
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
TestQueuesAgainstAModel = QueuesAgainstAModel.TestCase
TestTinyFolders = TinyFolders.TestCase
TestOtherShapes = OtherShapes.TestCase


@pytest.mark.parametrize("receives", [None, 7], ids=["done", "refused"])
def test_what_a_request_leaves_of_a_ready_pack_goes_first(receives: int | None) -> None:
    state, a = QueuesAgainstAModel(), QueueName.parse("a")
    state.begin_with_some(key=Key.parse("k"), idempotency=Key.parse("k"))
    state.begin_with_packs_in_flight(a, 6, None)
    published = state.publish(a, [b"x"] * 6, "", 9, None, None, (), "packs")
    state.reschedule(published.values[0], 45.5, receives)
    state.fetch(a, 1, None)
    state.teardown()


def test_a_purged_pack_is_not_parted() -> None:
    state, a = QueuesAgainstAModel(), QueueName.parse("a")
    state.begin_with_some(key=Key.parse("k"), idempotency=Key.parse("k"))
    state.publish(a, [b"x"] * 6, "", 9, None, None, (), "packs")
    state.purge_and_die(a)
    state.fetch_many(a, 1, None)
    state.folders_hold_what_the_model_says()
    state.teardown()
