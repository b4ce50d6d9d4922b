"""A task of a drain: writes the messages of a partition to one file, and reports to the driver. No
pyspark here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import uuid4

import pyarrow as pa

from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.spark.jobs.drained_folder import Commit, Part
from mq.spark.jobs.row_files import Format, Output, row_writer, suffix_of
from mq.spark.opening import attached
from mq.spark.partitions import Names
from mq.spark.reading import VALUE_BYTES_MAX, Manner, batches, leased_batches
from mq.spark.rows import ARROW_SCHEMA, arrow_schema
from mq.store.core.root import Root
from mq.store.disk.files import Files, is_gone
from mq.store.format.pipeline import LeaseName

WRITTEN: Final = (
    "partition int, file string, messages long, bytes long, sha256 string, damaged long, "
    "twice long, by_queue map<string,long>"
)
"""The row that a task reports, as a Spark schema; a partition without messages has none."""
_WRITTEN: Final = arrow_schema(WRITTEN)


@dataclass(frozen=True, slots=True)
class Draining:
    """A batch as all its tasks receive it. `lease`: its name, "" if messages of a `state` are only
    copied; `folder`: where files are written; `written_before`: ids that the drain's folder already
    has, which are skipped.
    """

    root: str
    lease: str
    state: State
    folder: str
    format: Format
    compression: str
    names: tuple[Names, ...]
    written_before: frozenset[str] = frozenset()

    def task(self, number: int) -> Iterator[pa.RecordBatch]:
        """Drains the partition of this number; yields a row of WRITTEN."""
        written = drain_partition(self, number, Files())
        yield pa.RecordBatch.from_pylist([written] if written else [], _WRITTEN)


def drain_partition(draining: Draining, number: int, files: Files) -> dict[str, Any] | None:
    """Writes a partition's messages to a file of its own. Returns a row of WRITTEN, None without
    messages. Raises LeaseLost, ValueTooLarge, OSError. Durable on return: yes, except for the name.
    """
    root = attached(draining.root, files)
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
    """Counts a partition's rows as they pass."""

    def __init__(self, draining: Draining, root: Root) -> None:
        self._draining = draining
        self._root = root
        self.messages = self.damaged = self.twice = 0
        self.queues: Counter[str] = Counter()

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch to write: without messages that were written before, and with the whole files
        of damaged ones.
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
        """The batch with the whole file as the value of each damaged message; without those whose
        file is gone.
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
    """What all tasks of a batch have written."""

    parts: tuple[Part, ...]
    by_queue: dict[str, int]
    damaged: int
    twice: int

    @classmethod
    def of(cls, told: Iterable[dict[str, Any]], name: str, attempt: str, suffix: str) -> Self:
        """Combines the tasks' rows, in any order. `name`: what the files' names begin with;
        `attempt`: the folder that they wrote to, below the drain's own.
        """
        rows = sorted(told, key=lambda row: int(row["partition"]))
        queues: Counter[str] = Counter()
        for row in rows:
            queues.update(dict(row["by_queue"] or {}))
        parts = tuple(
            Part(
                f"{name}-{row['partition']:05d}{suffix}",
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
        return Commit(number, lease, self.parts, self.by_queue, self.damaged)
