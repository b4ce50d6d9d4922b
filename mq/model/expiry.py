"""Expiry of messages and queues by their settings. Pure.

Times are milliseconds since the epoch, by the clock of the root's file system. A message's life
counts from its publish time, which is part of its id. Delays, fetches, sidelining and shovels do
not change it.
"""

from dataclasses import dataclass
from enum import Enum

from mq.model.names import MessageId
from mq.model.settings import QueueSettings


class Life(Enum):
    """The stage of a queue that may expire."""

    LIVES = "lives"
    EXPIRED = "expired"
    """Takes no publishes and delivers no messages; its name and messages are kept."""
    OVER = "over"
    """To be deleted."""


def expired_up_to_ms(message_ttl_s: float, now_ms: int) -> int | None:
    """The latest publish time, in milliseconds since the epoch, whose messages have expired. None:
    no message expires, or the TTL is longer than the time since the epoch.
    """
    if message_ttl_s <= 0:
        return None
    up_to_ms = now_ms - lifetime_ms(message_ttl_s)
    return up_to_ms if up_to_ms >= 0 else None


def lifetime_ms(message_ttl_s: float) -> int:
    """A message's lifetime in milliseconds, at least 1: zero would mean none."""
    return max(1, round(message_ttl_s * 1000))


def lived_out(message_id: MessageId, message_ttl_s: float) -> float:
    """The age in seconds at which a message expires: the smaller of the queue's TTL and its own; 0:
    never.
    """
    own_s = message_id.ttl_s
    if own_s is None:
        return message_ttl_s
    return min(message_ttl_s, own_s) if message_ttl_s > 0 else own_s


def has_expired(published_ms: int, message_ttl_s: float, now_ms: int) -> bool:
    """Whether a message with this publish time is older than `message_ttl_s`."""
    up_to_ms = expired_up_to_ms(message_ttl_s, now_ms)
    return up_to_ms is not None and published_ms <= up_to_ms


def life_of(settings: QueueSettings, now_ms: int) -> Life:
    """The stage of a queue with these settings."""
    expires_ms = settings.expires_ms
    if expires_ms is None or now_ms < expires_ms:
        return Life.LIVES
    ends_ms = expires_ms + round(settings.expiry_grace_s * 1000)
    return Life.OVER if now_ms >= ends_ms else Life.EXPIRED


def is_expired(settings: QueueSettings, now_ms: int) -> bool:
    """Whether a queue with these settings neither takes publishes nor delivers messages any
    more.
    """
    # On every message's path, and almost no queue has an end: check the setting first.
    return settings.expires_at is not None and life_of(settings, now_ms) is not Life.LIVES


def next_change_ms(settings: QueueSettings, now_ms: int) -> int | None:
    """The time of the queue's next change of stage; None: never."""
    expires_ms = settings.expires_ms
    if expires_ms is None:
        return None
    ends_ms = expires_ms + round(settings.expiry_grace_s * 1000)
    return next((each for each in (expires_ms, ends_ms) if each > now_ms), None)


@dataclass(frozen=True, slots=True)
class Passing:
    """Full passes of redelivery without a gap. `since_ms`: the end of the first one. `latest_ms`:
    the start of the last complete one, which tried all messages due by then.
    """

    since_ms: int
    latest_ms: int


def overdue_after_s(settings: QueueSettings | None, is_sideline: bool) -> float:
    """Seconds after its due time from which a message is overdue. `settings`: its queue's, also for
    a message of the sideline, where the time is at least two shovel intervals. None: the settings
    are unreadable, and the defaults count.
    """
    told = settings or QueueSettings()
    return max(told.sweep_after_s, 2 * told.shovel_interval_s if is_sideline else 0)


def is_overdue(due_ms: int, came_ms: int, after_s: float, passing: Passing | None) -> bool:
    """Whether redelivery has failed to return a message of delay/ for `after_s` seconds without a
    gap. `came_ms` is the last change of the message's file. Times when no mover ran do not count.
    `passing` None: no full pass has ended.
    """
    if passing is None:
        return False
    waits_since_ms = max(due_ms, came_ms, passing.since_ms)
    return passing.latest_ms - waits_since_ms >= after_s * 1000
