"""What an mtime says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.limits import RECEIVES_MAX
from mq.model.message import RETURNED_MAX, Stamp

due = st.integers(0, 2**43)
stamps = st.builds(
    Stamp, due_ms=due, receives=st.integers(0, 999), reason=st.integers(0, 9), returned=st.just(0)
)
returned = st.tuples(due, st.integers(0, 999), st.integers(0, RETURNED_MAX)).map(
    lambda says: Stamp(says[0], says[1], returned=min(says[1:]))
)


@given(stamps | returned)
def test_a_stamp_survives_an_mtime(stamp: Stamp) -> None:
    assert Stamp.from_mtime_ns(stamp.mtime_ns()) == stamp


@given(st.integers(0, 2**62))
def test_an_mtime_that_mq_did_not_set_has_no_receives(mtime_ns: int) -> None:
    stamp = Stamp.from_mtime_ns(mtime_ns)
    assert stamp.due_ms == mtime_ns // 1_000_000
    assert 0 <= stamp.returned <= min(stamp.receives, RETURNED_MAX)
    if mtime_ns % 1000 > 9 + RETURNED_MAX:
        assert (stamp.receives, stamp.reason) == (0, 0)


@given(returned)
def test_a_delivery_that_is_returned_is_no_attempt(stamp: Stamp) -> None:
    fetched = stamp.received(stamp.due_ms + 1000)
    counts = not fetched.can_return(stamp.due_ms)
    back = fetched.given_back(stamp.due_ms, not counts)
    assert back.receives == fetched.receives
    assert back.attempts == fetched.attempts - (not counts)
    assert counts == (stamp.returned == RETURNED_MAX)
    assert not fetched.can_return(stamp.due_ms + 1000)
    assert Stamp.from_mtime_ns(back.mtime_ns()) == back


@pytest.mark.parametrize(("before", "after"), [(0, 1), (5, 6), (RECEIVES_MAX, RECEIVES_MAX)])
def test_receives_count_up_and_saturate(before: int, after: int) -> None:
    assert Stamp(1, before).received(due_ms=99) == Stamp(99, after)
