"""A schedule: a publish that comes again. What it says, how far it is, and what is next: pure.

A firing publishes one message, or is skipped. Of those that were missed nothing is left
but the one that was due, which is fired late.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from mq.model.headers import Headers
from mq.model.names import Key, MessageId
from mq.model.recurrence import Recurrence

Overlap: TypeAlias = Literal["allow", "skip"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What whoever makes one says of it, and of its messages. None: as the queue's settings have
    it, or without a bound.

    `count` is how many messages it publishes; `until_ms` the last moment at which a firing may be
    due; with `overlap` "skip" none is published while its last message still lives.
    """

    recurrence: Recurrence
    count: int | None = None
    until_ms: int | None = None
    overlap: Overlap = "allow"
    priority: int | None = None
    key: Key | None = None
    visibility_s: int | None = None
    extension: str = ""
    headers: Headers = ()
    body: bytes = b""

    def armed(self, now_ms: int) -> "Armed":
        """As it is when it is made."""
        return Armed(self, self._bounded(self.recurrence.first_ms(now_ms), 0))

    def next_ms(self, due_ms: int, now_ms: int, fired: int) -> int | None:
        """The firing after the one of `due_ms` that is later than now; None: it has ended."""
        return self._bounded(self.recurrence.after(due_ms, now_ms), fired)

    def _bounded(self, next_ms: int | None, fired: int) -> int | None:
        if self.count is not None and fired >= self.count:
            return None
        if next_ms is None or (self.until_ms is not None and next_ms > self.until_ms):
            return None
        return next_ms


@dataclass(frozen=True, slots=True)
class Armed:
    """A schedule and how far it is: its next firing (None: it has ended), how many messages it
    published, how many firings it skipped, and the message of the last one that it published.
    """

    schedule: Schedule
    next_ms: int | None
    fired: int = 0
    skipped: int = 0
    last: MessageId | None = None

    def fired_at(self, now_ms: int, message_id: MessageId) -> "Armed":
        """Once the firing that was next has published this message."""
        fired = self.fired + 1
        return replace(self, next_ms=self._after(now_ms, fired), fired=fired, last=message_id)

    def skipped_at(self, now_ms: int) -> "Armed":
        """Once the firing that was next has published nothing."""
        next_ms = self._after(now_ms, self.fired)
        return replace(self, next_ms=next_ms, skipped=self.skipped + 1)

    def _after(self, now_ms: int, fired: int) -> int | None:
        """Raises ValueError for a schedule that has ended."""
        if self.next_ms is None:
            raise ValueError("the schedule has ended")
        return self.schedule.next_ms(self.next_ms, now_ms, fired)
