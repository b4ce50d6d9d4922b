"""What the tables say of figures."""

import pytest

from deploy.bench.table import Comparison, percentile


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_cost_is_how_much_worse_than_the_first() -> None:
    comparison = Comparison("ready")
    for column, rate, took in (("10", 200.0, 3.0), ("100", 100.0, 6.0), ("1000", 400.0, 1.5)):
        for near in (0.9, 1.0, 1.1):
            comparison.add("publish, a second", column, rate * near, rate=True)
            comparison.add("start, ms", column, took * near, ".1f")
    head, _, publish, start = map(cells, comparison.table().splitlines())
    assert head == ["ready", "10", "100", "cost", "1000", "cost"]
    assert publish[1:4] == ["200 (180-220)", "100 (90-110)", "2.00"]
    assert publish[5] == "0.50"
    assert start[1:4] == ["3.0 (2.7-3.3)", "6.0 (5.4-6.6)", "2.00"]
    assert start[5] == "0.50"


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100)])
def test_percentiles_of_a_hundred(share: float, value: int) -> None:
    assert percentile(range(1, 101), share) == value
