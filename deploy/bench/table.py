"""Figures of several rounds, and their tables."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias, TypeVar

import click

from deploy.bench.load import Run

T = TypeVar("T")

Measured: TypeAlias = Mapping[str, Run | float]
"""By what was measured: a run of the load tool, or, of a bare loop, messages a second."""

HEADINGS = (
    "what", "messages/s", "to the best bare loop", "to aiohttp's empty POST",
    "p50 ms", "p99 ms", "p99.9 ms", "stall ms",
)  # fmt: skip


@dataclass(slots=True)
class Figures:
    """What was measured, once for each round, in the order of first use."""

    rounds: dict[str, list[Run | float]] = field(default_factory=dict)

    def add(self, measured: Measured, number: int | None = None) -> None:
        """Takes one round's figures, and reports them with its number."""
        for what, run in measured.items():
            self.rounds.setdefault(what, []).append(run)
            if number is not None:
                click.echo(f"round {number}: {what}: {self.last_rate(what):,.0f}/s", err=True)

    def rates(self, what: str) -> list[float]:
        """Messages a second of each round."""
        return [run.rate if isinstance(run, Run) else run for run in self.rounds[what]]

    def last_rate(self, what: str) -> float:
        """Messages a second of the last round."""
        return self.rates(what)[-1]

    def median(self, what: str) -> float:
        """The median of its rounds, messages a second."""
        return median(self.rates(what))

    def best(self, whats: Iterable[str]) -> str:
        """Which of these has the highest median."""
        return max(whats, key=self.median)

    def table(self, bare: Iterable[str], empty_post: str) -> str:
        """Median (min-max) of each, its ratios to the best bare loop and the empty POST, its
        latency (medians of the rounds' percentiles) and its longest stall of all rounds.
        """
        best = self.best(bare)
        rows: list[Sequence[str]] = [HEADINGS]
        for what in self.rounds:
            middle = self.median(what)
            name = f"{what} (best)" if what == best else what
            ratios = (middle / self.median(best), middle / self.median(empty_post))
            rows.append(
                (name, self.spread(what), *(f"{ratio:.2f}" for ratio in ratios), *self.times(what))
            )
        return drawn(rows)

    def spread(self, what: str) -> str:
        """The median rate, and the lowest and highest."""
        return spread(self.rates(what))

    def compared(self, to: str, heading: str) -> str:
        """Median (min-max) of each, and its ratio to `to`."""
        rows = [("what", "messages/s", heading)]
        for what in self.rounds:
            ratio = self.median(what) / self.median(to)
            rows.append((what, self.spread(what), f"{ratio:.2f}"))
        return drawn(rows)

    def times(self, what: str) -> tuple[str, str, str, str]:
        """p50, p99, p99.9 and the longest stall in milliseconds; empty for a bare loop."""
        runs = [run for run in self.rounds[what] if isinstance(run, Run)]
        if not runs:
            return ("", "", "", "")

        def middle(percentile: Callable[[Run], float]) -> str:
            return _ms(median(map(percentile, runs)))

        return (
            middle(lambda run: run.whole.p50_us),
            middle(lambda run: run.whole.p99_us),
            middle(lambda run: run.whole.p999_us),
            _ms(max(run.stall_us for run in runs)),
        )


def drawn(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, figures to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return f"| {' | '.join(cells)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join((line(rows[0]), f"| {' | '.join(rule)} |", *map(line, rows[1:])))


def _ms(us: float) -> str:
    return f"{us / 1000:,.1f}"


@dataclass(slots=True)
class Comparison:
    """Figures of several rounds by row and column, each row compared with its first column."""

    first: str
    """What the rows are of."""
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    forms: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def add(
        self, row: str, column: str, value: float, form: str = ",.0f", rate: bool = False
    ) -> None:
        """Takes one round's figure. A rate is better the more it is, anything else the less."""
        self.values.setdefault(row, {}).setdefault(column, []).append(value)
        self.forms[row] = (form, rate)

    def table(self) -> str:
        """Median (min-max) of each, and behind each but the first how often the first's cost it
        is: 1.3 is 1.3 times as slow, or as much.
        """
        columns = list(dict.fromkeys(column for row in self.values.values() for column in row))
        head = [self.first, columns[0]]
        for column in columns[1:]:
            head += [column, "cost"]
        rows = [tuple(head)]
        for row, by_column in self.values.items():
            form, rate = self.forms[row]
            cells = [row]
            for number, column in enumerate(columns):
                values = by_column.get(column, [])
                cells.append(spread(values, form) if values else "")
                if number > 0:
                    cells.append(_cost(by_column.get(columns[0], []), values, rate))
            rows.append(tuple(cells))
        return drawn(rows)


def _cost(first: Sequence[float], other: Sequence[float], rate: bool) -> str:
    if not first or not other or not (median(first) and median(other)):
        return ""
    ratio = median(other) / median(first)
    return f"{1 / ratio if rate else ratio:.2f}"


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Median (min-max), each written in the form."""
    return f"{median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share of them does not exceed."""
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)]


def interleaved(rounds: int, steps: Sequence[T]) -> Iterator[tuple[int, T]]:
    """Each step once a round, with the round's number; every second round backwards, so that no
    step is always the last.
    """
    for number in range(1, rounds + 1):
        for step in steps if number % 2 else steps[::-1]:
            yield number, step
