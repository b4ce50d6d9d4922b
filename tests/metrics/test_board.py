"""A board: regions of numbers that outlive their processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from mq.metrics.board import Board, make_shared
from mq.metrics.meter import Meter
from mq.metrics.plan import GONE, KEPT, OUTCOMES, Plan
from mq.metrics.told import families_of
from mq.runtime.histogram import SECONDS, Histogram

PLAN = Plan(("publish", "fetch"))
WRITES = """
import sys
from mq.metrics.board import Board
board = Board(3, 2, 1, int(sys.argv[1]))
board.own[2] += 5
print(flush=True)
sys.stdin.read()
"""


COUNTS = """
import sys
from mq.metrics.board import Board
from mq.metrics.meter import Meter
from mq.metrics.plan import KEPT, Plan
plan = Plan(("publish", "fetch"))
meter = Meter(plan, Board(plan.numbers, 2, 1, int(sys.argv[1])), lambda: 0.0)
found = {(each.name, value): 0.0 for each in KEPT for value in each.values}
meter.keep(found | {("mq_lost_races", ""): 3, ("mq_connections", ""): 7})
meter.request(0, 200, 0.003)
"""


@pytest.fixture
def shared() -> Iterator[int]:
    made = make_shared(PLAN.numbers, 2)
    assert made is not None
    yield made
    os.close(made)


def meter(index: int = 0, shared: int | None = None) -> Meter:
    return Meter(PLAN, Board(PLAN.numbers, 2, index, shared), FakeClock().steady_s)


def kept(**found: float) -> dict[tuple[str, str], float]:
    keys = {(each.name, value): 0.0 for each in KEPT for value in each.values}
    return keys | {(name, ""): value for name, value in found.items()}


def told(by: Meter) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families_of(by)
        for sample in family.samples
    }


def test_another_program_writes_and_what_it_wrote_outlives_it() -> None:
    descriptor = make_shared(3, 2)
    assert descriptor is not None
    own = Board(3, 2, 0, descriptor)
    own.own[2] += 1
    other = subprocess.Popen(
        [sys.executable, "-c", WRITES, str(descriptor)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(descriptor,),
    )
    assert other.stdin is not None
    assert other.stdout is not None
    other.stdout.readline()
    assert own.summed(0, 3) == [0, 0, 6]
    assert own.living() == {0: os.getpid(), 1: other.pid}
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert own.living() == {0: os.getpid()}
    assert own.summed(0, 3) == [0, 0, 6]
    assert own.summed(0, 3, [0]) == [0, 0, 1]
    other.stdin.close()
    other.stdout.close()
    os.close(descriptor)


def test_who_comes_after_counts_on_and_holds_what_it_holds_itself(shared: int) -> None:
    first = meter(1, shared)
    first.keep(kept(mq_lost_races=3, mq_connections=7))
    first.request(0, 200, 0.003)
    second = meter(1, shared)
    second.keep(kept(mq_lost_races=2, mq_connections=1))
    second.keep(kept(mq_lost_races=4, mq_connections=1))
    second.request(0, 200, 0.003)
    found = told(second)
    assert found["mq_lost_races_total", ()] == 7
    assert found["mq_connections", ()] == 1
    assert found["mq_request_seconds_count", ("publish", "2xx")] == 2


def test_what_one_that_ended_had_counted_stays_and_what_it_held_goes(shared: int) -> None:
    command = [sys.executable, "-c", COUNTS, str(shared)]
    subprocess.run(command, pass_fds=(shared,), check=True)
    own = meter(0, shared)
    own.keep(kept(mq_lost_races=1, mq_connections=1))
    found = told(own)
    assert found["mq_lost_races_total", ()] == 4
    assert found["mq_connections", ()] == 1
    assert found["mq_request_seconds_count", ("publish", "2xx")] == 1
    assert found["mq_processes", ()] == 1


def test_without_a_board_a_process_tells_of_itself_under_its_own_number() -> None:
    alone = Meter(PLAN, Board(PLAN.numbers, 2, 1, None), FakeClock().steady_s)
    assert alone.board.living() == {1: os.getpid()}
    alone.request(1, None, 1)
    assert told(alone)["mq_request_seconds_count", ("fetch", "gone")] == 1


@pytest.mark.parametrize("ends", [lambda of: of.commit(2, 0.5), lambda of: of.keep(kept())])
def test_flushes_of_threads_are_counted_at_a_commit_or_scrape_and_never_kept_long(
    ends: Callable[[Meter], None],
) -> None:
    def counted() -> float:
        return told(of).get(("mq_flush_seconds_count", ("folder", "ok")), 0)

    of = meter()
    with ThreadPoolExecutor(2) as threads:
        for _ in range(10_000):
            threads.submit(of.flush, (1, False, 0.5))
    assert counted() > 5000
    ends(of)
    assert counted() == 10_000
    assert told(of)["mq_flush_seconds_sum", ("folder", "ok")] == 5000


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1), st.integers(0, len(OUTCOMES) - 1), st.floats(0, 100, allow_nan=False)
        )
    )
)
def test_requests_are_where_a_plain_histogram_has_them(seen: list[tuple[int, int, float]]) -> None:
    of = meter()
    model: dict[tuple[int, int], Histogram] = {}
    for operation, outcome, seconds in seen:
        of.request(operation, None if outcome == GONE else 100 * outcome + 100, seconds)
        model.setdefault((operation, outcome), Histogram(SECONDS)).observe(seconds)
    found = told(of)
    for (operation, outcome), histogram in model.items():
        labels = (PLAN.operations[operation], OUTCOMES[outcome])
        assert found["mq_request_seconds_count", labels] == sum(histogram.counts)
        assert found["mq_request_seconds_sum", labels] == pytest.approx(histogram.total)
        for number, bound in enumerate(SECONDS, 1):
            below = sum(
                seconds <= bound for a, b, seconds in seen if (a, b) == (operation, outcome)
            )
            assert found["mq_request_seconds_bucket", (*labels, str(bound))] == below
            assert sum(histogram.counts[:number]) == below
    assert len(model) == sum(name == "mq_request_seconds_count" for name, _ in found)
