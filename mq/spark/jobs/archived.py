"""Reads an archive: its messages as a DataFrame.

Readers share a lock, and no job swaps files while it is held. So a DataFrame from this module can
be read while its session lives, even beside a job.
"""

import logging
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mq.spark.jobs.archive_folder import (
    ArchiveFolder,
    Commit,
    NoArchive,
    newest_batch,
    read_commits,
    read_mark,
)
from mq.spark.jobs.archive_rows import ARCHIVE
from mq.spark.jobs.folders import url
from mq.spark.jobs.tables import table_of
from mq.store.disk.files import Files

_log: Final = logging.getLogger("mq.spark")

_held: "weakref.WeakKeyDictionary[Any, dict[str, int]]" = weakref.WeakKeyDictionary()
"""The sessions' locks: descriptors, by archive."""


def archived(spark: SparkSession, archive: Path) -> DataFrame:
    """All messages that the archive in this folder holds now, one row each, with the columns of
    ARCHIVE. Later messages are not included. Conditions on `queue` and `day` skip folders.

    No files are swapped until the session is gone or this process has died; `reading` ends earlier.
    Raises NoArchive, ArchiveDamaged, OSError.
    """
    folder = _existing(archive)
    held = _held.get(spark)
    if held is None:
        held = _held[spark] = {}
        weakref.finalize(spark, _close_all, folder.files, held)
    if folder.path not in held:
        descriptor = _shared(folder)
        if descriptor is not None:
            held[folder.path] = descriptor
    return _frame(spark, folder)


@contextmanager
def reading(spark: SparkSession, archive: Path) -> Iterator[DataFrame]:
    """The same for a block of code: at its end files may be swapped again."""
    folder = _existing(archive)
    descriptor = _shared(folder)
    try:
        yield _frame(spark, folder)
    finally:
        if descriptor is not None:
            folder.files.close(descriptor)


def last_batch(folder: ArchiveFolder, commits: Sequence[Commit]) -> int | None:
    """The last complete batch, given the unfinished commits; None: as far as is known, all are
    complete. Raises OSError.
    """
    newest = newest_batch(folder)
    # A crash may have brought back a finished batch's commit.
    begun = [
        commit.batch
        for commit in commits
        if commit.batch is not None and commit.batch > (newest or 0)
    ]
    return min(begun) - 1 if begun else newest


def hidden_names(folder: ArchiveFolder, commits: Sequence[Commit]) -> set[str]:
    """The files whose rows an unfinished swap holds twice: the old files, or the new ones. No swap
    runs meanwhile. Raises OSError.
    """
    hidden: set[str] = set()
    for commit in commits:
        old = [f"{folder.path}/{file.folder}/{file.name}" for file in commit.replaced]
        is_before = all(folder.files.status(path) is not None for path in old)
        # The first old file is removed only when all new ones are in place.
        hidden |= {file.name for file in (commit.files if is_before else commit.replaced)}
    return hidden


def _existing(archive: Path) -> ArchiveFolder:
    folder = ArchiveFolder.of(os.fspath(archive), Files())
    if read_mark(folder) is None:
        raise NoArchive(folder.path, "this is not an mq archive")
    return folder


def _frame(spark: SparkSession, folder: ArchiveFolder) -> DataFrame:
    mark = read_mark(folder)
    if mark is not None and mark.table:
        # The table may have other files by now: it is compacted by its own tools.
        paths = table_of(mark.table, folder.path, "", folder.files).files()
        if not paths:
            return spark.createDataFrame([], ARCHIVE)
        return spark.read.schema(ARCHIVE).parquet(*map(url, paths))
    commits = read_commits(folder)
    swaps = [commit for commit in commits if commit.batch is None]
    hidden = sorted(hidden_names(folder, swaps))
    frame = spark.read.schema(ARCHIVE).parquet(url(folder.path))
    if hidden:
        frame = frame.where(~F.col("_metadata.file_name").isin(hidden))
    last = last_batch(folder, commits)
    return frame if last is None else frame.where(F.col("batch") <= last)


def _shared(folder: ArchiveFolder) -> int | None:
    """Takes the readers' lock; None if the mount has no locks."""
    descriptor = -1
    try:
        descriptor = folder.files.open_read(folder.readers)
        # A swap may hold it: its renames take a moment.
        folder.files.wait_to_share_lock(descriptor)
    except OSError as error:
        _log.warning("%s is read without a lock: %s", folder.path, error)
        if descriptor >= 0:
            folder.files.close(descriptor)
        return None
    return descriptor


def _close_all(files: Files, held: dict[str, int]) -> None:
    for descriptor in held.values():
        files.close(descriptor)
