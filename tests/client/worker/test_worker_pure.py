"""What a worker decides, without a worker: verdicts, waits, places, handlers, turns, leases."""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.worker.dispatching import Fit, Table
from mq.client.worker.handlers import Handler, Options
from mq.client.worker.leases import (
    EXTEND_AGAIN_S_MAX,
    EXTEND_AGAIN_S_MIN,
    LEASE_S_MIN,
    Lease,
    ServerTime,
)
from mq.client.worker.supply import Ripening, Scale, Supply
from mq.client.worker.verdicts import Backoff, Delete, Lapse, Policy, Release, Sideline
from mq.model.limits import CONSUMERS_MAX

chances = st.floats(0, 1)


# Waits


@pytest.mark.parametrize(
    ("receives", "least_s", "most_s"), [(1, 0.5, 1), (2, 1, 2), (5, 8, 16), (10, 150, 300)]
)
def test_a_wait_doubles_up_to_a_bound(receives: int, least_s: float, most_s: float) -> None:
    assert Backoff().delay_s(receives, 0) == least_s
    assert Backoff().delay_s(receives, 1) == most_s


@given(st.integers(0, 999), chances, st.floats(0, 100), st.floats(100, 10_000))
def test_no_wait_is_out_of_bounds(
    receives: int, chance: float, first_s: float, longest_s: float
) -> None:
    assert 0 <= Backoff(first_s, longest_s).delay_s(receives, chance) <= longest_s


@pytest.mark.parametrize(("first_s", "longest_s"), [(-1, 1), (2, 1), (1, 1e9)])
def test_no_such_backoff(first_s: float, longest_s: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        Backoff(first_s, longest_s)


# Verdicts


class Known(ValueError):
    pass


@pytest.mark.parametrize("result", [True, None, 0, "", [], "no"])
def test_whatever_is_not_false_deletes(result: object) -> None:
    assert Policy().of_result(result, 1, 0.5) == Delete()


def test_false_sidelines_or_lapses() -> None:
    assert Policy().of_result(False, 1, 1) == Sideline("rejected", 1)
    assert Policy(on_false="lapse").of_result(False, 1, 1) == Lapse()


@pytest.mark.parametrize("error", [ValueError(), Known()])
def test_what_is_ignored_deletes(error: Exception) -> None:
    assert Policy(ignore=(ValueError,)).of_error(error, 1, 0.5) == Delete()
    assert Policy(ignore=(KeyError,)).of_error(error, 1, 1) == Sideline("exception", 1)


def test_what_failed_waits_longer_each_time() -> None:
    policy = Policy(on_error="release", backoff=Backoff(2, 60))
    assert policy.of_error(KeyError(), 1, 1) == Release(2)
    assert policy.of_error(KeyError(), 4, 1) == Release(16)
    assert policy.of_error(KeyError(), 400, 1) == Release(60)


def test_no_such_policy() -> None:
    wrong: Any = "drop"
    with pytest.raises(ValueError, match="on_false"):
        Policy(on_false=wrong)
    with pytest.raises(ValueError, match="on_error"):
        Policy(on_error=wrong)
    with pytest.raises(TypeError, match="ignore"):
        Policy(ignore=(ValueError("x"),))  # type: ignore[arg-type]


# Scaling


def test_the_setting_goes_before_the_own_number_and_differences_on_top() -> None:
    scale = Scale(4)
    assert scale.total == 4
    scale = scale.scaled(3)
    assert scale.total == 7
    scale = scale.following([10])
    assert scale.total == 13
    assert scale.following([10]).total == 13
    assert scale.following([10, 5, 0]).total == 18
    assert scale.following([0, 0]).total == 7


def test_what_went_beyond_a_bound_need_not_be_taken_back() -> None:
    assert Scale(4).scaled(1000).scaled(-1).total == CONSUMERS_MAX - 1
    assert Scale(4).scaled(-1000).scaled(1).total == 2


@given(
    st.integers(1, CONSUMERS_MAX),
    st.lists(st.integers(-300, 300) | st.lists(st.integers(0, CONSUMERS_MAX), max_size=3)),
)
def test_there_is_always_one_and_never_more_than_there_may_be(own: int, steps: list[Any]) -> None:
    scale = Scale(own)
    for step in steps:
        before = scale.total
        scale = scale.scaled(step) if isinstance(step, int) else scale.following(step)
        assert 1 <= scale.total <= CONSUMERS_MAX
        if isinstance(step, int):
            assert scale.total == min(max(before + step, 1), CONSUMERS_MAX)


@pytest.mark.parametrize("own", [0, -1, CONSUMERS_MAX + 1])
def test_no_such_number_of_consumers(own: int) -> None:
    with pytest.raises(ValueError, match="consumers"):
        Scale(own)


# Handlers


@dataclass
class Fake:
    """What is asked of a message."""

    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None


def typed(type_: str, key: str | None = None, header: str = "ce-type") -> Fake:
    return Fake({header: type_}, key)


def table(*fits: Fit) -> Table[Fit]:
    made: Table[Fit] = Table()
    for fit in fits:
        made.add("orders", fit, fit)
    return made


PLAIN, ORDER, MADE, ANY_ORDER = Fit(), Fit("order.*"), Fit("order.made"), Fit("order.made.*")
EU, EU_NORTH = Fit(key_prefix="eu-"), Fit(key_prefix="eu-north-")
BOTH = Fit("order.*", "eu-")


@pytest.mark.parametrize(
    ("message", "fit"),
    [
        (typed("order.made"), MADE),
        (typed("order.made.late"), ANY_ORDER),
        (typed("order.paid"), ORDER),
        (typed("order."), ORDER),
        (typed("payment"), PLAIN),
        (Fake(), PLAIN),
        (Fake(key="eu-7"), EU),
        (Fake(key="eu-north-7"), EU_NORTH),
        (Fake(key="us-7"), PLAIN),
        (typed("order.made", "us-7"), MADE),
        (typed("order.made", "eu-7"), BOTH),
        (typed("payment", "eu-7"), EU),
    ],
)
def test_what_fits_most_closely_is_taken(message: Fake, fit: Fit) -> None:
    fits = (PLAIN, ORDER, MADE, ANY_ORDER, EU, EU_NORTH, BOTH)
    assert table(*fits).handler("orders", message) is fit
    assert table(*reversed(fits)).handler("orders", message) is fit


def test_the_type_may_be_in_any_header() -> None:
    fit = Fit("order", type_header="X-Attribute-Type")
    assert table(fit).handler("orders", typed("order", header="x-attribute-type")) is fit
    assert table(fit).handler("orders", typed("order")) is None


def test_none_may_fit() -> None:
    assert table(MADE, EU).handler("orders", typed("order.paid", "us-7")) is None
    assert table(PLAIN).handler("others", Fake()) is None


@pytest.mark.parametrize("fit", [PLAIN, ORDER, EU, BOTH])
def test_a_handler_is_said_once(fit: Fit) -> None:
    with pytest.raises(ValueError, match="already"):
        table(fit, Fit(fit.type, fit.key_prefix))


def test_the_header_of_no_type_tells_nothing_apart() -> None:
    with pytest.raises(ValueError, match="already"):
        table(PLAIN, Fit(type_header="x-attribute-type"))


@pytest.mark.parametrize("type_", ["", "a*b", "**"])
def test_no_such_type(type_: str) -> None:
    with pytest.raises(ValueError, match="asterisk"):
        Fit(type_)


# Turns


def plain(*queues: str) -> Supply[None, Any]:
    """One whose queues have a handler each."""
    return Supply(queues, lambda _: None)


def test_queues_take_turns_as_long_as_they_have_something() -> None:
    supply = plain("a", "b", "c")
    supply.put("a", ["a1", "a2", "a3"])
    supply.put("c", ["c1"])
    assert [supply.take() for _ in range(3)] == [["a1"], ["c1"], ["a2"]]
    supply.put("b", ["b1"])
    assert [supply.take() for _ in range(3)] == [["b1"], ["a3"], []]


def test_what_is_left_is_all_taken() -> None:
    supply = plain("a", "b")
    supply.put("a", [1, 2])
    supply.put("b", [3])
    assert (len(supply), supply.take_all(), len(supply)) == (3, [1, 2, 3], 0)


async def test_messages_that_a_full_batch_left_wait_from_when_the_first_of_them_came() -> None:
    now_s = asyncio.get_running_loop().time()
    handler = Handler(len, True, Options(max=2, wait=1000.0))
    supply: Supply[Any, Any] = Supply(("q",), lambda _: handler)
    ripening = Ripening(supply, lambda: None)
    supply.put("q", [SimpleNamespace(came_s=now_s - 2000), SimpleNamespace(came_s=now_s)])
    ripening.changed("q", handler)
    assert ripening.ripe == {("q", handler)}
    supply.take()
    ripening.changed("q", handler)
    assert not ripening.ripe
    supply.take()
    ripening.changed("q", handler)


@pytest.mark.parametrize(
    ("waiting", "free", "prefetch", "wanted"),
    [
        (0, 4, 0, 4), (0, 0, 0, 0), (0, 4, 6, 10), (0, 0, 6, 6), (3, 0, 6, 3), (4, 0, 6, 0),
        (6, 0, 6, 0), (6, 2, 6, 2), (9, 2, 6, 0),
    ],
)  # fmt: skip
def test_what_one_queue_is_asked_for(waiting: int, free: int, prefetch: int, wanted: int) -> None:
    supply = plain("a")
    supply.put("a", range(waiting))
    assert supply.wanted("a", free, prefetch) == wanted


def test_each_of_several_is_asked_for_its_share() -> None:
    supply = plain("a", "b", "c")
    assert [supply.wanted("a", free, 0) for free in (0, 1, 3, 4, 6)] == [0, 1, 1, 2, 2]


# Leases


def test_a_lease_is_extended_when_a_third_is_left() -> None:
    lease = Lease.of(30, 60, now_s=100)
    assert (lease.extend_at_s, lease.whole_s) == (120, 30)
    lease = lease.extended(30, 121)
    assert (lease.ends_s, lease.extend_at_s) == (151, 141)
    lease = lease.extended(600, 142)  # By the handler itself.
    assert (lease.extend_at_s, lease.whole_s) == (542, 600)


@pytest.mark.parametrize("left_s", [0, -5])
def test_one_that_has_lapsed_is_extended_at_once(left_s: float) -> None:
    lease = Lease.of(left_s, 60, now_s=100)
    assert (lease.extend_at_s, lease.whole_s) == (100, 60)


def test_a_short_one_is_made_longer() -> None:
    assert Lease.of(0.1, 60, now_s=0).whole_s == LEASE_S_MIN


@given(st.floats(-10, 1000), st.floats(0, 2000))
def test_a_try_that_fails_leaves_time_for_another(left_s: float, after_s: float) -> None:
    lease = Lease.of(left_s, 30, now_s=0)
    assert after_s < lease.again_at_s(after_s)
    assert 0 < lease.patience_s(after_s) <= max(lease.left_s(after_s) / 2, 1)


def test_a_lease_that_is_over_is_tried_again_after_waits_that_double() -> None:
    lease = Lease.of(30, 30, now_s=0)
    times = [30.0]
    while times[-1] < 60:
        times.append(lease.again_at_s(times[-1]))
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(waits))
    assert waits[0] == pytest.approx(EXTEND_AGAIN_S_MIN)
    assert waits[-1] == pytest.approx(EXTEND_AGAIN_S_MAX)
    assert len(waits) < 15


def test_due_times_are_the_server_s() -> None:
    clocks = ServerTime().heard(server_ms=50_000, now_ms=20_000)
    assert clocks.left_s(due_ms=80_000, now_ms=20_000) == 30
    assert clocks.left_s(due_ms=80_000, now_ms=21_500) == 28.5
