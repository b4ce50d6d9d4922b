"""The files in crossings/ of Spark's shovels: what each run has chosen before it moves anything, so
that a run that goes on keeps its choice, and its result. FORMAT.md, "Crossings".
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from mq.model.errors import BadName, Busy, MqError
from mq.model.lifecycle import SHOVEL
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.message import Stamp
from mq.model.names import MessageId, ReplayId
from mq.model.shovel import SHOVEL_FILE_BYTES_MAX
from mq.store.core.locks import queues_locked
from mq.store.core.moves import message_status, named_status
from mq.store.core.root import Root, unlink_if_there
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Flush, Steps
from mq.store.format.crossings import (
    Crossing,
    Joint,
    chosen_path,
    crossings_in,
    lock_path,
    new_chosen_path,
    new_over_path,
    over_path,
    parse_lock,
    parse_over,
    parse_unfinished,
)
from mq.store.format.layout import is_unfinished
from mq.store.format.pipeline import LEDGER_KEPT_S
from mq.store.scan.order import STRICT, Candidate

_READ_BYTES: Final = 1 << 20
_VERSION: Final = 1


class Chosen(NamedTuple):
    """A message that a run has chosen, and its stamp at that time, without the reason."""

    id: MessageId
    stamp: Stamp


class Damaged(MqError):
    """The record of a run's choice is unreadable."""


@contextlib.contextmanager
def held(root: Root, replay: ReplayId) -> Iterator[None]:
    """Holds the run's id for this process in the block. Raises Busy at once if another process
    holds it; OSError.
    """
    layout, files = root.layout, root.files
    files.refuse_links(layout.crossings)
    with contextlib.suppress(FileExistsError):
        files.mkdir(layout.crossings)
    path = lock_path(layout, replay)
    descriptor = files.open_kept(path)
    try:
        if not files.lock(descriptor) or named_status(root, path, descriptor) is None:
            raise Busy(f"another process has the replay id {replay}")
        yield
    finally:
        files.close(descriptor)


def find_crossing(root: Root, replay: ReplayId) -> Crossing | None:
    """The unfinished run with this id; None: there is none. Raises OSError."""
    for crossing in crossings_in(root.layout, root.files):
        if crossing.id == replay:
            return crossing
    return None


def read_over(root: Root, replay: ReplayId) -> Mapping[str, Any] | None:
    """The result of an ended run, as given to `finish`; None: unknown. Raises OSError."""
    try:
        text = root.files.read_file(over_path(root.layout, replay), SHOVEL_FILE_BYTES_MAX)
        found = json.loads(text)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and not is_gone(error):
            raise
        return None
    return found if isinstance(found, dict) else None


def record_chosen(
    root: Root, crossing: Crossing, said: Mapping[str, Any], chosen: Iterable[Chosen]
) -> Steps[int]:
    """Records a run's choice and its request, before it moves anything. Returns the number of
    messages. The caller holds the id. Raises OSError. Durable on return: yes.
    """
    files, written = root.files, new_chosen_path(root.layout, crossing)
    unlink_if_there(files, written)
    descriptor = files.create(written)
    count = 0
    try:
        buffer = bytearray(_head(crossing, said))
        for message_id, stamp in chosen:
            buffer += f"{message_id.text} {stamp.due_ms} {stamp.receives}\n".encode("ascii")
            count += 1
            if len(buffer) >= _READ_BYTES:
                files.write(descriptor, buffer)
                buffer.clear()
        files.write(descriptor, bytes(buffer) + b"\n")
        yield Flush(files=(descriptor,))
        files.rename(written, chosen_path(root.layout, crossing))
    except BaseException:
        unlink_if_there(files, written)
        raise
    finally:
        files.close(descriptor)
    yield Flush(folders=(root.layout.crossings,))
    return count


def _head(crossing: Crossing, said: Mapping[str, Any]) -> bytes:
    ends = {"from": crossing.source.text, "to": crossing.target.text}
    return json.dumps({"version": _VERSION, **ends, **said}).encode("ascii") + b"\n"


def renew(root: Root, crossing: Crossing) -> None:
    """Renews the time of the run's record, for a process that continues the run: it is not swept
    then. Raises OSError. Durable on return: no.
    """
    descriptor = root.files.open_claimed(chosen_path(root.layout, crossing))
    try:
        root.files.stamp(descriptor, Stamp(root.now_ms()).mtime_ns())
    finally:
        root.files.close(descriptor)


def said_of(root: Root, crossing: Crossing) -> Mapping[str, Any]:
    """The request of the run. Raises Damaged, OSError."""
    try:
        found = json.loads(next(_lines(root, crossing)))
        if isinstance(found, dict) and found.get("version") == _VERSION:
            return found
    except (StopIteration, ValueError):
        pass
    raise Damaged(f"{chosen_path(root.layout, crossing)} cannot be understood")


def chosen_of(root: Root, crossing: Crossing) -> Iterator[Chosen]:
    """The run's chosen messages in order. Raises Damaged, OSError."""
    lines = _lines(root, crossing)
    next(lines, None)
    for line in lines:
        if not line:
            return
        try:
            text, due_ms, receives = line.decode("ascii").split(" ")
            yield Chosen(MessageId.parse(text), Stamp(int(due_ms), int(receives)))
        except (ValueError, BadName) as error:
            path = chosen_path(root.layout, crossing)
            raise Damaged(f"{path} cannot be understood") from error
    raise Damaged(f"{chosen_path(root.layout, crossing)} has no end")


def _lines(root: Root, crossing: Crossing) -> Iterator[bytes]:
    descriptor = root.files.open_read(chosen_path(root.layout, crossing))
    try:
        offset, rest = 0, b""
        while more := root.files.read(descriptor, _READ_BYTES, offset):
            offset += len(more)
            *whole, rest = (rest + more).split(b"\n")
            yield from whole
    finally:
        root.files.close(descriptor)


def candidate_of(root: Root, crossing: Crossing, message_id: MessageId) -> Candidate | None:
    """The message's place if it is ready in the run's source queue; None: it is not. Raises
    SettingsUnreadable, OSError.
    """
    for spot in root.places.spots(SHOVEL.source, crossing.source, message_id):
        if _status(root, crossing, message_id, spot) is not None:
            return Candidate(STRICT.key(message_id.text), spot)
    return None


def _status(
    root: Root, crossing: Crossing, message_id: MessageId, spot: str
) -> os.stat_result | None:
    layout = root.layout
    return message_status(root, layout.path(SHOVEL.source, crossing.source, message_id, spot))


def finish(root: Root, crossing: Crossing, said: Mapping[str, Any]) -> Steps[None]:
    """Records the result of a run that has decided about all its messages. The caller holds the id.
    Raises OSError. Durable on return: yes.
    """
    content = json.dumps(dict(said)).encode("ascii")
    over = over_path(root.layout, crossing.id)
    yield from replace_file(
        root.files, new_over_path(root.layout, crossing.id), over, content, _now_ns(root)
    )
    # Not flushed: if it comes back, the run is over, and only its messages are searched once more.
    unlink_if_there(root.files, chosen_path(root.layout, crossing))


def _now_ns(root: Root) -> int:
    return Stamp(root.now_ms()).mtime_ns()


def sweep_crossings(root: Root, flusher: Flusher) -> int:
    """Ends runs that were not continued for LEDGER_KEPT_S, and deletes the files of runs that ended
    as long ago. Returns the number of files. Sweeps everything it can before it raises, such as for
    an unreadable record. Raises MqError, OSError.
    """
    swept = 0
    failure: MqError | OSError | None = None
    try:
        entries = list(root.files.entries(root.layout.crossings))
    except FileNotFoundError:
        return 0
    for entry in entries:
        try:
            since_ms = entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000
            swept += _sweep(root, flusher, entry.name, entry.path, since_ms)
        except (BadName, Busy, FileNotFoundError):
            continue
        except (MqError, OSError) as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return swept


def _sweep(root: Root, flusher: Flusher, name: str, path: str, since_ms: int) -> int:
    if is_unfinished(name):
        if not root.has_aged(since_ms, FORGOTTEN_AFTER_S):
            return 0
        replay = parse_unfinished(name)
        # Only under the run's id: a query may take longer than that without writing a row.
        with held(root, replay):
            root.files.unlink(path)
            if not _is_known(root, replay):
                unlink_if_there(root.files, lock_path(root.layout, replay))
        return 1
    if not root.has_aged(since_ms, LEDGER_KEPT_S):
        return 0
    with contextlib.suppress(BadName):
        return _sweep_joint(root, Joint.parse(name))
    return _sweep_run(root, flusher, name, path)


def _sweep_run(root: Root, flusher: Flusher, name: str, path: str) -> int:
    for parse in (parse_over, parse_lock):
        with contextlib.suppress(BadName):
            with held(root, parse(name)):
                if parse is parse_lock and _is_known(root, parse_lock(name)):
                    return 0
                root.files.unlink(path)
            return 1
    crossing = Crossing.parse(name)
    with held(root, crossing.id):
        run_alone(finish(root, crossing, {"state": "given up"}), flusher)
    return 1


def _sweep_joint(root: Root, joint: Joint) -> int:
    """Once the queue is gone, none of its messages can come back there."""
    with queues_locked(root):
        is_there = root.files.is_there(root.layout.tombstone(joint.queue))
        if is_there or queue_exists(root, joint.queue):
            return 0
        root.files.unlink(joint.path(root.layout))
    return 1


def _is_known(root: Root, replay: ReplayId) -> bool:
    is_over = root.files.is_there(over_path(root.layout, replay))
    return is_over or find_crossing(root, replay) is not None
