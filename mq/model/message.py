"""A message's attributes: its envelope, its stamp (mtime), and its delivery."""

import codecs
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Self

from mq.model.headers import Headers
from mq.model.lifecycle import State
from mq.model.limits import REASON_MAX, RECEIVES_MAX
from mq.model.names import Group, Key, MessageId, QueueName
from mq.model.selection import Selection

# Above the reasons, the nanoseconds of mtime count the deliveries that were returned unhandled.
RETURNED_MAX: Final = 40

_NS_PER_MS: Final = 1_000_000
_NS_PER_RECEIVE: Final = 1_000


class Reason(IntEnum):
    """Why a message was sidelined; the value is kept in its mtime. Unknown values read as
    UNKNOWN.
    """

    UNKNOWN = 0
    REJECTED = 1
    """Its consumer rejected it."""
    EXCEPTION = 2
    """Its consumer failed."""
    RECEIVES = 3
    """It reached its queue's `max_receives`."""
    SWEPT = 4
    """It was overdue: redelivery could not return it to its queue."""
    UNREADABLE = 5
    """Its file is not the published one."""
    EXPIRED = 6
    """It is older than its TTL."""
    OVERFLOW = 7
    """It was the oldest of a queue at its limit."""

    @classmethod
    def _missing_(cls, value: object) -> "Reason":
        return cls.UNKNOWN


class GivenBack(Enum):
    """How a new due time affects the current delivery."""

    NO = "it goes on, or there is none"
    YES = "it ends"
    UNHANDLED = "it ends, and no program had the message"


class Stamp(NamedTuple):
    """The content of an mtime: the due time in whole milliseconds since the epoch, and the receives
    in the microseconds (0 to 999, saturating). The nanoseconds hold a reason (0 to 9); of a message
    without one, 9 plus the number of deliveries that were returned unhandled (1 to 40).
    """

    due_ms: int
    receives: int = 0
    reason: int = 0
    returned: int = 0

    @classmethod
    def from_mtime_ns(cls, mtime_ns: int) -> Self:
        """Reads an mtime in nanoseconds. mq did not set it if its nanoseconds are over 49, or count
        more returned deliveries than receives: then only the due time is read.
        """
        due_ms, rest_ns = divmod(mtime_ns, _NS_PER_MS)
        receives, reason = divmod(rest_ns, _NS_PER_RECEIVE)
        if reason <= REASON_MAX:
            return cls(due_ms, receives, reason)
        returned = reason - REASON_MAX
        if returned > min(RETURNED_MAX, receives):
            return cls(due_ms)
        return cls(due_ms, receives, returned=returned)

    def mtime_ns(self) -> int:
        """The stamp as an mtime, in nanoseconds since the epoch."""
        rest = REASON_MAX + self.returned if self.returned else self.reason
        return self.due_ms * _NS_PER_MS + self.receives * _NS_PER_RECEIVE + rest

    @property
    def attempts(self) -> int:
        """The deliveries that count: receives without those that were returned unhandled."""
        return self.receives - self.returned

    def received(self, due_ms: int) -> "Stamp":
        """The stamp after one more delivery, due at `due_ms`."""
        receives = min(self.receives + 1, RECEIVES_MAX)
        return Stamp(due_ms, receives, self.reason, self.returned)

    def renewed(self) -> "Stamp":
        """The stamp of a message without a reason whose deliveries do not count as attempts, but
        for those beyond RETURNED_MAX.
        """
        return self._replace(returned=min(self.receives, RETURNED_MAX))

    def can_return(self, now_ms: int) -> bool:
        """Whether a delivery that is returned unhandled now does not count as an attempt. It does
        count if its visibility timeout ended, if the count of returned deliveries is full, or if
        the stamp holds a reason in its place.
        """
        is_full = self.returned >= min(RETURNED_MAX, self.receives)
        return now_ms < self.due_ms and not self.reason and not is_full

    def given_back(self, due_ms: int, is_returned: bool) -> "Stamp":
        """The stamp after the end of a delivery, due at `due_ms`; `is_returned`: the delivery does
        not count as an attempt.
        """
        return self._replace(due_ms=due_ms, returned=self.returned + is_returned)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A publisher's attributes of a message, beside its body. None means the queue's default.
    `due_ms`: when the message becomes ready, in milliseconds since the epoch; None: at once.
    `headers`: attributes that its name cannot hold, also the name of its `group`. `idempotency`:
    publishes with the same key are one publish.
    """

    extension: str = ""
    priority: int | None = None
    key: Key | None = None
    visibility_s: int | None = None
    due_ms: int | None = None
    headers: Headers = ()
    idempotency: Key | None = None
    ttl_s: int | None = None
    """The message's own time to live, in seconds."""
    group: Group | None = None
    tags: int = 0
    """The number of tags in `headers`."""


PLAIN: Final = Envelope()


class Posted(NamedTuple):
    """A message of a batch whose messages have their own envelopes."""

    envelope: Envelope
    body: bytes


class Held(NamedTuple):
    """The contents of a message's file, held in memory. `reservation`: counts them, see
    Delivery.
    """

    headers: Headers
    body: bytes
    head_bytes: int
    """The header block's headers."""
    reservation: object | None = None


class Delivery(NamedTuple):
    """A message that a fetch claimed, durable in delay/ until `stamp.due_ms`. `failure`: the line
    of its last failure, "" if there is none.

    `size` is the length of the body in bytes. Exactly one of `body` (in memory) and `descriptor`
    (open, to be read from `offset`; the delivery's owner closes it) is set.
    """

    queue: QueueName
    id: MessageId
    stamp: Stamp
    size: int
    offset: int
    body: bytes | None
    descriptor: int | None
    bucket: str = ""
    """Its bucket below delay/."""
    headers: Headers = ()
    """The header block's headers."""
    reservation: object | None = None
    """Counts the body as held in memory for as long as it is referenced: until the body's bytes
    have left the process.
    """
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """`size` bytes of a body, from the byte `first` on."""

    first: int
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """At most `count` messages of these states, in the order of the states. With a single state:
    only those after the id `after`, and only those that match `selection`. With a `tag`: only those
    that have it, by id.
    """

    states: tuple[State, ...]
    count: int
    after: MessageId | None = None
    selection: Selection | None = None
    tag: Key | None = None


def cut(text: bytes) -> bytes:
    """Cuts off an incomplete last character, if the bytes are UTF-8."""
    try:
        _, whole = codecs.utf_8_decode(text, "strict", False)
    except UnicodeDecodeError:
        return text
    return text[:whole]
