"""Errors of what time does to messages and queues: beside `mq.errors`, and in its manner.

Floor 0.
"""

from dataclasses import dataclass

from mq.errors import MqError, Unavailable


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
    """So many shovels run in the process that there may be no other now."""

    shovels_max: int
    slug = "too-many-shovels"


class MessageUnreadable(MqError):
    """A message's file cannot be what was published: a fetch took it to the sideline. For whoever
    fetches, which goes on to the next; no client sees it.
    """
