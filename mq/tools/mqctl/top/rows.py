"""Queues as rows: filtered, sorted, and as text. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from mq.tools.mqctl.printing import duration
from mq.tools.mqctl.top.board import Board, Entry
from mq.tools.mqctl.top.rates import Rates, Seen

OLD_S: Final = 300.0


class Trouble(NamedTuple):
    """What of a queue needs attention. The heaviest is first; a bad one is red."""

    weight: int
    is_bad: bool
    text: str


def troubles_of(seen: Seen | None, refusal: str | None = None) -> tuple[Trouble, ...]:
    """As the page's board.js has them, the heaviest first. `refusal`: why mq did not describe the
    queue.
    """
    if refusal is not None:
        return (Trouble(6, True, refusal),)
    if seen is None:
        return ()
    latest, now = seen.latest, seen.latest.sidelined
    new, oldest_s = now - seen.sidelined_before, latest.oldest_ready_age_s or 0
    dead = "1 dead letter" if now == 1 else f"{now} dead letters"
    paused = latest.settings.get("paused", "none")
    found = (
        (latest.overdue > 0, Trouble(5, True, f"{latest.overdue} overdue: is a mover running?")),
        (new > 0, Trouble(4, True, f"{dead}, {new} new")),
        (oldest_s > OLD_S and paused == "none", Trouble(3, False, "oldest waits long")),
        (now > 0 and new <= 0, Trouble(2, False, dead)),
        (paused != "none", Trouble(1, False, f"paused: {paused}")),
        (latest.expired, Trouble(1, False, "expired")),
    )
    return tuple(trouble for is_so, trouble in found if is_so)


@dataclass(frozen=True, slots=True)
class Row:
    """A queue. `age_s`: the age of its figures. `seen` None: not described yet; `refusal`: why the
    last request failed.
    """

    name: str
    seen: Seen | None = None
    rates: Rates | None = None
    age_s: float | None = None
    refusal: str | None = None

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        return troubles_of(self.seen, self.refusal)

    @property
    def is_partial(self) -> bool:
        """Whether the rates of some processes are missing."""
        seen = self.seen
        return (
            seen is not None
            and self.rates is not None
            and seen.processes_counted() < seen.processes
        )


class Column(Enum):
    """The columns in their order; the value is the title."""

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
    TROUBLE = "trouble"


ACTIVITY: Final = "activity"
ORDERS: Final = (
    Column.TROUBLE.value,
    ACTIVITY,
    *(column.value for column in Column if column is not Column.TROUBLE),
)
"""The sort orders: trouble first, operations per second, or a column."""


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
"""The value of each column of figures; None if unknown."""
_RATES: Final = (Column.PUBLISHED, Column.FETCHED, Column.DELETED)
_AGES: Final = (Column.OLDEST, Column.AGE)


def rows_of(board: Board, now_s: float, part: str = "") -> list[Row]:
    """A row for each queue whose name contains `part`, without regard to case."""
    wanted = part.casefold()
    return [
        _row(name, entry, now_s)
        for name, entry in board.queues().items()
        if wanted in name.casefold()
    ]


def _row(name: str, entry: Entry, now_s: float) -> Row:
    seen = entry.seen
    if seen is None:
        return Row(name, refusal=entry.trouble)
    return Row(name, seen, seen.rates(), max(0.0, now_s - seen.asked_s), entry.trouble)


def in_order(rows: Iterable[Row], order: str, is_reversed: bool) -> list[Row]:
    """The rows sorted by trouble, by activity or by a column: figures from the largest, names from
    A to Z, or reversed. Unknown values are last in both cases; equal rows are sorted by name.
    """
    by_name = sorted(rows, key=lambda row: row.name)
    if order == Column.NAME.value:
        return by_name[::-1] if is_reversed else by_name
    figure = _OTHER_ORDERS.get(order) or FIGURES[Column(order)]
    known = [(value, row) for row in by_name if (value := figure(row)) is not None]
    unknown = [row for row in by_name if figure(row) is None]
    sign = 1 if is_reversed else -1
    if order in _OTHER_ORDERS:
        # Queues of equal trouble by their activity, idle ones by their number of messages.
        known.sort(
            key=lambda pair: (
                *(sign * pair[0], sign * (_activity(pair[1]) or 0), sign * (_ready(pair[1]) or 0)),
            )
        )
    else:
        known.sort(key=lambda pair: sign * pair[0])
    return [*(row for _, row in known), *unknown]


_ready: Final = FIGURES[Column.READY]


def _activity(row: Row) -> float | None:
    if row.seen is None:
        return None
    return 0.0 if row.rates is None else row.rates.activity


def _weight(row: Row) -> float | None:
    troubles = row.troubles
    if row.seen is None and not troubles:
        return None
    return troubles[0].weight if troubles else 0


_OTHER_ORDERS: Final = {ACTIVITY: _activity, Column.TROUBLE.value: _weight}


def text_of(row: Row, column: Column) -> str:
    if column is Column.NAME:
        return row.name
    if column is Column.TROUBLE:
        return "; ".join(trouble.text for trouble in row.troubles)
    value = FIGURES[column](row)
    if value is None:
        return "..." if row.seen is None and row.refusal is None else "-"
    return _text(value, column, is_partial=row.is_partial)


def _text(value: float, column: Column, *, is_partial: bool) -> str:
    if column in _AGES:
        return duration(value)
    if column in _RATES:
        return f"{'~' if is_partial else ''}{rate(value)}"
    return f"{value:,.0f}"


def totals_of(rows: Sequence[Row]) -> dict[Column, float | None]:
    """The sums over the rows whose figures are known, and the age of the oldest message."""
    found: dict[Column, float | None] = {}
    for column, figure in FIGURES.items():
        known = [value for row in rows if (value := figure(row)) is not None]
        if column is not Column.AGE:
            added = max if column is Column.OLDEST else sum
            found[column] = added(known) if known else None
    return found


def total_text(totals: dict[Column, float | None], column: Column, *, is_partial: bool) -> str:
    """A total as text; `is_partial`: not the rates of all processes are known."""
    value = totals.get(column)
    return "" if value is None else _text(value, column, is_partial=is_partial)


def rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}"
