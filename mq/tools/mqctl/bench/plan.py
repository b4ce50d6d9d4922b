"""What a bench is to do. Pure."""

from dataclasses import dataclass
from typing import Final

from mq.tools.mqctl.bench.limits import BATCH_BYTES_MAX, MARK_BYTES

QUEUE_BEGINS: Final = "mqctl-bench-"
"""How the names of queues begin that benches make for themselves."""
ATTRIBUTE: Final = "x-attribute-bench"
"""A header of what is published into a queue of others, so that it alone is fetched."""


class NoPlan(Exception):
    """What was asked for cannot be done together; the text says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`messages` or `seconds`: how much is published, or for how long; then that is fetched and
    deleted. `rate_per_s`: of messages, None: as fast as mq takes them. `run`: what marks the
    messages of this bench. `queue` None: one of its own. `among_others`: also where the queue holds
    messages.
    """

    run: str
    queue: str | None
    messages: int | None
    seconds: float | None
    connections: int
    size_bytes: int
    batch: int
    is_idempotent: bool
    rate_per_s: float | None
    warm_up_s: float
    among_others: bool

    @property
    def name(self) -> str:
        """The queue that is used."""
        return self.queue or f"{QUEUE_BEGINS}{self.run}"

    @property
    def turns_per_s(self) -> float | None:
        """Requests a second, where a rate was said."""
        return None if self.rate_per_s is None else self.rate_per_s / self.batch

    @property
    def mark(self) -> bytes:
        """What the body of each message begins with."""
        return f"mqbench {self.run} ".encode().ljust(MARK_BYTES)

    def body(self) -> bytes:
        """A message's body."""
        return self.mark + b"x" * (self.size_bytes - MARK_BYTES)

    def check(self) -> None:
        """Raises NoPlan."""
        if (self.messages is None) == (self.seconds is None):
            raise NoPlan("--messages and --seconds: say one of them.")
        if self.size_bytes < MARK_BYTES:
            raise NoPlan(f"--size is {MARK_BYTES} bytes or more: messages are marked.")
        if self.batch > 1 and self.is_idempotent:
            raise NoPlan("--batch and --idempotent: a request of many has no idempotency key.")
        if self.batch > 1 and self.batch * (self.size_bytes + 1) > BATCH_BYTES_MAX:
            raise NoPlan(f"--batch times --size is over {BATCH_BYTES_MAX:,} bytes.")
        if self.among_others and self.queue is None:
            raise NoPlan("--among-others is about a queue: say --queue.")
