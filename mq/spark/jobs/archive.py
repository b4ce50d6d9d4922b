"""Archiving: what was removed goes to Parquet, before mq-reaper takes it: see archive_run.py."""

import threading
from pathlib import Path

from pyspark.sql import SparkSession

from mq.spark.jobs.archive_run import USUAL, Archived, Archiver, Wanted, opened_archive
from mq.spark.jobs.archive_staging import SparkTasks
from mq.spark.jobs.watching import Watcher
from mq.spark.opening import open_for_leases
from mq.store.archive.archiving import disable, own_archive

__all__ = ["Archived", "Wanted", "archive", "end_archiving"]


def archive(
    spark: SparkSession,
    root: Path,
    to: Path,
    wanted: Wanted = USUAL,
    *,
    ending: threading.Event | None = None,
    watcher: Watcher | None = None,
) -> Archived:
    """Archives what the root's remove/ holds and the archive has not: to the folder `to`, which is
    made. The first run enables the archive, so that mq-reaper keeps what is not stored. `ending`,
    once set, has it end after the batch that is at work.

    Raises ArchivedElsewhere, ArchiveBusy, ArchiveFolderBusy, NoArchive, PathIsPattern,
    ArchiveDamaged and other MqErrors; StartupError where there is no root; OSError; and what Spark
    raises where a task fails: then what was stored is, and the next run goes on. Durable on return:
    yes.
    """
    with opened_archive(root, to) as opened:
        return Archiver(SparkTasks(spark), opened, wanted, ending, watcher).run()


def end_archiving(root: Path) -> bool:
    """Ends archiving for a root: from now on mq-reaper unlinks what was removed as without. What
    is archived stays. False: it was not enabled. Raises ArchiveBusy, other MqErrors, StartupError,
    OSError. Durable on return: yes.
    """
    opened, flusher = open_for_leases(root)
    try:
        with own_archive(opened):
            return disable(opened, flusher)
    finally:
        flusher.close()
