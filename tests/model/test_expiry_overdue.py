"""What is overdue, from times alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.expiry import Passing, is_overdue, overdue_after_s
from mq.model.settings import QueueSettings

T = 1_800_000_000_000
TIMES = st.integers(T - 10**7, T + 10**7)


@pytest.mark.parametrize(
    ("settings", "is_sideline", "expected"),
    [
        (None, False, 1200),
        (None, True, 1200),
        (QueueSettings(sweep_after_s=5), False, 5),
        (QueueSettings(sweep_after_s=5, shovel_interval_s=600), False, 5),
        (QueueSettings(sweep_after_s=5, shovel_interval_s=600), True, 1200),
        (QueueSettings(sweep_after_s=5, shovel_interval_s=2), True, 5),
        (QueueSettings(sweep_after_s=5), True, 5),
    ],
)
def test_a_sidelines_messages_wait_for_two_shovels(
    settings: QueueSettings | None, is_sideline: bool, expected: float
) -> None:
    assert overdue_after_s(settings, is_sideline) == expected


@pytest.mark.parametrize(
    ("due_s", "came_s", "since_s", "latest_s", "expected"),
    [
        pytest.param(0, -60, -600, 20, True, id="tried for so long"),
        pytest.param(0, -60, -600, 19.999, False, id="not so long yet"),
        pytest.param(0, -60, 1, 20, False, id="a gap ended after it was due"),
        pytest.param(0, -60, 1, 21, True, id="so long since the gap"),
        pytest.param(0, 5, -600, 20, False, id="it came later than it was due"),
        pytest.param(0, 5, -600, 25, True, id="so long since it came"),
        pytest.param(60, -60, -600, 20, False, id="not due"),
    ],
)
def test_it_counts_from_the_latest_of_due_come_and_the_gap(
    due_s: float, came_s: float, since_s: float, latest_s: float, expected: bool
) -> None:
    due, came, since, latest = (
        T + round(each * 1000) for each in (due_s, came_s, since_s, latest_s)
    )
    assert is_overdue(due, came, 20, Passing(since, latest)) is expected


@given(due=TIMES, came=TIMES, after_s=st.integers(1, 3600))
def test_nothing_is_overdue_where_redelivery_has_not_passed(
    due: int, came: int, after_s: int
) -> None:
    assert not is_overdue(due, came, after_s, None)


@given(due=TIMES, came=TIMES, since=TIMES, latest=TIMES, after_s=st.integers(1, 3600))
def test_what_is_overdue_was_tried_for_so_long_behind_each_of_them(
    due: int, came: int, since: int, latest: int, after_s: int
) -> None:
    decided = is_overdue(due, came, after_s, Passing(since, latest))
    assert decided == all(latest - each >= after_s * 1000 for each in (due, came, since))
