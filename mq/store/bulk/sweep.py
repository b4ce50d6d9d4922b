"""Sweeps the leftovers of bulk publishes: staging that was never committed, and old ledger
files.
"""

import os
import threading
from typing import Final

from mq.model.errors import MqError
from mq.model.log import logger
from mq.store.bulk.journal import job_locked, journal_files, journals, read_journal
from mq.store.bulk.roll_forward import roll_all_forward
from mq.store.bulk.staged import remove_job
from mq.store.core.root import Root, sweep_unfinished, unlink_if_there
from mq.store.format.pipeline import (
    LEDGER_KEPT_S,
    JournalFile,
    is_job,
    job_folder,
    journal_path,
    staging,
)
from mq.store.format.walk import entries_if_there

# How long staged messages stay after the last write.
STAGING_FORGOTTEN_S: Final = 24 * 3600

_log = logger("mq.publishes")


class BulkSweep:
    """Runs `sweep_bulk` in the background, since a large publish takes a while. If the process ends
    early, the next one continues.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Starts a pass, unless one is running or there is nothing to do. Raises OSError."""
        if self._thread is not None and self._thread.is_alive():
            return
        if journal_files(self._root) or any(_entries(self._root)):
            self._thread = threading.Thread(target=sweep_bulk, args=(self._root,), daemon=True)
            self._thread.start()


def sweep_bulk(root: Root) -> int:
    """Rolls committed publishes forward and removes abandoned staging. Returns the number of moved
    messages. Blocking. Logs failures; the next pass tries again.
    """
    moved = roll_all_forward(root)
    try:
        _sweep_ledger(root)
        _sweep_staging(root)
    except (OSError, MqError) as error:
        _log.warning(
            "could not sweep the remains of bulk publishes yet",
            extra={"fields": {"error": repr(error)}},
        )
    return moved


def _sweep_ledger(root: Root) -> None:
    """Removes old publish ids and start times, and unfinished files of processes that died."""
    for name, file in journal_files(root):
        if file is not JournalFile.JOURNAL:
            path = journal_path(root.layout, name, file)
            if _is_older(root, path, LEDGER_KEPT_S):
                unlink_if_there(root.files, path)
    sweep_unfinished(root, root.layout.journal)


def _sweep_staging(root: Root) -> None:
    """Removes jobs without writes for a day that were not committed, and marks of abandoned jobs
    that are as old.
    """
    for mark in _marks(root):
        if _is_older(root, mark, STAGING_FORGOTTEN_S):
            unlink_if_there(root.files, mark)
    for job in staged_jobs(root):
        if not is_forgotten_job(root, job):
            continue
        with job_locked(root, job):
            # Checked under the lock that a commit holds.
            if not _is_committed(root, job):
                remove_job(root, job)
                _log.info("forgotten staging removed", extra={"fields": {"job": job}})


def staged_jobs(root: Root) -> list[str]:
    """The jobs with a folder."""
    return [entry.name for entry in _entries(root) if entry.is_dir(follow_symlinks=False)]


def _marks(root: Root) -> list[str]:
    return [entry.path for entry in _entries(root) if entry.is_file(follow_symlinks=False)]


def _entries(root: Root) -> "list[os.DirEntry[str]]":
    found = entries_if_there(root.files, staging(root.layout))
    return [entry for entry in found if is_job(entry.name)]


def is_forgotten_job(root: Root, job: str, late_s: float = 0) -> bool:
    """Whether nothing was written to the job's folder, its attempts or their folds for
    STAGING_FORGOTTEN_S and `late_s` more seconds.
    """
    folder = job_folder(root.layout, job)
    folders = [folder]
    for entry in entries_if_there(root.files, folder):
        folders.append(entry.path)
        if entry.is_dir(follow_symlinks=False):
            staged = entries_if_there(root.files, entry.path)
            folders += [inner.path for inner in staged if inner.is_dir(follow_symlinks=False)]
    return all(_is_older(root, path, STAGING_FORGOTTEN_S + late_s) for path in folders)


def _is_older(root: Root, path: str, seconds: float) -> bool:
    status = root.files.status(path)
    return status is not None and root.has_aged(status.st_mtime_ns // 1_000_000, seconds)


def _is_committed(root: Root, job: str) -> bool:
    for name in journals(root):
        journal = read_journal(root, journal_path(root.layout, name, JournalFile.JOURNAL))
        if journal is not None and journal.job == job:
            return True
    return False
