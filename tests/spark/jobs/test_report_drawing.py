"""The report's axes, units and steps: round, within bounds, whatever the figures."""

from datetime import UTC, datetime
from importlib.resources import files
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes

from mq.spark.jobs.report import units
from mq.spark.jobs.report.drawing import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    ages,
    apart,
    blank,
    counts,
    latencies,
    over_time,
    place,
)
from mq.spark.jobs.report.queues import POINTS, summed, thinned, timeline, worst

amounts = st.floats(min_value=0, max_value=1e18, allow_nan=False)
spans = st.floats(min_value=0, max_value=1e10, allow_nan=False)
moments = st.floats(min_value=0, max_value=4e9)


def ticks_are_right(axes: Axes, most: float) -> None:
    """The ticks are few, rise, and cover what is drawn; no two have the same label."""
    low, high = axes.get_ylim()
    ticks = list(axes.get_yticks())
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert 1 <= len(ticks) <= 7
    assert ticks == sorted(set(ticks))
    assert len(set(labels)) == len(labels) == len(ticks)
    assert low <= ticks[0]
    assert ticks[-1] <= high
    assert most <= max(high * (1 + 1e-9), 1e-12)


@given(amounts)
def test_counts_have_round_ticks_that_cover_them(most: float) -> None:
    axes = blank()
    counts(axes, most)
    low, high = axes.get_ylim()
    assert low == 0
    # Nor is the axis much longer than what stands on it.
    assert high <= max(most * 2.5, 1)
    if most >= 1e-4:
        ticks_are_right(axes, most)


@given(spans)
def test_ages_have_ticks_that_cover_them(most: float) -> None:
    axes = blank()
    ages(axes, most)
    ticks_are_right(axes, most)


@given(st.lists(spans, min_size=1, max_size=20))
def test_latencies_have_ticks_that_cover_them(values: list[float]) -> None:
    axes = blank()
    latencies(axes, values)
    ticks_are_right(axes, max(values))
    assert axes.get_ylim()[0] > 0


@given(moments, st.floats(min_value=0, max_value=4e9))
def test_times_have_few_ticks(begin: float, length: float) -> None:
    axes = blank()
    over_time(axes, (begin, begin + length))
    assert len(labels_of(axes)) <= 7
    assert 0 <= place((begin, begin + length), begin + length / 2) <= 1


def labels_of(axes: Axes) -> list[str]:
    """The labels below a plot, of the ticks within it."""
    low, high = axes.get_xlim()
    ticks = axes.get_xticks()
    labels = axes.xaxis.get_major_formatter().format_ticks(list(ticks))
    return [label for tick, label in zip(ticks, labels, strict=True) if low <= tick <= high]


@pytest.mark.parametrize(
    ("end", "labels"),
    [
        ("2026-03-14T08:00:40+00:00", "08:00:00 08:00:10 08:00:20 08:00:30 08:00:40"),
        ("2026-03-14T09:00:00+00:00", "08:00 08:15 08:30 08:45 09:00"),
        ("2026-03-15T08:00:00+00:00", "12:00 18:00 15 Mar 06:00"),
        ("2026-03-18T08:00:00+00:00", "15 Mar 16 Mar 17 Mar 18 Mar"),
        ("2026-04-15T08:00:00+00:00", "15 Mar 1 Apr 15 Apr"),
        ("2027-01-15T00:00:00+00:00", "Apr 2026 Jul 2026 Oct 2026 2027"),
        ("2031-06-01T00:00:00+00:00", "2028 2030"),
    ],
)
def test_times_are_labelled_to_fit_their_span(end: str, labels: str) -> None:
    begin = datetime(2026, 3, 14, 8, tzinfo=UTC).timestamp()
    axes = blank()
    over_time(axes, (begin, datetime.fromisoformat(end).timestamp()))
    assert " ".join(labels_of(axes)) == labels


@pytest.mark.parametrize(
    ("value", "count", "volume", "duration", "rate"),
    [
        (None, "–", "–", "–", "–"),  # noqa: RUF001
        (0, "0", "0 B", "0 s", "0/s"),
        (0.000012, "0.000012", "0.000012 B", "12 µs", "1.04/d"),
        (0.0301, "0.0301", "0.0301 B", "30.1 ms", "1.81/min"),
        (999.6, "1k", "1000 B", "16 min 40 s", "1k/s"),
        (1024, "1.02k", "1 KiB", "17 min 4 s", "1.02k/s"),
        (3_456_789, "3.46M", "3.3 MiB", "40 d", "3.46M/s"),
        (1e18, "1000P", "888 PiB", "11,574,074,074,074 d", "1000P/s"),
    ],
)
def test_figures_are_written_as_people_read_them(
    value: float | None, count: str, volume: str, duration: str, rate: str
) -> None:
    written = (units.count(value), units.volume(value), units.duration(value), units.rate(value))
    assert written == (count, volume, duration, rate)


@given(amounts)
def test_what_is_not_zero_is_never_written_as_zero(value: float) -> None:
    written = (units.duration(value), units.whole(value), units.count(value), units.rate(value))
    assert all(text and "nan" not in text for text in written)
    if value >= 1e-5:
        assert (units.duration(value) == "0 s", units.count(value) == "0") == (False, False)


@pytest.mark.parametrize(
    ("part", "of", "written"),
    [(0, 5, "0%"), (1, 10**9, "<0.01%"), (10**9 - 1, 10**9, ">99.99%"), (1, 3, "33.33%")],
)
def test_a_share_is_all_or_nothing_only_if_it_is(part: int, of: int, written: str) -> None:
    assert units.share(part, of) == written


@given(st.integers(0, 1500), st.lists(st.integers(0, 1499), max_size=3), st.integers(0, 10**6))
def test_steps_are_joined_without_losing_a_count_or_a_peak(
    length: int, missing: list[int], peak: int
) -> None:
    values = [None if at in missing else (at * peak) % 1009 for at in range(length)]
    rows = [
        {"start": datetime.fromtimestamp(60 * at, UTC), "step_s": 60, "n": value}
        for at, value in enumerate(values)
    ]
    line = timeline(reversed(rows), "start", ["n"])
    most, total = thinned(line, worst), thinned(line, summed)
    assert len(most) == len(total) <= POINTS
    known = [value for value in values if value is not None]
    assert worst(most["n"]) == worst(known)
    assert most.starts[:1] == line.starts[:1]
    assert most.ends[-1:] == line.ends[-1:]
    if len(known) == len(values):
        assert sum(value or 0 for value in total["n"]) == sum(known)
    else:
        # Of a step that is not known, neither is the sum.
        assert None in total["n"]


@given(st.lists(st.floats(0, 1), max_size=5))
def test_labels_stand_apart(places: list[float]) -> None:
    moved = apart(sorted(places), 0.1)
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(moved))
    assert all(0 <= place <= 1 + 1e-9 for place in moved)


def test_the_style_sheet_reads_values_where_the_plots_are() -> None:
    css = (files("mq.spark.jobs.report") / "report.css").read_text(encoding="utf-8")
    around = {"left": (LEFT, WIDTH), "right": (RIGHT, WIDTH), "top": (TOP, HEIGHT)}
    for side, (part, of) in {**around, "bottom": (BOTTOM, HEIGHT)}.items():
        assert f"{side}: calc(100% * {part} / {of});" in css
