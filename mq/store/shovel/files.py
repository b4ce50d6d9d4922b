"""What a root says of its queues' shovels: who runs, how far that is, and that it is to stop.

FORMAT.md, "Shovels", has the files. They are hints that are not flushed: what a power cut leaves of
them may be nothing, or torn, and then nothing is known. Messages do not depend on them.
"""

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mq.model.message import Stamp
from mq.model.names import QueueName
from mq.model.shovel import SHOVEL_FILE_BYTES_MAX, SHOVEL_SILENT_S, Record, RunState
from mq.store.core.moves import named_status
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_hint
from mq.store.format.settings import settings_version
from mq.store.format.shovels import lock_path, new_path, progress_path, stop_path, turns_lock

_TRIES_MAX: Final = 10
# What opening or reading says of a folder, a symbolic link, a socket.
_NO_FILE_ERRORS: Final = (errno.EISDIR, errno.ELOOP, errno.ENXIO)


class Turn:
    """The turn at a queue's shovel: one run a queue at a time, in all processes of the root."""

    def __init__(self, root: Root, queue: QueueName, descriptor: int) -> None:
        self._root = root
        self._path = lock_path(root.layout, queue)
        self._descriptor = descriptor
        self._kept_s = root.clock.steady_s()

    def keep(self) -> bool:
        """Says that something is still done. False: it was silent for so long that another has
        taken the turn, or may. Raises OSError.
        """
        before_s, self._kept_s = self._kept_s, self._root.clock.steady_s()
        self._root.files.stamp(self._descriptor, Stamp(self._root.now_ms()).mtime_ns())
        if named_status(self._root, self._path, self._descriptor) is not None:
            return True
        if self._kept_s - before_s >= SHOVEL_SILENT_S:
            return False
        # Who took it away saw the file as it was before this turn began.
        descriptor = _take(self._root, self._path)
        if descriptor is None:
            return False
        self._root.files.close(self._descriptor)
        self._descriptor = descriptor
        return True

    def end(self) -> None:
        """Gives it back."""
        self._root.files.close(self._descriptor)


def take_turn(root: Root, queue: QueueName) -> Turn | None:
    """The turn at the queue's shovel; None when a run has it, or somebody looks whether one has,
    for which `take_turn` is called again. One who was silent for SHOVEL_SILENT_S, a process that
    was stopped for instance, loses it. Raises OSError.
    """
    path = lock_path(root.layout, queue)
    for _ in range(_TRIES_MAX):
        descriptor = _take(root, path)
        if descriptor is not None:
            return Turn(root, queue, descriptor)
        if not _is_silent(root, path):
            return None
        with _turns_locked(root) as is_ours:
            if not is_ours:
                return None
            if _is_silent(root, path):
                with contextlib.suppress(FileNotFoundError):
                    root.files.unlink(path)
    return None


def is_running(root: Root, queue: QueueName) -> bool:
    """Whether a run has the turn, and does something. Raises OSError."""
    path = lock_path(root.layout, queue)
    try:
        descriptor = root.files.open_claimed(path)
    except OSError as error:
        if is_gone(error):
            return False
        raise
    try:
        return not root.files.lock(descriptor) and not _is_silent(root, path)
    finally:
        root.files.close(descriptor)


def write_record(root: Root, queue: QueueName, record: Record) -> None:
    """Has the queue's file say so. For whoever has the turn. Raises OSError. Durable: no."""
    _write(root, queue, progress_path(root.layout, queue), record.printed())


def read_record(root: Root, queue: QueueName) -> Record | None:
    """What the queue's file says, as of now: a run of which it says that it goes on, and that has
    the turn no more, was interrupted. None: it says nothing. Raises OSError.
    """
    record = _read_record(root, queue)
    if record is None or not record.run.state.is_under_way or is_running(root, queue):
        return record
    # It may have come to its end between the two looks, and another may have begun.
    again = _read_record(root, queue)
    if again is None or again != record:
        return again
    return replace(record, run=replace(record.run, state=RunState.INTERRUPTED))


def scheduled_since_ms(root: Root, queue: QueueName, record: Record | None) -> int:
    """From when on the queue's schedule counts, milliseconds since the epoch: the end of the last
    run of it, or, where there was none, the last change of the queue's settings.
    """
    if record is not None and record.scheduled_ms is not None:
        return record.scheduled_ms
    _, changed_ns, _ = settings_version(root.layout, root.files, queue)
    return Stamp.from_mtime_ns(changed_ns).due_ms


def ask_to_stop(root: Root, queue: QueueName, run_id: str) -> None:
    """Asks the queue's run of this id to stop, whichever process has it. Raises OSError.
    Durable: no.
    """
    _write(root, queue, stop_path(root.layout, queue), run_id.encode("ascii"))


def is_asked_to_stop(root: Root, queue: QueueName, run_id: str) -> bool:
    """Whether the run of this id is to stop. Raises OSError."""
    return _read(root, stop_path(root.layout, queue)) == run_id.encode("ascii")


def drop_stop(root: Root, queue: QueueName) -> None:
    """Takes the word to stop away that was for a run that is over. For whoever has the turn.
    Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        root.files.unlink(stop_path(root.layout, queue))


def _take(root: Root, path: str) -> int | None:
    """The lock's file, where it could be locked and is still the one that the name means."""
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
    """Whether who has the turn has not said for long that it does something."""
    status = root.files.status(path)
    if status is None:
        return True
    return root.now_ms() - Stamp.from_mtime_ns(status.st_mtime_ns).due_ms >= SHOVEL_SILENT_S * 1000


@contextlib.contextmanager
def _turns_locked(root: Root) -> Iterator[bool]:
    """One at a time takes lock files away; whether it is this one."""
    descriptor = root.files.open_kept(turns_lock(root.layout))
    try:
        yield root.files.lock(descriptor)
    finally:
        root.files.close(descriptor)


def _write(root: Root, queue: QueueName, path: str, content: bytes) -> None:
    replace_hint(root.files, new_path(root.layout, queue), path, content)


def _read(root: Root, path: str) -> bytes | None:
    try:
        return root.files.read_file(path, SHOVEL_FILE_BYTES_MAX)
    except OSError as error:
        if is_gone(error) or error.errno in _NO_FILE_ERRORS:
            return None
        raise


def _read_record(root: Root, queue: QueueName) -> Record | None:
    text = _read(root, progress_path(root.layout, queue))
    try:
        record = None if text is None else Record.parse(text)
    except ValueError:
        return None
    return record if record is not None and record.run.queue == queue.text else None
