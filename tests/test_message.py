"""What an mtime says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.limits import RECEIVES_MAX
from mq.message import Stamp

stamps = st.builds(
    Stamp, due_ms=st.integers(0, 2**43), receives=st.integers(0, 999), reason=st.integers(0, 9)
)


@given(stamps)
def test_a_stamp_survives_an_mtime(stamp: Stamp) -> None:
    assert Stamp.from_mtime_ns(stamp.mtime_ns()) == stamp


@given(st.integers(0, 2**62))
def test_an_mtime_that_mq_did_not_set_has_no_receives(mtime_ns: int) -> None:
    stamp = Stamp.from_mtime_ns(mtime_ns)
    assert stamp.due_ms == mtime_ns // 1_000_000
    if mtime_ns % 1000 > 9:
        assert (stamp.receives, stamp.reason) == (0, 0)


@pytest.mark.parametrize(("before", "after"), [(0, 1), (5, 6), (RECEIVES_MAX, RECEIVES_MAX)])
def test_receives_count_up_and_saturate(before: int, after: int) -> None:
    assert Stamp(1, before).received(due_ms=99) == Stamp(99, after)
