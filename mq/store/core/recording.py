"""Records events of many messages for their queues' histories.

Never raises because of the storage, and costs no more than a look at the settings where no queue
has a history.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import MqError
from mq.model.history import Event, Told
from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.format.walk import Folder, walk

HISTORY_LINES_PER_WRITE_MAX: Final = 1_000

_NONE: Final[Mapping[str, tuple[str, ...]]] = {}


@dataclass(slots=True)
class Lines:
    """Lines of one event for the histories of several queues, written in batches. `lease`: the name
    of their lease.
    """

    root: Root
    event: Event
    lease: str = ""
    _held: dict[QueueName, list[Told]] = field(default_factory=dict)
    _count: int = 0

    def add(self, queue: QueueName, told: Told) -> None:
        """Adds a message. May block for a write."""
        self._held.setdefault(queue, []).append(told)
        self._count += 1
        if self._count >= HISTORY_LINES_PER_WRITE_MAX:
            self.write()

    def write(self) -> None:
        """Writes those that are held. Blocking."""
        for queue, messages in self._held.items():
            self.root.history.record_many(queue, self.event, messages, self.lease)
        self._held, self._count = {}, 0


def record_published(
    root: Root,
    queue: QueueName,
    ids: Iterable[MessageId],
    state: State,
    tags: Mapping[str, tuple[str, ...]] = _NONE,
) -> None:
    """Records that messages were published, to their queue or to delay/. `tags`: those of the
    messages that have some, by their ids' texts. Blocking.
    """
    if root.history.is_on(queue):
        lines = Lines(root, Event.PUBLISHED)
        for each in ids:
            due_ms = _due_ms(root, queue, each) if state is State.DELAYED else None
            lines.add(queue, Told(each.text, 0, due_ms, tags.get(each.text, ())))
        lines.write()


def record_removed(root: Root, queue: QueueName, folder: Folder) -> None:
    """Records that the queue's messages in a folder, and below it, were removed. Blocking."""
    if not root.history.is_on(queue):
        return
    lines = Lines(root, Event.REMOVED)
    with contextlib.suppress(OSError):
        for _, entry in walk(root.files, folder):
            if MessageId.is_written(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    mtime_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                    receives = Stamp.from_mtime_ns(mtime_ns).receives
                    lines.add(queue, Told(entry.name, receives))
    lines.write()


def _due_ms(root: Root, queue: QueueName, message_id: MessageId) -> int | None:
    with contextlib.suppress(OSError, MqError):
        for bucket in root.places.spots(State.DELAYED, queue, message_id):
            path = root.layout.path(State.DELAYED, queue, message_id, bucket)
            if (status := root.files.status(path)) is not None:
                return Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
    return None
