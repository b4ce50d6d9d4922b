"""The doctor's own folder for its probes, and the leftovers of killed doctors.

It is a dotfile of the root, `.doctor.{token}`, which mq ignores; so are the files of that name that
move through the root's own folders. A running doctor holds a lock on the file `alive` in it.
"""

import contextlib
import errno
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mq.model.clock import Clock
from mq.model.lifecycle import State
from mq.store.core.root import unlink_if_there
from mq.store.disk.files import Files
from mq.store.format.layout import Layout

# The age at which a leftover is removed whatever its lock.
_LEFTOVER_AGE_S: Final = 3600.0
_LEFTOVERS_MAX: Final = 1000
TOKEN_BYTES: Final = 8
_REMOVE_TRIES: Final = 5

STATES: Final = (State.NEW, State.READY, State.DELAYED, State.REMOVED)
"""The folders that a message moves through, in the order of its life."""

_PREFIX: Final = ".doctor."
_NAME: Final = re.compile(rf"\.doctor\.[0-9a-f]{{{2 * TOKEN_BYTES}}}")
_ALIVE: Final = "alive"
_AGAIN_IN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Ground:
    """A root, or a folder that is to become one, and the doctor's folder in it."""

    root: Layout
    files: Files
    clock: Clock
    name: str

    @property
    def folder(self) -> str:
        return self.seen_from(self.root.root)

    def seen_from(self, mount: str) -> str:
        """The path of the doctor's folder at another mount of the same storage."""
        return f"{mount}/{self.name}"

    def path(self, name: str) -> str:
        """A path in the doctor's folder."""
        return f"{self.folder}/{name}"

    def in_root(self, state: State) -> str:
        """The path of the doctor's file in a folder of the root."""
        return f"{self.root.folder(state)}/{self.name}"


@contextlib.contextmanager
def staked_out(root: str, files: Files, clock: Clock) -> Iterator[Ground]:
    """Creates the doctor's folder for a block of code, and removes it however the block ends.
    Raises OSError if it cannot be created.
    """
    ground = Ground(Layout.of(root), files, clock, _PREFIX + os.urandom(TOKEN_BYTES).hex())
    alive = -1
    try:
        files.mkdir(ground.folder)
        alive = files.create(ground.path(_ALIVE))
        with contextlib.suppress(OSError):  # A probe tests whether locks work.
            files.lock(alive)
        files.write(alive, b"locked\n")
        yield ground
    finally:
        if alive >= 0:
            files.close(alive)
        _clear(ground)


def sweep(ground: Ground, locks_tell: bool) -> int:
    """Removes the leftovers of killed doctors; returns how many. `locks_tell`: whether locks of
    doctors on any machine are visible here; otherwise it removes only leftovers older than an hour.
    """
    swept = 0
    with contextlib.suppress(OSError):
        for name in _leftovers(ground):
            other = Ground(ground.root, ground.files, ground.clock, name)
            with contextlib.suppress(OSError):
                if _is_left(other, locks_tell):
                    _remove(other)
                    swept += 1
    return swept


def _leftovers(ground: Ground) -> list[str]:
    found = []
    for entry in ground.files.entries(ground.root.root):
        if _NAME.fullmatch(entry.name) and entry.name != ground.name:
            found.append(entry.name)
        if len(found) >= _LEFTOVERS_MAX:
            break
    return found


def _is_left(other: Ground, locks_tell: bool) -> bool:
    """Whether no doctor is running there, as far as can be determined."""
    files, path = other.files, other.path(_ALIVE)
    there = files.status(path) or files.status(other.folder)
    if there is None:
        return False
    if other.clock.now_ms() - there.st_mtime_ns // 1_000_000 > _LEFTOVER_AGE_S * 1000:
        return True
    # An empty file is not locked yet.
    if not locks_tell or files.status(path) is None or there.st_size == 0:
        return False
    descriptor = files.open_claimed(path)
    try:
        return files.lock(descriptor)
    finally:
        files.close(descriptor)


def _clear(ground: Ground) -> None:
    """Removes it; tries again after an interruption, of which there is at most one."""
    try:
        _remove(ground)
    except BaseException:
        _remove(ground)
        raise


def _remove(ground: Ground) -> None:
    """Removes the files in the root's own folders first: while the doctor's folder exists, the next
    doctor finds them.
    """
    files = ground.files
    for state in STATES:
        with contextlib.suppress(NotADirectoryError, IsADirectoryError):
            unlink_if_there(files, ground.in_root(state))
    for tried in range(_REMOVE_TRIES):
        try:
            _remove_folder(files, ground.folder)
        except OSError as error:
            # For a moment, NFS keeps a name for a removed file that another process has open.
            last = tried == _REMOVE_TRIES - 1
            if last or error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                raise
            threading.Event().wait(_AGAIN_IN_S)
        else:
            return


def _remove_folder(files: Files, folder: str) -> None:
    if files.status(folder) is None:
        return
    # Lists all names first: an iterator may skip some while names are removed.
    for entry in list(files.entries(folder)):
        if entry.is_dir(follow_symlinks=False):
            _remove_folder(files, entry.path)
        else:
            unlink_if_there(files, entry.path)
    files.rmdir(folder)
