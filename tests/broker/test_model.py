"""The six operations, the mover and the reaper against a model, over a real directory.

After every step the folders hold exactly what the model says: nothing lost, invented, torn,
served out of order or in two places.
"""

import asyncio
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.folders import message_files
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

from mq.broker.broker import Broker
from mq.errors import DeliveredAgain, MessageNotFound, QueueNotFound
from mq.limits import FOLDER_FILES_MAX
from mq.message import Envelope
from mq.names import MessageId, QueueName
from mq.settings import QueueSettings
from mq.store.commit import Committer
from mq.store.files import Files
from mq.store.flush import NoFlusher
from mq.store.queues import ANY_SHAPE, WantedShape
from mq.store.reap import reap
from mq.store.redeliver import Timer
from mq.store.root import Root, open_root
from mq_mover.mover import Mover
from mq_mover.sweeper import Sweeper

NAMES = [QueueName.parse(text) for text in ("a", "a_SIDELINE")]
VISIBILITY_S = 30.0


@dataclass
class Known:
    """What the model knows of a message."""

    queue: QueueName
    body: bytes
    folder: str
    receives: int = 0


class QueuesAgainstAModel(RuleBasedStateMachine):
    messages = Bundle("messages")
    folder_max = FOLDER_FILES_MAX
    shape = ANY_SHAPE

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.path = Path(tempfile.mkdtemp(prefix="mq-model-"))
        self.clock = FakeClock()
        self.files = Files()
        self.root = self.open_root()
        self.broker = self.new_broker()
        self.mover = Mover(self.root, NoFlusher(), Timer())
        self.queues: set[QueueName] = set()
        self.known: dict[str, Known] = {}

    def open_root(self) -> Root:
        return open_root(str(self.path), self.files, self.clock, folder_max=self.folder_max)

    def new_broker(self) -> Broker:
        async def make() -> Broker:
            committer = Committer(NoFlusher())
            return Broker(self.root, committer, QueueSettings(visibility_s=VISIBILITY_S))

        return self.loop.run_until_complete(make())

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.broker.drain())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.path)

    @rule(queue=st.sampled_from(NAMES))
    def create(self, queue: QueueName) -> None:
        created = self.loop.run_until_complete(self.broker.create_queue(queue, self.shape))
        assert created == (queue not in self.queues)
        self.queues.add(queue)

    @rule(queue=st.sampled_from(NAMES), really=st.sampled_from([False, False, True]))
    def delete_queue(self, queue: QueueName, really: bool) -> None:
        if not really:  # Seldom, or queues would hardly ever hold anything.
            return

        async def delete_and_settle() -> None:
            await self.broker.delete_queue(queue)
            while self.broker.background:
                await asyncio.wait(self.broker.background)

        if queue not in self.queues:
            with pytest.raises(QueueNotFound):
                self.loop.run_until_complete(delete_and_settle())
            return
        self.loop.run_until_complete(delete_and_settle())
        self.queues.remove(queue)
        for name, known in list(self.known.items()):
            if known.queue == queue and known.folder == "queues":
                del self.known[name]  # Its folder went as one.
            elif known.queue == queue:
                known.folder = "remove"

    @rule(
        target=messages,
        queue=st.sampled_from(NAMES),
        bodies=st.lists(st.binary(max_size=50), min_size=1, max_size=4),
        extension=st.sampled_from(["", "json"]),
    )
    def publish(self, queue: QueueName, bodies: list[bytes], extension: str) -> object:
        async def publish_together() -> list[MessageId | BaseException]:
            return await asyncio.gather(
                *(self.broker.publish(queue, body, Envelope(extension)) for body in bodies),
                return_exceptions=True,
            )

        published = []
        for body, result in zip(
            bodies, self.loop.run_until_complete(publish_together()), strict=True
        ):
            if queue not in self.queues:
                assert isinstance(result, QueueNotFound)
            else:
                assert isinstance(result, MessageId)
                self.known[f"{queue}:{result}"] = Known(queue, body, "queues")
                published.append((queue, result))
        return multiple(*published)

    @rule(queue=st.sampled_from(NAMES), times=st.integers(1, 3))
    def fetch(self, queue: QueueName, times: int) -> None:
        for _ in range(times):
            self.fetch_once(queue)

    def fetch_once(self, queue: QueueName) -> None:
        fetching = self.broker.fetch(queue)
        if queue not in self.queues:
            with pytest.raises(QueueNotFound):
                self.loop.run_until_complete(fetching)
            return
        ready = sorted(
            name
            for name, known in self.known.items()
            if known.queue == queue and known.folder == "queues"
        )
        delivery = self.loop.run_until_complete(fetching)
        if not ready:
            assert delivery is None
            return
        assert delivery is not None
        assert f"{queue}:{delivery.id}" == ready[0]
        known = self.known[ready[0]]
        known.folder = "delay"
        known.receives += 1
        assert (delivery.body, delivery.stamp.receives) == (known.body, known.receives)
        assert delivery.stamp.due_ms == self.clock.now_ms() + VISIBILITY_S * 1000

    @rule(message=messages, receives=st.none() | st.integers(0, 3))
    def remove(self, message: tuple[QueueName, MessageId], receives: int | None) -> None:
        queue, message_id = message
        name = f"{queue}:{message_id}"
        known = self.known.get(name)
        condition = None if receives is None else lambda found: found == receives
        removing = self.broker.remove(queue, message_id, condition)
        if queue not in self.queues:
            with pytest.raises(QueueNotFound):
                self.loop.run_until_complete(removing)
        elif known is None:
            with pytest.raises(MessageNotFound):
                self.loop.run_until_complete(removing)
        elif known.folder != "remove" and receives not in (None, known.receives):
            with pytest.raises(DeliveredAgain):
                self.loop.run_until_complete(removing)
        else:
            self.loop.run_until_complete(removing)
            known.folder = "remove"

    @rule(seconds=st.floats(0, 5))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def redeliver_all(self) -> None:
        self.clock.advance(2 * VISIBILITY_S)
        for _ in range(4):
            self.clock.advance(1.5)
            while self.mover.run_once():
                pass
        for known in self.known.values():
            if known.folder == "delay":
                known.folder = "queues"
        for queue in self.queues:
            # The fake clock runs ahead of the folders' own: a later tick, as it would be.
            for folder, _, _ in os.walk(self.root.layout.queue(queue)):
                os.utime(folder)

    @rule()
    def reap(self) -> None:
        reap(self.files, self.root.layout.remove, self.clock.now_ms() + 1000, keep_s=0)
        self.known = {name: known for name, known in self.known.items() if known.folder != "remove"}

    @rule()
    def restart(self) -> None:
        self.loop.run_until_complete(self.broker.drain())
        self.root = self.open_root()
        self.broker = self.new_broker()
        self.mover = Mover(self.root, NoFlusher(), Timer())

    @invariant()
    def folders_hold_what_the_model_says(self) -> None:
        if not hasattr(self, "path"):
            return
        expected: dict[str, list[str]] = {"new": [], "queues": [], "delay": [], "remove": []}
        for name, known in sorted(self.known.items()):
            expected[known.folder].append(name)
        assert message_files(self.path) == expected


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
