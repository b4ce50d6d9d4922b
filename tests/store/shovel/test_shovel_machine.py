"""Publishes, sidelines, shovels, fetches, redeliveries and deletes of few keys, each stopped and
gone on with at any of its steps, or ended there: no two living messages have one key, and none is
lost, or has two names.
"""

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from harness.audits import audit
from harness.chance import examples
from harness.leases import QUEUE, LeasingRoot
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mq.model.errors import MqError
from mq.model.names import Key, MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.model.shovel import ALL
from mq.store.disk.steps import Steps
from mq.store.format.layout import Keys
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.redeliver import Timer, redeliver
from mq.store.operations.remove import remove
from mq.store.operations.sideline import sideline
from mq.store.scan.order import STRICT, Candidate
from mq.store.shovel.shovel import Aim, Pass, shovel, shovel_many

SIDELINE = QUEUE.sideline()
VISIBLE_S = 30.0
A, B = Key.parse("a"), Key.parse("b")
keys = st.sampled_from([A, A, A, B, None])
queues = st.sampled_from([QUEUE, QUEUE, QUEUE, SIDELINE])
numbers = st.integers(0, 1000)


class Crossing(RuleBasedStateMachine):
    """Several operations at a time, all in the middle of something. What they ask to flush counts
    as flushed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp(prefix="mq-crossing-"))
        self.place = LeasingRoot(self.top / "root", folder_max=2)
        self.place.make_queue(SIDELINE)
        self.root = self.place.root
        self.running: list[Steps[Any]] = []
        self.publishing: dict[int, MessageId] = {}
        """What publishes publish, by the operation."""
        self.ids: list[MessageId] = []
        """Those that were published, and that nobody has asked to delete."""
        self.asked: set[MessageId] = set()
        """Those that somebody has asked to delete."""
        self.met: list[MessageId] = []

    def teardown(self) -> None:
        while self.running:
            self._go_on(self.running[-1])
        # Whatever has stayed goes once nothing has its key any more.
        self.place.pass_s(VISIBLE_S + 1)
        for due in self._delayed():
            self._redeliver(due)
            self._go_on(self.running[-1])
        at = Pass(self.root, Aim(QUEUE, ALL, self.root.now_ms()))
        while (batch := at.batch(3)) is not None:
            assert (
                shovel_many(self.root, self.place.flusher, at.aim, batch.candidates).error is None
            )
        self.nothing_is_lost()
        self.no_two_have_one_key()
        assert audit(self.root).is_clean
        shutil.rmtree(self.top)

    # What begins

    @rule(key=keys, queue=queues)
    def publish(self, key: Key | None, queue: QueueName) -> None:
        message_id = MessageId(self.place.uuids.next(), key=key)
        draft = Draft(queue, message_id, message_id.published_ms)
        operation = publish(self.root, draft, b"x")
        self.publishing[id(operation)] = message_id
        self.met.append(message_id)
        self._begin(operation)

    @rule(key=keys)
    def lie(self, key: Key | None) -> None:
        """One more that lies in the sideline."""
        self.publish(key, QUEUE)
        self._go_on(self.running[-1])
        self.sideline(len(self.met) - 1)
        self._go_on(self.running[-1])

    @precondition(lambda self: self.met)
    @rule(number=numbers)
    def sideline(self, number: int) -> None:
        self._begin(sideline(self.root, QUEUE, self._one(number)))

    @precondition(lambda self: self.met)
    @rule(number=numbers)
    def remove(self, number: int) -> None:
        message_id = self._one(number)
        self.asked.add(message_id)
        if message_id in self.ids:
            self.ids.remove(message_id)
        for queue in (QUEUE, SIDELINE):
            self._begin(remove(self.root, queue, message_id))

    @precondition(lambda self: self.met)
    @rule(number=numbers)
    def fetch_or_redeliver(self, number: int) -> None:
        if number % 2:
            queue = SIDELINE if number % 4 == 1 else QUEUE
            self._begin(fetch(self.root, queue, self._one(number), VISIBLE_S))
            return
        self.place.pass_s(VISIBLE_S + 1)
        if delayed := self._delayed():
            self._redeliver(delayed[number % len(delayed)])

    @rule(number=numbers)
    def shovel(self, number: int) -> None:
        there = self.place.top / "queues" / SIDELINE.text
        lying = sorted(path for path in there.rglob("*") if path.is_file())
        if lying:
            path = lying[number % len(lying)]
            below = path.parent.relative_to(there).as_posix()
            bucket = "" if below == "." else f"{below}/"
            aim = Aim(QUEUE, ALL, self.place.clock.now_ms())
            found = Candidate(STRICT.key(path.name), bucket)
            for _ in range(1 + number % 2):
                self._begin(shovel(self.root, aim, found, QueueSettings()))

    # What goes on, and what ends

    @precondition(lambda self: self.running)
    @rule(turns=st.lists(numbers, min_size=2, max_size=12))
    def step(self, turns: list[int]) -> None:
        """Some of them, in turns."""
        for number in turns:
            if self.running:
                self._step(self.running[number % len(self.running)])
                self.no_two_have_one_key()

    @precondition(lambda self: self.running)
    @rule(number=numbers)
    def go_on(self, number: int) -> None:
        self._go_on(self.running[number % len(self.running)])

    @precondition(lambda self: self.running)
    @rule(number=numbers)
    def end_in_the_middle(self, number: int) -> None:
        operation = self.running.pop(number % len(self.running))
        self.publishing.pop(id(operation), None)  # Another may have this id later.
        operation.close()

    # What is always so

    @invariant()
    def no_two_have_one_key(self) -> None:
        """And the link of a living message's key says it."""
        living: Counter[str] = Counter()
        for message_id in self._living():
            if message_id.key is not None:
                living[message_id.key.text] += 1
                place = self.root.layout.link(Keys.LOOKUP, QUEUE, message_id.key)
                assert self.root.files.linked(place.path) == message_id.text
        assert not living or max(living.values()) == 1, living

    @invariant()
    def nothing_is_lost(self) -> None:
        names = Counter(
            path.name.rpartition(":")[2]
            for folder in ("queues", "delay")
            for path in (self.place.top / folder).rglob("*")
            if path.is_file() and len(path.name) > 20
        )
        assert {each.text: names[each.text] for each in self.ids} == {
            each.text: 1 for each in self.ids
        }
        assert not names or max(names.values()) == 1, names

    def _living(self) -> list[MessageId]:
        ready = (self.place.top / "queues" / QUEUE.text).rglob("*")
        delayed = (self.place.top / "delay").rglob(f"{QUEUE.text}:*")
        found = [path.name.rpartition(":")[2] for path in (*ready, *delayed) if path.is_file()]
        return [MessageId.parse(name) for name in found if MessageId.is_written(name)]

    def _delayed(self) -> list[Path]:
        return sorted((self.place.top / "delay").rglob("q*:*"))

    def _redeliver(self, path: Path) -> None:
        queue, _, message_id = path.name.partition(":")
        below = path.parent.relative_to(self.place.top / "delay").as_posix()
        bucket = "" if below == "." else f"{below}/"
        parsed = QueueName.parse(queue), MessageId.parse(message_id)
        self._begin(redeliver(self.root, *parsed, Timer(), bucket))

    def _one(self, number: int) -> MessageId:
        return self.met[number % len(self.met)]

    def _begin(self, operation: Steps[Any]) -> None:
        self.running.append(operation)
        if len(self.running) > 6:
            self._go_on(self.running[0])

    def _go_on(self, operation: Steps[Any]) -> None:
        while operation in self.running:
            self._step(operation)

    def _step(self, operation: Steps[Any]) -> None:
        try:
            next(operation)
        except StopIteration:
            message_id = self.publishing.pop(id(operation), None)
            if message_id is not None and message_id not in self.asked:
                self.ids.append(message_id)
        except MqError:
            self.publishing.pop(id(operation), None)  # Another may have this id later.
        else:
            return
        self.running.remove(operation)


TestCrossing = Crossing.TestCase
TestCrossing.settings = settings(max_examples=examples(20), stateful_step_count=30, deadline=None)
