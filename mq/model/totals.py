"""Totals: counts of a queue's operations since the queue was made. Pure.

`mq/store/FORMAT.md`, "Totals", has the files.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mq.model.history import Event

TOTALS_EVERY_S: Final = 10.0
"""The interval at which a process writes its counts; a crash loses the counts of the last interval.
"""


class Total(StrEnum):
    """A counted event. A message that was sidelined as expired, or to make room, counts twice."""

    PUBLISHED = "published"
    FETCHED = "fetched"
    REDELIVERED = "redelivered"
    """The deliveries among `fetched` that were not the message's first."""
    EXTENDED = "extended"
    RELEASED = "released"
    DELETED = "deleted"
    """Removed by their consumer, or by id, key or tag."""
    PURGED = "purged"
    SIDELINED = "sidelined"
    EXPIRED = "expired"
    DROPPED = "dropped"
    """Removed or sidelined to make room."""
    SHOVELLED = "shovelled"
    """Moved back from the sideline, or from another queue."""


_OF_EVENTS: Final = {
    Event.PUBLISHED: (Total.PUBLISHED,),
    Event.FETCHED: (Total.FETCHED,),
    Event.EXTENDED: (Total.EXTENDED,),
    Event.RELEASED: (Total.RELEASED,),
    Event.SIDELINED: (Total.SIDELINED,),
    Event.SHOVELLED: (Total.SHOVELLED,),
}
_OF_REASONS: Final = {"expired": Total.EXPIRED, "overflow": Total.DROPPED}


def totals_of(event: Event, receives: int | None, why: str) -> tuple[Total, ...]:
    """The totals that an event of a message adds to; `why`: the reason of a sideline. A removal
    adds to none here: the code that knows its cause counts it.
    """
    totals = _OF_EVENTS.get(event, ())
    if event is Event.FETCHED and (receives or 0) > 1:
        return (*totals, Total.REDELIVERED)
    return (*totals, _OF_REASONS[why]) if totals and why in _OF_REASONS else totals


@dataclass(slots=True)
class Row:
    """The counts of one queue. `since_ms`: when its counting began. `began_ms`: when the queue was
    last made or deleted, 0 if not known. Both are milliseconds since the epoch. `counts` are by
    name, since another version may have other ones.
    """

    since_ms: int
    began_ms: int = 0
    counts: dict[str, int] = field(default_factory=dict)


def summed(rows: Iterable[Row]) -> Row:
    """Sums the rows of one queue, without rows from before it was made."""
    found = list(rows)
    began_ms = max((row.began_ms for row in found), default=0)
    total = Row(began_ms, began_ms)
    for row in found:
        if row.since_ms >= began_ms:
            for name, count in row.counts.items():
                total.counts[name] = total.counts.get(name, 0) + count
    return total
