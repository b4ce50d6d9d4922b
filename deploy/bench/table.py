"""Figures of several rounds, and the one table that they are shown as."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

from deploy.bench.load import Run

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

    def add(self, measured: Measured) -> None:
        """Takes one round's figures."""
        for what, run in measured.items():
            self.rounds.setdefault(what, []).append(run)

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
        rates = self.rates(what)
        return f"{median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"

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
