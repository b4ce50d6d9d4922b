"""When a message, or a queue, has lived as long as its queue's settings say: pure.

Times are milliseconds since the epoch, as the root's file system tells them. A message's
life counts from its publish, which its id says; what it did meanwhile (was delayed, fetched,
sidelined, brought back) changes nothing of that.
"""

from enum import Enum

from mq.model.settings import QueueSettings


class Life(Enum):
    """Where a queue stands that may have an end."""

    LIVES = "lives"
    EXPIRED = "expired"
    """Nothing is published to it or fetched from it; its name and its messages are kept."""
    OVER = "over"
    """It is to be deleted."""


def expired_up_to_ms(message_ttl_s: float, now_ms: int) -> int | None:
    """What was published up to then, and in that millisecond, has expired; None: nothing has, since
    messages live for ever, or no clock began so long ago.
    """
    if message_ttl_s <= 0:
        return None
    up_to_ms = now_ms - lifetime_ms(message_ttl_s)
    return up_to_ms if up_to_ms >= 0 else None


def lifetime_ms(message_ttl_s: float) -> int:
    """How long a message lives; a millisecond at least, or it would have none."""
    return max(1, round(message_ttl_s * 1000))


def has_expired(published_ms: int, message_ttl_s: float, now_ms: int) -> bool:
    """Whether a message that was published then has lived longer than its queue's messages may."""
    up_to_ms = expired_up_to_ms(message_ttl_s, now_ms)
    return up_to_ms is not None and published_ms <= up_to_ms


def life_of(settings: QueueSettings, now_ms: int) -> Life:
    """Where a queue of these settings stands."""
    expires_ms = settings.expires_ms
    if expires_ms is None or now_ms < expires_ms:
        return Life.LIVES
    ends_ms = expires_ms + round(settings.expiry_grace_s * 1000)
    return Life.OVER if now_ms >= ends_ms else Life.EXPIRED


def is_expired(settings: QueueSettings, now_ms: int) -> bool:
    """Whether a queue of these settings takes and gives nothing any more."""
    # In the way of every message: nearly no queue has an end.
    return settings.expires_at is not None and life_of(settings, now_ms) is not Life.LIVES


def next_change_ms(settings: QueueSettings, now_ms: int) -> int | None:
    """When a queue of these settings will stand elsewhere than now; None: never."""
    expires_ms = settings.expires_ms
    if expires_ms is None:
        return None
    ends_ms = expires_ms + round(settings.expiry_grace_s * 1000)
    return next((each for each in (expires_ms, ends_ms) if each > now_ms), None)
