"""Figures of several rounds, and the one table that they are shown as."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(slots=True)
class Figures:
    """Messages a second by what was measured, one for each round, in the order of first use."""

    rates: dict[str, list[float]] = field(default_factory=dict)

    def add(self, measured: Mapping[str, float]) -> None:
        """Takes one round's figures."""
        for what, rate in measured.items():
            self.rates.setdefault(what, []).append(rate)

    def median(self, what: str) -> float:
        """The median of its rounds, messages a second."""
        return median(self.rates[what])

    def best(self, whats: Iterable[str]) -> str:
        """Which of these has the highest median."""
        return max(whats, key=self.median)

    def table(self, bare: Iterable[str], empty_post: str) -> str:
        """Median (min-max) of each, and its ratios to the best bare loop and the empty POST."""
        best = self.best(bare)
        rows = [("what", "messages/s", "to the best bare loop", "to aiohttp's empty POST")]
        for what, rates in self.rates.items():
            middle = self.median(what)
            name = f"{what} (best)" if what == best else what
            rows.append(
                (
                    name,
                    f"{middle:,.0f} ({min(rates):,.0f}-{max(rates):,.0f})",
                    f"{middle / self.median(best):.2f}",
                    f"{middle / self.median(empty_post):.2f}",
                )
            )
        return _drawn(rows)


def _drawn(rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table: the first column to the left, figures to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(row: tuple[str, ...]) -> str:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return f"| {' | '.join(cells)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join((line(rows[0]), f"| {' | '.join(rule)} |", *map(line, rows[1:])))
