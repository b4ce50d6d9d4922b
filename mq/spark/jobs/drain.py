"""Draining queues to files: Parquet, JSON lines or CSV, acknowledged once they are on stable media.

A loop of leases, each a batch with a commit of its own in the folder: DRAIN.md says why no stream,
and what is promised when it dies. The driver claims, commits and acknowledges; tasks read and
write.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import SparkSession

from mq.model.bulk_limits import LEASE_S_DEFAULT
from mq.model.names import QueueName
from mq.spark.jobs.drain_run import Drained, DrainRun, Execute
from mq.spark.jobs.drained_folder import About, DrainedFolder, FolderRefused
from mq.spark.jobs.draining import WRITTEN, Draining
from mq.spark.jobs.job_errors import NoSuchQueue, TaskFailed, queue_named, said_by_task
from mq.spark.jobs.row_files import Format, compression_of
from mq.spark.jobs.watching import Unwatched, Watcher
from mq.spark.opening import open_for_leases
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists

BATCH_MESSAGES_DEFAULT: Final = 200_000
FILE_MESSAGES_DEFAULT: Final = 50_000
COPIED: Final = ("ready", "delayed", "removed")
"""The states that can be copied."""


def drain(
    spark: SparkSession,
    root: Path,
    queues: Sequence[str],
    to: Path,
    *,
    format: Format = "parquet",  # noqa: A002 - the option's name.
    compression: str | None = None,
    copy: bool = False,
    state: str = "ready",
    limit: int | None = None,
    batch_messages: int = BATCH_MESSAGES_DEFAULT,
    file_messages: int = FILE_MESSAGES_DEFAULT,
    lease_seconds: float = LEASE_S_DEFAULT,
    watcher: Watcher | None = None,
) -> Drained:
    """Takes what is ready in the queues when it begins, at most `limit` messages, out of them into
    files of the folder `to`, and removes it once the files are on stable media. With `copy` nothing
    is taken: messages of a `state` are only read, as they are in that moment.

    `batch_messages` are leased, committed and acknowledged at a time; a file has `file_messages` at
    most. A folder that a drain of this root died over is gone on with, first of all.

    Raises FolderRefused, BadCompression, BadName, QueueNotFound, StartupError, TooManyLeases,
    LeaseLost, TaskFailed, Unavailable, OSError, ValueError: what was not committed by then is back
    in its queues. Durable on return: yes.
    """
    if not queues or state not in COPIED or (state != "ready" and not copy):
        raise ValueError("a drain takes a queue's ready messages; a copy is of one state")
    if (limit is not None and limit < 1) or min(batch_messages, file_messages) < 1:
        raise ValueError("a drain takes at least one message at a time")
    names = tuple(dict.fromkeys(queue_named(queue) for queue in queues))
    opened, flusher = open_for_leases(root)
    folder = DrainedFolder(_outside(opened, to), opened.files)
    try:
        if state != "removed":
            _check_queues(opened, names)
        said = compression_of(format, compression)
        about = About(
            uuid4().hex, os.path.realpath(opened.layout.root), format, said, state if copy else ""
        )
        with folder.locked():
            about = folder.claim(about)
            run = DrainRun(
                _by(spark), opened, flusher, folder, about, file_messages, watcher or Unwatched()
            )
            if copy:
                return run.copy(names, limit)
            return run.drain(names, limit, batch_messages, lease_seconds)
    finally:
        folder.close()
        flusher.close()


def _outside(root: Root, to: Path) -> Path:
    """The folder by its real name. Raises FolderRefused when it lies in the root, or around it."""
    path, top = Path(os.path.realpath(to)), Path(os.path.realpath(root.layout.root))
    if path == top or top in path.parents or path in top.parents:
        raise FolderRefused(os.fspath(path), "and the root lie in one another")
    return path


def _check_queues(root: Root, queues: Iterable[QueueName]) -> None:
    for queue in queues:
        if not queue_exists(root, queue):
            raise NoSuchQueue(queue.text)


def _by(spark: SparkSession) -> Execute:
    """Each partition is a task of Spark's. Raises TaskFailed."""

    def execute(draining: Draining) -> list[dict[str, Any]]:
        count = len(draining.names)
        try:
            numbers = spark.range(0, count, 1, count)
            told = numbers.mapInArrow(draining.task(), WRITTEN).collect()
        except Exception as error:
            raise TaskFailed(said_by_task(error)) from error
        return [row.asDict() for row in told]

    return execute
