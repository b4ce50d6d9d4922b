"""One error root; subclasses carry facts. Only `mq/protocol/problems.py` maps errors to statuses.

An error's text is for logs; clients see only the facts that its class names. An `expected` follows
"must be" in a sentence.
"""

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from mq.model.limits import BODY_BYTES_PER_S_MIN

_CALLED: Final[Mapping[str, str]] = {
    "queue": "queue name",
    "schedule": "schedule name",
    "consumer": "consumer name",
    "id": "message id",
}
_COMPARED_CHARS: Final = 64
_NO_QUERY: Final[Mapping[str, str]] = {
    "headers": "message headers",
    "idempotency-key": "header Idempotency-Key",
}


def nearest(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The known words nearest to a misspelt one, the nearest first."""
    words = {each.casefold(): each for each in known}
    found = get_close_matches(word[:_COMPARED_CHARS].casefold(), words, count)
    return [words[each] for each in found]


def suggestion(word: str, known: Iterable[str]) -> str:
    """The nearest known word as the end of a sentence, ` (did you mean wait?)`; "" if there is
    none.
    """
    return "".join(f" (did you mean {each}?)" for each in nearest(word, known))


class MqError(Exception):
    """The root of all errors that mq raises on purpose."""


@dataclass(eq=False)
class BadName(MqError):
    """A malformed queue name, id, key or the like; `noun`: its word in a sentence."""

    parameter: str
    expected: str
    noun: str = field(init=False)

    def __post_init__(self) -> None:
        self.noun = _CALLED.get(self.parameter, self.parameter)


@dataclass(eq=False)
class UnknownParameter(MqError):
    """A query parameter that the request does not have; `known`: its parameters."""

    parameter: str
    known: Iterable[str] = ()
    hint: str = field(init=False)
    takes: str = field(init=False)

    def __post_init__(self) -> None:
        self.hint = suggestion(self.parameter, self.known)
        self.takes = ", ".join(sorted(self.known)) or "none"


@dataclass(eq=False)
class UnknownField(UnknownParameter):
    """A field that a row of a batch does not have; `known`: its fields."""


@dataclass(eq=False)
class BadParameter(MqError):
    """A query parameter or header with an invalid value."""

    parameter: str
    expected: str
    noun: str = field(init=False)

    def __post_init__(self) -> None:
        self.noun = _NO_QUERY.get(self.parameter, f"parameter {self.parameter}")


@dataclass(eq=False)
class HeadersTooLarge(MqError):
    """A request's head, or the headers that a message keeps, exceed a limit. `each_max`: the most
    bytes of one header of a head.
    """

    headers_max: int
    bytes_max: int
    each_max: int | None = None
    parameter: str = "headers"
    limits: str = field(init=False)

    def __post_init__(self) -> None:
        most = f"at most {self.bytes_max} bytes"
        if self.each_max is None:
            self.limits = f"a message keeps {most} of headers, and at most {self.headers_max}"
        else:
            of_each = f"{self.headers_max} headers of {self.each_max} bytes"
            self.limits = f"a request's head has {most}, with at most {of_each}"


class DueTooFar(MqError):
    """A due time that the root's file system cannot store."""


@dataclass(eq=False)
class QueueNotFound(MqError):
    """The queue does not exist."""

    queue: str

    def __str__(self) -> str:
        return f"there is no queue {self.queue}"


@dataclass(eq=False)
class NameTaken(MqError):
    """A file that is not a folder has the queue's name."""

    queue: str


@dataclass(eq=False)
class ShapeFixed(MqError):
    """The queue has another `bucket` or `shards`; neither can be changed."""

    queue: str


@dataclass(eq=False)
class UnknownSetting(MqError):
    """A setting that queues do not have; `known`: the settings of queues."""

    parameter: str
    known: Iterable[str] = ()
    hint: str = field(init=False)

    def __post_init__(self) -> None:
        self.hint = suggestion(self.parameter, self.known)


@dataclass(eq=False)
class BadSetting(MqError):
    """A setting with an invalid value."""

    parameter: str
    expected: str


class SettingsChanged(MqError):
    """The settings changed since the version that If-Match names."""


@dataclass(eq=False)
class MessageNotFound(MqError):
    """The message was in none of its places, in two passes."""

    id: str


@dataclass(eq=False)
class DeliveredAgain(MqError):
    """The message was delivered again since the delivery that If-Match names."""

    receives: int


@dataclass(eq=False)
class RangeUnsatisfiable(MqError):
    """A byte range that begins behind the end of a body of `size` bytes."""

    size: int


class BadPrecondition(MqError):
    """An If-Match that is neither `*` nor a list of entity tags."""


@dataclass(eq=False)
class BodyTooLarge(MqError):
    """A body over the limit."""

    bytes_max: int


class BodyUnreadable(MqError):
    """A body that ended early, or that breaks its transfer coding."""


@dataclass(eq=False)
class BodyTooSlow(MqError):
    """The body came to a halt for `idle_s`, or came at fewer than `bytes_per_s`."""

    idle_s: float
    bytes_per_s: int = BODY_BYTES_PER_S_MIN


class ExpectationUnknown(MqError):
    """An Expect header other than 100-continue."""


class Unavailable(MqError):
    """The operation is not guaranteed to be stored; a later retry may succeed."""

    slug = "unavailable"


class NoSpace(Unavailable):
    """No bytes left, or only the reserve."""

    slug = "no-space"


class NoInodes(Unavailable):
    """No inodes left, or only the reserve."""

    slug = "no-inodes"


class QuotaExceeded(Unavailable):
    """The user's quota on the file system is used up."""

    slug = "quota-exceeded"


class NoDescriptors(Unavailable):
    """The process, or the machine, has no file descriptor left."""

    slug = "no-descriptors"


class NoMemory(Unavailable):
    """The memory budget has no room for a body that must be held as a whole."""

    slug = "no-memory"


class ReadOnly(Unavailable):
    """The root, or a folder in it, is not writable."""

    slug = "read-only"


class RootAway(Unavailable):
    """The root is not at its path: its mount is gone, or another root is there."""

    slug = "root-away"


@dataclass(eq=False)
class KeyTaken(MqError):
    """A living message, `id`, has the key."""

    key: str
    id: str


@dataclass(eq=False)
class NotPacked(MqError):
    """The queue stores no packs, and these messages are one by their Idempotency-Key."""

    queue: str


@dataclass(eq=False)
class PublishDiffers(MqError):
    """The earlier publish of this Idempotency-Key was of another number of messages."""

    earlier: int
    messages: int


@dataclass(eq=False)
class KeyNotFound(MqError):
    """No message has the key."""

    key: str


@dataclass(eq=False)
class BatchTooLarge(MqError):
    """More messages or bytes than one request may have."""

    messages_max: int
    bytes_max: int


@dataclass(eq=False)
class BadBody(MqError):
    """A request's body that is not JSON of the expected form."""

    expected: str


class MediaTypeUnknown(MqError):
    """A Content-Type other than JSON where JSON is expected."""


class StorageFailed(Unavailable):
    """The storage failed: an fsync's error, an I/O error, a folder of the root that is gone."""

    slug = "storage-failed"


class SettingsUnreadable(Unavailable):
    """A queue's settings file is damaged, or of a newer mq."""

    slug = "settings-unreadable"


class StagedFileGone(Unavailable):
    """The staged file is gone: the publish took so long that its file in new/ was swept as
    abandoned, or its job was abandoned.
    """

    slug = "publish-forgotten"


@dataclass(eq=False)
class PublishPurged(Unavailable):
    """The queue was purged since the message got its id, up to `before_ms` (since the epoch)."""

    before_ms: int
    slug = "publish-purged"


class Busy(Unavailable):
    """Another process locked or moved the message at each attempt."""

    slug = "message-busy"


class GroupHeld(Unavailable):
    """Another message of its group goes first: `head`, by its id's text."""

    def __init__(self, head: str) -> None:
        super().__init__(f"the message {head} of its group goes first")
        self.head = head


class SidelineMissing(Unavailable):
    """The queue's sideline is missing, and cannot be made; the cause says why."""


class SidelinePurged(Unavailable):
    """The sideline's purge mark is later than the message's publish: the message would be purged
    there.
    """

    slug = "sideline-purged"


@dataclass(eq=False)
class AlreadySideline(MqError):
    """A sideline has no sideline of its own."""

    queue: str


@dataclass(eq=False)
class ScheduleNotFound(MqError):
    """The queue has no such schedule."""

    schedule: str


class ScheduleUnreadable(Unavailable):
    """A schedule's file is damaged, or of a newer mq."""

    slug = "schedule-unreadable"


@dataclass(eq=False)
class TooManySchedules(MqError):
    """The queue is at its limit of schedules."""

    schedules_max: int


@dataclass(eq=False)
class ConsumerNotFound(MqError):
    """No consumer of the queue has this id, or it has ended."""

    consumer: str


@dataclass(eq=False)
class ConsumerEnded(MqError):
    """A consumer was ended by request."""

    queue: str


@dataclass(eq=False)
class TooManySelections(MqError):
    """The queue's consumers are at the limit of selections in use."""

    selections_max: int


@dataclass(eq=False)
class MessageLeased(MqError):
    """The message is in a lease; until that ends it can only be read and deleted."""

    lease: str


class StaysAsItIs(MqError):
    """An audit's finding that no program may repair, or not now; the text says why."""


@dataclass(eq=False)
class LeaseLost(MqError):
    """The lease has expired and its messages are back in their queues, or it was ended."""

    lease: str

    def __str__(self) -> str:
        return (
            f"mq: lease {self.lease} is over: it was ended, or it expired and its messages are "
            "delivered again"
        )


@dataclass(eq=False)
class ConsumerBusy(MqError):
    """Another query uses the consumer's name."""

    consumer: str

    def __str__(self) -> str:
        return f"mq: another query uses the consumer name {self.consumer}; give each query its own"


@dataclass(eq=False)
class TooManyLeases(MqError):
    """The root is at its limit of open leases."""

    open: int

    def __str__(self) -> str:
        return f"mq: {self.open} leases are open on this root, which is the limit; end one first"


class StartupError(MqError):
    """The daemon cannot start as configured; the text tells the operator why."""


@dataclass(eq=False)
class AcrossFileSystems(StartupError):
    """Two folders are on different file systems, but renames must be possible between them."""

    source: Path
    destination: Path

    def __str__(self) -> str:
        return (
            f"{self.source} and {self.destination} are on different file systems, and messages "
            "move by rename; put both on one"
        )


_UNAVAILABLE: Final[dict[int, type[Unavailable]]] = {
    errno.ENOSPC: NoSpace,
    errno.EDQUOT: QuotaExceeded,
    errno.EMFILE: NoDescriptors,
    errno.ENFILE: NoDescriptors,
    errno.EROFS: ReadOnly,
    errno.EACCES: ReadOnly,
    errno.EPERM: ReadOnly,
}


def unavailable(error: OSError) -> Unavailable:
    """The error that clients get for an operating system's error."""
    return _UNAVAILABLE.get(error.errno or 0, StorageFailed)(str(error))


# Errors of archives.


@dataclass(eq=False)
class ArchivedElsewhere(MqError):
    """The root is archived to another folder, `to`; a root has one archive."""

    to: str

    def __str__(self) -> str:
        return (
            f"mq: this root is archived to {self.to} already; continue there, or end that archive"
        )


class ArchiveBusy(MqError):
    """Another process archives the root."""

    def __str__(self) -> str:
        return "mq: another process archives this root; wait until it ends"


class ArchiveNotEnabled(MqError):
    """No archive is enabled for the root."""

    def __str__(self) -> str:
        return "mq: this root has no enabled archive"


@dataclass(eq=False)
class ArchiveUnreadable(MqError):
    """A file of the root's archive/ is damaged, or of a newer mq; no program may repair it."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"mq: {self.path} cannot be read as an archive file ({self.why})"


# A daemon's limits: connections, waiters, queues, slow heads.


@dataclass(eq=False)
class HeadTooSlow(MqError):
    """A request's head did not end within `head_s`."""

    head_s: float


@dataclass(eq=False)
class TooManyConnections(Unavailable):
    """The process is at its limit of connections, and none of them is idle."""

    connections_max: int
    slug = "too-many-connections"


@dataclass(eq=False)
class TooManyWaiters(Unavailable):
    """The process is at its limit of waiting consumers."""

    waiters_max: int
    slug = "too-many-waiters"


@dataclass(eq=False)
class TooManyQueues(MqError):
    """The root is at its limit of queues."""

    queues_max: int


# Expiry and shovels.


@dataclass(eq=False)
class QueueExpired(MqError):
    """The queue expired at `expired_at` (RFC 3339): it takes and delivers no messages until
    `expires_at` is changed or the queue is deleted.
    """

    queue: str
    expired_at: str


@dataclass(eq=False)
class QueuePaused(MqError):
    """The queue takes no publishes until its setting `paused` allows them."""

    queue: str


@dataclass(eq=False)
class QueueFull(MqError):
    """The queue holds as many messages, or bytes, as its settings allow."""

    queue: str
    messages_max: int
    bytes_max: int


@dataclass(eq=False)
class DeliveriesPaused(MqError):
    """The queue delivers no messages until its setting `paused` allows it, so a drain cannot
    finish.
    """

    queue: str
    setting: str = "paused"
    allows: str = "none"

    def __str__(self) -> str:
        return (
            f"the setting {self.setting} of the queue {self.queue} holds its messages back, so "
            f"they are not drained; set it to {self.allows} and drain again"
        )


@dataclass(eq=False)
class ShovelRunning(MqError):
    """The queue's shovel already runs, for a request or by its schedule; `id`: the run's id, "" if
    not known yet.
    """

    queue: str
    id: str


@dataclass(eq=False)
class ShovelNotFound(MqError):
    """The queue's shovel has never run and is not scheduled."""

    queue: str


@dataclass(eq=False)
class TooManyShovels(Unavailable):
    """The process is at its limit of running shovels."""

    shovels_max: int
    slug = "too-many-shovels"


class MessageUnreadable(MqError):
    """A message's file is damaged: the fetch moved it to the sideline, and goes on to the next
    message. Clients do not see it.
    """


@dataclass(eq=False)
class BadFrame(MqError):
    """A malformed command of a WebSocket; `ref` is the client's name for it."""

    expected: str
    ref: str | int | None = None
    is_json: bool = True


class NoWebSocket(MqError):
    """A request without a WebSocket handshake where only that is served."""


class ForeignOrigin(MqError):
    """A web page of another origin asks for a change or a WebSocket."""


@dataclass(eq=False)
class AlreadySubscribed(MqError):
    """The WebSocket has a subscription of the queue."""

    queue: str


@dataclass(eq=False)
class NotSubscribed(MqError):
    """The WebSocket has no subscription of the queue."""

    queue: str


@dataclass(eq=False)
class TooManySubscriptions(MqError):
    """The WebSocket is at its limit of subscriptions."""

    subscriptions_max: int


@dataclass(eq=False)
class TooMuchCredit(MqError):
    """More credit and held messages together than a WebSocket may have."""

    credit_max: int
