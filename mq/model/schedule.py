"""A schedule: a repeated publish, its progress and its next firing. Pure.

A firing publishes one message, or is skipped. Missed firings become one late firing, unless the
schedule has another `misfire`.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from mq.model.headers import GROUPED_BY, Headers, with_own, with_tags
from mq.model.names import Group, Key, MessageId
from mq.model.recurrence import Recurrence

Overlap: TypeAlias = Literal["allow", "skip"]
After: TypeAlias = Literal["due", "done"]
Misfire: TypeAlias = Literal["once", "skip", "all"]
MISFIRE_MS: Final = 60_000
"""A later firing counts as missed, as in Quartz."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule's content and the attributes of its messages. None: the queue's default, or no
    bound.

    `count` is the number of messages to publish, `until_ms` the latest due time of a firing.
    `overlap` "skip" skips a firing while the last message lives. `after` "done" counts the next
    firing from the end of the last message. `misfire` decides about missed firings: "once" fires
    one of them, "skip" none, "all" each.
    """

    recurrence: Recurrence
    count: int | None = None
    until_ms: int | None = None
    overlap: Overlap = "allow"
    after: After = "due"
    misfire: Misfire = "once"
    priority: int | None = None
    key: Key | None = None
    visibility_s: int | None = None
    extension: str = ""
    headers: Headers = ()
    body: bytes = b""
    ttl_s: int | None = None
    group: Group | None = None
    tags: tuple[Key, ...] = ()

    def message_headers(self) -> Headers:
        """The headers that its messages keep, with their group and tags. Raises HeadersTooLarge."""
        headers = self.headers
        if self.group is not None:
            headers = with_own(headers, GROUPED_BY, self.group.text)
        return with_tags(headers, self.tags) if self.tags else headers

    def armed(self, now_ms: int) -> "Armed":
        return Armed(self, self._bounded(self.recurrence.first_ms(now_ms), 0))

    def next_ms(self, due_ms: int, now_ms: int, fired: int) -> int | None:
        """The firing after the one due at `due_ms`; None: the schedule has ended. Later than now,
        unless all missed firings are fired.
        """
        later_than_ms = due_ms if self.misfire == "all" else now_ms
        return self._bounded(self.recurrence.after(due_ms, later_than_ms), fired)

    def is_missed(self, due_ms: int, now_ms: int) -> bool:
        """Whether the firing due at `due_ms` is too late to publish a message."""
        return self.misfire == "skip" and now_ms - due_ms > MISFIRE_MS

    def _bounded(self, next_ms: int | None, fired: int) -> int | None:
        if self.count is not None and fired >= self.count:
            return None
        if next_ms is None or (self.until_ms is not None and next_ms > self.until_ms):
            return None
        return next_ms


@dataclass(frozen=True, slots=True)
class Armed:
    """A schedule and its progress: the next firing (None: it has ended), the numbers of published
    messages and of skipped firings, and the last published message. While it is `waiting` for the
    end of that message, `next_ms` is not a firing, but the time from which movers check whether it
    has ended.
    """

    schedule: Schedule
    next_ms: int | None
    fired: int = 0
    skipped: int = 0
    last: MessageId | None = None
    waiting: bool = False

    def fired_at(self, now_ms: int, message_id: MessageId) -> "Armed":
        """The next state after the due firing published this message."""
        fired = self.fired + 1
        gone_on = replace(self, next_ms=self._after(now_ms, fired), fired=fired, last=message_id)
        if self.next_ms is None or gone_on.next_ms is None or self.schedule.after == "due":
            return gone_on
        # Not the firing's own time: that firing's link says that it was fired.
        return replace(gone_on, next_ms=max(now_ms, self.next_ms + 1), waiting=True)

    def done_at(self, now_ms: int) -> "Armed":
        """The next state after the message that it waited for ended."""
        next_ms = self.schedule.next_ms(now_ms, now_ms, self.fired)
        return replace(self, next_ms=next_ms, waiting=False)

    def skipped_at(self, now_ms: int) -> "Armed":
        """The next state after the due firing was skipped."""
        next_ms = self._after(now_ms, self.fired)
        return replace(self, next_ms=next_ms, skipped=self.skipped + 1)

    def _after(self, now_ms: int, fired: int) -> int | None:
        """Raises ValueError for a schedule that has ended."""
        if self.next_ms is None:
            raise ValueError("the schedule has ended")
        return self.schedule.next_ms(self.next_ms, now_ms, fired)
