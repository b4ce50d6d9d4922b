"""Passes over remove/: unlinks files that have been there long enough, and nothing else.

While an archive is enabled, it unlinks only what stored ledgers name.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from mq.model.clock import Clock
from mq.model.log import logger
from mq.store.archive.archiving import is_archived
from mq.store.archive.reaping import StoredReaping
from mq.store.disk.files import Files
from mq.store.format.archive import archive_folder
from mq.store.format.layout import Layout
from mq.store.format.walk import is_settled, look_pause_s
from mq.store.opening import root_of
from mq.store.operations.reap import REAPED_PER_PASS_MAX, Reaped, reap
from mq_reaper.lag import Behind, LagWatch

# An archive is late if it has not stored messages that were removed this long ago, in seconds.
ARCHIVE_LATE_S_DEFAULT: Final = 3600.0

_log = logger("mq-reaper")

_NOTHING: Final = Reaped()


class Reaper:
    """Any number of reapers may share a folder: a lost race for an unlink is a success. `late_s`:
    the age in seconds from which an unstored message means that the archive is behind.
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
        # An archive stores only a root's remove/. Messages elsewhere stay while the root beside has
        # an archive.
        self._is_remove = beside.remove == source
        self.root = root_of(replace(beside, remove=source), files, clock)
        self._stored = StoredReaping(self.root, round(keep_s * 1000))
        self._lag = LagWatch(self.root, late_s)
        self._last = _NOTHING
        self._mtimes_ns: dict[str, int | None] = {}
        self._again_s = float("-inf")
        self._foreign = 0
        self._unreadable = ""
        self.went = 0
        """The number of unlinked names."""
        self.files_gone = 0
        """The number of files among them."""

    def run_once(self) -> int:
        """Does a pass, unless nothing can have come and no kept file is due. Returns the number of
        unlinked names.

        Raises OSError if the folder cannot be listed or a file not unlinked.
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
            self._mtimes_ns.clear()  # Retry what stayed.
            raise
        ended_s = self._clock.steady_s()
        self.went += self._last.files + self._last.folders
        self.files_gone += self._last.files
        went = self._last.files + self._last.folders
        if self._last.next_ms is not None or (self._last.more and not went):
            # A folder full of kept files: pause in proportion to its size.
            self._again_s = ended_s + look_pause_s(ended_s - began_s)
        if went:
            _log.debug("reaped", extra={"fields": {"files": self._last.files}})
        self._tell_foreign()
        return went

    @property
    def foreign(self) -> int:
        """The number of names left alone by the last pass."""
        return self._foreign

    def behind(self) -> Behind:
        """How far the archive is behind, by the last complete scan. For any thread."""
        return self._lag.behind()

    def next_due_s(self) -> float | None:
        """Seconds until the first kept file may be unlinked; None: none is kept."""
        if self._last.next_ms is None:
            return None
        kept_s = (self._last.next_ms - self._aged_ms()) / 1000
        return max(0.0, kept_s, self._again_s - self._clock.steady_s())

    def _aged_ms(self) -> int:
        """Wall time without steps ahead of the clock, so that a step does not shorten `--keep`."""
        return self.root.aged_ms(self._keep_s)

    def _pass(self) -> None:
        now_ms, keep_s, root = self._aged_ms(), self._keep_s, self.root
        failure: OSError | None = None
        try:
            self._last = reap(self._files, self._source, now_ms, keep_s, root=root)
        except OSError as error:
            failure = error
        if self._is_remove and is_archived(root):
            # Also after a failure above: neither depends on the other.
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
            # A deleted queue's folder may go once its messages went.
            more=last.more or stored.is_cut or stored.files > 0,
        )
        unreadable = "" if stored.unreadable is None else str(stored.unreadable)
        if unreadable not in ("", self._unreadable):
            _log.warning(
                "a ledger of the archive cannot be understood; the messages that it names are kept",
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
