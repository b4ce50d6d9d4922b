"""A queue's shovel files: the turn of the running process, the progress, and requests to stop.

FORMAT.md, "Shovels", has the files. They are hints and are not flushed: after a power cut they may
be gone or torn, and then nothing is known. No message depends on them.
"""

import contextlib
import errno
import stat
from dataclasses import replace
from typing import Final

from mq.model.message import Stamp
from mq.model.names import QueueName
from mq.model.shovel import SHOVEL_FILE_BYTES_MAX, Record, RunState
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.turns import Turn, is_taken, take
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_hint
from mq.store.format.settings import settings_version
from mq.store.format.shovels import (
    new_path,
    parse_shovel_file,
    progress_path,
    shovel_paths,
    stop_path,
    turn_place,
)
from mq.store.format.walk import named

# The errors of opening or reading a folder, a symbolic link, or a socket.
_NO_FILE_ERRORS: Final = (errno.EISDIR, errno.ELOOP, errno.ENXIO)


def take_turn(root: Root, queue: QueueName) -> Turn | None:
    """Takes the turn at the queue's shovel, so that one run goes on at a time; see `take`. Raises
    OSError.
    """
    return take(root, turn_place(root.layout, queue))


def is_running(root: Root, queue: QueueName) -> bool:
    """Whether a run holds the turn and shows signs of life. Raises OSError."""
    return is_taken(root, turn_place(root.layout, queue))


def write_record(root: Root, queue: QueueName, record: Record) -> None:
    """Writes the queue's shovel record. The caller has the turn. Raises OSError. Durable on return:
    no.
    """
    _write(root, queue, progress_path(root.layout, queue), record.printed())


def read_record(root: Root, queue: QueueName) -> Record | None:
    """The queue's shovel record as of now: a run that should be going on but has lost the turn was
    interrupted. None: there is no record. Raises OSError.
    """
    record = _read_record(root, queue)
    if record is None or not record.run.state.is_under_way or is_running(root, queue):
        return record
    # The run may have ended between the two checks, and another may have begun.
    again = _read_record(root, queue)
    if again is None or again != record:
        return again
    return replace(record, run=replace(record.run, state=RunState.INTERRUPTED))


def scheduled_since_ms(root: Root, queue: QueueName, record: Record | None) -> int:
    """The time from which the queue's schedule counts, in milliseconds since the epoch: the end of
    the last scheduled run or, without one, the last change of the queue's settings.
    """
    if record is not None and record.scheduled_ms is not None:
        return record.scheduled_ms
    _, changed_ns, _ = settings_version(root.layout, root.files, queue)
    return Stamp.from_mtime_ns(changed_ns).due_ms


def ask_to_stop(root: Root, queue: QueueName, run_id: str) -> None:
    """Asks the queue's run with this id to stop, in whichever process it is. Raises OSError.
    Durable on return: no.
    """
    _write(root, queue, stop_path(root.layout, queue), run_id.encode("ascii"))


def is_asked_to_stop(root: Root, queue: QueueName, run_id: str) -> bool:
    """Whether the run with this id is asked to stop. Raises OSError."""
    return _read(root, stop_path(root.layout, queue)) == run_id.encode("ascii")


def drop_stop(root: Root, queue: QueueName) -> None:
    """Removes a request to stop a run that has ended. The caller has the turn. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        root.files.unlink(stop_path(root.layout, queue))


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


def sweep_shovels(root: Root) -> int:
    """Removes useless files of shovels/; foreign ones stay. Returns their number. Raises OSError.
    Durable on return: no; files that a crash brings back are swept again.
    """
    found = named(root.files.entries(root.layout.shovels), parse_shovel_file)
    gone = {queue for _, queue in found if not queue_exists(root, queue)}
    return sum(drop_shovel_files(root, queue) for queue in gone)


def drop_shovel_files(root: Root, queue: QueueName) -> int:
    """Deletes the files of a queue's shovel, unless it runs. Returns their number. Raises OSError.
    Durable on return: no.
    """
    turn = take_turn(root, queue)
    if turn is None:
        return 0
    dropped = 0
    try:
        for path in shovel_paths(root.layout, queue):
            status = root.files.status(path)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                with contextlib.suppress(FileNotFoundError):
                    root.files.unlink(path)
                    dropped += 1
    finally:
        turn.end()
    return dropped
