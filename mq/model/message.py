"""A message's facts: what its publisher says of it, what its mtime says, what a fetch hands out."""

from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Final, Self

from mq.model.headers import Headers
from mq.model.limits import REASON_MAX, RECEIVES_MAX, RETURNED_MAX
from mq.model.names import Key, MessageId, QueueName

_NS_PER_MS: Final = 1_000_000
_NS_PER_RECEIVE: Final = 1_000


class Reason(IntEnum):
    """Why a message was sidelined; the value stands in its mtime. One that is not known here is
    UNKNOWN.
    """

    UNKNOWN = 0
    REJECTED = 1
    """Its consumer does not want it."""
    EXCEPTION = 2
    """Its consumer failed over it."""
    RECEIVES = 3
    """It was received as often as its queue allows, and not removed."""
    SWEPT = 4
    """It was due for long, and could not be brought back to its queue."""
    UNREADABLE = 5
    """Its file cannot be what was published."""
    EXPIRED = 6
    """It has lived longer than its queue's messages may."""

    @classmethod
    def _missing_(cls, value: object) -> "Reason":
        return cls.UNKNOWN


class GivenBack(Enum):
    """What a new due time says of a delivery beside."""

    NO = "it goes on, or there is none"
    YES = "it ends"
    UNHANDLED = "it ends, and no program had the message"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What mtime carries: due time in whole milliseconds since the epoch, receives in the
    microseconds (0 to 999, saturating). The nanoseconds have a reason (0 to 9) or, of a message
    without one, 9 and how many of the deliveries were returned unhandled (1 to 40).
    """

    due_ms: int
    receives: int = 0
    reason: int = 0
    returned: int = 0

    @classmethod
    def from_mtime_ns(cls, mtime_ns: int) -> Self:
        """Reads an mtime in nanoseconds. Nanoseconds over 49, or that say more returned deliveries
        than receives, mean that mq did not set it.
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
        """The mtime, in nanoseconds since the epoch, that says this."""
        rest = REASON_MAX + self.returned if self.returned else self.reason
        return self.due_ms * _NS_PER_MS + self.receives * _NS_PER_RECEIVE + rest

    @property
    def attempts(self) -> int:
        """The deliveries that count: the receives without those that were returned unhandled."""
        return self.receives - self.returned

    def received(self, due_ms: int) -> "Stamp":
        """The stamp of one delivery more, due at `due_ms`."""
        return replace(self, due_ms=due_ms, receives=min(self.receives + 1, RECEIVES_MAX))

    def can_return(self, now_ms: int) -> bool:
        """Whether a delivery that is given back unhandled now is no attempt. It is one where it has
        lapsed, where the count of returned ones is full, and where a reason stands in its place.
        """
        is_full = self.returned >= min(RETURNED_MAX, self.receives)
        return now_ms < self.due_ms and not self.reason and not is_full

    def given_back(self, due_ms: int, is_returned: bool) -> "Stamp":
        """The stamp of a delivery that ends, due at `due_ms`; `is_returned`: it is no attempt."""
        return replace(self, due_ms=due_ms, returned=self.returned + is_returned)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What whoever publishes says of a message, beside its body. None: as the queue's settings
    have it. `due_ms`: when it is to be ready, milliseconds since the epoch; None: at once.
    `headers`: what its name cannot say. `idempotency`: publishes of one are one publish.
    """

    extension: str = ""
    priority: int | None = None
    key: Key | None = None
    visibility_s: int | None = None
    due_ms: int | None = None
    headers: Headers = ()
    idempotency: Key | None = None


PLAIN: Final = Envelope()


@dataclass(frozen=True, slots=True)
class Held:
    """What a message's file has, held in memory. `hand`: what counts it, see Delivery."""

    headers: Headers
    body: bytes
    head_bytes: int
    """Of the header block."""
    hand: object | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a fetch won: durable in delay/ until `stamp.due_ms`.

    `size` counts the body's bytes. Exactly one of `body` (held) and `descriptor` (open for
    reading from `offset`; whoever has the delivery closes it) is there.
    """

    queue: QueueName
    id: MessageId
    stamp: Stamp
    size: int
    offset: int
    body: bytes | None
    descriptor: int | None
    bucket: str = ""
    """Where below delay/ it lies."""
    headers: Headers = ()
    """Those of its header block."""
    hand: object | None = None
    """What counts the body as held in memory, for as long as anybody has a reference to it: until
    the body's bytes have left the process.
    """
