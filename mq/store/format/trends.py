"""The names in trends/, and the lines of its files. FORMAT.md, "Trends"."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from mq.model.errors import BadName
from mq.model.trends import Point, Range, Trends
from mq.store.format.layout import Layout, TurnPlace, new_name

TRENDS_BYTES_MAX: Final = 1 << 22
"""Several times what the largest file can have."""

_VERSION: Final = 1
_QUEUE: Final = "queue"
_POINTS: Final = "points"


def trends_turn(layout: Layout) -> TurnPlace:
    """The turn of the process that writes the files."""
    return TurnPlace(f"{layout.trends}/.turn", f"{layout.trends}/.lock")


def trends_file(layout: Layout, range_: Range) -> str:
    return f"{layout.trends}/{range_.value}"


def new_trends_file(layout: Layout, range_: Range) -> str:
    """Where this process writes it. A dotfile: it means nothing until it is renamed."""
    return f"{layout.trends}/{new_name(range_.value)}"


def parse_trends_file(name: str) -> Range:
    """The range of a file. Raises BadName."""
    try:
        return Range(name)
    except ValueError:
        raise BadName("trends", ", ".join(Range)) from None


def print_trends(trends: Trends) -> bytes:
    head = {
        "version": _VERSION,
        "taken_ms": trends.taken_ms,
        "listed": trends.queues,
        "uncounted": trends.uncounted,
        "last": trends.last,
    }
    lines = ({_QUEUE: queue, _POINTS: points} for queue, points in trends.series.items())
    said = (json.dumps(each, separators=(",", ": ")) for each in (head, *lines))
    return "".join(f"{line}\n" for line in said).encode("ascii")


def parse_trends(content: bytes) -> Trends:
    """Skips what it cannot parse: a torn file has the lines that are whole."""
    first, *lines = content.splitlines() or [b""]
    head = _parsed(first)
    series = {}
    for line in lines:
        said = _parsed(line)
        if isinstance(queue := said.get(_QUEUE), str) and isinstance(said.get(_POINTS), list):
            points = [point for each in said[_POINTS] if (point := _point(each)) is not None]
            series[queue] = sorted(points)
    last = _point(head.get("last"))
    taken_ms, queues = _count(head, "taken_ms"), _count(head, "listed")
    return Trends(taken_ms, queues, _count(head, "uncounted"), last, series)


def _parsed(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(head: Mapping[str, Any], name: str) -> int:
    found = head.get(name)
    return found if type(found) is int and found >= 0 else 0


def _point(said: object) -> Point | None:
    """A point; a later version may have further numbers."""
    if not isinstance(said, list) or len(said) < len(Point._fields):
        return None
    numbers = said[: len(Point._fields)]
    kinds = Point.__annotations__.values()
    for each, kind in zip(numbers, kinds, strict=True):
        if type(each) not in {int, kind} or not 0 <= each < math.inf:
            return None
    return Point._make(numbers)
