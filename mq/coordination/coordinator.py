"""Coordinators: one member leads, and assigns the queues to all members.

An assignment is a hint that saves work. Renames decide, so nothing takes effect twice when two
members work on one queue, or when a stopped member wakes up late. Coordinators block, and are for
one thread; any thread may call `has`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

from mq.model.names import QueueName


@dataclass(frozen=True, slots=True)
class View:
    """What a member knows: the leader, the members, and the assignment. A queue without a member is
    the leader's.
    """

    leader: str | None = None
    members: tuple[str, ...] = ()
    assigned: Mapping[str, str] = field(default_factory=dict)
    """Members by the names of queues."""
    is_connected: bool = True
    """Whether this is current. A member that is not connected has no queues."""


class Coordinator(Protocol):
    kind: str
    """The coordinator's kind, as in `--coordinator` and `/-/members`: file, zookeeper, or alone."""
    member: str
    """The member's own name, which no other process has."""

    def start(self) -> None:
        """Joins. Returns at once; `has` is false until the member has joined. Raises StartupError
        if it can never join.
        """

    def run_once(self, queues: Collection[QueueName]) -> None:
        """Renews the member's presence if due, and stands for leader. The leader assigns these
        queues if due, or if members have changed. Never raises for a failure that may pass.
        """

    def has(self, queue: QueueName) -> bool:
        """Whether this member keeps up the queue now. False as soon as the connection, or the
        member's lease, is lost.
        """

    def next_due_s(self) -> float:
        """Seconds until `run_once` has something to do."""

    def view(self) -> View:
        """What this member knows. Makes no call."""

    def stop(self) -> None:
        """Leaves, so that the others need not wait until the member counts as gone."""


class Alone:
    """The coordinator of a single member: every queue is its own."""

    kind = "alone"

    def __init__(self, member: str) -> None:
        self.member = member

    def start(self) -> None: ...

    def run_once(self, queues: Collection[QueueName]) -> None: ...

    def has(self, queue: QueueName) -> bool:
        return True

    def next_due_s(self) -> float:
        return float("inf")

    def view(self) -> View:
        return View(self.member, (self.member,))

    def stop(self) -> None: ...


# The intervals of the leader's assignments, of a member's checks for a new assignment, and of the
# renewals of its presence. A member that could not renew its presence gives up its queues before
# the others count it as gone, and the others have its queues within two assignments.
ASSIGN_EVERY_S: Final = 30.0
MEMBER_LOOKS_EVERY_S: Final = ASSIGN_EVERY_S / 30
MEMBER_RENEWED_EVERY_S: Final = ASSIGN_EVERY_S / 3
MEMBER_BELIEVES_S: Final = ASSIGN_EVERY_S
MEMBER_GONE_S: Final = 1.5 * ASSIGN_EVERY_S


@dataclass(frozen=True, slots=True)
class Pacing:
    """Intervals in seconds. All members of a root must have the same pacing: otherwise a quick
    member takes a slow one for gone.
    """

    assign_s: float = ASSIGN_EVERY_S
    """Between two assignments by the leader."""
    look_s: float = MEMBER_LOOKS_EVERY_S
    """Between two checks of the members and the assignment."""
    renew_s: float = MEMBER_RENEWED_EVERY_S
    """Between two renewals of a member's presence."""
    believe_s: float = MEMBER_BELIEVES_S
    """How long after a renewal a member keeps its queues."""
    gone_s: float = MEMBER_GONE_S
    """How long after its last renewal a member is gone for the others."""

    @classmethod
    def of(cls, assign_s: float) -> Self:
        """The pacing with `assign_s` between two assignments, and all else in proportion."""
        scale = assign_s / ASSIGN_EVERY_S
        return cls(
            assign_s,
            MEMBER_LOOKS_EVERY_S * scale,
            MEMBER_RENEWED_EVERY_S * scale,
            MEMBER_BELIEVES_S * scale,
            MEMBER_GONE_S * scale,
        )
