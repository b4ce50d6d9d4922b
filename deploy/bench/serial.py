"""The bare serial protocol: a publish's, a fetch's and a delete's file operations, one by one.

The steps are PROTOCOL.md's, each flush made where it stands there, in one thread and without mq:
what a lone client would wait for if nothing came on top.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from deploy.bench.ceiling import BODY, Commit, syncfs

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READY_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NS_PER_MS: Final = 1_000_000
_VISIBILITY_MS: Final = 30_000


class Serial:
    """A root's three operations, by a message's name; each durable on return unless the commit
    mode is none.
    """

    def __init__(self, root: Path, commit: Commit) -> None:
        self._commit = commit
        self._root = os.fspath(root)
        for folder in ("new", "queues/q", "delay", "remove"):
            (root / folder).mkdir(parents=True)
        os.sync()

    def publish(self, name: str) -> None:
        """Stage, flush, deliver, flush."""
        staged, ready = f"{self._root}/new/q:{name}", f"{self._root}/queues/q/{name}"
        descriptor = os.open(staged, _NEW_FILE, 0o600)
        os.write(descriptor, BODY)
        self._stamp(descriptor, 0)
        self._flush_file(descriptor)
        os.close(descriptor)
        os.rename(staged, ready)
        self._flush_folders("queues/q", "new")

    def fetch(self, name: str) -> bytes:
        """Lock, look again, claim, stamp, flush; the body."""
        ready, claimed = f"{self._root}/queues/q/{name}", f"{self._root}/delay/q:{name}"
        descriptor = os.open(ready, _READY_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(descriptor)
            if not os.path.samestat(status, os.stat(ready, follow_symlinks=False)):
                raise FileNotFoundError(ready)
            os.rename(ready, claimed)
            self._stamp(descriptor, _VISIBILITY_MS)
            self._flush_file(descriptor)
            if self._commit != "syncfs":  # Which has flushed the folders too.
                self._flush_folders("delay", "queues/q")
            return os.pread(descriptor, status.st_size, 0)
        finally:
            os.close(descriptor)

    def delete(self, name: str) -> None:
        """Look, remove, flush."""
        claimed = f"{self._root}/delay/q:{name}"
        os.stat(claimed, follow_symlinks=False)
        os.rename(claimed, f"{self._root}/remove/q:{name}")
        self._flush_folders("remove", "delay", "queues/q")

    def _stamp(self, descriptor: int, later_ms: int) -> None:
        due_ns = (time.time_ns() // _NS_PER_MS + later_ms) * _NS_PER_MS
        os.utime(descriptor, ns=(due_ns, due_ns))

    def _flush_file(self, descriptor: int) -> None:
        if self._commit == "fsync":
            os.fsync(descriptor)
        elif self._commit == "syncfs":
            syncfs(descriptor)

    def _flush_folders(self, *folders: str) -> None:
        if self._commit == "none":
            return
        for folder in folders:
            descriptor = os.open(f"{self._root}/{folder}", os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(descriptor)
            os.close(descriptor)
