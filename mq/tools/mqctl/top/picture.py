"""What top shows: lines that fit the screen, or a JSON document. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from mq.tools.mqctl.printing import duration
from mq.tools.mqctl.top.board import Board, Health
from mq.tools.mqctl.top.rows import FIGURES, Column, Row, text_of, total_text, totals_of
from mq.tools.mqctl.top.view import HELP, View

HEADER_LINES: Final = 5
FOOTER_LINES: Final = 1
_NAME_CHARS_MIN: Final = 20
# The most that the words of trouble take from the figures.
_TROUBLE_CHARS: Final = 24
_GAP: Final = 2
# Columns that a narrow screen leaves out, in this order.
_LEFT_OUT: Final = (
    Column.OVERDUE,
    Column.DELAYED,
    Column.AGE,
    Column.OLDEST,
    Column.SIDELINED,
    Column.DELETED,
    Column.IN_FLIGHT,
    Column.FETCHED,
    Column.PUBLISHED,
)
_GIB: Final = 1 << 30
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Screen:
    """The size of the output. `lines` None: no limit, as in a pipe."""

    columns: int
    lines: int | None = None

    @property
    def page(self) -> int | None:
        if self.lines is None:
            return None
        return max(1, self.lines - HEADER_LINES - FOOTER_LINES)


def picture(
    board: Board, rows: Sequence[Row], view: View, screen: Screen, now_s: float, url: str
) -> list[Text]:
    """The screen's lines: mq's state, the view, the rows that fit, and the keys."""
    page = screen.page
    shown = rows if page is None else rows[view.first : view.first + page]
    total = _total(rows)
    columns, widths = _columns(shown, total, view, screen.columns)
    lines = [
        _state(board, now_s, url),
        _service(board.health),
        _looked_at(board, rows, view),
        _titles(columns, widths, view, is_live=page is not None),
        _total_line(total, columns, widths),
    ]
    for place, row in enumerate(shown, view.first):
        is_marked = page is not None and place == view.selected
        lines.append(_line(row, columns, widths, is_marked))
    if page is not None:
        lines.extend(Text() for _ in range(page - len(shown)))
        lines.append(_footer(rows, view))
    for line in lines:
        line.truncate(screen.columns, overflow="ellipsis")
    return lines


def _state(board: Board, now_s: float, url: str) -> Text:
    line = Text("mqctl top ", style="bold").append(f" {url}  ", style="not bold")
    reach, health = board.reach, board.health
    if reach.is_lost:
        passed = duration(max(0.0, now_s - reach.since_s))
        line.append(f"mq cannot be reached for {passed}: {reach.why}", style="bold red")
    elif health.unready is not None:
        line.append(f"not ready: {health.unready}", style="bold red")
    elif health.readiness is None:
        line.append("connecting ...", style="dim")
    else:
        ready = health.readiness
        line.append("ready", style="green")
        text = (
            f", durability {ready.durability}, {ready.file_system}, {_size(ready.free_bytes)} free"
        )
        line.append(text, style="not bold")
        if ready.below_reserve:
            line.append(", BELOW THE RESERVE: publishing is refused", style="bold red")
    return line


def _service(health: Health) -> Text:
    return Text("  ").join([_members(health), _memory(health)])


def _members(health: Health) -> Text:
    if health.members is None:
        return Text("members unknown", style="dim")
    members = health.members.members
    there = [each for each in members if not each.gone]
    if not there:
        return Text("NO mq-mover: no message is redelivered", style="bold red")
    line = Text(f"members {len(there)}")
    if gone := len(members) - len(there):
        line.append(f" ({gone} gone)", style="yellow")
    if cut_off := sum(not each.connected for each in there):
        line.append(f" ({cut_off} cut off)", style="red")
    leader = health.members.leader
    return line.append(
        f", leader {leader}" if leader else ", no leader", "" if leader else "yellow"
    )


def _memory(health: Health) -> Text:
    memory = health.memory
    if memory is None:
        return Text("memory unknown", style="dim")
    held, budget = memory.get("held_bytes", 0), memory.get("budget_bytes", 0)
    return Text(f"memory {_size(held)} of {_size(budget)}")


def _looked_at(board: Board, rows: Sequence[Row], view: View) -> Text:
    known, count = len(board.queues()), len(rows)
    more = "+" if board.has_more or not board.has_all_names else ""
    line = Text(f"queues {known:,}{more}")
    if board.seen_count < known:
        line.append(f" ({board.seen_count:,} described so far)", style="yellow")
    if count != known:
        line.append(f", {count:,} shown")
    if troubled := sum(bool(row.troubles) for row in rows):
        line.append(f", {troubled:,} with trouble", style="yellow")
    line.append(f"  by {view.order}{', reversed' if view.is_reversed else ''}")
    if view.wanted:
        line.append(f"  filter {view.wanted!r}", style="bold")
    if view.is_paused:
        line.append("  PAUSED", style="bold yellow")
    return line


def _total(rows: Sequence[Row]) -> dict[Column, str]:
    totals, is_partial = totals_of(rows), any(row.is_partial for row in rows)
    return {each: total_text(totals, each, is_partial=is_partial) for each in FIGURES}


def _columns(
    shown: Sequence[Row], total: dict[Column, str], view: View, room: int
) -> tuple[list[Column], dict[Column, int]]:
    """The columns that fit beside whole names and the words of trouble, and their widths."""
    columns = [Column.NAME, *FIGURES]
    widths = {
        each: max(
            len(each.value) + (each.value == view.order),
            len(total[each]),
            *(len(text_of(row, each)) for row in shown),
            0,
        )
        for each in FIGURES
    }
    widths[Column.NAME] = max([_NAME_CHARS_MIN, *(len(row.name) + 2 for row in shown)])
    words = max([0, *(len(text_of(row, Column.TROUBLE)) for row in shown)])
    words = min(words + _GAP, _TROUBLE_CHARS) if words else 0
    for candidate in _LEFT_OUT:
        if words + sum(widths[each] + _GAP for each in columns) - _GAP <= room:
            break
        columns.remove(candidate)
    left = room - sum(widths[each] + _GAP for each in columns[1:])
    widths[Column.NAME] = max(1, min(widths[Column.NAME], left))
    return columns, widths


def _total_line(
    total: dict[Column, str], columns: Sequence[Column], widths: dict[Column, int]
) -> Text:
    line = Text(" total"[: widths[Column.NAME]].ljust(widths[Column.NAME]), style="bold")
    for column in columns[1:]:
        line.append(" " * _GAP + total[column].rjust(widths[column]))
    return line


def _titles(
    columns: Sequence[Column], widths: dict[Column, int], view: View, *, is_live: bool
) -> Text:
    line = Text(style="reverse" if is_live else "bold")
    for column in columns:
        mark = ("^" if view.is_reversed else "v") if column.value == view.order else ""
        cell = column.value + mark
        if column is Column.NAME:
            line.append(cell[: widths[column]].ljust(widths[column]))
        else:
            line.append(" " * _GAP + cell.rjust(widths[column]))
    line.append(" " * _GAP + Column.TROUBLE.value)
    return line


def _line(row: Row, columns: Sequence[Column], widths: dict[Column, int], is_marked: bool) -> Text:
    line = Text(style="bold" if is_marked else "")
    for column in columns:
        text = text_of(row, column)
        if column is Column.NAME:
            width = widths[column]
            name = (text if len(text) < width else text[: max(0, width - 2)] + "~").ljust(width - 1)
            line.append(">" if is_marked else "!" if row.troubles else " ")
            line.append(name, style=_trouble_style(row))
        else:
            line.append(" " * _GAP + text.rjust(widths[column]), style=_style(row, column))
    if row.troubles:
        line.append(" " * _GAP + text_of(row, Column.TROUBLE), style=_trouble_style(row))
    return line


def _trouble_style(row: Row) -> str:
    if not row.troubles:
        return ""
    return "red" if row.troubles[0].is_bad else "yellow"


def _style(row: Row, column: Column) -> str:
    seen = row.seen
    if seen is None:
        return "dim"
    if column is Column.OVERDUE and seen.latest.overdue:
        return "red"
    if column is Column.SIDELINED and seen.latest.sidelined:
        return "yellow"
    return "" if FIGURES[column](row) else "dim"


def _footer(rows: Sequence[Row], view: View) -> Text:
    if view.typing is not None:
        return Text(f"filter: {view.typing}_   Enter applies it, Esc cancels", style="bold")
    marked = rows[view.selected] if view.selected < len(rows) else None
    if marked is not None and marked.troubles:
        return Text(
            f"{marked.name}: {text_of(marked, Column.TROUBLE)}", style=_trouble_style(marked)
        )
    return Text(HELP, style="dim")


def _size(size_bytes: float) -> str:
    if size_bytes >= _GIB:
        return f"{size_bytes / _GIB:,.1f} GiB"
    return f"{size_bytes / _MIB:,.1f} MiB"


def document(board: Board, rows: Sequence[Row], url: str, at: str, now_s: float) -> dict[str, Any]:
    """The rows and mq's state. `at`: this machine's time. Unknown values are null."""
    reach, health = board.reach, board.health
    members = health.members
    memory: Mapping[str, Any] = health.memory or {}
    totals = totals_of(rows)
    return {
        "at": at,
        "url": url,
        "reached": not reach.is_lost,
        "lost_for_s": round(max(0.0, now_s - reach.since_s), 3) if reach.is_lost else None,
        "why": reach.why,
        "ready": health.readiness is not None and health.unready is None,
        "unready": health.unready,
        "readiness": health.readiness,
        "leader": members.leader if members else None,
        "members": members and sum(not each.gone for each in members.members),
        "members_gone": members and sum(each.gone for each in members.members),
        "memory_held_bytes": memory.get("held_bytes"),
        "memory_budget_bytes": memory.get("budget_bytes"),
        "queues_known": len(board.queues()),
        "queues_seen": board.seen_count,
        "all_queues_listed": board.has_all_names and not board.has_more,
        "totals": {
            name: _rounded(totals[column], 3 if name.endswith("_s") else None)
            for name, column in _TOTALS.items()
        },
        "queues": [_queue(row) for row in rows],
    }


_TOTALS: Final = {
    "ready": Column.READY,
    "delayed": Column.DELAYED,
    "in_flight": Column.IN_FLIGHT,
    "sidelined": Column.SIDELINED,
    "overdue": Column.OVERDUE,
    "oldest_ready_age_s": Column.OLDEST,
    "published_per_s": Column.PUBLISHED,
    "fetched_per_s": Column.FETCHED,
    "deleted_per_s": Column.DELETED,
}


def _rounded(value: float | None, digits: int | None = 3) -> float | None:
    return None if value is None else round(value, digits)


def _queue(row: Row) -> dict[str, Any]:
    seen, rates = row.seen, row.rates
    latest = seen.latest if seen else None
    return {
        "name": row.name,
        "ready": latest and latest.ready,
        "delayed": latest and latest.delayed,
        "in_flight": latest and latest.in_flight,
        "leased": latest and latest.leased,
        "sidelined": latest and latest.sidelined,
        "overdue": latest and latest.overdue,
        "oldest_ready_age_s": latest and latest.oldest_ready_age_s,
        "published_per_s": rates and round(rates.published, 3),
        "fetched_per_s": rates and round(rates.fetched, 3),
        "deleted_per_s": rates and round(rates.deleted, 3),
        "processes": seen and seen.processes,
        "processes_counted": seen and seen.processes_counted(),
        "age_s": _rounded(row.age_s),
        "trouble": row.refusal,
        "troubles": [trouble.text for trouble in row.troubles],
    }
