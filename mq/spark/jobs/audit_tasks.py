"""What an audit's tasks do: screen folders, compare their names, look again. Rows go in, rows come
out; a row's `blob` is what one step has for the next. Nothing changes.
"""

import pickle
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from mq.model.clock import SystemClock
from mq.model.fsck_limits import SUSPECTS_MAX
from mq.model.names import MessageId, QueueName
from mq.spark.jobs.audit_doubles import Doubled, Hashes, Hashing, doubled, hashes_of
from mq.spark.jobs.audit_findings import (
    COUNTED,
    FOREIGN,
    FOREIGN_REPAIR,
    FOREIGN_SAYS,
    Finding,
    counted_batch,
    finding_batches,
    printable,
)
from mq.store.audit.breaches import Amounts, Breach, Look, Violation
from mq.store.audit.folders import NameFolder
from mq.store.audit.looks import Looker
from mq.store.audit.opening import open_for_audit
from mq.store.audit.screen import Screen
from mq.store.audit.taking import SentLook, Suspect, Taking
from mq.store.core.root import Root
from mq.store.core.server_clock import ClockFollower
from mq.store.disk.files import Files

ROWS: Final = "part STRING, at INT, blob BINARY"
_SCHEMA: Final = pa.schema([("part", pa.string()), ("at", pa.int32()), ("blob", pa.binary())])
FOLDERS: Final = "folders"
HASHES: Final = "hashes"
DOUBLED: Final = "doubled"
SUSPECTS: Final = "suspects"
# How much a row carries, and how many messages' hashes a task holds.
_SUSPECTS_PER_ROW: Final = 500
_HASHES_HELD: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """What an audit's tasks are told: of which root, of which queues (None: all), with which
    bounds; into how many `groups` (a power of two) names are parted. Sent with each of them.
    """

    root: str
    overdue_s: float
    again_after_s: float
    queues: tuple[QueueName, ...] | None = None
    is_by_name: bool = False
    groups: int = 1
    spread: int = 1

    def opened(self) -> Root:
        """The root, as this process sees it; on a mount, with the clock of its server."""
        clock = SystemClock()
        root = open_for_audit(self.root, Files(), clock, "spark")
        ClockFollower(root, clock).follow()
        return root


@dataclass(slots=True)
class Counted:
    """What was looked at: names, folders, how many messages there are of what; and how many
    findings of each kind.
    """

    names: int = 0
    folders: int = 0
    amounts: Amounts = field(default_factory=Amounts)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Counted") -> None:
        """What another task has."""
        self.names += other.names
        self.folders += other.folders
        self.amounts.add(other.amounts)
        self.kinds.update(other.kinds)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A name where messages lie that is none of mq's: no look of an auditor's tells of it."""

    path: str


Row: TypeAlias = tuple[str, int, Any]
"""A row: what it is, which task of the next step is to have it, and what it says."""


Batched: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Looking:
    """One process's looks at a root: those of a task, or the driver's own."""

    def __init__(self, task: Task, root: Root) -> None:
        self._task = task
        self._root = root
        self._taking = Taking(root, task.queues)
        self._screen = Screen(root, task.overdue_s, task.queues, is_by_name=task.is_by_name)
        self._rows = 0

    def screened(self, folders: Iterable[NameFolder]) -> Iterator[Row]:
        """The first step: hashes of the folders' messages, what is suspect, what was counted."""
        hashing, counted = Hashing(self._task.groups), Counted(amounts=self._screen.amounts)
        suspects: list[Suspect | Foreign] = []
        for folder in folders:
            counted.folders += 1
            for screened in self._screen.screened(folder):
                counted.names += screened.names
                hashing.add(screened.folder, screened.messages)
                for look in screened.looks:
                    suspects += self.suspected(look)
                suspects += map(Foreign, screened.foreign)
                while len(suspects) > _SUSPECTS_PER_ROW:
                    yield self._row_of(suspects[:_SUSPECTS_PER_ROW])
                    del suspects[:_SUSPECTS_PER_ROW]
            if hashing.count > _HASHES_HELD:
                yield from ((HASHES, number, part) for number, part in hashing.taken())
        yield from ((HASHES, number, part) for number, part in hashing.taken())
        if suspects:
            yield self._row_of(suspects)
        yield COUNTED, 0, counted

    def suspected(self, look: Look, *, is_double: bool = False) -> list[Suspect]:
        """What a look tells, for the second look at it. That one message is in two places is told
        of those alone that were found so (`is_double`), and of these nothing else.
        """
        found = self._taking.taken(look)
        found = [each for each in found if (each.breach is Breach.TWO_STATES) is is_double]
        if not found:
            return []
        now_ms, sent = self._root.now_ms(), SentLook.of(look)
        return [Suspect(now_ms, sent, each) for each in found]

    def located(self, found: Doubled) -> Iterator[Suspect]:
        """Looks at the messages of a folder that may lie in another too."""
        wanted = set(found.hashes)
        by_name = Screen(self._root, self._task.overdue_s, self._task.queues, is_by_name=True)
        for screened in by_name.screened(found.folder):
            for ids in screened.messages:
                for text, each in zip(ids.texts, hashes_of(ids).to_pylist(), strict=True):
                    if each in wanted:
                        of = MessageId.parse(text)
                        look = self._screen.look_at(screened.folder, ids.queue, of)
                        yield from self.suspected(look, is_double=True)

    def again(
        self, suspects: Iterable[Suspect], auditor: Looker, pause: Callable[[float], object]
    ) -> Iterator[Violation]:
        """What is still so at the second look, by an auditor like the one whose the first was, once
        it was seen long enough ago. `pause` returns after so many seconds.
        """
        for suspect in suspects:
            waited_s = max(0.0, (self._root.now_ms() - suspect.seen_ms) / 1000)
            if waited_s < self._task.again_after_s:
                pause(self._task.again_after_s - waited_s)
            violation = self._taking.still(suspect.look.by(auditor), suspect.violation)
            if violation is not None:
                yield violation

    def confirmed(self, rows: Iterable[Row]) -> Iterator[Finding]:
        """The last step: the second look at what is suspect, and at messages in two places."""
        held: deque[Suspect] = deque()
        for what, _, said in rows:
            if what == DOUBLED:
                held.extend(self.located(said))
            else:
                for each in said:
                    if isinstance(each, Foreign):
                        yield from self._still_foreign(each)
                    else:
                        held.append(each)
            while len(held) > SUSPECTS_MAX:
                yield from self._believed([held.popleft()])
        yield from self._believed(held)

    def _believed(self, suspects: Iterable[Suspect]) -> Iterator[Finding]:
        pause = threading.Event().wait
        return map(Finding.of, self.again(suspects, self._screen, pause))

    def _still_foreign(self, foreign: Foreign) -> Iterator[Finding]:
        if self._root.files.status(foreign.path) is not None:
            yield Finding(FOREIGN, FOREIGN_SAYS, printable(foreign.path), repair=FOREIGN_REPAIR)

    def _row_of(self, suspects: "list[Suspect | Foreign]") -> Row:
        self._rows += 1
        return SUSPECTS, self._rows % self._task.spread, list(suspects)


def compared(rows: Iterable[Row], spread: int) -> Iterator[Row]:
    """The second step: which folders have messages that lie in another too. What it has no part in
    goes on to the next; what was counted becomes one.
    """
    groups: dict[int, list[Hashes]] = {}
    counted = Counted()
    for what, at, said in rows:
        if what == HASHES:
            groups.setdefault(at, []).append(said)
        elif what == COUNTED:
            counted.add(said)
        else:
            yield what, at, said
    yield COUNTED, 0, counted
    while groups:
        _, parts = groups.popitem()
        for number, found in enumerate(doubled(parts)):
            yield DOUBLED, number % spread, found


def screening(task: Task) -> Batched:
    """The first step, as Spark maps it over rows of folders."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folders = (folder for _, _, said in unpacked(batches) for folder in said)
        return packed(Looking(task, task.opened()).screened(folders))

    return step


def comparing(task: Task) -> Batched:
    """The second step, over rows of the first."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return packed(compared(unpacked(batches), task.spread))

    return step


def confirming(task: Task) -> Batched:
    """The last step, over rows of the second: findings, and what was counted."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted = Counted()

        def others() -> Iterator[Row]:
            for row in unpacked(batches):
                if row[0] == COUNTED:
                    counted.add(row[2])
                else:
                    yield row

        looking = Looking(task, task.opened())
        yield from finding_batches(looking.confirmed(others()), counted.kinds)
        yield counted_batch(pickle.dumps(counted))

    return step


def packed(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Rows as Spark has them, one a batch: they are few, and large."""
    for what, at, said in rows:
        yield pa.RecordBatch.from_arrays(
            [pa.array([what]), pa.array([at], pa.int32()), pa.array([pickle.dumps(said)])],
            schema=_SCHEMA,
        )


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """The same back again."""
    for batch in batches:
        for number in range(batch.num_rows):
            what, at, blob = (batch.column(name)[number].as_py() for name in ("part", "at", "blob"))
            # Of this job's own tasks alone, from Spark's own storage.
            yield what, at, pickle.loads(blob)  # noqa: S301
