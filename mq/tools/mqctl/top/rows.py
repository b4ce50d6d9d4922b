"""The queues as rows: filtered, in order, and as text. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mq.tools.mqctl.top.board import Board, Entry
from mq.tools.mqctl.top.rates import Rates
from mq.tools.mqctl.top.seen import Seen


@dataclass(frozen=True, slots=True)
class Row:
    """A queue. `age_s`: how old its figures are. `seen` is None where mq has not said how it is;
    `trouble`: why not, or not lately.
    """

    name: str
    seen: Seen | None = None
    rates: Rates | None = None
    age_s: float | None = None
    trouble: str | None = None

    @property
    def is_partial(self) -> bool:
        """Whether the rates are those of some of several processes alone."""
        seen = self.seen
        return (
            seen is not None
            and self.rates is not None
            and seen.processes_counted() < seen.processes
        )


class Column(Enum):
    """What a row shows, in the order of the columns; the value is what it is called."""

    NAME = "queue"
    READY = "ready"
    DELAYED = "delayed"
    IN_FLIGHT = "in flight"
    SIDELINED = "sidelined"
    OVERDUE = "overdue"
    OLDEST = "oldest"
    PUBLISHED = "publish/s"
    FETCHED = "fetch/s"
    DELETED = "delete/s"
    AGE = "seen"


ACTIVITY: Final = "activity"
ORDERS: Final = (ACTIVITY, *(column.value for column in Column))
"""By what rows may be in order: what is done with them a second, or a column."""


def _count(name: str) -> Callable[[Row], float | None]:
    return lambda row: None if row.seen is None else float(getattr(row.seen.latest, name))


def _rate(name: str) -> Callable[[Row], float | None]:
    return lambda row: None if row.rates is None else float(getattr(row.rates, name))


FIGURES: Final[dict[Column, Callable[[Row], float | None]]] = {
    Column.READY: _count("ready"),
    Column.DELAYED: _count("delayed"),
    Column.IN_FLIGHT: _count("in_flight"),
    Column.SIDELINED: _count("sidelined"),
    Column.OVERDUE: _count("overdue"),
    Column.OLDEST: lambda row: None if row.seen is None else row.seen.latest.oldest_ready_age_s,
    Column.PUBLISHED: _rate("published"),
    Column.FETCHED: _rate("fetched"),
    Column.DELETED: _rate("deleted"),
    Column.AGE: lambda row: row.age_s,
}
"""The figure of each column but the name; None: not known, or none."""


def rows_of(board: Board, now_s: float, part: str = "") -> list[Row]:
    """A row for each queue whose name has `part` in it, in any case."""
    wanted = part.casefold()
    return [
        _row(name, entry, now_s)
        for name, entry in board.entries.items()
        if wanted in name.casefold()
    ]


def _row(name: str, entry: Entry, now_s: float) -> Row:
    seen = entry.seen
    if seen is None:
        return Row(name, trouble=entry.trouble)
    return Row(name, seen, seen.rates(), max(0.0, now_s - seen.asked_s), entry.trouble)


def in_order(rows: Iterable[Row], order: str, is_reversed: bool) -> list[Row]:
    """The rows by a column, or by activity: figures with the largest first, names from A to Z, or
    the other way round. What is not known is last in both, and names decide among equals.
    """
    by_name = sorted(rows, key=lambda row: row.name)
    if order == Column.NAME.value:
        return by_name[::-1] if is_reversed else by_name
    figure = _activity if order == ACTIVITY else FIGURES[Column(order)]
    known = [(value, row) for row in by_name if (value := figure(row)) is not None]
    unknown = [row for row in by_name if figure(row) is None]
    sign = 1 if is_reversed else -1
    if order == ACTIVITY:
        # Of those with which nothing is done, the fullest.
        known.sort(key=lambda pair: (sign * pair[0], sign * (_ready(pair[1]) or 0)))
    else:
        known.sort(key=lambda pair: sign * pair[0])
    return [*(row for _, row in known), *unknown]


_ready: Final = FIGURES[Column.READY]


def _activity(row: Row) -> float | None:
    if row.seen is None:
        return None
    return 0.0 if row.rates is None else row.rates.activity


def text_of(row: Row, column: Column) -> str:
    """What stands in a row's cell."""
    if column is Column.NAME:
        return row.name
    value = FIGURES[column](row)
    if value is None:
        return "..." if row.seen is None and row.trouble is None else "-"
    if column in (Column.OLDEST, Column.AGE):
        return duration(value)
    if column in (Column.PUBLISHED, Column.FETCHED, Column.DELETED):
        return f"{'~' if row.is_partial else ''}{rate(value)}"
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """A figure a second."""
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}"


def duration(value_s: float) -> str:
    """A duration, in the two largest units that it has."""
    whole = int(value_s)
    if value_s < 10:
        return f"{value_s:.1f}s"
    if whole < 60:
        return f"{whole}s"
    for unit, size, below, size_below in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // size_below:02d}{below}"
    return f"{whole}s"
