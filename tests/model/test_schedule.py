"""What a schedule decides: when it is next, and when it has ended."""

import pytest
from harness.api import UNKNOWN_ID

from mq.model.names import MessageId
from mq.model.recurrence import Cron, Every
from mq.model.schedule import Armed, Schedule

EVERY_MINUTE = Every.parse(60, 0)
ID = MessageId.parse(UNKNOWN_ID)


def test_it_is_next_when_it_comes_first() -> None:
    assert Schedule(EVERY_MINUTE).armed(5) == Armed(Schedule(EVERY_MINUTE), 5, 0, 0, None)


def test_a_firing_counts_and_the_next_one_follows() -> None:
    armed = Schedule(EVERY_MINUTE).armed(0).fired_at(10, ID)
    assert (armed.next_ms, armed.fired, armed.skipped, armed.last) == (60_000, 1, 0, ID)


def test_missed_firings_are_one() -> None:
    armed = Schedule(EVERY_MINUTE).armed(0).fired_at(10 * 60_000 + 1, ID)
    assert (armed.next_ms, armed.fired) == (11 * 60_000, 1)


def test_the_count_ends_it() -> None:
    armed = Schedule(EVERY_MINUTE, count=2).armed(0)
    armed = armed.fired_at(1, ID)
    assert armed.next_ms == 60_000
    armed = armed.fired_at(60_001, ID)
    assert (armed.next_ms, armed.fired) == (None, 2)
    with pytest.raises(ValueError, match="ended"):
        armed.fired_at(60_002, ID)
    with pytest.raises(ValueError, match="ended"):
        armed.skipped_at(60_002)


def test_what_was_skipped_is_no_message_of_the_count() -> None:
    armed = Schedule(EVERY_MINUTE, count=1).armed(0).skipped_at(1).skipped_at(60_001)
    assert (armed.next_ms, armed.fired, armed.skipped, armed.last) == (120_000, 0, 2, None)
    assert armed.fired_at(120_001, ID).next_ms is None


def test_until_is_the_last_moment_that_a_firing_is_due_at() -> None:
    schedule = Schedule(EVERY_MINUTE, until_ms=60_000)
    armed = schedule.armed(0).fired_at(1, ID)
    assert armed.next_ms == 60_000
    assert armed.fired_at(60_001, ID).next_ms is None
    assert Schedule(EVERY_MINUTE, until_ms=59_999).armed(0).fired_at(1, ID).next_ms is None


def test_one_that_is_due_before_the_end_is_fired_late_and_is_the_last() -> None:
    armed = Schedule(EVERY_MINUTE, until_ms=90_000).armed(0).fired_at(1, ID)
    assert armed.next_ms == 60_000
    late = armed.fired_at(1_000_000, ID)
    assert (late.next_ms, late.fired) == (None, 2)


def test_one_may_have_ended_when_it_is_made() -> None:
    assert Schedule(EVERY_MINUTE, until_ms=10).armed(11).next_ms is None
    past = Cron.parse("0 0 0 1 1 ? 2020")
    assert Schedule(past).armed(1_700_000_000_000).next_ms is None


def test_a_cron_expression_whose_years_are_over_ends_it() -> None:
    cron = Cron.parse("0 0 0 1 1,2 ? 2020")
    armed = Schedule(cron).armed(1_577_800_000_000)
    assert armed.next_ms == 1_577_836_800_000
    armed = armed.fired_at(1_577_836_800_001, ID)
    assert armed.next_ms == 1_580_515_200_000
    assert armed.skipped_at(1_580_515_200_001).next_ms is None


def test_each_missed_firing_is_fired_where_all_are() -> None:
    armed = Schedule(EVERY_MINUTE, misfire="all", until_ms=120_000).armed(0)
    fired = [armed.next_ms]
    while armed.next_ms is not None:
        armed = armed.fired_at(10 * 60_000, ID)
        fired.append(armed.next_ms)
    assert fired == [0, 60_000, 120_000, None]


def test_a_firing_is_missed_over_a_minute_late_where_none_is_made_up_for() -> None:
    late, once = Schedule(EVERY_MINUTE, misfire="skip"), Schedule(EVERY_MINUTE)
    assert [late.is_missed(0, now_ms) for now_ms in (0, 60_000, 60_001)] == [False, False, True]
    assert not once.is_missed(0, 10**9)


def test_the_next_one_is_counted_from_the_end_of_the_last_message() -> None:
    armed = Schedule(EVERY_MINUTE, after="done", count=2).armed(0).fired_at(10, ID)
    assert (armed.next_ms, armed.waiting, armed.fired) == (10, True, 1)
    armed = armed.done_at(100_007)
    assert (armed.next_ms, armed.waiting) == (160_007, False)
    armed = armed.fired_at(160_007, ID)
    assert (armed.next_ms, armed.waiting, armed.fired) == (None, False, 2)


def test_a_skipped_firing_waits_for_nothing() -> None:
    armed = Schedule(EVERY_MINUTE, after="done").armed(0).skipped_at(10)
    assert (armed.next_ms, armed.waiting) == (60_000, False)
