"""What an auditor may find in a root that FORMAT.md does not allow."""

from dataclasses import dataclass, field
from enum import Enum

from mq.lifecycle import State


class Breach(Enum):
    """What a root must not have; the value says it in words."""

    FORMAT = "the format file is missing or names another format"
    FOLDER = "a folder of the root is missing"
    SYMLINK = "a symbolic link"
    MODE = "a mode that is not mq's"
    TWO_STATES = "one message in two states"
    LINKED = "a second name outside the message's places"
    MTIME = "an mtime that mq did not set"
    SHORT = "a file shorter than its header block"
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


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach, where it is, and the fact that shows it."""

    breach: Breach
    path: str
    detail: str = ""


@dataclass(slots=True)
class Audit:
    """What was found: every violation, how many messages are in each state, and how many names
    are no message's (`foreign_name` is one of them). `hidden` counts dotfiles: probes that a
    crash left, what NFS keeps for files that are open.
    """

    violations: list[Violation] = field(default_factory=list)
    messages: dict[State, int] = field(default_factory=dict)
    foreign: int = 0
    foreign_name: str = ""
    hidden: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is broken; foreign names and dotfiles break nothing."""
        return not self.violations
