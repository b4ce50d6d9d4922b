"""What is drawn: lines of text, each as wide as the screen at most. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from mq.tools.mqctl.top.board import Board, Health
from mq.tools.mqctl.top.rows import ACTIVITY, Column, Row, duration, text_of
from mq.tools.mqctl.top.view import HELP, View

HEADER_LINES: Final = 4
FOOTER_LINES: Final = 1
_NAME_CHARS_MIN: Final = 20
_GAP: Final = 2
# What a narrow screen does without, in this order.
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
    """The room there is. `lines` None: as many as there are rows, as in a pipe."""

    columns: int
    lines: int | None = None

    @property
    def page(self) -> int | None:
        """How many rows it has room for."""
        if self.lines is None:
            return None
        return max(1, self.lines - HEADER_LINES - FOOTER_LINES)


def picture(
    board: Board, rows: Sequence[Row], view: View, screen: Screen, now_s: float, url: str
) -> list[Text]:
    """The screen's lines: how mq is, what is looked at, a line for each row that there is room for,
    and what keys do.
    """
    page = screen.page
    shown = rows if page is None else rows[view.first : view.first + page]
    columns, widths = _columns(shown, screen.columns)
    lines = [
        _state(board, now_s, url),
        _service(board.health),
        _looked_at(board, len(rows), view),
        _titles(columns, widths, view, is_live=page is not None),
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
        line.append("asking ...", style="dim")
    else:
        ready = health.readiness
        line.append("ready", style="green")
        said = (
            f", durability {ready.durability}, {ready.file_system}, {_size(ready.free_bytes)} free"
        )
        line.append(said, style="not bold")
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
        return Text("NO mq-mover: nothing is redelivered", style="bold red")
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


def _looked_at(board: Board, count: int, view: View) -> Text:
    known = len(board.entries)
    more = "+" if board.has_more or not board.has_all_names else ""
    line = Text(f"queues {known:,}{more}")
    if board.seen_count < known:
        line.append(f" ({board.seen_count:,} asked so far)", style="yellow")
    if count != known:
        line.append(f", {count:,} shown")
    line.append(f"  by {view.order}{', reversed' if view.is_reversed else ''}")
    if view.wanted:
        line.append(f"  filter {view.wanted!r}", style="bold")
    if view.is_paused:
        line.append("  PAUSED", style="bold yellow")
    return line


def _columns(shown: Sequence[Row], room: int) -> tuple[list[Column], dict[Column, int]]:
    """The columns for which there is room, and how wide each is."""
    columns = list(Column)
    widths = {
        each: max([len(each.value) + 1, *(len(text_of(row, each)) for row in shown)])
        for each in columns[1:]
    }
    for candidate in _LEFT_OUT:
        if _NAME_CHARS_MIN + sum(widths[each] + _GAP for each in columns[1:]) <= room:
            break
        columns.remove(candidate)
    names = max([_NAME_CHARS_MIN, *(len(row.name) + 2 for row in shown)])
    left = room - sum(widths[each] + _GAP for each in columns[1:])
    widths[Column.NAME] = max(1, min(names, left))
    return columns, widths


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
    if view.order == ACTIVITY and is_live:
        line.append(f"  by {ACTIVITY}")
    return line


def _line(row: Row, columns: Sequence[Column], widths: dict[Column, int], is_marked: bool) -> Text:
    line = Text(style="bold" if is_marked else "")
    for column in columns:
        text = text_of(row, column)
        if column is Column.NAME:
            width = widths[column]
            name = (text if len(text) < width else text[: max(0, width - 2)] + "~").ljust(width - 1)
            line.append(">" if is_marked else "!" if row.trouble else " ")
            line.append(name)
        else:
            line.append(" " * _GAP + text.rjust(widths[column]), style=_style(row, column))
    return line


def _style(row: Row, column: Column) -> str:
    seen = row.seen
    if seen is None:
        return "dim"
    if column is Column.OVERDUE and seen.latest.overdue:
        return "red"
    if column is Column.SIDELINED and seen.latest.sidelined:
        return "yellow"
    return ""


def _footer(rows: Sequence[Row], view: View) -> Text:
    if view.typing is not None:
        return Text(f"filter: {view.typing}_   Enter keeps it, Esc does not", style="bold")
    marked = rows[view.selected] if view.selected < len(rows) else None
    if marked is not None and marked.trouble is not None:
        return Text(f"{marked.name}: {marked.trouble}", style="yellow")
    return Text(HELP, style="dim")


def _size(size_bytes: float) -> str:
    if size_bytes >= _GIB:
        return f"{size_bytes / _GIB:,.1f} GiB"
    return f"{size_bytes / _MIB:,.1f} MiB"
