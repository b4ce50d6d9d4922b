"""The failures of messages: what their consumers said at a release or a sideline.

A file `failures/{hh}/{uuid}` has the newest of a message, a line of JSON each, the newest last. It
is of the message wherever that is, and replaced as a whole under the message's lock.
PROTOCOL.md, "keep a failure", has the steps and what a crash after each leaves.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final

from mq.model.clock import rfc3339
from mq.model.errors import BadName
from mq.model.failure import FAILURES_MAX, NAMES, Failure, line_of
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import message_status
from mq.store.core.packed import is_being_parted
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.replacing import write_over
from mq.store.disk.steps import Steps
from mq.store.format.layout import is_unfinished
from mq.store.format.walk import entries_if_there

# More than the newest of a message can need.
FAILURES_BYTES_MAX: Final = 512 * 1024


def keep_failure(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    event: tuple[Event, int],
    failure: Failure | None,
) -> Steps[None]:
    """Adds a failure to those of a message that the caller has locked. `event`: the operation on
    the message, and its receives. `failure`: None records only the queue that it left. A repeated
    request replaces its own failure. Raises OSError. Durable on return: no; with the message's
    next change.
    """
    layout, files = root.layout, root.files
    folder, path, written = layout.failure(message_id)
    said = [each for each in _read(root, message_id) if not _is_of(each, *event)]
    said.append(
        {
            "time": rfc3339(root.now_ms()),
            "event": event[0].value,
            "queue": queue.text,
            "id": message_id.text,
            "receives": event[1],
            **({} if failure is None else failure.said()),
        }
    )
    if not files.is_there(folder):
        for missing in (layout.failures, folder):
            with contextlib.suppress(FileExistsError):
                files.mkdir(missing)
        root.facts.found_failures()
    aside = [each for each in said[:-FAILURES_MAX] if _is_aside(each)][-1:]
    kept = said[-FAILURES_MAX:]
    if aside and not any(map(_is_aside, kept)):
        kept = [*aside, *kept[1:]]  # It says where the message came from.
    lines = [json.dumps(each, ensure_ascii=False) for each in kept]
    content = "".join(f"{line}\n" for line in lines).encode()
    yield from write_over(files, written, path, content)


def _is_aside(said: Mapping[str, Any]) -> bool:
    return said.get("event") == Event.SIDELINED.value


def _is_of(said: Mapping[str, Any], event: Event, receives: int) -> bool:
    return said.get("event") == event.value and said.get("receives") == receives


def came_from(root: Root, message_id: MessageId) -> QueueName | None:
    """The queue from which a message of a shared sideline came; None: that is not known. Raises
    OSError.
    """
    for said in filter(_is_aside, reversed(_read(root, message_id))):
        with contextlib.suppress(BadName, TypeError, LookupError):
            return QueueName.parse(said["queue"])
    return None


def read_failures(root: Root, message_id: MessageId) -> list[dict[str, Any]]:
    """The failures of a message, the newest last; of an item of a pack that has none of its own,
    those of the pack. None of what cannot be understood. One file system call where there is none.
    Raises OSError.
    """
    if not root.facts.has_failures():
        return []
    found = _read(root, message_id)
    if found or not message_id.pack_size:
        return found
    return [{**each, "id": message_id.text} for each in _read(root, message_id.pack())]


def _read(root: Root, message_id: MessageId) -> list[dict[str, Any]]:
    path = root.layout.failure(message_id)[1]
    try:
        content = root.files.read_file(path, FAILURES_BYTES_MAX)
    except FileNotFoundError:
        return []
    return failures_in(content)


def failures_in(content: bytes) -> list[dict[str, Any]]:
    """The failures that a file says; none of what cannot be understood."""
    found = []
    for line in content.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(line)
            if isinstance(said, dict):
                found.append(said)
    return found


def failure_line(root: Root, queue: QueueName, message_id: MessageId, stamp: Stamp) -> str:
    """A line that shows the last failure of a message; "": there is none. No file system call for
    a message that was not delivered before and is in no sideline. Does not raise: a message is
    delivered also where its failures cannot be read.
    """
    if stamp.receives < 1 and not queue.is_sideline:
        return ""
    with contextlib.suppress(OSError):
        found = [each for each in read_failures(root, message_id) if each.keys() & NAMES]
        return line_of(found[-1]) if found else ""
    return ""


class FailureSweep:
    """Takes away the failures of messages that are gone, and what a crash left unwritten; each call
    continues where the last one ended.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._next = 0

    def sweep(self) -> int:
        """Deletes files of the next of the 256 folders that were last written at least an hour ago.
        Returns how many. Blocking. Raises OSError. Durable on return: no; a crash may bring them
        back until the next sweep.
        """
        root = self._root
        folder = f"{root.layout.failures}/{self._next:02x}"
        self._next = (self._next + 1) % 256
        swept = 0
        for entry in entries_if_there(root.files, folder):
            status = root.files.status(entry.path)
            is_old = status is not None and root.has_aged(
                status.st_ctime_ns // 1_000_000, FORGOTTEN_AFTER_S
            )
            if is_old and (is_unfinished(entry.name) or self._is_over(entry)):
                unlink_if_there(root.files, entry.path)
                swept += 1
        return swept

    def _is_over(self, entry: "os.DirEntry[str]") -> bool:
        """Whether the message is nowhere. What does not say of which message it is stays."""
        root = self._root
        if not entry.is_file(follow_symlinks=False):
            return False
        try:
            said = json.loads(root.files.read_file(entry.path, FAILURES_BYTES_MAX).splitlines()[-1])
            queue, message_id = QueueName.parse(said["queue"]), MessageId.parse(said["id"])
        except (ValueError, LookupError, TypeError, BadName, FileNotFoundError):
            return False
        if message_id.uuid != entry.name:
            return False
        queues = (queue, *root.facts.others(queue))
        if message_id.pack_size and any(is_being_parted(root, each, message_id) for each in queues):
            return False
        return not any(_is_there(root, each, message_id) for each in queues)


def _is_there(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether a message is in one of its places. In two looks: it may move meanwhile."""
    for _ in range(2):
        for state in (State.READY, State.DELAYED, State.LEASED, State.REMOVED):
            for bucket in root.places.spots(state, queue, message_id):
                if message_status(root, root.layout.path(state, queue, message_id, bucket)):
                    return True
    return False
