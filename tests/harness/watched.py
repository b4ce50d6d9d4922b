"""A Files that watches the locks on messages' inodes."""

from mq.store.disk.files import Files


class WatchedFiles(Files):
    """Keeps what is done on messages' files that were opened for their locks: `seen`, in order, and
    `unlocked`, what of it while the lock was not held.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unlocked: list[str] = []
        self.seen: list[str] = []
        self._is_held: dict[int, bool] = {}

    def open_claimed(self, path: str) -> int:
        descriptor = super().open_claimed(path)
        self._is_held[descriptor] = False
        return descriptor

    def lock(self, descriptor: int) -> bool:
        took = super().lock(descriptor)
        if descriptor in self._is_held:
            self._is_held[descriptor] = took
        return took

    def unlock(self, descriptor: int) -> None:
        if descriptor in self._is_held:
            self._is_held[descriptor] = False
        super().unlock(descriptor)

    def stamp(self, descriptor: int, mtime_ns: int) -> None:
        self._look("stamp", descriptor)
        super().stamp(descriptor, mtime_ns)

    def sync(self, descriptor: int) -> None:
        self._look("sync", descriptor)
        super().sync(descriptor)

    def close(self, descriptor: int) -> None:
        self._is_held.pop(descriptor, None)
        super().close(descriptor)

    def _look(self, call: str, descriptor: int) -> None:
        if (is_held := self._is_held.get(descriptor)) is not None:
            self.seen.append(call)
            if not is_held:
                self.unlocked.append(call)
