"""The calls on files, where somebody wants to know how long flushes take."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from mq.store.disk.files import Files, is_gone

FLUSHED: Final = ("file", "folder", "syncfs")
"""What a flush is of: a file, a folder, or the file system."""
_FILE, _FOLDER, _SYNCFS = range(len(FLUSHED))

OnFlush: TypeAlias = Callable[[int, bool, float], None]
"""Hears of what a flush was (which of FLUSHED), whether it failed, and how many seconds it took; in
the thread that made it.
"""


class TimedFiles(Files):
    """Tells of each flush. `steady_s` tells it the time, in seconds."""

    def __init__(self, steady_s: Callable[[], float], on_flush: OnFlush) -> None:
        super().__init__()
        self._steady_s = steady_s
        self._on_flush = on_flush

    def sync(self, descriptor: int) -> None:
        """See Files."""
        self._timed(_FILE, super().sync, descriptor)

    def sync_folder(self, path: str) -> None:
        """See Files."""
        self._timed(_FOLDER, super().sync_folder, path)

    def sync_file_system(self, descriptor: int) -> None:
        """See Files."""
        self._timed(_SYNCFS, super().sync_file_system, descriptor)

    def _timed(self, kind: int, act: Callable[[Any], None], what: int | str) -> None:
        began_s = self._steady_s()
        try:
            act(what)
        except OSError as error:
            # That a folder is gone is an outcome.
            if not is_gone(error):
                self._on_flush(kind, True, self._steady_s() - began_s)
            raise
        self._on_flush(kind, False, self._steady_s() - began_s)
