"""What a task of a drain does: messages by their names in, one file of them out.

No pyspark here; what comes in is the number of a partition, what goes out is told to the driver.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import uuid4

import pyarrow as pa

from mq.model.bulk_limits import VALUE_BYTES_MAX
from mq.model.clock import SystemClock
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.spark.jobs.drained_folder import Commit, Part
from mq.spark.jobs.row_files import Format, Output, row_writer, suffix_of
from mq.spark.partitions import Names
from mq.spark.reading import Manner, batches, leased_batches
from mq.spark.rows import ARROW_SCHEMA
from mq.store.core.root import Root, attach_root
from mq.store.disk.files import Files, is_gone
from mq.store.format.pipeline import LeaseName

WRITTEN: Final = (
    "partition int, file string, messages long, bytes long, sha256 string, damaged long, "
    "twice long, by_queue map<string,long>"
)
"""What a task tells, as Spark writes a schema; none of a partition without messages."""
_WRITTEN: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("file", pa.string()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("damaged", pa.int64()),
        ("twice", pa.int64()),
        ("by_queue", pa.map_(pa.string(), pa.int64())),
    ]
)
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Draining:
    """What all tasks of a batch know. `lease`: its name, "" where messages of a `state` are only
    copied; `folder`: where files are written; `written_before`: ids that the drain's folder has,
    which are passed by.
    """

    root: str
    lease: str
    state: State
    folder: str
    format: Format
    compression: str
    names: tuple[Names, ...]
    written_before: frozenset[str] = frozenset()

    def task(self) -> Task:
        """For mapInArrow, of rows that are numbers of partitions."""

        def drained(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    told = drain_partition(self, number, Files())
                    yield pa.RecordBatch.from_pylist([told] if told else [], _WRITTEN)

        return drained


def drain_partition(draining: Draining, number: int, files: Files) -> dict[str, Any] | None:
    """Writes one partition's messages to a file of its own, and says what is in it; None: there
    were none. Raises LeaseLost, ValueTooLarge, OSError. Durable on return: yes, but for its name.
    """
    root = attach_root(draining.root, files, SystemClock())
    rows = _rows(draining, root, draining.names[number])
    first = next(rows, None)
    name = f"{number:05d}-{uuid4().hex}{suffix_of(draining.format, draining.compression)}"
    told = _Told(draining, root)
    while first is not None and not (first := told.seen(first)).num_rows:
        first = next(rows, None)
    if first is None:
        return {"partition": number, "twice": told.twice, "messages": 0} if told.twice else None
    with Output(files, f"{draining.folder}/{name}") as out:
        writer = row_writer(out, draining.format, draining.compression)
        writer.write(first)
        for batch in rows:
            writer.write(told.seen(batch))
        writer.close()
        sha256 = out.finish()
        return {
            "partition": number,
            "file": name,
            "messages": told.messages,
            "bytes": out.size,
            "sha256": sha256,
            "damaged": told.damaged,
            "twice": told.twice,
            "by_queue": list(told.queues.items()),
        }


def _rows(draining: Draining, root: Root, names: Names) -> Iterator[pa.RecordBatch]:
    if not draining.lease:
        return batches(root, names, Manner(draining.state))
    lease = LeaseName.parse(draining.lease)
    return leased_batches(root, lease, names, Manner(State.LEASED, receives=1))


class _Told:
    """What is said of a partition's rows, counted as they come by."""

    def __init__(self, draining: Draining, root: Root) -> None:
        self._draining = draining
        self._root = root
        self.messages = self.damaged = self.twice = 0
        self.queues: Counter[str] = Counter()

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as it is written: without what was written before, with the bytes of what is
        damaged.
        """
        if before := self._draining.written_before:
            fresh = [each not in before for each in batch.column("id").to_pylist()]
            self.twice += fresh.count(False)
            if not all(fresh):
                batch = batch.filter(pa.array(fresh, pa.bool_()))
        if batch.column("value").null_count:
            batch = self._with_damaged(batch)
        self.messages += batch.num_rows
        self.queues.update(batch.column("queue").to_pylist())
        return batch

    def _with_damaged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same, with all that is in the file of a message that has no row's value; nothing
        where that has gone.
        """
        rows = []
        for row in batch.to_pylist():
            if row["value"] is None:
                whole = self._whole(row["queue"], row["id"])
                if whole is None:
                    continue
                row["value"] = whole
                self.damaged += 1
            rows.append(row)
        return pa.RecordBatch.from_pylist(rows, ARROW_SCHEMA)

    def _whole(self, queue: str, text: str) -> bytes | None:
        state, lease = self._draining.state, self._draining.lease
        name, message_id = QueueName.parse(queue), MessageId.parse(text)
        spots: Iterable[str] = (LeaseName.parse(lease).spot,) if lease else ()
        for bucket in spots or self._root.places.spots(state, name, message_id):
            path = self._root.layout.path(state, name, message_id, bucket)
            try:
                return self._root.files.read_file(path, VALUE_BYTES_MAX)
            except OSError as error:
                if not is_gone(error):
                    raise
        return None


@dataclass(frozen=True, slots=True)
class Written:
    """What the tasks of a batch have written, together."""

    parts: tuple[Part, ...]
    by_queue: dict[str, int]
    damaged: int
    twice: int

    @classmethod
    def of(cls, told: Iterable[dict[str, Any]], batch: int, attempt: str, suffix: str) -> Self:
        """Of what they told, in any order; `attempt`: the folder that they wrote to, below the
        drain's own.
        """
        rows = sorted(told, key=lambda row: int(row["partition"]))
        queues: Counter[str] = Counter()
        for row in rows:
            queues.update(dict(row["by_queue"] or {}))
        parts = tuple(
            Part(
                f"{batch:06d}-{row['partition']:05d}{suffix}",
                f"{attempt}/{row['file']}",
                row["messages"],
                row["bytes"],
                row["sha256"],
            )
            for row in rows
            if row["file"]
        )
        damaged = sum(row["damaged"] or 0 for row in rows)
        return cls(parts, dict(queues), damaged, sum(row["twice"] or 0 for row in rows))

    def commit(self, number: int, lease: str) -> Commit:
        """The commit that says so."""
        return Commit(number, lease, self.parts, self.by_queue, self.damaged)
