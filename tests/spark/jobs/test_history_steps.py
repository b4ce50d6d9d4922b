"""What of a history is pure: the steps, the backlog, and what is known of which time."""

import pytest
from harness.history_tables_model import step_of
from hypothesis import given
from hypothesis import strategies as st

from mq.spark.jobs.history_assembly import Cell, Known, queue_tables
from mq.spark.jobs.history_cells import STEPS_MAX, BadSpan, Kind, Steps, steps_between

TIMES = st.integers(0, 253_402_300_799_999)


@given(TIMES, TIMES, st.one_of(st.none(), st.integers(1, 10**7)))
def test_steps_are_all_of_the_span(since: int, until: int, step_s: int | None) -> None:
    if since >= until:
        with pytest.raises(BadSpan):
            steps_between(since, until, step_s)
        return
    if step_s is not None and (until - since) // (step_s * 1000) >= STEPS_MAX:
        with pytest.raises(BadSpan):
            steps_between(since, until, step_s)
        return
    steps = steps_between(since, until, step_s)
    assert steps.start_ms % steps.step_ms == 0
    assert steps.start_ms <= since < steps.end(0)
    assert steps.start(steps.count - 1) < until == steps.end(steps.count - 1)
    assert step_s is not None or steps.count <= 200 or steps.step_s > 7 * 86_400
    for number in (0, steps.count // 2, steps.count - 1):
        assert step_of(steps, steps.start(number)) == number
        assert step_of(steps, steps.end(number) - 1) == number
    assert (step_of(steps, until), step_of(steps, steps.start_ms - 1)) == (steps.count, -1)


def test_people_find_steps_that_they_know() -> None:
    hour_ms = 3_600_000
    assert [
        steps_between(0, hours * hour_ms).step_s for hours in (1, 5, 24, 24 * 7, 24 * 90, 24 * 365)
    ] == [60, 120, 600, 3600, 43_200, 2 * 86_400]


FLOWS = st.lists(
    st.tuples(
        st.sampled_from([0, 3]),
        st.integers(-50, 119),
        st.one_of(st.none(), st.integers(0, 100)),
        st.one_of(st.none(), st.integers(0, 9)),
    )
)


@given(FLOWS)
def test_the_backlog_is_what_came_and_has_not_gone(
    lives: list[tuple[int, int, int | None, int | None]],
) -> None:
    """Priority, published, how long it was there, size; steps of 10 ms each from 0 up to 115."""
    steps = Steps(0, 10, 12, 115)
    cells, waiting = [], []
    for priority, published, lasted, size in lives:
        gone = None if lasted is None else published + lasted
        came_in, gone_in = (
            step_of(steps, published),
            steps.count if gone is None else step_of(steps, gone),
        )
        if came_in == steps.count or gone_in < 0:
            continue
        waiting.append((priority, published, gone, size))
        cells.append(
            Cell(Kind.FLOW, priority, came_in, gone_in, [1, size or 0, size is None, published])
        )
    known = Known(steps, 114, -1, None)
    tables, _ = queue_tables("orders", cells, steps, known)
    for _, priority, at, messages, size, oldest_s in tables["backlog"]:
        there = [
            life
            for life in waiting
            if priority in (None, life[0]) and life[1] < at and (life[2] is None or life[2] >= at)
        ]
        sizes = [life[3] for life in there]
        assert messages == len(there)
        assert size == (None if None in sizes else sum(each or 0 for each in sizes))
        assert oldest_s == (max((at - life[1]) / 1000 for life in there) if there else None)


def test_what_nobody_knows_is_null() -> None:
    steps = Steps(0, 10, 10, 100)
    cells = [
        Cell(Kind.FLOW, 0, 1, 9, [5, 50, 0, 12]),
        Cell(Kind.EVENT, 0, 4, 0, [2]),
        Cell(Kind.DROPPED, None, 5, None, [3]),
    ]

    def figures(known: Known) -> tuple[list[int | None], list[int | None], list[int | None]]:
        tables, dropped = queue_tables("orders", cells, steps, known)
        assert dropped == 3
        rates = [row for row in tables["rates"] if row[1] is None]
        backlog = [row[3] for row in tables["backlog"] if row[1] is None]
        return [row[4] for row in rates], [row[6] for row in rates], backlog

    nothing: list[int | None] = [None] * 10
    published, fetched, backlog = figures(Known(steps, 99, None, None))
    assert (published, fetched, backlog) == (nothing, nothing, [*nothing[:9], 0])
    published, fetched, backlog = figures(Known(steps, 99, 25, None))
    assert (published, fetched) == ([None, None, *[0] * 8], nothing)
    assert backlog == [None, None, *[5] * 7, 0]
    # Lines from the fourth step on, of which some are lost; the history is on.
    published, fetched, backlog = figures(Known(steps, 99, None, (30, 99)))
    assert published == [*fetched[:4], 0, None, *[0] * 4]
    assert fetched == [None, None, None, 0, 2, None, 0, 0, 0, 0]
    assert backlog == [None, None, None, 5, 5, None, 5, 5, 5, 0]
    # It is off: what was removed since is not told of.
    published, fetched, backlog = figures(Known(steps, 99, None, (30, 69)))
    assert fetched == [None, None, None, 0, 2, None, 0, None, None, None]
    assert backlog == [*nothing[:9], 0]
