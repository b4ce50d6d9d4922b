"""Files of a process that crashes in the middle of what it does: they do no more."""

import errno
import os
from collections.abc import Callable
from typing import Any

from mq.store.files import Files

CHANGES = ("create", "open_kept", "write", "stamp", "mkdir", "rename", "link", "unlink", "rmdir")


class Died(BaseException):
    """The process is no more."""


class CrashingFiles(Files):
    """Dies instead of a change of the disk, once so many were made (None: never). Whatever cleans
    up after that finds that it cannot; descriptors are closed, as the kernel would.
    """

    def __init__(self, changes_left: int | None = None) -> None:
        super().__init__()
        self.changes_left = changes_left
        self.changes = 0
        self.is_dead = False
        for name in CHANGES:
            setattr(self, name, self._until_the_crash(getattr(self, name)))

    def _until_the_crash(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any) -> Any:
            if self.is_dead:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self.changes_left == 0:
                self.is_dead = True
                raise Died
            if self.changes_left is not None:
                self.changes_left -= 1
            self.changes += 1
            return call(*arguments)

        return change
