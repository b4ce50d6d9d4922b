"""What stands in the way where a daemon has as many of something as it may, or hears too slowly.

Floor 0. `mq/interface/problems.py` maps them to statuses.
"""

from dataclasses import dataclass

from mq.errors import MqError, Unavailable


@dataclass(eq=False)
class HeadTooSlow(MqError):
    """A request's head that began, and did not end for this long."""

    head_s: float


@dataclass(eq=False)
class TooManyConnections(Unavailable):
    """The process has so many connections, none of which is idle."""

    connections_max: int
    slug = "too-many-connections"


@dataclass(eq=False)
class TooManyWaiters(Unavailable):
    """So many consumers wait in the process that there may be no other."""

    waiters_max: int
    slug = "too-many-waiters"


@dataclass(eq=False)
class TooManyQueues(MqError):
    """There are so many queues that there may be no other."""

    queues_max: int
