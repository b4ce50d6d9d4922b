"""The tasks of an audit: screen folders, compare their names, look again. They map rows to rows; a
row's `blob` is one step's message to the next. Read-only.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mq.spark.listing import home_of
from mq.spark.rows import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


import hashlib
import pickle
import threading
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from mq.model.clock import SystemClock
from mq.model.limits import UUID_CHARS
from mq.model.names import MessageId, QueueName
from mq.spark.jobs.audit_findings import (
    COUNTED,
    FOREIGN,
    FOREIGN_REPAIR,
    FOREIGN_SAYS,
    Finding,
    counted_batch,
    finding_batches,
)
from mq.store.audit.findings import SUSPECTS_MAX, Amounts, Breach, Look, Violation, printable
from mq.store.audit.folders import NameFolder
from mq.store.audit.looks import Looker
from mq.store.audit.screen import Ids, Screen
from mq.store.audit.taking import SentLook, Suspect, Taking
from mq.store.core.clocks import ClockFollower
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.opening import open_for_audit

_HASH_BYTES: Final = 8


class Hashes(NamedTuple):
    """Hashes of the messages in these folders, 8 bytes each; `at`: the index of each one's folder,
    4 bytes each.
    """

    folders: tuple[NameFolder, ...]
    hashes: bytes
    at: bytes


class Doubled(NamedTuple):
    """Hashes of a folder's messages that also occur elsewhere."""

    folder: NameFolder
    hashes: tuple[int, ...]


def hashes_of(ids: Ids) -> pa.Array:
    """The hashes of ids of one queue, in order, as int64."""
    texts = "".join([text[:UUID_CHARS] for text in ids.texts])
    halves = array("q", bytes.fromhex(texts.replace("-", "")))
    first, second = (
        pa.Array.from_buffers(pa.int64(), len(half), [None, pa.py_buffer(half)])
        for half in (halves[::2], halves[1::2])
    )
    return pc.bit_wise_xor(pc.bit_wise_xor(first, second), pa.scalar(_of_queue(ids.queue)))


def _of_queue(queue: QueueName) -> int:
    digest = hashlib.blake2b(home_of(queue).text.encode("ascii"), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "little", signed=True)


class Hashing:
    """The hashes of many folders' messages, divided into groups by hash."""

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._folders: list[NameFolder] = []
        self._found: list[pa.Array] = []
        self._at: list[tuple[int, int]] = []
        self.count = 0

    def add(self, folder: NameFolder, messages: Sequence[Ids]) -> None:
        if not messages:
            return
        if not self._folders or self._folders[-1] is not folder:
            self._folders.append(folder)
        for ids in messages:
            self._found.append(hashes_of(ids))
            self._at.append((len(self._folders) - 1, len(ids.texts)))
            self.count += len(ids.texts)

    def taken(self) -> Iterator[tuple[int, Hashes]]:
        """Removes and returns all that was added, by group."""
        if not self.count:
            return
        hashes = pa.concat_arrays(self._found)
        at = array("i")
        for number, count in self._at:
            at.extend(array("i", [number]) * count)
        table = pa.table({"hash": hashes, "at": _int32(at)})
        folders = tuple(self._folders)
        self._folders, self._found, self._at, self.count = [], [], [], 0
        if self._groups == 1:
            yield 0, _packed(folders, table)
            return
        # The hash's low bits are as good as random.
        group = pc.bit_wise_and(table["hash"], pa.scalar(self._groups - 1, pa.int64()))
        for number in range(self._groups):
            part = table.filter(pc.equal(group, number))
            if part.num_rows:
                yield number, _packed(folders, part)


def _packed(folders: tuple[NameFolder, ...], table: pa.Table) -> Hashes:
    hashes, at = (table[name].combine_chunks() for name in ("hash", "at"))
    return Hashes(folders, _bytes(hashes, 8), _bytes(at, 4))


def _bytes(values: pa.Array, width: int) -> bytes:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else values.chunk(0)
    data = values.buffers()[1]
    return bytes(data[values.offset * width : (values.offset + len(values)) * width])


def _int32(values: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def doubled(parts: Iterable[Hashes]) -> Iterator[Doubled]:
    """Which folders have messages whose hash occurs twice in a group, and these hashes. Takes some
    40 bytes of memory per message of the group.
    """
    folders: list[NameFolder] = []
    hashes, at = [], []
    for part in parts:
        count = len(part.hashes) // _HASH_BYTES
        numbers = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(part.at)])
        hashes.append(pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(part.hashes)]))
        at.append(pc.add(numbers, pa.scalar(len(folders), pa.int32())))
        folders += part.folders
    if not hashes:
        return
    table = pa.table({"hash": pa.chunked_array(hashes), "at": pa.chunked_array(at)})
    counted = table.group_by("hash").aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted["count_all"], 1))["hash"]
    if not len(twice):
        return
    found = table.filter(pc.is_in(table["hash"], value_set=twice.combine_chunks()))
    by_folder: dict[int, list[int]] = {}
    for number, each in zip(found["at"].to_pylist(), found["hash"].to_pylist(), strict=True):
        by_folder.setdefault(number, []).append(each)
    for number, of_folder in by_folder.items():
        yield Doubled(folders[number], tuple(of_folder))


ROWS: Final = "part string, at int, blob binary"
_SCHEMA: Final = arrow_schema(ROWS)
FOLDERS: Final = "folders"
HASHES: Final = "hashes"
DOUBLED: Final = "doubled"
SUSPECTS: Final = "suspects"
# Suspects in a row, and message hashes that a task holds.
_SUSPECTS_PER_ROW: Final = 500
_HASHES_HELD: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """An audit's root, queues (None: all) and bounds, and the number of `groups` (a power of two)
    that names are divided into. Sent with each task.
    """

    root: str
    overdue_s: float
    again_after_s: float
    queues: tuple[QueueName, ...] | None = None
    is_by_name: bool = False
    groups: int = 1
    spread: int = 1

    def opened(self) -> Root:
        """Opens the root in this process; on a mount, with its server's clock."""
        clock = SystemClock()
        root = open_for_audit(self.root, Files(), clock, "spark")
        ClockFollower(root, clock).follow()
        return root


@dataclass(slots=True)
class Counted:
    """Counts: names and folders that were checked, messages by kind, findings by kind."""

    names: int = 0
    folders: int = 0
    amounts: Amounts = field(default_factory=Amounts)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Counted") -> None:
        self.names += other.names
        self.folders += other.folders
        self.amounts.add(other.amounts)
        self.kinds.update(other.kinds)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A name among messages that is not mq's, which no auditor reports."""

    path: str


Row: TypeAlias = tuple[str, int, Any]
"""A row: its kind, the task of the next step that gets it, and its content."""


Batched: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Looking:
    """One process's looks at a root: a task's, or the driver's."""

    def __init__(self, task: Task, root: Root) -> None:
        self._task = task
        self._root = root
        self._taking = Taking(root, task.queues)
        self._screen = Screen(root, task.overdue_s, task.queues, is_by_name=task.is_by_name)
        self._rows = 0

    def screened(self, folders: Iterable[NameFolder]) -> Iterator[Row]:
        """The first step: the hashes of the folders' messages, suspects, counts."""
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
        """The suspects of a look. With `is_double` only messages in two places, else all others."""
        found = self._taking.taken(look)
        found = [each for each in found if (each.breach is Breach.TWO_STATES) is is_double]
        if not found:
            return []
        now_ms, sent = self._root.now_ms(), SentLook.of(look)
        return [Suspect(now_ms, sent, each) for each in found]

    def located(self, found: Doubled) -> Iterator[Suspect]:
        """Looks at the messages of a folder that may also lie in another."""
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
        """The violations that a second look by the same kind of auditor still finds,
        `again_after_s` after the first. `pause` sleeps a number of seconds.
        """
        for suspect in suspects:
            waited_s = max(0.0, (self._root.now_ms() - suspect.seen_ms) / 1000)
            if waited_s < self._task.again_after_s:
                pause(self._task.again_after_s - waited_s)
            violation = self._taking.still(suspect.look.by(auditor), suspect.violation)
            if violation is not None:
                yield violation

    def confirmed(self, rows: Iterable[Row]) -> Iterator[Finding]:
        """The last step: the second look at suspects and at messages in two places."""
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
    """The second step: the folders with messages that also lie in another. Passes other rows on,
    and adds up the counts.
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
    """The first step, for Spark to map over rows of folders."""

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
    """The last step, over rows of the second: findings and counts."""

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
    """Rows for Spark, one per batch: they are few, and large."""
    for what, at, said in rows:
        row = {"part": what, "at": at, "blob": pickle.dumps(said)}
        yield pa.RecordBatch.from_pylist([row], _SCHEMA)


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for number in range(batch.num_rows):
            what, at, blob = (batch.column(name)[number].as_py() for name in ("part", "at", "blob"))
            # Written by this job's own tasks, in Spark's own storage.
            yield what, at, pickle.loads(blob)  # noqa: S301


_TASKS_MAX: Final = 64


def mapped(
    spark: "SparkSession", items: Sequence[Any], per_row: int, step: Batched, rows: str
) -> "DataFrame":
    """The rows that a step makes of these items, `per_row` of them in each of its input rows."""
    parts = [tuple(items[at : at + per_row]) for at in range(0, len(items), per_row)] or [()]
    tasks = min(len(parts), _TASKS_MAX)
    return rows_of(spark, parts).repartition(tasks).mapInArrow(step, rows)


def rows_of(spark: "SparkSession", parts: Iterable[Sequence[Any]]) -> "DataFrame":
    """A row of ROWS for each part, for the first step."""
    made = [(FOLDERS, at, pickle.dumps(part)) for at, part in enumerate(parts)]
    return spark.createDataFrame(made, ROWS)
