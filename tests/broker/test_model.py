"""The operations, the mover and the reaper against a model, over a real directory.

After every step the folders hold exactly what the model says: nothing lost, invented, torn,
served out of order, before its time, or in two places.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.clock import FakeClock
from harness.folders import files_below, message_files, mtime_ns
from harness.model import DELAYED, READY, REMOVED, Model
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from mq.broker.batches import fetch_many, publish_many, remove_many
from mq.broker.broker import Broker
from mq.errors import MqError, QueueNotFound
from mq.limits import FOLDER_FILES_MAX
from mq.message import Envelope, Stamp
from mq.names import MessageId, QueueName
from mq.settings import QueueSettings
from mq.store.commit import Committer
from mq.store.files import Files
from mq.store.find import Precondition
from mq.store.flush import NoFlusher
from mq.store.listing import count
from mq.store.queues import ANY_SHAPE, WantedShape
from mq.store.reap import reap
from mq.store.redeliver import Timer
from mq.store.root import Root, open_root
from mq_mover.mover import Mover
from mq_mover.sweeper import Sweeper

NAMES = [QueueName.parse(text) for text in ("a", "a_SIDELINE")]
VISIBILITY_S = 30.0
DAY_S = 24 * 3600

queues = st.sampled_from(NAMES)
expected_receives = st.none() | st.integers(0, 3)


def precondition(receives: int | None) -> Precondition | None:
    return None if receives is None else lambda found: found == receives


class QueuesAgainstAModel(RuleBasedStateMachine):
    messages = Bundle("messages")
    folder_max = FOLDER_FILES_MAX
    shape = ANY_SHAPE

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.path = Path(tempfile.mkdtemp(prefix="mq-model-"))
        self.clock = FakeClock()
        # Ahead of every ctime: whatever was stamped was stamped for later than that.
        self.clock.advance(DAY_S)
        self.files = Files()
        self.root = self.open_root()
        self.broker = self.new_broker()
        self.mover = Mover(self.root, NoFlusher(), Timer())
        self.model = Model(VISIBILITY_S)

    def open_root(self) -> Root:
        return open_root(str(self.path), self.files, self.clock, folder_max=self.folder_max)

    def new_broker(self) -> Broker:
        async def make() -> Broker:
            committer = Committer(NoFlusher())
            return Broker(self.root, committer, QueueSettings(visibility_s=VISIBILITY_S))

        return self.run(make())

    def run(self, work: Coroutine[Any, Any, Any], refusal: type[MqError] | None = None) -> Any:
        """Does it; `refusal` is what it must raise."""
        if refusal is None:
            return self.loop.run_until_complete(work)
        with pytest.raises(refusal):
            self.loop.run_until_complete(work)
        return None

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.broker.drain())
            self.run(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.path)

    # Queues.

    @rule(queue=queues)
    def create(self, queue: QueueName) -> None:
        assert self.run(self.broker.create_queue(queue, self.shape)) == self.model.create(queue)

    @rule(queue=queues, really=st.sampled_from([False, False, True]))
    def delete_queue(self, queue: QueueName, really: bool) -> None:
        if not really:  # Seldom, or queues would hardly ever hold anything.
            return

        async def delete_and_settle() -> None:
            await self.broker.delete_queue(queue)
            while self.broker.background:
                await asyncio.wait(self.broker.background)

        self.run(delete_and_settle(), self.model.drop(queue))

    @rule(queue=queues)
    def describe(self, queue: QueueName) -> None:
        if queue in self.model.queues:
            counts = count(self.root, queue)
            delayed = self.model.within(queue, DELAYED)
            in_flight = sum(1 for each in delayed if each.receives)
            assert counts.ready == len(self.model.within(queue, READY))
            assert (counts.delayed, counts.in_flight) == (len(delayed) - in_flight, in_flight)
            assert counts.removed == len(self.model.within(queue, REMOVED))

    # Messages.

    @rule(
        target=messages,
        queue=queues,
        bodies=st.lists(st.binary(max_size=50), min_size=1, max_size=4),
        extension=st.sampled_from(["", "json"]),
        priority=st.sampled_from([None, None, 0, 1, 9]),
        visibility_s=st.sampled_from([None, None, 1, 100]),
        delay_s=st.sampled_from([None, None, None, 0, 0.5, 20, 3600]),
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
        as_a_batch: bool,
    ) -> object:
        now_ms = self.clock.now_ms()
        due_ms = None if delay_s is None else now_ms + round(delay_s * 1000)
        envelope = Envelope(extension, priority, None, visibility_s, due_ms)

        async def publish_together() -> Sequence[MessageId | BaseException]:
            if as_a_batch and queue in self.model.queues:
                return await publish_many(self.broker, queue, bodies, envelope)
            return await asyncio.gather(
                *(self.broker.publish(queue, body, envelope) for body in bodies),
                return_exceptions=True,
            )

        published = []
        for body, result in zip(bodies, self.run(publish_together()), strict=True):
            if queue not in self.model.queues:
                assert isinstance(result, QueueNotFound)
            else:
                assert isinstance(result, MessageId)
                assert (result.priority, result.visibility_s) == (priority or 0, visibility_s)
                self.model.published(queue, result, body, due_ms or now_ms, now_ms)
                published.append((queue, result))
        return multiple(*published)

    @rule(
        queue=queues,
        times=st.integers(1, 3),
        visibility_s=st.sampled_from([None, None, 0.5, 5, 3600]),
    )
    def fetch(self, queue: QueueName, times: int, visibility_s: float | None) -> None:
        for _ in range(times):
            self.fetch_once(queue, visibility_s)

    @rule(queue=queues, times=st.integers(1, 5), visibility_s=st.sampled_from([None, 5, 3600]))
    def fetch_many(self, queue: QueueName, times: int, visibility_s: float | None) -> None:
        refusal = None if queue in self.model.queues else QueueNotFound
        found = self.run(fetch_many(self.broker, queue, times, visibility_s), refusal) or []
        now_ms = self.clock.now_ms()
        known = [self.model.fetch(queue, visibility_s, now_ms) for _ in range(times)]
        assert [(each.id, each.body, each.stamp) for each in found] == [
            (each.id, each.body, Stamp(each.due_ms, each.receives))
            for each in known
            if each is not None
        ]

    def fetch_once(self, queue: QueueName, visibility_s: float | None) -> None:
        refusal = None if queue in self.model.queues else QueueNotFound
        delivery = self.run(self.broker.fetch(queue, visibility_s), refusal)
        known = self.model.fetch(queue, visibility_s, self.clock.now_ms())
        if known is None:
            assert delivery is None
            return
        assert (delivery.id, delivery.body) == (known.id, known.body)
        assert delivery.stamp == Stamp(known.due_ms, known.receives)

    @rule(message=messages, receives=expected_receives)
    def remove(self, message: tuple[QueueName, MessageId], receives: int | None) -> None:
        queue, message_id = message
        removing = self.broker.remove(queue, message_id, precondition(receives))
        self.run(removing, self.model.remove(queue, message_id, receives))

    @rule(named=st.lists(messages, min_size=1, max_size=4))
    def acknowledge(self, named: list[tuple[QueueName, MessageId]]) -> None:
        queue = named[0][0]
        ids = [message_id for of, message_id in named if of == queue]
        refusal = None if queue in self.model.queues else QueueNotFound
        ends = self.run(remove_many(self.broker, queue, ids), refusal) or {}
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

    # Time.

    @rule(seconds=st.floats(0, 5))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([0.5, 5, 31, 200, 2 * 3600]))
    def move_due(self, seconds: float) -> None:
        self.clock.advance(seconds)
        while self.mover.run_once():
            pass
        self.model.time_is(self.clock.now_ms())
        for queue in self.model.queues:
            # The fake clock runs ahead of the folders' own: a later tick, as it would be.
            for folder, _, _ in os.walk(self.root.layout.queue(queue)):
                os.utime(folder)

    @rule()
    def reap(self) -> None:
        reap(self.files, self.root.layout.remove, self.clock.now_ms() + 1000, keep_s=0)
        self.model.reaped()

    @rule()
    def restart(self) -> None:
        self.run(self.broker.drain())
        self.root = self.open_root()
        self.broker = self.new_broker()
        self.mover = Mover(self.root, NoFlusher(), Timer())

    @invariant()
    def folders_hold_what_the_model_says(self) -> None:
        if not hasattr(self, "path"):
            return
        assert message_files(self.path) == self.model.entries()
        stamps = {
            path.name: Stamp.from_mtime_ns(mtime_ns(path))
            for path in files_below(self.path / "delay")
        }
        assert stamps == self.model.stamps()


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

    @rule()
    def sweep(self) -> None:
        Sweeper(self.root, NoFlusher()).run_if_due()


class OtherShapes(TinyFolders):
    shape = WantedShape(digits=7, shards=3)


for machine in (QueuesAgainstAModel, TinyFolders, OtherShapes):
    machine.TestCase.settings = settings(
        max_examples=150,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
TestQueuesAgainstAModel = QueuesAgainstAModel.TestCase
TestTinyFolders = TinyFolders.TestCase
TestOtherShapes = OtherShapes.TestCase
