"""What a coordinator is: one member leads, and deals out the queues to all of them.

What it says is a hint that saves work: renames decide, so that with two members at one queue, as
with one that was stopped and wakes up late, nothing takes effect twice. Blocking, for one thread,
but for `has`, which any thread may ask.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mq.model.names import QueueName


@dataclass(frozen=True, slots=True)
class View:
    """What a member knows of all: who leads, who is there, and which queues are whose. A queue that
    is assigned to nobody is the leader's.
    """

    leader: str | None = None
    members: tuple[str, ...] = ()
    assigned: Mapping[str, str] = field(default_factory=dict)
    """Members by the names of queues."""
    is_connected: bool = True
    """Whether the member knows this by now: one that does not has no queue."""


class Coordinator(Protocol):
    """One member's part in it."""

    kind: str
    """As `--coordinator` has it, and `/-/members` shows: file, zookeeper, or alone."""
    member: str
    """The member's own name, which no other process has."""

    def start(self) -> None:
        """Joins. Returns at once also where nobody can be reached: then `has` is false until then.
        Raises StartupError for what can never be joined.
        """

    def run_once(self, queues: Collection[QueueName]) -> None:
        """Says that the member is there, where that is due; stands for leader; and, as the leader,
        deals these queues out where that is due or members have changed. Never raises for what may
        pass.
        """

    def has(self, queue: QueueName) -> bool:
        """Whether the queue's upkeep is this member's in this moment. False at once when the
        connection, or the member's lease, is lost.
        """

    def next_due_s(self) -> float:
        """Seconds until `run_once` has something to do."""

    def view(self) -> View:
        """What is known. Asks nobody."""

    def stop(self) -> None:
        """Leaves, so that others need not wait until the member is gone."""
