"""What an auditor may find in a root that FORMAT.md does not allow."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from mq.model.fsck_limits import QUEUES_COUNTED_MAX
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.format.layout import Layout


class Breach(Enum):
    """What a root must not have; the value says it in words."""

    STORAGE = "the storage does not say"
    FORMAT = "the format file is missing or names another format"
    FOLDER = "a folder of the root is missing"
    SYMLINK = "a symbolic link"
    IN_THE_WAY = "something else under a name that mq uses"
    OWNER = "an owner that is not the root's"
    MODE = "a mode that is not mq's"
    TWO_STATES = "one message in two places"
    LINKED = "a second name outside the message's places"
    MTIME = "an mtime that mq did not set"
    SHORT = "a file shorter than its header block"
    UNREADABLE = "a header block that is no text"
    OVERDUE = "due, and nobody brought it back"
    LAPSED = "a lease that lapsed, and nobody gave it back"
    FORGOTTEN = "left in new/, and nobody took it away"
    STRAY = "a message whose queue is not there and was not deleted"
    TOMBSTONE = "a tombstone beside its queue"
    MISPLACED = "a message in a bucket that is not its own"
    SETTINGS = "settings that cannot be understood, or of no queue"
    KEY = "a living message that its key's link does not name"
    ORPHAN = "a key of nothing, and nobody took it away"
    KEYS = "keys of no queue"
    PURGED = "a purge's mark of no queue"
    SCHEDULE = "a schedule that cannot be understood, or of no queue"
    JOURNAL = "a bulk publish that is committed, and not at its places"
    ARCHIVE = "what is said of the root's archive, and cannot be understood"
    LEFTOVER = "what nobody needs any more, and nobody took away"


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a message lies: its state, its queue, and its bucket there."""

    state: State
    queue: QueueName
    id: MessageId
    bucket: str = ""

    def path(self, layout: Layout) -> str:
        """Of its file."""
        return layout.path(self.state, self.queue, self.id, self.bucket)


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach, where it is, and the fact that shows it; for whoever puts it right, the queue
    that it is of, the message, and of one in two places the other.
    """

    breach: Breach
    path: str
    detail: str = ""
    queue: QueueName | None = None
    spot: Spot | None = None
    other: Spot | None = None


Look: TypeAlias = Callable[[], Sequence[Violation]]
"""A look at one thing, which can be taken again: what is broken about it now."""


@dataclass(slots=True)
class Amounts:
    """How many messages are in each state, how many of these are of which queue, and how many names
    are no message's (`foreign_name` is one of them). `hidden` counts dotfiles: probes that a
    crash left, what NFS keeps for files that are open.
    """

    messages: dict[State, int] = field(
        default_factory=lambda: {state: 0 for state in State if state is not State.ABSENT}
    )
    of_queues: dict[str, Counter[State]] = field(default_factory=dict)
    """By the queues' names; what is beyond QUEUES_COUNTED_MAX counts in `messages` alone."""
    foreign: int = 0
    foreign_name: str = ""
    hidden: int = 0
    lost: int = 0
    """What fsck has set aside."""

    def count(self, state: State, queue: str, number: int = 1) -> None:
        """A message more, or so many."""
        self.messages[state] += number
        of_queue = self.of_queues.get(queue)
        if of_queue is None:
            if len(self.of_queues) >= QUEUES_COUNTED_MAX:
                return
            of_queue = self.of_queues[queue] = Counter()
        of_queue[state] += number

    def add(self, other: "Amounts") -> None:
        """What another has counted elsewhere."""
        for queue, counts in other.of_queues.items():
            for state, number in counts.items():
                self.count(state, queue, number)
                self.messages[state] -= number
        for state, number in other.messages.items():
            self.messages[state] += number
        self.foreign += other.foreign
        self.foreign_name = self.foreign_name or other.foreign_name
        self.hidden += other.hidden
        self.lost += other.lost
