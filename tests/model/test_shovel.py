"""What a shovel takes, and why it leaves others: by tables."""

import pytest

from mq.model.clock import rfc3339
from mq.model.errors import BadParameter
from mq.model.message import Reason, Stamp
from mq.model.names import Key, MessageId
from mq.model.settings import QueueSettings
from mq.model.shovel import ALL, Criteria, Found, Times, Why, why_it_stays, why_the_queue_takes_none

PUBLISHED_MS = 1_700_000_000_000
UUID = f"{PUBLISHED_MS >> 16:08x}-{PUBLISHED_MS & 0xFFFF:04x}-7d2a-9b1e-0123456789ab"
SIDELINED_MS = PUBLISHED_MS + 1000
NOW_MS = SIDELINED_MS + 60_000
BEGAN_MS = NOW_MS - 10_000
KEYED = MessageId(UUID, priority=5, key=Key.parse("night-1"))


def why(
    criteria: Criteria = ALL,
    *,
    due_ms: int = SIDELINED_MS,
    receives: int = 3,
    reason: Reason = Reason.REJECTED,
    message_id: MessageId = KEYED,
    settings: QueueSettings = QueueSettings(),  # noqa: B008 - frozen
) -> Why | None:
    found = Found(message_id, Stamp(due_ms, receives, reason))
    return why_it_stays(criteria, settings, found, Times(BEGAN_MS, NOW_MS))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, None),
        ({"limit": 1}, None),
        ({"key": "night-1"}, None),
        ({"key": "night*"}, None),
        ({"key": "*"}, None),
        ({"key": "night"}, Why.NOT_SELECTED),
        ({"key": "day*"}, Why.NOT_SELECTED),
        ({"priority": "5"}, None),
        ({"priority": "3..7"}, None),
        ({"priority": "6.."}, Why.NOT_SELECTED),
        ({"priority": "5..", "key": "day*"}, Why.NOT_SELECTED),
        ({"older_than_s": 60.0}, None),
        ({"older_than_s": 60.001}, Why.TOO_YOUNG),
        ({"older_than_s": 0.0}, None),
        ({"max_receives": 0}, None),
        ({"max_receives": 4}, None),
        ({"max_receives": 3}, Why.RECEIVES),
        ({"max_receives": 2}, Why.RECEIVES),
    ],
)
def test_what_was_asked_for(said: dict[str, object], expected: Why | None) -> None:
    assert why(Criteria.of(**said)) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("due_ms", "older_than_s", "expected"),
    [
        (BEGAN_MS, None, None),
        (BEGAN_MS + 1, None, Why.LATER),
        (NOW_MS, None, Why.LATER),
        # No time of a sidelining: nobody knows it.
        (NOW_MS + 1, None, None),
        (NOW_MS + 1, 1.0, Why.TOO_YOUNG),
    ],
)
def test_what_came_after_the_pass_began_waits(
    due_ms: int, older_than_s: float | None, expected: Why | None
) -> None:
    assert why(Criteria.of(older_than_s=older_than_s), due_ms=due_ms) is expected


def test_what_has_no_key_has_none_that_is_asked_for() -> None:
    plain = MessageId(UUID)
    assert why(Criteria.of(key="*"), message_id=plain) is Why.NOT_SELECTED
    assert why(Criteria.of(priority="..4"), message_id=plain) is None


@pytest.mark.parametrize(("ttl_s", "expected"), [(0, None), (61, Why.EXPIRED), (61.001, None)])
def test_what_has_expired_stays(ttl_s: float, expected: Why | None) -> None:
    """Its life counts from its publish, not from when it was sidelined."""
    assert why(settings=QueueSettings(message_ttl_s=ttl_s)) is expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (QueueSettings(), None),
        (None, Why.SETTINGS_UNREADABLE),
        (QueueSettings(expires_at=rfc3339(NOW_MS)), Why.QUEUE_EXPIRED),
        (QueueSettings(expires_at=rfc3339(NOW_MS + 1)), None),
    ],
)
def test_a_queue_may_take_nothing(settings: QueueSettings | None, expected: Why | None) -> None:
    assert why_the_queue_takes_none(settings, NOW_MS) is expected


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("key", ""), ("key", "a*b"), ("key", "a,priority:3"), ("key", "a\\"), ("key", "x" * 65),
        ("priority", ""), ("priority", "10"), ("priority", "7..3"), ("priority", "1,key:a"),
    ],
)  # fmt: skip
def test_what_no_term_is_made_of_is_refused(parameter: str, value: str) -> None:
    with pytest.raises(BadParameter) as told:
        Criteria.of(**{parameter: value})  # type: ignore[arg-type]
    assert told.value.parameter == parameter


def test_it_says_what_was_asked_for() -> None:
    assert ALL.as_json() == {"max_receives": 0}
    criteria = Criteria.of(limit=5, key="a*", priority="3..", max_receives=20)
    assert criteria.as_json() == {
        "limit": 5, "key": "a*", "priority": "3..", "max_receives": 20,
    }  # fmt: skip


def test_of_a_named_message_its_pack_moves_whole() -> None:
    pack = MessageId(f"{UUID[:20]}000{UUID[23:]}", items=3)
    other = MessageId(f"{UUID[:20]}000{UUID[23:-1]}c", items=3)
    criteria = Criteria.of(ids=[pack.item(2)])
    assert criteria.selects(pack.text)
    assert criteria.selects(pack.item(2).text), "it has a file of its own now"
    assert not criteria.selects(pack.item(1).text)
    assert not criteria.selects(other.text)
    assert criteria.as_json()["ids"] == 1
