"""One error root; subclasses carry facts. `mq/protocol/problems.py` alone maps them to statuses.

An error's text is for logs; clients see only the facts that its class names.
"""

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mq.model.limits import BODY_BYTES_PER_S_MIN


class MqError(Exception):
    """The root of all that mq raises on purpose."""


@dataclass(eq=False)
class BadName(MqError):
    """A queue name, id or key that no parser makes."""

    parameter: str
    expected: str


@dataclass(eq=False)
class UnknownParameter(MqError):
    """A query parameter that the request does not have."""

    parameter: str


@dataclass(eq=False)
class BadParameter(MqError):
    """A query parameter whose value is none that it can have."""

    parameter: str
    expected: str


@dataclass(eq=False)
class HeadersTooLarge(MqError):
    """More headers to keep, or more bytes of them, than a message has room for."""

    headers_max: int
    bytes_max: int
    parameter: str = "headers"


class DueTooFar(MqError):
    """A due time that the root's file system cannot keep."""


@dataclass(eq=False)
class QueueNotFound(MqError):
    """The queue's folder is not there."""

    queue: str


@dataclass(eq=False)
class NameTaken(MqError):
    """Something that is no folder has the queue's name."""

    queue: str


@dataclass(eq=False)
class ShapeFixed(MqError):
    """The queue was made with other buckets or shards, which stay for its life."""

    queue: str


@dataclass(eq=False)
class UnknownSetting(MqError):
    """A queue has no such setting."""

    parameter: str


@dataclass(eq=False)
class BadSetting(MqError):
    """A value that a setting cannot have."""

    parameter: str
    expected: str


class SettingsChanged(MqError):
    """If-Match named other settings than the queue has now."""


@dataclass(eq=False)
class MessageNotFound(MqError):
    """Two passes over every place of the message found nothing."""

    id: str


@dataclass(eq=False)
class DeliveredAgain(MqError):
    """If-Match named an earlier delivery than the message's last one."""

    receives: int


@dataclass(eq=False)
class RangeUnsatisfiable(MqError):
    """A range of bytes that begins behind the end of a body of so many."""

    size: int


class BadPrecondition(MqError):
    """An If-Match that is neither `*` nor entity tags of receives."""


@dataclass(eq=False)
class BodyTooLarge(MqError):
    """A body over the limit."""

    bytes_max: int


class BodyUnreadable(MqError):
    """A body cut short, or broken in its transfer coding."""


@dataclass(eq=False)
class BodyTooSlow(MqError):
    """No byte of the body came for this long, or fewer of them than are asked for a second."""

    idle_s: float
    bytes_per_s: int = BODY_BYTES_PER_S_MIN


class ExpectationUnknown(MqError):
    """An Expect header other than 100-continue."""


class Unavailable(MqError):
    """The operation cannot be guaranteed as stored now; trying again later may do."""

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
    """The process has in hand as many bytes of bodies as it may, and must hold these at once."""

    slug = "no-memory"


class ReadOnly(Unavailable):
    """The root, or a folder of it, cannot be written."""

    slug = "read-only"


@dataclass(eq=False)
class KeyTaken(MqError):
    """A living message, `id`, has the key."""

    key: str
    id: str


@dataclass(eq=False)
class KeyNotFound(MqError):
    """No message has the key."""

    key: str


@dataclass(eq=False)
class BatchTooLarge(MqError):
    """More than one request may carry."""

    messages_max: int
    bytes_max: int


@dataclass(eq=False)
class BadBody(MqError):
    """A request's body that is no JSON of the form that is asked for; what it should be."""

    expected: str


class MediaTypeUnknown(MqError):
    """A Content-Type other than JSON's, where JSON is asked for."""


class StorageFailed(Unavailable):
    """The storage failed: an fsync's error, an I/O error, a folder of the root that is gone."""

    slug = "storage-failed"


class SettingsUnreadable(Unavailable):
    """A queue's settings file says nothing that this mq understands."""

    slug = "settings-unreadable"


class StagedFileGone(Unavailable):
    """What was staged is gone: the publish took so long that its file in new/ was taken for
    forgotten, or its job was given up.
    """

    slug = "publish-forgotten"


@dataclass(eq=False)
class PublishPurged(Unavailable):
    """The queue was purged since the message got its id, up to `before_ms` (since the epoch)."""

    before_ms: int
    slug = "publish-purged"


class Busy(Unavailable):
    """Another process was at the message each time this one looked, or it moved between looks."""

    slug = "message-busy"


class SidelineMissing(Unavailable):
    """The queue's sideline is not made yet, or was deleted meanwhile."""


class SidelinePurged(Unavailable):
    """The sideline was purged, up to a time after the message's publish, and remembers that still:
    the message would go with what was purged.
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
    """A schedule's file says nothing that this mq understands."""

    slug = "schedule-unreadable"


@dataclass(eq=False)
class TooManySchedules(MqError):
    """The queue has so many schedules that there may be no other."""

    schedules_max: int


@dataclass(eq=False)
class TooManySelections(MqError):
    """The queue's consumers have so many selections at this moment that there may be no other."""

    selections_max: int


@dataclass(eq=False)
class MessageLeased(MqError):
    """The message is in a lease; until that ends it can be read and deleted, and no more."""

    lease: str


class StaysAsItIs(MqError):
    """What an audit has found is not to be put right by a program, or not now; the text says why,
    for people.
    """


@dataclass(eq=False)
class LeaseLost(MqError):
    """The lease lapsed, and its messages went back to their queues; or it was ended before."""

    lease: str

    def __str__(self) -> str:
        return (
            f"mq: lease {self.lease} is over: it was ended, or lapsed and its messages come again"
        )


@dataclass(eq=False)
class ConsumerBusy(MqError):
    """Another query uses the consumer's name."""

    consumer: str

    def __str__(self) -> str:
        return f"mq: another query uses the consumer's name {self.consumer}; each needs its own"


@dataclass(eq=False)
class TooManyLeases(MqError):
    """So many leases of the root are open that there may be no other."""

    open: int

    def __str__(self) -> str:
        return f"mq: {self.open} leases of the root are open, and no more may be"


class StartupError(MqError):
    """The daemon cannot run as it is told; the text says why, for the operator."""


@dataclass(eq=False)
class AcrossFileSystems(StartupError):
    """Two folders that renames must join lie on different file systems."""

    source: Path
    destination: Path

    def __str__(self) -> str:
        return (
            f"{self.source} and {self.destination} are on different file systems; "
            "messages move by rename, which needs one"
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
    """What an operating system's error means for a client: that it is not stored, and why."""
    return _UNAVAILABLE.get(error.errno or 0, StorageFailed)(str(error))


# Errors of archives.


@dataclass(eq=False)
class ArchivedElsewhere(MqError):
    """The root's archive is in another folder, `to`: a root has one."""

    to: str

    def __str__(self) -> str:
        return f"mq: the root is archived to {self.to}; end that first, or go on with it"


class ArchiveBusy(MqError):
    """Another process archives the root."""

    def __str__(self) -> str:
        return "mq: another process archives this root; one at a time does"


class ArchiveNotEnabled(MqError):
    """The root has no archive that is enabled."""

    def __str__(self) -> str:
        return "mq: no archive is enabled for this root"


@dataclass(eq=False)
class ArchiveUnreadable(MqError):
    """A file of the root's archive/ says nothing that this mq understands; no program decides what
    it should say.
    """

    path: str
    why: str

    def __str__(self) -> str:
        return f"mq: {self.path} cannot be understood ({self.why})"


# A daemon's limits: connections, waiters, queues, slow heads.


@dataclass(eq=False)
class HeadTooSlow(MqError):
    """A request's head that began, and did not end for this long."""

    head_s: float


@dataclass(eq=False)
class TooManyConnections(Unavailable):
    """The process is at its limit of connections, and none is idle."""

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


# Errors of what time does to messages and queues.


@dataclass(eq=False)
class QueueExpired(MqError):
    """The queue's time is over, since `expired_at` (RFC 3339): it takes no messages and gives none,
    until its settings say another time, or it is deleted.
    """

    queue: str
    expired_at: str


@dataclass(eq=False)
class ShovelRunning(MqError):
    """The queue's shovel runs already, for a request or by its schedule; `id`: that run's, "" where
    it has not said so yet.
    """

    queue: str
    id: str


@dataclass(eq=False)
class ShovelNotFound(MqError):
    """The queue's shovel has never run, and is not to."""

    queue: str


@dataclass(eq=False)
class TooManyShovels(Unavailable):
    """The process is at its limit of running shovels."""

    shovels_max: int
    slug = "too-many-shovels"


class MessageUnreadable(MqError):
    """A message's file cannot be what was published: a fetch took it to the sideline. For whoever
    fetches, which goes on to the next; no client sees it.
    """
