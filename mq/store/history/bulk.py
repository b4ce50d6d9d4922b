"""What becomes of many messages at a time, for their queues' histories.

Nothing here raises for the storage's sake, nor costs more than a look at settings where no queue
has a history.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mq.model.errors import BadName, MqError
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.limits import HISTORY_LINES_PER_WRITE_MAX
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.format.layout import parse_entry
from mq.store.format.pipeline import LeaseFile, LeaseName, lease_path
from mq.store.format.walk import entries_if_there
from mq.store.leases.manifest import read_manifest


@dataclass(slots=True)
class _Lines:
    """Lines of several queues, written some at a time."""

    root: Root
    event: Event
    lease: str
    _held: dict[QueueName, list[tuple[str, int | None, int | None]]] = field(default_factory=dict)
    _count: int = 0

    def add(self, queue: QueueName, message_id: str, receives: int, due_ms: int | None) -> None:
        self._held.setdefault(queue, []).append((message_id, receives, due_ms))
        self._count += 1
        if self._count >= HISTORY_LINES_PER_WRITE_MAX:
            self.write()

    def write(self) -> None:
        for queue, messages in self._held.items():
            self.root.history.record_many(queue, self.event, messages, self.lease)
        self._held, self._count = {}, 0


def record_leased(root: Root, lease: LeaseName, queues: Sequence[QueueName], due_ms: int) -> None:
    """That a lease, which lapses at `due_ms`, has what lies in its folder. Blocking."""
    if any(root.history.is_on(queue) for queue in queues):
        lines = _Lines(root, Event.LEASED, lease.text)
        for queue, message_id, receives in _in_lease(root, lease):
            lines.add(queue, message_id, receives, due_ms)
        lines.write()


def leased_of_histories(root: Root, lease: LeaseName) -> list[tuple[QueueName, str, int]]:
    """What lies in an open lease of queues that have histories, each with its receives: for
    `record_acknowledged`, since mq-reaper may be fast. Blocking.
    """
    with contextlib.suppress(OSError):
        read = read_manifest(root, lease)
        queues = () if read is None else read.manifest.queues
        if any(root.history.is_on(queue) for queue in queues):
            return [each for each in _in_lease(root, lease) if root.history.is_on(each[0])]
    return []


def record_acknowledged(
    root: Root, lease: LeaseName, messages: Iterable[tuple[QueueName, str, int]]
) -> None:
    """That these are removed, which the lease held. Blocking."""
    lines = _Lines(root, Event.REMOVED, lease.text)
    for queue, message_id, receives in messages:
        lines.add(queue, message_id, receives, None)
    lines.write()


def record_published(root: Root, queue: QueueName, ids: Iterable[MessageId], state: State) -> None:
    """That messages are published, to their queue or to delay/. Blocking."""
    if root.history.is_on(queue):
        lines = _Lines(root, Event.PUBLISHED, "")
        for each in ids:
            due_ms = _due_ms(root, queue, each) if state is State.DELAYED else None
            lines.add(queue, each.text, 0, due_ms)
        lines.write()


def record_removed(root: Root, queue: QueueName, folder: str) -> None:
    """That the queue's messages are removed that lie in a folder, and below it. Blocking."""
    if not root.history.is_on(queue):
        return
    lines = _Lines(root, Event.REMOVED, "")
    with contextlib.suppress(OSError):
        for message_id, receives in _below(root, folder):
            lines.add(queue, message_id, receives, None)
    lines.write()


def _in_lease(root: Root, lease: LeaseName) -> Iterator[tuple[QueueName, str, int]]:
    folder = lease_path(root.layout, lease, LeaseFile.FOLDER)
    with contextlib.suppress(OSError):
        for entry in entries_if_there(root.files, folder):
            with contextlib.suppress(BadName, FileNotFoundError):
                queue, message_id = parse_entry(entry.name)
                mtime_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                stamp = Stamp.from_mtime_ns(mtime_ns).received(0)
                yield queue, message_id.text, stamp.receives


def _below(root: Root, folder: str) -> Iterator[tuple[str, int]]:
    for entry in entries_if_there(root.files, folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _below(root, entry.path)
        elif MessageId.is_written(entry.name):
            with contextlib.suppress(FileNotFoundError):
                mtime_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                yield entry.name, Stamp.from_mtime_ns(mtime_ns).receives


def _due_ms(root: Root, queue: QueueName, message_id: MessageId) -> int | None:
    with contextlib.suppress(OSError, MqError):
        for bucket in root.places.spots(State.DELAYED, queue, message_id):
            path = root.layout.path(State.DELAYED, queue, message_id, bucket)
            if (status := root.files.status(path)) is not None:
                return Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
    return None
