"""Ids of a bulk publish by time windows, each of one attempt only: the messages of a window move to
their place as one folder, and no other attempt of the job has messages there.

PROTOCOL.md, "bulk publishes", has the reasons. An attempt that gets no window does without.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mq.model.names import UuidSource
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.pipeline import WINDOW_BITS, window_claim

# From FOLD_ROWS_MIN rows on, a task's messages move to their place as one folder of at most
# FOLD_ROWS_MAX messages. Their ids are in a time window that only this task uses, at most
# WINDOW_AHEAD_MS_MAX ahead of the time. A window needs WINDOW_SPARE_MS for them.
FOLD_ROWS_MIN: Final = 1000
FOLD_ROWS_MAX: Final = 20_000
WINDOW_AHEAD_MS_MAX: Final = 2000
WINDOW_SPARE_MS: Final = 16


@dataclass(slots=True)
class _Moment:
    """A clock that stands while ids are made, so that they stay in their window."""

    ms: int

    def now_ms(self) -> int:
        return self.ms

    def steady_s(self) -> float:
        return 0.0


class WindowIds:
    """Strictly rising UUIDs for one attempt of a job, for one thread."""

    def __init__(self, root: Root, job: str) -> None:
        self._root = root
        self._job = job
        self._moment = _Moment(root.now_ms())
        self._uuids = UuidSource(self._moment)
        self._window = -1
        self._left = 0

    def many(self, count: int) -> tuple[Sequence[str], bool]:
        """The next `count` UUIDs, and whether all are in a window that only this attempt uses.
        Raises OSError. Durable on return: no; a crash ends the attempt that needs the window.
        """
        self._moment.ms = self._root.now_ms()
        window = self._window_for(count)
        if window is not None:
            self._uuids.go_past((window << WINDOW_BITS) - 1)
            self._left -= count
        return self._uuids.many(count), window is not None

    def ahead_s(self) -> float:
        """Seconds until the last UUID's time has come; 0: it has. From then on a purge covers all
        of them.
        """
        return max(0, self._uuids.end_moment() - self._root.now_ms() + 1) / 1000

    def _window_for(self, count: int) -> int | None:
        """A window with room for `count` ids."""
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
            # An abandoned job has no folder; a task that writes to it gets an error.
            if error.errno not in (errno.EEXIST, errno.ENOTDIR) and not is_gone(error):
                raise
            return False
        return True
