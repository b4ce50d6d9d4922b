"""A queue's counts, each with the time that it is of."""

from dataclasses import dataclass
from typing import Final

from mq.model.errors import QueueNotFound
from mq.model.lifecycle import State
from mq.model.limits import SIDELINE_SUFFIX
from mq.model.names import QueueName
from mq.store.core.listing import not_found
from mq.store.disk.files import is_gone
from mq.store.scan.census import Census, Sum


@dataclass(frozen=True, slots=True)
class AsOf:
    """Of when counts are, milliseconds since the epoch: what was done by then is in them."""

    ready_ms: int
    delayed_ms: int
    overdue_ms: int
    leased_ms: int
    removed_ms: int
    sidelined_ms: int


FIGURES: Final = {
    "ready": "ready_ms",
    "delayed": "delayed_ms",
    "in_flight": "delayed_ms",
    "leased": "leased_ms",
    "overdue": "overdue_ms",
    "removed": "removed_ms",
    "sidelined": "sidelined_ms",
    "foreign": "ready_ms",
    "oldest_ready_age_s": "ready_ms",
}
"""Which of these times each figure of a description is of."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages a queue has in each state, and its oldest ready message's publish time;
    purged ones count only as removed.

    `overdue` are those of `delayed` and `in_flight` that a mover should have brought back, and
    `oldest_overdue_ms` is when the one of them was due that has waited longest.
    """

    ready: int
    delayed: int
    in_flight: int
    leased: int
    overdue: int
    removed: int
    sidelined: int
    foreign: int
    oldest_ready_ms: int | None
    oldest_overdue_ms: int | None
    as_of: AsOf


def count(census: Census, queue: QueueName) -> Counts:
    """Counts the queue's files, by listing what has changed of their folders; blocking. A message
    that moves meanwhile may count twice, or not at all. Raises QueueNotFound, OSError.
    """
    ready = _ready(census, queue)
    delayed = census.count(State.DELAYED, queue)
    leased = census.count(State.LEASED, queue)
    removed = census.count(State.REMOVED, queue)
    sidelined, sidelined_ms = _sidelined(census, queue)
    return Counts(
        ready=ready.messages,
        delayed=delayed.messages - delayed.in_flight,
        in_flight=delayed.in_flight,
        leased=leased.messages,
        overdue=delayed.overdue,
        removed=removed.messages,
        sidelined=sidelined,
        foreign=ready.foreign,
        oldest_ready_ms=ready.oldest_ms,
        oldest_overdue_ms=delayed.overdue_since_ms,
        as_of=AsOf(
            ready_ms=ready.as_of_ms,
            delayed_ms=delayed.as_of_ms,
            overdue_ms=min(delayed.as_of_ms, delayed.times_ms),
            leased_ms=leased.as_of_ms,
            removed_ms=removed.as_of_ms,
            sidelined_ms=sidelined_ms,
        ),
    )


def _ready(census: Census, queue: QueueName) -> Sum:
    try:
        return census.count(State.READY, queue)
    except OSError as error:
        if is_gone(error):
            raise not_found(census.root, queue) from None
        raise


def _sidelined(census: Census, queue: QueueName) -> tuple[int, int]:
    """How many are ready in its sideline, none where there is none, and of when that is."""
    now_ms = census.root.now_ms()
    if queue.text.endswith(SIDELINE_SUFFIX):
        return 0, now_ms
    try:
        sidelined = _ready(census, queue.sideline())
    except QueueNotFound:
        return 0, now_ms
    return sidelined.messages, sidelined.as_of_ms
