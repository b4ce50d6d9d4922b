"""The sink of `format("mq")`: publishes a batch, or each batch of a stream, as a whole.

The tasks' work is in `publishing`. Spark makes a writer where it plans a query, and sends it to the
tasks and the commit. A stream's commit runs on another writer, so it gets its facts from the tasks'
messages.
"""

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from mq.model.errors import StorageFailed
from mq.model.names import Key
from mq.spark.opening import check_queue, following
from mq.spark.options import BadOption, WriteOptions
from mq.spark.publishing import Task, abort_staged, check_columns, commit_staged, stage_rows
from mq.store.bulk.staging import Staged

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_JOB_DIGITS: Final = 32


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task's attempt has staged, and the name of its publish."""

    staged: Staged
    name: str | None = None


class BatchWriter(DataSourceArrowWriter):
    """Publishes a data frame: all of it, or nothing."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        _check(options, schema, overwrite)
        self._options = options
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stages a partition. Durable on return: yes."""
        context = _context()
        task = Task(
            self._job,
            context.partitionId(),
            context.taskAttemptId(),
            self._options.publish_id,
            repeats=True,
        )
        return StagedMessage(
            stage_rows(following(self._options.path), self._options, task, iterator)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits the publish and moves all messages to their places. Durable on return: yes."""
        root = following(self._options.path)
        staged = [message.staged for message in _staged(messages)]
        commit_staged(root, self._options, self._job, staged, self._options.publish_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Removes what the job staged; after the commit point, nothing."""
        abort_staged(following(self._options.path), self._job, self._options.publish_id)


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes a stream: each batch as a whole, and once."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        _check(options, schema, overwrite=False)  # Complete mode does not suit messages.
        if overwrite:
            raise BadOption("outputMode", "append or update: published messages stay", "complete")
        if options.publish_id is not None:
            raise BadOption("publishId", "is a batch's; a stream's batches have names of their own")
        self._options = options
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stages a partition of a batch. Durable on return: yes."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise StorageFailed("Spark does not say which batch this is")
        name = f"{query}-{batch}"
        # Each batch is a job of its own: the previous one may be rolled forward later.
        job = hashlib.sha256(f"{self._run}\n{name}".encode()).hexdigest()[:_JOB_DIGITS]
        task = Task(job, context.partitionId(), context.taskAttemptId(), Key.parse(name))
        staged = stage_rows(following(self._options.path), self._options, task, iterator)
        return StagedMessage(staged, name)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commits a batch and moves all its messages to their places. Skips a batch that was
        published before. Durable on return: yes.
        """
        found = _staged(messages)
        if not found:
            return
        first = found[0]
        name = None if first.name is None else Key.parse(first.name)
        staged = [message.staged for message in found]
        commit_staged(following(self._options.path), self._options, first.staged.job, staged, name)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """As for a batch. What no message mentions is removed after a day."""
        for message in _staged(messages)[:1]:
            name = None if message.name is None else Key.parse(message.name)
            abort_staged(following(self._options.path), message.staged.job, name)


def _check(options: WriteOptions, schema: StructType, overwrite: bool) -> None:
    """Checks options and columns before any task runs."""
    if overwrite:
        raise BadOption("mode", "append: a queue is not overwritten", "overwrite")
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    check_columns(columns, options)
    check_queue(following(options.path), options.queue)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise StorageFailed("this code runs outside a Spark task")
    return context


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedMessage]:
    return [message for message in messages if isinstance(message, StagedMessage)]
