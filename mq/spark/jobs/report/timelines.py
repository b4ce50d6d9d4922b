"""Figures over time: steps of columns, joined until a picture has pixels for them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

Row = Mapping[str, Any]
Figure = float | None
"""None: not known."""

_MOST: Final = 1e24
"""What is more is no count, and no time."""
POINTS: Final = 200
"""A picture has this many steps at most."""


def seconds(when: datetime) -> float:
    """Seconds since 1970 of a time; one without a zone is UTC."""
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def figure(value: Any) -> Figure:
    """A number that can be drawn, or None: what is no number is not known."""
    if value is None:
        return None
    number = float(value)
    return number if abs(number) <= _MOST else None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Steps in order of time, from `starts` to `ends` (the same, for what is at a moment), with a
    figure a step in every column. `joined`: so many steps of the source are one here.
    """

    starts: tuple[float, ...]
    ends: tuple[float, ...]
    columns: Mapping[str, tuple[Figure, ...]]
    joined: int = 1

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, column: str) -> tuple[Figure, ...]:
        return self.columns[column]

    @property
    def lasts(self) -> bool:
        """Whether its steps are spans, and no moments."""
        return all(end > start for start, end in zip(self.starts, self.ends, strict=True))

    def middle(self, index: int) -> float:
        """The time that a step stands at."""
        return (self.starts[index] + self.ends[index]) / 2

    def rates(self, column: str) -> tuple[Figure, ...]:
        """A column's figures for each second of their steps."""
        spans = (max(end - start, 1e-3) for start, end in zip(self.starts, self.ends, strict=True))
        return tuple(
            None if value is None else value / span
            for value, span in zip(self.columns[column], spans, strict=True)
        )


def timeline(rows: Iterable[Row], start: str, columns: Sequence[str]) -> Timeline:
    """The rows' figures, by their time in `start`; without a `step_s` they are at that moment."""
    ordered = sorted(
        ((seconds(row[start]), row) for row in rows if row.get(start) is not None),
        key=lambda pair: pair[0],
    )
    return Timeline(
        tuple(when for when, _ in ordered),
        tuple(when + (figure(row.get("step_s")) or 0.0) for when, row in ordered),
        {name: tuple(figure(row.get(name)) for _, row in ordered) for name in columns},
    )


def summed(values: Sequence[Figure]) -> Figure:
    """The sum of what happened in several steps; of one that is not known, neither is the sum."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def worst(values: Sequence[Figure]) -> Figure:
    """The greatest of several steps' figures that are known."""
    return max((value for value in values if value is not None), default=None)


def filled(line: Timeline, steps: Timeline, column: str) -> Timeline:
    """A timeline of messages with a row for each of the `steps`: those that it lacks had none where
    the steps' `column` is known, and are not known where that is not.
    """
    there = set(line.starts)
    lacking = [index for index, start in enumerate(steps.starts) if start not in there]
    if not lacking:
        return line
    rows = [
        (line.starts[i], line.ends[i], {name: line[name][i] for name in line.columns})
        for i in range(len(line))
    ]
    none: dict[str, Figure] = dict.fromkeys(line.columns)
    for i in lacking:
        messages = None if steps[column][i] is None else 0.0
        rows.append((steps.starts[i], steps.ends[i], {**none, "messages": messages}))
    rows.sort(key=lambda row: row[0])
    return Timeline(
        tuple(start for start, _, _ in rows),
        tuple(end for _, end, _ in rows),
        {name: tuple(values[name] for _, _, values in rows) for name in line.columns},
    )


def thinned(
    line: Timeline,
    join: Callable[[Sequence[Figure]], Figure],
    points: int = POINTS,
    totals: Sequence[str] = (),
) -> Timeline:
    """As many steps as a picture has room for: neighbours are joined by `summed` or `worst`; the
    columns of `totals` by `summed` in any case.
    """
    every = math.ceil(len(line) / points)
    if every <= 1:
        return line
    parts = [slice(first, first + every) for first in range(0, len(line), every)]
    return replace(
        line,
        starts=tuple(line.starts[part][0] for part in parts),
        ends=tuple(line.ends[part][-1] for part in parts),
        columns={
            name: tuple((summed if name in totals else join)(values[part]) for part in parts)
            for name, values in line.columns.items()
        },
        joined=every,
    )
