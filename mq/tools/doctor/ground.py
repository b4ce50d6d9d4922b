"""The folder of its own in which the doctor tries things, and what one that was killed has left.

It is a dotfile of the root, `.doctor.{token}`, which mq leaves alone; so are the files of that name
that are taken through the root's own folders. Whoever is at work has `alive` in it locked.
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
from mq.tools.doctor.limits import LEFTOVER_AGE_S, LEFTOVERS_MAX, REMOVE_TRIES, TOKEN_BYTES

STATES: Final = (State.NEW, State.READY, State.DELAYED, State.REMOVED)
"""The folders that a message moves through, in the order of a life."""

_PREFIX: Final = ".doctor."
_NAME: Final = re.compile(rf"\.doctor\.[0-9a-f]{{{2 * TOKEN_BYTES}}}")
_ALIVE: Final = "alive"
_AGAIN_IN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Ground:
    """A root, or a folder that is to become one, and the folder in it that is the doctor's."""

    root: Layout
    files: Files
    clock: Clock
    name: str

    @property
    def folder(self) -> str:
        """The doctor's own."""
        return self.seen_from(self.root.root)

    def seen_from(self, mount: str) -> str:
        """The doctor's own folder, as another mount of the same storage has it."""
        return f"{mount}/{self.name}"

    def path(self, name: str) -> str:
        """A path in the doctor's own folder."""
        return f"{self.folder}/{name}"

    def in_root(self, state: State) -> str:
        """The doctor's own file in a folder of the root."""
        return f"{self.root.folder(state)}/{self.name}"


@contextlib.contextmanager
def staked_out(root: str, files: Files, clock: Clock) -> Iterator[Ground]:
    """A ground, which is gone at the end, however that comes. Raises OSError when it cannot be
    made.
    """
    ground = Ground(Layout.of(root), files, clock, _PREFIX + os.urandom(TOKEN_BYTES).hex())
    alive = -1
    try:
        files.mkdir(ground.folder)
        alive = files.create(ground.path(_ALIVE))
        with contextlib.suppress(OSError):  # Whether locks work is a probe's business.
            files.lock(alive)
        files.write(alive, b"locked\n")
        yield ground
    finally:
        if alive >= 0:
            files.close(alive)
        _clear(ground)


def sweep(ground: Ground, locks_tell: bool) -> int:
    """Takes away what doctors have left that were killed; how many. `locks_tell`: whether the lock
    of one that is at work on any machine is seen here; else only what is an hour old goes.
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
        if len(found) >= LEFTOVERS_MAX:
            break
    return found


def _is_left(other: Ground, locks_tell: bool) -> bool:
    """Whether nobody is at work there, as far as can be told."""
    files, path = other.files, other.path(_ALIVE)
    there = files.status(path) or files.status(other.folder)
    if there is None:
        return False
    if other.clock.now_ms() - there.st_mtime_ns // 1_000_000 > LEFTOVER_AGE_S * 1000:
        return True
    # An empty one is not locked yet.
    if not locks_tell or files.status(path) is None or there.st_size == 0:
        return False
    descriptor = files.open_claimed(path)
    try:
        return files.lock(descriptor)
    finally:
        files.close(descriptor)


def _clear(ground: Ground) -> None:
    """Removes it, again where an interruption came between: only one ever comes."""
    try:
        _remove(ground)
    except BaseException:
        _remove(ground)
        raise


def _remove(ground: Ground) -> None:
    """What is in the root's own folders first: while the ground stands, the next doctor knows of
    them.
    """
    files = ground.files
    for state in STATES:
        with contextlib.suppress(NotADirectoryError, IsADirectoryError):
            unlink_if_there(files, ground.in_root(state))
    for tried in range(REMOVE_TRIES):
        try:
            _remove_folder(files, ground.folder)
        except OSError as error:
            # NFS keeps a name of what another process has open still, for a moment.
            last = tried == REMOVE_TRIES - 1
            if last or error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                raise
            threading.Event().wait(_AGAIN_IN_S)
        else:
            return


def _remove_folder(files: Files, folder: str) -> None:
    if files.status(folder) is None:
        return
    # All at once: an iterator that is taken from while names go may leave some out.
    for entry in list(files.entries(folder)):
        if entry.is_dir(follow_symlinks=False):
            _remove_folder(files, entry.path)
        else:
            unlink_if_there(files, entry.path)
    files.rmdir(folder)
