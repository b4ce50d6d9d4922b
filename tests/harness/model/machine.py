"""A broker, a mover, a sweeper and a reaper over one real root, beside the model of it.

What goes on in the background has ended after each rule, and then the folders are compared.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from harness.audits import audit
from harness.clock import FakeClock
from harness.folders import files_below, message_files, mtime_ns
from harness.model.keyring import ClockedFiles, links_below
from harness.model.messages import REMOVED, WHOLE, Known, Model
from harness.packs import as_messages
from harness.upkeep import all_policies
from mq.broker.broker import Broker
from mq.model.errors import MqError
from mq.model.limits import FOLDER_FILES_MAX, SWEEP_EVERY_S
from mq.model.message import Delivery, Part, Stamp
from mq.model.names import MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.store.audit.findings import Breach
from mq.store.core.find import Precondition
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root
from mq.store.operations.queues import ANY_SHAPE
from mq.store.operations.reap import reap
from mq.store.operations.redeliver import Timer
from mq_mover.mover import Mover

NAMES = [QueueName.parse(text) for text in ("a", "a_SIDELINE")]
DEFAULTS = QueueSettings(visibility_s=30.0, pack_messages_max=3)
DAY_S = 24 * 3600
# The model says itself what is due, and which keys stay; only a mover's pass is awaited for both.
IN_TIME = frozenset({Breach.OVERDUE, Breach.ORPHAN, Breach.LEFTOVER})

# One of them more often: what is asked of it meets what is there.
queues = st.sampled_from([NAMES[0], NAMES[0], NAMES[1]])
expected_receives = st.none() | st.integers(0, 3)
messages: "Bundle[Any]" = Bundle("messages")


def precondition(receives: int | None) -> Precondition | None:
    return None if receives is None else lambda found: found == receives


def all_of_it(size: int, receives: int) -> Part:
    """Of a body that is read, all."""
    return Part(0, size)


class Machine(RuleBasedStateMachine):
    """The root, its processes, and time."""

    messages = messages
    folder_max = FOLDER_FILES_MAX
    shape = ANY_SHAPE

    def begin(self) -> None:
        """A root with one queue."""
        self.loop = asyncio.new_event_loop()
        self.path = Path(tempfile.mkdtemp(prefix="mq-model-"))
        self.clock = FakeClock()
        # Ahead of every ctime: whatever was stamped was stamped for later than that.
        self.clock.advance(DAY_S)
        self.files = ClockedFiles(self.clock)
        self.model = Model(DEFAULTS)
        self.start()
        self.run(self.broker.create_queue(NAMES[0], self.shape))
        self.model.create(NAMES[0])

    def start(self) -> None:
        """All daemons, as after each start."""
        self.root = self.open_root()
        self.broker = self.run(self.new_broker())
        self.mover = Mover(self.root, NoFlusher(), Timer())
        self.sweeper = all_policies(self.root, NoFlusher())

    def open_root(self) -> Root:
        return open_root(str(self.path), self.files, self.clock, folder_max=self.folder_max)

    async def new_broker(self) -> Broker:
        return Broker(self.root, Committer(NoFlusher()), DEFAULTS)

    def run(self, work: Coroutine[Any, Any, Any], refusal: type[MqError] | None = None) -> Any:
        """Does it; `refusal` is what it must raise."""
        if refusal is None:
            return self.loop.run_until_complete(work)
        with pytest.raises(refusal):
            self.loop.run_until_complete(work)
        return None

    async def settled(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Does it, and what it began in the background."""
        result = await work
        while self.broker.background:
            await asyncio.wait(self.broker.background)
        return result

    def whole(self) -> list[str]:
        """The messages that lie in folders of remove/ which went there as one."""
        found = [
            f"{folder.name.partition(':')[0]}:{path.name}"
            for folder in (self.path / REMOVED).glob("*.d")
            for path in files_below(folder)
        ]
        return as_messages(found)

    def packs(self, folder: str) -> set[str]:
        """The packs in a folder, by their names in delay/."""
        names = message_files(self.path)[folder]
        return {each for each in names if MessageId.parse(each.partition(":")[2]).items}

    def assert_is(self, delivery: Delivery | None, known: Known | None) -> None:
        """That a fetch gave what the model did."""
        if known is None or delivery is None:
            assert delivery is None
            assert known is None
            return
        assert (delivery.id, delivery.body) == (known.id, known.body)
        assert delivery.headers == known.headers
        assert delivery.stamp == Stamp(known.due_ms, known.receives)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.broker.drain())
            self.run(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.path)

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

    @rule(seconds=st.sampled_from([SWEEP_EVERY_S, 400, 3700]))
    def sweep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.sweeper.run_once()
        self.model.swept(self.whole(), self.clock.now_ms())

    @rule()
    def reap(self) -> None:
        now_ms = self.clock.now_ms() + 1000
        reap(self.files, self.root.layout.remove, now_ms, keep_s=0, root=self.root)
        self.model.reaped()
        assert not [path.name for path in (self.path / REMOVED).iterdir() if ":" in path.name]

    @rule()
    def restart(self) -> None:
        self.run(self.broker.drain())
        # A start takes longer than ids are ahead of the clock: each purge moves them on by a
        # millisecond.
        self.clock.advance(0.1)
        self.start()

    @invariant()
    def folders_hold_what_the_model_says(self) -> None:
        if not hasattr(self, "path"):
            return
        files = {state: as_messages(of) for state, of in message_files(self.path).items()}
        assert {**files, WHOLE: self.whole()} == self.model.entries()
        stamps = {
            name: Stamp.from_mtime_ns(mtime_ns(path))
            for path in files_below(self.path / "delay")
            for name in as_messages((path.name,))
        }
        assert stamps == self.model.stamps()
        self.links_are_what_the_model_says()
        marks = {path.name: mtime_ns(path) for path in (self.path / "purged").iterdir()}
        assert marks == {
            queue.text: Stamp(ms).mtime_ns() for queue, ms in self.model.marks_ms.items()
        }
        broken = [each for each in audit(self.root).violations if each.breach not in IN_TIME]
        assert not broken, broken

    def links_are_what_the_model_says(self) -> None:
        """But for keys that could not be freed when their folder was locked, by another thread of
        mq: what their links name lives no more.
        """
        found, expected = links_below(self.path), self.model.keys.on_disk()
        kept = found["keys"].items() - expected["keys"].items()
        alive = self.model.names_alive()
        for name, target in kept:
            assert name not in expected["keys"]
            assert f"{name.partition('/')[0]}:{target}" not in alive
            del found["keys"][name]
        assert found == expected
