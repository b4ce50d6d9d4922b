"""The state of `mqctl top`: the queues as last described, and mq itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mq.client.values import Description, Members, Readiness
from mq.model.limits import SIDELINE_SUFFIX
from mq.tools.mqctl.top.rates import Seen

NAMES_MAX: Final = 100_000
"""The most queues to keep."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether mq answers. `since_s`: since when, by the steady clock; `why`: why not, or None."""

    since_s: float
    why: str | None = None

    @property
    def is_lost(self) -> bool:
        return self.why is not None


@dataclass(frozen=True, slots=True)
class Health:
    """mq's state in the last tick; None if unknown. `unready`: why it is not ready."""

    readiness: Readiness | None = None
    unready: str | None = None
    members: Members | None = None
    memory: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Entry:
    """A queue of the list. `seen`: None before its first description. `tried_s`: the time of the
    last request; `trouble`: why that failed.
    """

    seen: Seen | None = None
    tried_s: float | None = None
    trouble: str | None = None


@dataclass(slots=True)
class Board:
    """The state that `asking` writes and all other modules read."""

    reach: Reach
    health: Health = Health()
    entries: dict[str, Entry] = field(default_factory=dict)
    """By the queue's name."""
    has_all_names: bool = False
    """Whether the list of queues was read to its end."""
    has_more: bool = False
    """Whether there are more queues than NAMES_MAX."""
    _listed: set[str] = field(default_factory=set)

    def answered(self, now_s: float) -> None:
        if self.reach.is_lost:
            self.reach = Reach(now_s)

    def lost(self, now_s: float, why: str) -> None:
        self.reach = Reach(self.reach.since_s if self.reach.is_lost else now_s, why)

    def list_names(self, names: Iterable[str]) -> None:
        for name in names:
            if len(self._listed) <= NAMES_MAX:
                self._listed.add(name)
            if name in self.entries:
                continue
            if len(self.entries) >= NAMES_MAX:
                self.has_more = True
            else:
                self.entries[name] = Entry()

    def end_of_list(self) -> None:
        """The list was read to its end: removes queues that were not in it."""
        for name in self.entries.keys() - self._listed:
            del self.entries[name]
        self.has_more = len(self._listed) > len(self.entries)
        self.has_all_names = True
        self._listed = set()

    def begin_list(self) -> None:
        """The list is read from its beginning."""
        self._listed = set()

    def take(self, description: Description, now_s: float) -> None:
        """Stores a queue's description."""
        entry = self.entries.setdefault(description.name, Entry())
        entry.tried_s, entry.trouble = now_s, None
        if entry.seen is None:
            entry.seen = Seen.first(description, now_s)
        else:
            entry.seen.take(description, now_s)

    def refused(self, name: str, now_s: float, why: str) -> None:
        """mq refused to describe a queue. Its older figures stay."""
        if (entry := self.entries.get(name)) is not None:
            entry.tried_s, entry.trouble = now_s, why

    def forget(self, name: str) -> None:
        self.entries.pop(name, None)

    def queues(self) -> dict[str, Entry]:
        """The entries without the sidelines of queues that are listed: they are parts of these."""
        return {
            name: entry
            for name, entry in self.entries.items()
            if not name.endswith(SIDELINE_SUFFIX)
            or name.removesuffix(SIDELINE_SUFFIX) not in self.entries
        }

    def tried_s(self) -> dict[str, float | None]:
        """The time of each queue's last request."""
        return {name: entry.tried_s for name, entry in self.queues().items()}

    @property
    def seen_count(self) -> int:
        """The number of queues with a description."""
        return sum(entry.seen is not None for entry in self.queues().values())
