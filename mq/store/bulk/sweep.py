"""What bulk publishes leave: staging that nobody commits any more, and what the ledger forgets."""

import logging
import os
import threading

from mq.model.bulk_limits import LEDGER_KEPT_S, STAGING_FORGOTTEN_S
from mq.model.errors import MqError
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.store.bulk.journal import job_locked, journal_files, journals, read_journal
from mq.store.bulk.roll_forward import roll_all_forward
from mq.store.bulk.staged import remove_job
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import is_unfinished
from mq.store.format.pipeline import JournalFile, is_job, job_folder, journal_path, staging
from mq.store.format.walk import entries_if_there

_log = logging.getLogger("mq.publishes")


class BulkSweep:
    """`sweep_bulk` beside other work: a large publish takes a while. What a process that ends
    leaves undone, the next one does.
    """

    def __init__(self, root: Root, flusher: Flusher) -> None:
        self._root = root
        self._flusher = flusher
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Makes a pass, unless one is on its way or there is nothing to do. Raises OSError."""
        if self._thread is not None and self._thread.is_alive():
            return
        if journal_files(self._root) or any(_entries(self._root)):
            work = (self._root, self._flusher)
            self._thread = threading.Thread(target=sweep_bulk, args=work, daemon=True)
            self._thread.start()


def sweep_bulk(root: Root, flusher: Flusher) -> int:
    """Rolls forward what is committed, and takes away what was forgotten, blocking; how many
    messages came to their places. What fails is logged and left for the next pass.
    """
    moved = roll_all_forward(root, flusher)
    try:
        run_alone(_sweep_ledger(root), flusher)
        _sweep_staging(root)
    except (OSError, MqError) as error:
        _log.warning(
            "what bulk publishes left stays for now", extra={"fields": {"error": repr(error)}}
        )
    return moved


def _sweep_ledger(root: Root) -> Steps[None]:
    """Publish ids, and when publishes began, that nobody asks for any more; and what was being
    written by a process that died.
    """
    swept = False
    for name, file in journal_files(root):
        if file is not JournalFile.JOURNAL:
            path = journal_path(root.layout, name, file)
            if _is_older(root, path, LEDGER_KEPT_S):
                unlink_if_there(root.files, path)
                swept = True
    for entry in entries_if_there(root.files, root.layout.journal):
        if is_unfinished(entry.name) and _is_older(root, entry.path, FORGOTTEN_AFTER_S):
            unlink_if_there(root.files, entry.path)
    if swept:
        yield Flush(folders=(root.layout.journal,))


def _sweep_staging(root: Root) -> None:
    """Jobs that wrote nothing for a day and were not committed; the marks of those that were given
    up as long ago.
    """
    for mark in _marks(root):
        if _is_older(root, mark, STAGING_FORGOTTEN_S):
            unlink_if_there(root.files, mark)
    for job in staged_jobs(root):
        if not is_forgotten_job(root, job):
            continue
        with job_locked(root, job):
            # Looked at under the lock: whoever commits has it.
            if not _is_committed(root, job):
                remove_job(root, job)
                _log.info("forgotten staging removed", extra={"fields": {"job": job}})


def staged_jobs(root: Root) -> list[str]:
    """The jobs that have staged anything."""
    return [entry.name for entry in _entries(root) if entry.is_dir(follow_symlinks=False)]


def _marks(root: Root) -> list[str]:
    return [entry.path for entry in _entries(root) if entry.is_file(follow_symlinks=False)]


def _entries(root: Root) -> "list[os.DirEntry[str]]":
    found = entries_if_there(root.files, staging(root.layout))
    return [entry for entry in found if is_job(entry.name)]


def is_forgotten_job(root: Root, job: str, late_s: float = 0) -> bool:
    """Whether nothing in the job's folder, in its attempts', or in theirs, came for so long, and
    `late_s` seconds more.
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
    return status is not None and (
        root.aged_ms(seconds) - status.st_mtime_ns // 1_000_000 > seconds * 1000
    )


def _is_committed(root: Root, job: str) -> bool:
    for name in journals(root):
        journal = read_journal(root, journal_path(root.layout, name, JournalFile.JOURNAL))
        if journal is not None and journal.job == job:
            return True
    return False
