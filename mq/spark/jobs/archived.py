"""Reading an archive: its messages as a DataFrame.

Whoever reads shares a lock with other readers; a job that would swap files puts that off meanwhile.
So a DataFrame that was made here can be read as long as its session is there, also beside a job.
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

from mq.spark.jobs.archive_commit import Commit, newest_batch, read_commits
from mq.spark.jobs.archive_folder import ArchiveFolder, NoArchive, read_mark
from mq.spark.jobs.archive_schema import ARCHIVE
from mq.spark.jobs.archive_urls import url
from mq.store.disk.files import Files

_log: Final = logging.getLogger("mq.spark")

_held: "weakref.WeakKeyDictionary[Any, dict[str, int]]" = weakref.WeakKeyDictionary()
"""The locks of sessions: descriptors, by their archives."""


def archived(spark: SparkSession, archive: Path) -> DataFrame:
    """All that the archive in this folder holds now, one row a message, as ARCHIVE has the columns:
    what comes later is not seen. Conditions on `queue` and `day` leave out folders.

    No files are swapped until the session is gone, or this process has died: see `reading` for
    less. Raises NoArchive, ArchiveDamaged, OSError.
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
    """The same for a block of code, at whose end files may be swapped again."""
    folder = _existing(archive)
    descriptor = _shared(folder)
    try:
        yield _frame(spark, folder)
    finally:
        if descriptor is not None:
            folder.files.close(descriptor)


def last_batch(folder: ArchiveFolder, commits: Sequence[Commit]) -> int | None:
    """The last batch that is all there, with these commits not at their ends; None: all are, as far
    as is known. Raises OSError.
    """
    newest = newest_batch(folder)
    # A crash may have brought back the commit of one that is at its end.
    begun = [
        commit.batch
        for commit in commits
        if commit.batch is not None and commit.batch > (newest or 0)
    ]
    return min(begun) - 1 if begun else newest


def hidden_names(folder: ArchiveFolder, commits: Sequence[Commit]) -> set[str]:
    """The files that a swap that did not come to its end says twice: the old ones, or the new.
    Nothing is swapped meanwhile. Raises OSError.
    """
    hidden: set[str] = set()
    for commit in commits:
        old = [f"{folder.path}/{file.folder}/{file.name}" for file in commit.replaced]
        is_before = all(folder.files.status(path) is not None for path in old)
        # The first of the old ones goes when all of the new ones are there.
        hidden |= {file.name for file in (commit.files if is_before else commit.replaced)}
    return hidden


def _existing(archive: Path) -> ArchiveFolder:
    folder = ArchiveFolder.of(os.fspath(archive), Files())
    if read_mark(folder) is None:
        raise NoArchive(folder.path, "there is no archive of mq's here")
    return folder


def _frame(spark: SparkSession, folder: ArchiveFolder) -> DataFrame:
    commits = read_commits(folder)
    swaps = [commit for commit in commits if commit.batch is None]
    hidden = sorted(hidden_names(folder, swaps))
    frame = spark.read.schema(ARCHIVE).parquet(url(folder.path))
    if hidden:
        frame = frame.where(~F.col("_metadata.file_name").isin(hidden))
    last = last_batch(folder, commits)
    return frame if last is None else frame.where(F.col("batch") <= last)


def _shared(folder: ArchiveFolder) -> int | None:
    """The readers' lock; None where nobody can have it, as on a mount that has none."""
    descriptor = -1
    try:
        descriptor = folder.files.open_read(folder.readers)
        # While files are being swapped: renames, which take a moment.
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
