"""Asking every process of a root to look at all its queues now: by a file's mtime.

FORMAT.md, "Members". A hint: whoever misses it looks a few minutes later all the same.
"""

from mq.model.message import Stamp
from mq.store.core.root import Root
from mq.store.format.members import refresh_path


class RefreshMark:
    """What one process has seen of the file. Blocking; for one thread at a time."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._path = refresh_path(root.layout)
        self._seen: tuple[int, int] | None = self._look()

    def has_changed(self) -> bool:
        """Whether anybody has asked since the last time that this was called. Raises OSError."""
        seen, self._seen = self._seen, self._look()
        return self._seen is not None and self._seen != seen

    def ask(self) -> None:
        """Asks all others. Who asks looks by itself, after this. Raises OSError. Durable: no."""
        files = self._root.files
        descriptor = files.open_kept(self._path)
        try:
            before_ns = files.descriptor_status(descriptor).st_mtime_ns
            now_ns = Stamp(self._root.now_ms()).mtime_ns()
            # Two who ask in one millisecond, or with clocks that differ, are two.
            files.stamp(descriptor, max(now_ns, before_ns + 1))
        finally:
            files.close(descriptor)
        self._seen = self._look()

    def _look(self) -> tuple[int, int] | None:
        status = self._root.files.status(self._path)
        return None if status is None else (status.st_ino, status.st_mtime_ns)
