"""What `mqctl bench` decides: its plan, when each turn is, and what latencies say."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.errors import ConnectionLost, Problem, TimedOut, problem_of
from mq.tools.mqctl.bench.histogram import Histogram
from mq.tools.mqctl.bench.keeping import Left
from mq.tools.mqctl.bench.limits import ERROR_KINDS_MAX, MARK_BYTES
from mq.tools.mqctl.bench.pace import Turn, Turns
from mq.tools.mqctl.bench.plan import NoPlan, Plan
from mq.tools.mqctl.bench.report import Outcome, document, lines
from mq.tools.mqctl.bench.tally import Tally, kind_of

PLAN = Plan(
    run="0123456789ab",
    queue=None,
    messages=100,
    seconds=None,
    connections=4,
    size_bytes=300,
    batch=1,
    is_idempotent=False,
    rate_per_s=None,
    warm_up_s=0.0,
    among_others=False,
)


def problem(slug: str) -> Problem:
    return problem_of({"type": f"urn:mq:problem:{slug}", "status": 503})


def test_a_body_is_marked_and_as_large_as_was_said() -> None:
    assert len(PLAN.body()) == 300
    assert PLAN.body().startswith(PLAN.mark)
    assert replace(PLAN, run="ba9876543210").mark != PLAN.mark
    assert len(replace(PLAN, size_bytes=MARK_BYTES).body()) == MARK_BYTES == len(PLAN.mark)
    assert b"\n" not in PLAN.body()


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": 1.0},
        {"messages": None},
        {"size_bytes": MARK_BYTES - 1},
        {"batch": 2, "is_idempotent": True},
        {"batch": 1000, "size_bytes": 10_000},
        {"among_others": True},
    ],
)
def test_what_cannot_be_together_is_no_plan(changes: dict[str, object]) -> None:
    PLAN.check()
    with pytest.raises(NoPlan):
        replace(PLAN, **changes).check()  # type: ignore[arg-type]


def test_turns_without_a_rate_are_at_once_and_end_by_number_or_time() -> None:
    turns = Turns(10.0, 2, None, None)
    assert [turns.take(11.0), turns.take(11.0)] == [Turn(0, None), Turn(1, None)]
    assert turns.take(11.0) is None
    timed = Turns(10.0, None, 12.0, None)
    assert timed.take(11.9) is not None
    assert timed.take(12.0) is None


def test_turns_of_a_rate_stand_apart_however_late_they_are_taken() -> None:
    turns = Turns(10.0, None, 20.0, 2.0)
    due = [turn.due_s for _ in range(3) if (turn := turns.take(19.0)) is not None]
    assert due == [10.0, 10.5, 11.0]


def test_turns_that_nobody_came_for_are_told() -> None:
    turns = Turns(0.0, None, 10.0, 5.0)
    for _ in range(30):
        assert turns.take(9.0) is not None
    assert turns.take(10.0) is None
    assert turns.unsent == 20
    kept_up = Turns(0.0, None, 2.0, 5.0)
    while (turn := kept_up.take(0.0)) is not None:
        assert turn.due_s is not None
        assert turn.due_s < 2.0
    assert (kept_up.given, kept_up.unsent) == (10, 0)


def test_a_server_that_stands_still_shows_in_the_latencies_of_a_rate() -> None:
    """One connection, 10 a second, and one answer that takes 2 s: those behind it are late too."""
    turns, tally = Turns(0.0, None, 10.0, 10.0), Tally("publish")
    now_s = 0.0
    while (turn := turns.take(now_s)) is not None:
        assert turn.due_s is not None
        now_s = max(now_s, turn.due_s)
        now_s += 2.0 if turn.number == 50 else 0.001
        tally.done(turn.due_s, now_s, 1)
    p95_s = tally.latencies.percentile_s(95)
    assert p95_s is not None
    assert p95_s > 1.0
    # Were each counted from when it was sent, one of a hundred would be slow.
    assert tally.latencies.most_s == pytest.approx(2.0)


@given(
    st.lists(st.floats(1e-5, 1000), min_size=1, max_size=300), st.sampled_from([50, 95, 99, 100])
)
def test_a_percentile_is_within_a_hundredth(durations: list[float], percent: float) -> None:
    histogram = Histogram()
    for each in durations:
        histogram.add(each)
    exact = sorted(durations)[math.ceil(len(durations) * percent / 100) - 1]
    found = histogram.percentile_s(percent)
    assert found is not None
    assert exact * 0.999 <= found <= exact * 1.011
    assert (histogram.least_s, histogram.most_s) == (min(durations), max(durations))


def test_nothing_has_no_percentile() -> None:
    assert Histogram().percentile_s(50) is None
    assert Histogram().mean_s is None


def test_rates_are_from_the_first_request_to_the_last_answer() -> None:
    tally = Tally("publish")
    assert tally.messages_per_s is None
    tally.begin(10.0)
    tally.begin(10.5)
    tally.done(10.0, 12.0, 100)
    tally.done(10.5, 11.0, 100)
    assert tally.passed_s == 2.0
    assert (tally.messages_per_s, tally.requests_per_s) == (100.0, 1.0)


def test_errors_are_counted_by_kind_apart_from_latencies_and_bounded() -> None:
    tally = Tally("publish")
    tally.refuse(problem("no-space"), 10, may_be_done=True)
    tally.refuse(ConnectionLost("gone"), 1, may_be_done=True)
    tally.refuse(TimedOut("late"), 1, may_be_done=False)
    assert tally.errors == {"no-space": 10, "connection-lost": 1, "timed-out": 1}
    assert (tally.failed, tally.uncertain, tally.latencies.count) == (12, 11, 0)
    for number in range(2 * ERROR_KINDS_MAX):
        tally.refuse(problem(f"kind-{number}"), 1, may_be_done=False)
    assert len(tally.errors) == ERROR_KINDS_MAX + 1
    assert sum(tally.errors.values()) == tally.failed
    assert kind_of(ConnectionLost("gone")) == "connection-lost"


def outcome(**changes: object) -> Outcome:
    publish = Tally("publish")
    publish.begin(0.0)
    publish.done(0.0, 0.5, 100)
    made = Outcome(PLAN, "http://there", None, (publish, Tally("fetch")), 0.2, Left())
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_report_has_the_figures() -> None:
    assert outcome().is_whole
    text = "\n".join(lines(outcome()))
    for word in ("messages/s", "p99 ms", "200.0", "500.00", "mqctl-bench-0123456789ab"):
        assert word in text
    said = document(outcome())
    assert said["operations"]["publish"]["messages_per_s"] == 200.0
    assert said["operations"]["publish"]["latency"]["max_s"] == 0.5
    assert said["operations"]["fetch"]["latency"]["p50_s"] is None


@pytest.mark.parametrize(
    ("changes", "words", "is_whole"),
    [
        ({"left": Left("mine", "nobody answered")}, "LEFT: queue mine: nobody answered", False),
        ({"stopped_by": "SIGTERM"}, "stopped by SIGTERM", False),
        ({"gave_up": "nothing succeeds"}, "gave up: nothing succeeds", False),
        ({"missing": 3}, "3 messages were published and never came", False),
        ({"busy_share": 0.97}, "the bench itself used 97% of a core", True),
        ({"has_ended_early": True}, "the time was over before", True),
    ],
)
def test_a_report_says_what_is_to_be_known(
    changes: dict[str, object], words: str, is_whole: bool
) -> None:
    found = outcome(**changes)
    assert words in "\n".join(lines(found))
    assert found.is_whole is is_whole
    assert document(found)["whole"] is is_whole
