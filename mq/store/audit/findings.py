"""The values of an audit by fsck or Spark: breaches of FORMAT.md, the checks that find them, and
counts of messages.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

from mq.model.lifecycle import State
from mq.model.names import QueueName
from mq.store.format.layout import Place

# The limit of queues whose messages an audit counts separately.
QUEUES_COUNTED_MAX: Final = 100_000
# The limit of findings that wait for their second check.
SUSPECTS_MAX: Final = 16_384
# The pause between the two checks of a finding, longer than daemons take between two steps.
AGAIN_AFTER_S: Final = 2.0
AGAIN_AFTER_S_MAX: Final = 3600.0
# The tolerated delay of upkeep.
OVERDUE_S_DEFAULT: Final = 60.0


class Breach(Enum):
    """A violation of FORMAT.md; the value is its text."""

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
    MTIMES = "a root whose mtimes are not mq's: a copy lost them"
    SHORT = "a file shorter than its header block"
    UNREADABLE = "a header block that is not text"
    PACK = "a pack that does not hold what its index says"
    ITEM = "a message beside the pack that has it too"
    OVERDUE = "a due message that mq-mover has not returned"
    LAPSED = "a lapsed lease that mq-mover has not returned"
    FORGOTTEN = "an unanswered publish left in new/"
    STRAY = "a message whose queue is not there and was not deleted"
    TOMBSTONE = "a tombstone beside its queue"
    MISPLACED = "a message in a bucket that is not its own"
    SETTINGS = "settings that cannot be understood, or of no queue"
    KEY = "a living message that its key's link does not name"
    ORPHAN = "a key or an entry without its message"
    ENTRY = "a living message that its index does not name"
    PURGED = "a purge's mark of no queue"
    SCHEDULE = "a schedule that cannot be understood, or of no queue"
    PARTED = "a pack that was parted, and whose messages are not at their places"
    JOURNAL = "a bulk publish that is committed, and not at its places"
    ARCHIVE = "a file of the archive that cannot be understood"
    LEFTOVER = "a leftover file that no process needs"


@dataclass(frozen=True, slots=True)
class Violation:
    """A breach, its path, and a detail; for the repair also its queue, its message, and the
    message's other place.
    """

    breach: Breach
    path: str
    detail: str = ""
    queue: QueueName | None = None
    spot: Place | None = None
    other: Place | None = None


Look: TypeAlias = Callable[[], Sequence[Violation]]
"""A check of one object, which can be repeated. Returns the breaches of that moment."""


@dataclass(slots=True)
class Amounts:
    """Counts of messages by state and queue, and of foreign names (`foreign_name` is one of them).
    `hidden` counts dotfiles: probes that a crash left, and open files of NFS.
    """

    messages: dict[State, int] = field(
        default_factory=lambda: {state: 0 for state in State if state is not State.ABSENT}
    )
    of_queues: dict[str, Counter[State]] = field(default_factory=dict)
    """By queue name; queues beyond QUEUES_COUNTED_MAX count only in `messages`."""
    foreign: int = 0
    foreign_name: str = ""
    hidden: int = 0
    lost: int = 0
    """Files that fsck set aside."""
    stamps: int = 0
    """Living messages whose mtime was looked at,"""
    whole_seconds: int = 0
    """and those of them whose mtime is a whole second."""

    def count(self, state: State, queue: str, number: int = 1) -> None:
        """Counts messages."""
        self.messages[state] += number
        of_queue = self.of_queues.get(queue)
        if of_queue is None:
            if len(self.of_queues) >= QUEUES_COUNTED_MAX:
                return
            of_queue = self.of_queues[queue] = Counter()
        of_queue[state] += number

    def as_json(self) -> dict[str, Any]:
        return {
            "messages": {state.value: number for state, number in self.messages.items()},
            "messages_by_queue": {
                name: {state.value: of[state] for state in sorted(of, key=_value)}
                for name, of in sorted(self.of_queues.items())
            },
            "foreign": self.foreign,
            "dotfiles": self.hidden,
            "set_aside": self.lost,
        }

    def table(self) -> Iterator[str]:
        """The table's lines: counts by queue and state, and in all."""
        states = tuple(self.messages)
        rows: list[tuple[str, Iterable[object]]] = [("queue", [each.value for each in states])]
        for name, of in sorted(self.of_queues.items()):
            rows.append((name, [of[each] for each in states]))
        rows.append(("all", self.messages.values()))
        width = max(len(name) for name, _ in rows)
        for name, cells in rows:
            yield "  ".join((name.ljust(width), *(str(cell).rjust(9) for cell in cells)))

    def add(self, other: "Amounts") -> None:
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
        self.stamps += other.stamps
        self.whole_seconds += other.whole_seconds


def printable(text: str) -> str:
    """The text on one line, with invalid bytes and control characters as escapes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def _value(state: State) -> str:
    return state.value
