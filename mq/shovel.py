"""Which of a sideline's messages a shovel takes back to their queue, and why it leaves others.

Floor 0, pure. `mq/store/shovel.py` decides so under the inode's lock, just before it moves a
message; a dry run decides so without.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Self

from mq.expiry import has_expired, is_expired
from mq.message import Stamp
from mq.names import MessageId
from mq.selection import Selection
from mq.settings import QueueSettings


class Why(Enum):
    """Why a message was not taken back; the value is how a shovel's progress says it."""

    NOT_SELECTED = "not-selected"
    """Its key or its priority is not one that was asked for."""
    RECEIVES = "receives"
    """It was received so often that it stays."""
    LATER = "later"
    """It was sidelined after the pass began: it waits for the next one."""
    TOO_YOUNG = "too-young"
    """It was sidelined not so long ago as was asked for."""
    EXPIRED = "expired"
    """It has lived longer than its queue's messages may."""
    PURGED = "purged"
    """A purge of its queue covers it: it would go with what was purged."""
    CHANGED = "changed"
    """It is not as it was when it was chosen: it was delivered since, or came and went."""
    KEY_TAKEN = "key-taken"
    """A living message has its key."""
    QUEUE_MISSING = "queue-missing"
    """Its queue is not there."""
    QUEUE_EXPIRED = "queue-expired"
    """Its queue has expired."""
    SETTINGS_UNREADABLE = "settings-unreadable"
    """Nobody can tell what its queue's settings say."""
    BUSY = "busy"
    """Another process is at it in this moment, or at its key."""
    GONE = "gone"
    """It does not stay: it was fetched, deleted or purged there, or taken back by another."""


@dataclass(frozen=True, slots=True)
class Criteria:
    """What a shovel takes. Made by `of`, which checks them. None: no matter.

    `limit` is how many messages it moves at most, which whoever runs it counts. `older_than_s` is
    since a message was sidelined. `key` and `priority` are as in a selection's terms. From so many
    as `max_receives` receives on a message stays; 0: no matter how many.
    """

    limit: int | None = None
    older_than_s: float | None = None
    key: str | None = None
    priority: str | None = None
    max_receives: int = 0
    _selection: Selection | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        *,
        limit: int | None = None,
        older_than_s: float | None = None,
        key: str | None = None,
        priority: str | None = None,
        max_receives: int = 0,
    ) -> Self:
        """Those that say this. Raises BadParameter for a key or a priority that no selection's term
        is made of.
        """
        said = priority is not None or key is not None
        selection = Selection.of(priority=priority, key=key) if said else None
        return cls(limit, older_than_s, key, priority, max_receives, selection)

    def selects(self, name: str) -> bool:
        """Whether the message of this name, an id as text, has a key and a priority that were asked
        for.
        """
        return self._selection is None or self._selection.matches_name(name) is True

    def as_json(self) -> dict[str, object]:
        """What was asked for, by parameter."""
        said: dict[str, object] = {
            "limit": self.limit,
            "older_than_s": self.older_than_s,
            "key": self.key,
            "priority": self.priority,
        }
        found = {name: value for name, value in said.items() if value is not None}
        return {**found, "max_receives": self.max_receives}


ALL: Final = Criteria.of()


class Found(NamedTuple):
    """A message of a sideline, as it was found there."""

    id: MessageId
    stamp: Stamp


class Times(NamedTuple):
    """When a pass began, and now: milliseconds since the epoch, as the root tells the time."""

    began_ms: int
    now_ms: int


def why_the_queue_takes_none(settings: QueueSettings | None, now_ms: int) -> Why | None:
    """Why nothing at all goes back to a queue with these settings (None: they cannot be told);
    None where nothing stands in the way.
    """
    if settings is None:
        return Why.SETTINGS_UNREADABLE
    return Why.QUEUE_EXPIRED if is_expired(settings, now_ms) else None


def why_it_stays(
    criteria: Criteria, settings: QueueSettings, found: Found, times: Times
) -> Why | None:
    """Why a message stays in the sideline, by what its name and its stamp say, and by its queue's
    settings; None: it may go. The first reason counts: what was asked for comes first.
    """
    why = _why_not_meant(criteria, found, times)
    if why is not None:
        return why
    if 0 < criteria.max_receives <= found.stamp.attempts:
        return Why.RECEIVES
    if has_expired(found.id.published_ms, settings.message_ttl_s, times.now_ms):
        return Why.EXPIRED
    return None


def _why_not_meant(criteria: Criteria, found: Found, times: Times) -> Why | None:
    """A stamp whose time is yet to come is none of a sidelining (a crash has kept that from being
    set): nobody knows when that was; it was not after the pass began, nor long enough ago.
    """
    stamp, now_ms = found.stamp, times.now_ms
    if not criteria.selects(found.id.text):
        return Why.NOT_SELECTED
    if times.began_ms < stamp.due_ms <= now_ms:
        return Why.LATER
    if criteria.older_than_s and now_ms - stamp.due_ms < criteria.older_than_s * 1000:
        return Why.TOO_YOUNG
    return None
