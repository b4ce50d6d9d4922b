"""When a message, or a queue, has lived as long as its settings say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.clock import rfc3339
from mq.model.expiry import (
    Life,
    expired_up_to_ms,
    has_expired,
    is_expired,
    life_of,
    lifetime_ms,
    next_change_ms,
)
from mq.model.limits import MESSAGE_TTL_S_MAX
from mq.model.settings import QueueSettings

NOW_MS = 1_800_000_000_000
MS = st.integers(0, 10**13)
TTL_S = st.floats(0, MESSAGE_TTL_S_MAX)


@pytest.mark.parametrize(
    ("ttl_s", "now_ms", "up_to_ms"),
    [
        (0.0, NOW_MS, None),
        (1.0, NOW_MS, NOW_MS - 1000),
        (0.0015, NOW_MS, NOW_MS - 2),
        (0.0001, NOW_MS, NOW_MS - 1),
        (10.0, 9_999, None),
        (10.0, 10_000, 0),
        (float(MESSAGE_TTL_S_MAX), NOW_MS, NOW_MS - MESSAGE_TTL_S_MAX * 1000),
    ],
)
def test_up_to_when_messages_have_expired(ttl_s: float, now_ms: int, up_to_ms: int | None) -> None:
    assert expired_up_to_ms(ttl_s, now_ms) == up_to_ms


@given(published_ms=MS, ttl_s=TTL_S, now_ms=MS)
def test_a_message_expires_once_its_lifetime_is_over(
    published_ms: int, ttl_s: float, now_ms: int
) -> None:
    is_over = ttl_s > 0 and now_ms - published_ms >= lifetime_ms(ttl_s)
    assert has_expired(published_ms, ttl_s, now_ms) == is_over


@given(published_ms=MS, ttl_s=TTL_S)
def test_none_has_expired_as_it_is_published(published_ms: int, ttl_s: float) -> None:
    assert not has_expired(published_ms, ttl_s, published_ms)


@given(published_ms=MS, ttl_s=TTL_S, now_ms=MS, back_ms=st.integers(0, 10**6))
def test_a_clock_that_is_set_back_brings_messages_back_and_expires_none(
    published_ms: int, ttl_s: float, now_ms: int, back_ms: int
) -> None:
    before = has_expired(published_ms, ttl_s, now_ms)
    assert before or not has_expired(published_ms, ttl_s, max(0, now_ms - back_ms))


def _queue(expires_ms: int | None, grace_s: float) -> QueueSettings:
    expires_at = None if expires_ms is None else rfc3339(expires_ms)
    return QueueSettings(expires_at=expires_at, expiry_grace_s=grace_s)


@pytest.mark.parametrize(
    ("expires_in_ms", "grace_s", "life", "change_in_ms"),
    [
        (None, 60.0, Life.LIVES, None),
        (1, 60.0, Life.LIVES, 1),
        (0, 60.0, Life.EXPIRED, 60_000),
        (-1, 60.0, Life.EXPIRED, 59_999),
        (-59_999, 60.0, Life.EXPIRED, 1),
        (-60_000, 60.0, Life.OVER, None),
        (0, 0.0, Life.OVER, None),
        (5, 0.0, Life.LIVES, 5),
    ],
)
def test_a_queue_s_life(
    expires_in_ms: int | None, grace_s: float, life: Life, change_in_ms: int | None
) -> None:
    settings = _queue(None if expires_in_ms is None else NOW_MS + expires_in_ms, grace_s)
    assert life_of(settings, NOW_MS) is life
    assert is_expired(settings, NOW_MS) == (life is not Life.LIVES)
    change_ms = next_change_ms(settings, NOW_MS)
    assert (None if change_ms is None else change_ms - NOW_MS) == change_in_ms
    if change_ms is not None:
        assert life_of(settings, change_ms) is not life
        assert life_of(settings, change_ms - 1) is life
