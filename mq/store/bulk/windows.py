"""Ids of a bulk publish by windows of time, each of one attempt alone: what comes of a window goes
to its place as one folder, and no other attempt of the job has messages that belong there.

FORMAT.md, "bulk publishes", has what that is for. An attempt that gets no window does without.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass

from mq.model.bulk_limits import (
    FOLD_ROWS_MAX,
    FOLD_ROWS_MIN,
    WINDOW_AHEAD_MS_MAX,
    WINDOW_BITS,
    WINDOW_SPARE_MS,
)
from mq.model.names import UuidSource
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.pipeline import window_claim


@dataclass(slots=True)
class _Moment:
    """A clock that stands while ids are made: they do not run out of their window."""

    ms: int

    def now_ms(self) -> int:
        return self.ms

    def steady_s(self) -> float:
        return 0.0


class WindowIds:
    """UUIDs that rise strictly, for one attempt of a job, by one thread."""

    def __init__(self, root: Root, job: str) -> None:
        self._root = root
        self._job = job
        self._moment = _Moment(root.now_ms())
        self._uuids = UuidSource(self._moment)
        self._window = -1
        self._left = 0

    def many(self, count: int) -> tuple[Sequence[str], bool]:
        """The next UUIDs, so many; and whether all are of a window that is this attempt's alone.
        Raises OSError. Durable on return: no; who needs the window is gone after a crash.
        """
        self._moment.ms = self._root.now_ms()
        window = self._window_for(count)
        if window is not None:
            self._uuids.go_past((window << WINDOW_BITS) - 1)
            self._left -= count
        return self._uuids.many(count), window is not None

    def ahead_s(self) -> float:
        """Seconds until the time has come that the last of them tells; 0: it has. Once it has, a
        purge that is asked for then is of all of them.
        """
        return max(0, self._uuids.end_moment() - self._root.now_ms() + 1) / 1000

    def _window_for(self, count: int) -> int | None:
        """One that has room for so many."""
        if not FOLD_ROWS_MIN <= count <= FOLD_ROWS_MAX:
            return None
        window = self._uuids.end_moment() + WINDOW_SPARE_MS >> WINDOW_BITS
        if window == self._window and self._left >= count:
            return window
        window = max(window, self._window + 1)
        while window << WINDOW_BITS <= self._moment.ms + WINDOW_AHEAD_MS_MAX:
            if self._claims(window):
                self._window, self._left = window, FOLD_ROWS_MAX
                return window
            window += 1
        return None

    def _claims(self, window: int) -> bool:
        files = self._root.files
        try:
            files.close(files.create(window_claim(self._root.layout, self._job, window)))
        except OSError as error:
            # Of a job that was given up no folder is there: whoever writes to it is told so.
            if error.errno not in (errno.EEXIST, errno.ENOTDIR) and not is_gone(error):
                raise
            return False
        return True
