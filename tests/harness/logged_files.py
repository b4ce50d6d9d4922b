"""A Files whose changes are logged as `crash/calls.py` has them, for power cuts without a mount."""

import os
from pathlib import Path

from crash.calls import TOP, Call, Make, Remove, Rename, Sync, Write
from crash.images import Mark

from mq.store.disk.files import Files


class LoggedFiles(Files):
    """Does the real calls below `top`, and logs each that has returned."""

    def __init__(self, top: Path) -> None:
        super().__init__()
        self.log: list[Call | Mark] = []
        self._top = top
        self._numbers: dict[int, int] = {os.stat(top).st_ino: TOP}

    def mark(self, what: str) -> None:
        self.log.append(Mark({"what": what}))

    def create(self, path: str) -> int:
        descriptor = super().create(path)
        self._made(path, is_folder=False)
        return descriptor

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        self._made(path, is_folder=True)

    def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
        offset = os.lseek(descriptor, 0, os.SEEK_CUR)
        super().write(descriptor, data)
        self.log.append(Write(self._number(os.fstat(descriptor)), offset, bytes(data), 0))

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        number = self._number(os.stat(target))
        self.log.append(Rename(*self._name(source), *self._name(target), number))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.log.append(Remove(*self._name(path)))

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self.log.append(Sync(self._number(os.fstat(descriptor))))

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        self.log.append(Sync(self._number(os.stat(path))))

    def _made(self, path: str, is_folder: bool) -> None:
        folder, name = self._name(path)
        # A number that the system had given to a file which is gone.
        self._numbers.pop(os.stat(path).st_ino, None)
        number = self._number(os.stat(path))
        self.log.append(Make(folder, name, number, is_folder, 0))

    def _name(self, path: str) -> tuple[int, str]:
        return self._number(os.stat(os.path.dirname(path))), os.path.basename(path)

    def _number(self, status: os.stat_result) -> int:
        return self._numbers.setdefault(status.st_ino, TOP + len(self.log) + 1)
