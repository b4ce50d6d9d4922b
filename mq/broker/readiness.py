"""Whether the root can persist now: a real write and fsync, at most once a second."""

import asyncio
from dataclasses import dataclass
from typing import Final

from mq.model.errors import NoInodes, NoSpace
from mq.store.core.root import Root, probe_write
from mq.store.disk.commit import Committer
from mq.store.disk.files import Files
from mq.store.disk.flush import Flusher
from mq.store.disk.mounts import FileSystem, promise

_PROBE_KEPT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """The result of a probe: the durability that a success promises in fact, the free space, and by
    how many seconds the clock was set while the process ran (negative: back).
    """

    durability: str
    file_system: str
    commit: str
    free_bytes: int
    free_inodes: int
    below_reserve: bool
    clock_set_s: float


class ReadinessProbe:
    """Probes on demand. After a folder's fsync failed, the last success no longer counts."""

    def __init__(
        self, root: Root, committer: Committer, flusher: Flusher, file_system: FileSystem
    ) -> None:
        self._root = root
        self._committer = committer
        self._flusher = flusher
        self._file_system = file_system
        self._lock = asyncio.Lock()
        self._known: tuple[float, Readiness] | None = None

    def folder_failed(self) -> None:
        """Reports, from any thread, that a folder's fsync failed."""
        self._known = None

    async def check(self) -> Readiness:
        """Probes, unless a probe succeeded within the last second. Raises Unavailable."""
        async with self._lock:
            now_s = self._root.clock.steady_s()
            if self._known is not None and now_s - self._known[0] < _PROBE_KEPT_S:
                return self._known[1]
            self._known = None
            readiness = await self._committer.call(self._probe)
            self._known = (now_s, readiness)
            return readiness

    def _probe(self) -> Readiness:
        files: Files = self._root.files
        low = self._root.space.is_low()
        try:
            probe_write(self._root)
        except OSError:
            if not low:
                raise
            # The reserve is gone too; fetch and delete may still work, publishing does not.
            lacking = NoInodes if self._root.space.has_no_inode() else NoSpace
            raise lacking("no room for a probe") from None
        free = files.free(self._root.layout.root)
        return Readiness(
            durability=promise(self._flusher, self._file_system, files),
            file_system=self._file_system.kind,
            commit=self._flusher.name,
            free_bytes=free.f_bavail * free.f_frsize,
            free_inodes=free.f_favail,
            below_reserve=low,
            clock_set_s=self._root.steps.set_ms / 1000,
        )
