"""Turns: work that one process of a root does at a time, by a lock file that it keeps locked.

The file's mtime shows that the holder is still working. A holder that was silent for TURN_SILENT_S,
such as a stopped process, loses the turn. The file is empty and not flushed: after a crash any
process may take the turn.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

from mq.model.limits import TURN_SILENT_S
from mq.model.message import Stamp
from mq.store.core.moves import named_status
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.layout import TurnPlace

_TRIES_MAX: Final = 10


class Turn:
    """A turn that this process holds."""

    def __init__(self, root: Root, place: TurnPlace, descriptor: int) -> None:
        self._root = root
        self._path = place.path
        self._descriptor = descriptor
        self._kept_s = root.clock.steady_s()

    def keep(self) -> bool:
        """Renews the turn. False: the holder was silent for so long that another process has taken
        the turn, or may. Raises OSError.
        """
        before_s, self._kept_s = self._kept_s, self._root.clock.steady_s()
        self._root.files.stamp(self._descriptor, Stamp(self._root.now_ms()).mtime_ns())
        if named_status(self._root, self._path, self._descriptor) is not None:
            return True
        if self._kept_s - before_s >= TURN_SILENT_S:
            return False
        # The process that removed the file saw its state from before this turn began.
        descriptor = _take(self._root, self._path)
        if descriptor is None:
            return False
        self._root.files.close(self._descriptor)
        self._descriptor = descriptor
        return True

    def end(self) -> None:
        self._root.files.close(self._descriptor)


def take(root: Root, place: TurnPlace) -> Turn | None:
    """Takes the turn. None when another process holds it, or is checking whether one does: try
    again then. Raises OSError.
    """
    for _ in range(_TRIES_MAX):
        descriptor = _take(root, place.path)
        if descriptor is not None:
            return Turn(root, place, descriptor)
        if not _is_silent(root, place.path):
            return None
        with _removing(root, place) as is_ours:
            if not is_ours:
                return None
            if _is_silent(root, place.path):
                with contextlib.suppress(FileNotFoundError):
                    root.files.unlink(place.path)
    return None


def is_taken(root: Root, place: TurnPlace) -> bool:
    """Whether a process holds the turn and is working. Raises OSError."""
    try:
        descriptor = root.files.open_claimed(place.path)
    except OSError as error:
        if is_gone(error):
            return False
        raise
    try:
        return not root.files.lock(descriptor) and not _is_silent(root, place.path)
    finally:
        root.files.close(descriptor)


def _take(root: Root, path: str) -> int | None:
    """The file, where it could be locked and is still the one that the name means."""
    descriptor = root.files.open_kept(path)
    try:
        if root.files.lock(descriptor):
            root.files.stamp(descriptor, Stamp(root.now_ms()).mtime_ns())
            if named_status(root, path, descriptor) is not None:
                return descriptor
    except BaseException:
        root.files.close(descriptor)
        raise
    root.files.close(descriptor)
    return None


def _is_silent(root: Root, path: str) -> bool:
    """Whether the holder has not renewed its turn for TURN_SILENT_S."""
    status = root.files.status(path)
    if status is None:
        return True
    return root.now_ms() - Stamp.from_mtime_ns(status.st_mtime_ns).due_ms >= TURN_SILENT_S * 1000


@contextlib.contextmanager
def _removing(root: Root, place: TurnPlace) -> Iterator[bool]:
    """One at a time takes lock files away; whether it is this one."""
    descriptor = root.files.open_kept(place.removals)
    try:
        yield root.files.lock(descriptor)
    finally:
        root.files.close(descriptor)
