"""Passes over remove/: what has lain there long enough is unlinked, and nothing else.

While an archive is enabled, that is what its stored ledgers name.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

from mq.model.clock import Clock
from mq.model.limits import ARCHIVE_LATE_S_DEFAULT, REAPED_PER_PASS_MAX
from mq.store.archive.archiving import is_archived
from mq.store.core.listing import is_settled, look_pause_s
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.archive import archive_folder
from mq.store.format.layout import Layout
from mq.store.operations.reap import Reaped, reap
from mq.store.operations.reap_stored import StoredReaping
from mq_reaper.lag import Behind, LagWatch

_log = logging.getLogger("mq-reaper")

_NOTHING: Final = Reaped()


class Reaper:
    """Any number of reapers may share a folder: an unlink that lost a race is done. `late_s`: how
    old a removed message is when its archive is behind.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        source: str,
        keep_s: float,
        late_s: float = ARCHIVE_LATE_S_DEFAULT,
    ) -> None:
        self._files = files
        self._clock = clock
        self._source = source
        self._keep_s = keep_s
        beside = Layout.of(Path(source).parent)
        # What lies elsewhere no archive stores; while the root beside has one, it stays there.
        self._is_remove = beside.remove == source
        self.root = Root.of(replace(beside, remove=source), files, clock)
        self._stored = StoredReaping(self.root, round(keep_s * 1000))
        self._lag = LagWatch(self.root, late_s)
        self._last = _NOTHING
        self._mtimes_ns: dict[str, int | None] = {}
        self._again_s = float("-inf")
        self._foreign = 0
        self._unreadable = ""
        self.went = 0
        """How many names went so far."""
        self.files_gone = 0
        """How many of those were files."""

    def run_once(self) -> int:
        """One pass, unless nothing can have come and nothing kept is due; how many names went.

        Raises OSError when the folder cannot be listed or a file not unlinked.
        """
        if is_archived(self.root):
            self._lag.advance()
        else:
            self._lag.forget()
        began_s = self._clock.steady_s()
        if began_s < self._again_s or not self._has_work():
            return 0
        try:
            self._pass()
        except OSError:
            self._mtimes_ns.clear()  # What stayed is tried again.
            raise
        ended_s = self._clock.steady_s()
        self.went += self._last.files + self._last.folders
        self.files_gone += self._last.files
        went = self._last.files + self._last.folders
        if self._last.next_ms is not None or (self._last.more and not went):
            # A folder full of files that are kept: look at it again in proportion to its size.
            self._again_s = ended_s + look_pause_s(ended_s - began_s)
        if went:
            _log.debug("reaped", extra={"fields": {"files": self._last.files}})
        self._tell_foreign()
        return went

    @property
    def foreign(self) -> int:
        """How many names were left alone, as of the last pass."""
        return self._foreign

    def behind(self) -> Behind:
        """How far the archive is behind, as was last seen. For any thread."""
        return self._lag.behind()

    def next_due_s(self) -> float | None:
        """Seconds until the first kept file may go; None: none is kept."""
        if self._last.next_ms is None:
            return None
        kept_s = (self._last.next_ms - self._aged_ms()) / 1000
        return max(0.0, kept_s, self._again_s - self._clock.steady_s())

    def _aged_ms(self) -> int:
        """Wall time without steps ahead: such a step shortens no `--keep`."""
        return self.root.aged_ms(self._keep_s)

    def _pass(self) -> None:
        now_ms, keep_s, root = self._aged_ms(), self._keep_s, self.root
        failure: OSError | None = None
        try:
            self._last = reap(self._files, self._source, now_ms, keep_s, root=root)
        except OSError as error:
            failure = error
        if self._is_remove and is_archived(root):
            # Also beside what failed: neither waits for the other.
            self._reap_stored(now_ms)
            failure = failure or self._stored.failure
        if failure is not None:
            raise failure

    def _reap_stored(self, now_ms: int) -> None:
        stored, last = self._stored, self._last
        stored.run(now_ms, REAPED_PER_PASS_MAX)
        due_ms = [due for due in (last.next_ms, stored.next_ms) if due is not None]
        self._last = replace(
            last,
            files=last.files + stored.files,
            folders=last.folders + stored.folders,
            next_ms=min(due_ms, default=None),
            more=last.more or stored.is_cut,
        )
        unreadable = "" if stored.unreadable is None else str(stored.unreadable)
        if unreadable not in ("", self._unreadable):
            _log.warning(
                "what a ledger of the archive names is not unlinked: it cannot be understood",
                extra={"fields": {"error": unreadable}},
            )
        self._unreadable = unreadable

    def _tell_foreign(self) -> None:
        if self._last.foreign == self._foreign:
            return
        self._foreign = self._last.foreign
        fields = {
            "folder": self._source,
            "count": self._foreign,
            "for_example": self._last.foreign_name,
        }
        _log.warning("foreign names are left alone", extra={"fields": fields})

    def _has_work(self) -> bool:
        status = self._files.status(self._source)
        if status is None:
            raise FileNotFoundError(2, "the source folder is gone", self._source)
        now_ms = self._clock.now_ms()
        folders = {self._source: status}
        archive = archive_folder(self.root.layout)
        if (of_archive := self._files.status(archive)) is not None:
            folders[archive] = of_archive
        mtimes_ns = {path: each.st_mtime_ns for path, each in folders.items()}
        changed = mtimes_ns != self._mtimes_ns
        self._mtimes_ns = {
            path: each.st_mtime_ns if is_settled(each, now_ms) else None
            for path, each in folders.items()
        }
        is_due = self._last.next_ms is not None and self._last.next_ms <= self._aged_ms()
        return changed or self._last.more or is_due
