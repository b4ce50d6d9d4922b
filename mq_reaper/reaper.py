"""Passes over remove/: what has lain there long enough is unlinked, and nothing else."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

from mq.clock import Clock
from mq.store.files import Files
from mq.store.layout import Layout
from mq.store.listing import is_settled, look_pause_s
from mq.store.reap import Reaped, reap
from mq.store.root import Root

_log = logging.getLogger("mq-reaper")

_NOTHING: Final = Reaped()


class Reaper:
    """Any number of reapers may share a folder: an unlink that lost a race is done."""

    def __init__(self, files: Files, clock: Clock, source: str, keep_s: float) -> None:
        self._files = files
        self._clock = clock
        self._source = source
        self._keep_s = keep_s
        layout = replace(Layout.of(Path(source).parent), remove=source)
        self._root = Root.of(layout, files, clock)
        self._last = _NOTHING
        self._folder_mtime_ns: int | None = None
        self._again_s = float("-inf")
        self._foreign = 0

    def run_once(self) -> int:
        """One pass, unless nothing can have come and nothing kept is due; how many names went.

        Raises OSError when the folder cannot be listed or a file not unlinked.
        """
        began_s = self._clock.steady_s()
        if began_s < self._again_s or not self._has_work():
            return 0
        try:
            now_ms, keep_s, root = self._clock.now_ms(), self._keep_s, self._root
            self._last = reap(self._files, self._source, now_ms, keep_s, root=root)
        except OSError:
            self._folder_mtime_ns = None  # What stayed is tried again.
            raise
        ended_s = self._clock.steady_s()
        went = self._last.files + self._last.folders
        if self._last.next_ms is not None or (self._last.more and not went):
            # A folder full of files that are kept: look at it again in proportion to its size.
            self._again_s = ended_s + look_pause_s(ended_s - began_s)
        if went:
            _log.debug("reaped", extra={"fields": {"files": self._last.files}})
        if self._last.foreign != self._foreign:
            self._foreign = self._last.foreign
            _log.warning(
                "foreign names are left alone",
                extra={
                    "fields": {
                        "folder": self._source,
                        "count": self._foreign,
                        "for_example": self._last.foreign_name,
                    }
                },
            )
        return went

    def next_due_s(self) -> float | None:
        """Seconds until the first kept file may go; None: none is kept."""
        if self._last.next_ms is None:
            return None
        kept_s = (self._last.next_ms - self._clock.now_ms()) / 1000
        return max(0.0, kept_s, self._again_s - self._clock.steady_s())

    def _has_work(self) -> bool:
        status = self._files.status(self._source)
        if status is None:
            raise FileNotFoundError(2, "the source folder is gone", self._source)
        now_ms = self._clock.now_ms()
        changed = status.st_mtime_ns != self._folder_mtime_ns
        self._folder_mtime_ns = status.st_mtime_ns if is_settled(status, now_ms) else None
        is_due = self._last.next_ms is not None and self._last.next_ms <= now_ms
        return changed or self._last.more or is_due
