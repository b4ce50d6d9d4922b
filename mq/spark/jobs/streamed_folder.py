"""The batches of a stream as Parquet files of a folder, of a Delta table or of an Iceberg table.

    orders.writeStream.foreachBatch(mq.spark.to_folder("/lake/orders", format="delta"))

Each query has a journal of its own in the folder, `_mq-{query}`, laid out as a drain's: the tasks
write files there, the driver commits a batch under its number, gives the files their names and adds
them to the table. A batch that comes again is finished, or skipped. So each file under a data name
is whole, for every reader and at every moment.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from mq.spark.jobs.drained_folder import About, Commit, DrainedFolder, Standing
from mq.spark.jobs.draining import WRITTEN, Written
from mq.spark.jobs.parsing import Parsed
from mq.spark.jobs.row_files import Output, ParquetGroups, compression_of, suffix_of
from mq.spark.jobs.tables import DELTA_LOG, TABLES, Table, kind_of, table_of
from mq.spark.jobs.tasks import Batches
from mq.spark.rows import arrow_schema
from mq.store.disk.files import Files

OWN: Final = "_mq-"
"""What the name of a query's journal begins with."""

_QUERY: Final = "sql.streaming.queryId"


def to_folder(
    to: str | Path,
    *,
    format: str = "parquet",  # noqa: A002 - the option's name.
    table: str | None = None,
    compression: str | None = None,
    rows: Parsed | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that adds each batch of a query to a folder exactly once.

    `format`: `parquet`; `delta`, a Delta table in the folder; or `iceberg`, the `table`
    CATALOG.NAMESPACE.TABLE, whose files are in the folder. `rows`: how to parse the messages of a
    stream of `format("mq")`; otherwise any rows are written as they are.

    The batch is durable when the function returns. The driver and the tasks need the folder on the
    same path; Spark Connect is not supported. The function raises FolderRefused, TableRefused,
    OSError.

    Raises ValueError, BadCompression.
    """
    if format not in ("parquet", *TABLES):
        raise ValueError("the format is parquet, delta, or iceberg with a table")
    said = compression_of("parquet", compression)
    return _ToFolder(os.path.realpath(to), kind_of(format, table), said, rows)


@dataclass(frozen=True, slots=True)
class _ToFolder:
    path: str
    kind: str
    compression: str
    parsed: Parsed | None = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        query = _query_of(rows)
        if self.parsed is None:
            self._add(rows, query, number)
            return
        parsed = self.parsed.split(rows, f"refused-{query}-{number}")
        try:
            self._add(self.parsed.good(parsed), query, number)
        finally:
            parsed.unpersist()

    def _add(self, rows: DataFrame, query: str, number: int) -> None:
        files = Files()
        folder = DrainedFolder(Path(self.path), files, f"{OWN}{query}")
        with contextlib.closing(folder), folder.locked((DELTA_LOG, OWN)):
            about = folder.claim(About(uuid4().hex, "", "parquet", self.compression, "", self.kind))
            table = table_of(self.kind, folder.path, about.id, files)
            StreamedFolder(folder, about, table).add(
                number, _schema_of(rows), lambda write: _written(rows, write)
            )


Execute = Callable[["Write"], Iterable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class StreamedFolder:
    """A query's journal, and the table of its folder; for the process that has locked it."""

    folder: DrainedFolder
    about: About
    table: Table

    def add(self, batch: int, schema: pa.Schema, execute: Execute) -> None:
        """Adds the batch of this number, from 0, unless that was done. `execute` runs the batch's
        tasks, and returns a row of draining.WRITTEN for each. Raises FolderRefused, TableRefused,
        OSError. Durable on return: yes.
        """
        self.table.check(schema)
        commits = self.folder.commits()
        for commit in commits:
            self.folder.put_in_place(commit)
            if commit.standing is Standing.OPEN:
                # Its flush may have failed.
                self.folder.renew_commit(commit)
                self._finish(commit, schema)
        self.folder.sweep(commits)
        # Spark repeats the last batch, and none before it.
        number = batch + 1
        if commits and commits[-1].number >= number:
            return
        attempt = self.folder.begin_writing()
        try:
            write = Write(f"{self.folder.own}/{attempt}", self.about.compression, schema)
            name = f"mq-{self.about.id[:12]}-{number:06d}"
            suffix = suffix_of("parquet", self.about.compression)
            written = Written.of(execute(write), name, attempt, suffix)
            if written.parts:
                commit = written.commit(number, "")
                self.folder.commit(commit, attempt)
                self._finish(commit, schema)
                self.folder.forget(number)
        finally:
            with contextlib.suppress(OSError):
                self.folder.sweep(self.folder.commits())

    def _finish(self, commit: Commit, schema: pa.Schema) -> None:
        self.table.add(commit, schema)
        self.folder.settle(commit, Standing.DONE)


@dataclass(frozen=True, slots=True)
class Write:
    """How the tasks of a batch write: to files of a folder for files in progress."""

    folder: str
    compression: str
    schema: pa.Schema

    def task(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Writes a partition; yields a row of WRITTEN. In a task."""
        context = TaskContext.get()
        written = self.partition(0 if context is None else context.partitionId(), batches, Files())
        yield pa.RecordBatch.from_pylist([written] if written else [], arrow_schema(WRITTEN))

    def partition(self, number: int, batches: Batches, files: Files) -> dict[str, Any] | None:
        """Writes the rows to a file of its own; None without rows. Raises OSError. Durable on
        return: yes, except for the name.
        """
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return None
        name = f"{number:05d}-{uuid4().hex}{suffix_of('parquet', self.compression)}"
        with Output(files, f"{self.folder}/{name}") as out:
            writer = ParquetGroups(out, self.compression, self.schema)
            rows = 0
            while first is not None:
                writer.write(first)
                rows += first.num_rows
                first = next(batches, None)
            writer.close()
            sha256 = out.finish()
            return {
                "partition": number, "file": name, "messages": rows, "bytes": out.size,
                "sha256": sha256, "damaged": 0, "twice": 0, "by_queue": [],
            }  # fmt: skip


def _written(rows: DataFrame, write: Write) -> list[dict[str, Any]]:
    return [row.asDict() for row in rows.mapInArrow(write.task, WRITTEN).collect()]


def _schema_of(rows: DataFrame) -> pa.Schema:
    """The rows' columns, all nullable: a later batch may have nulls where this one has none."""
    try:
        found = to_arrow_schema(rows.schema, timezone="UTC")
    except TypeError:  # Spark before 4.3.
        found = to_arrow_schema(rows.schema)
    return pa.schema([pa.field(each.name, each.type) for each in found])


def _query_of(rows: DataFrame) -> str:
    """The id of the query that runs, which its checkpoint keeps. Raises ValueError outside of
    `foreachBatch`.
    """
    context = getattr(rows.sparkSession, "_sc", None)
    query = None if context is None else context.getLocalProperty(_QUERY)
    if not query:
        raise ValueError("mq.spark.to_folder is for foreachBatch of a session without Connect")
    return str(query)
