"""Figures of several rounds by row and column, each compared with the first column's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from deploy.bench.table import drawn


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
