"""All that `mqctl top` knows: the queues as they were seen last, and how mq itself is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mq.client.values import Description, Members, Readiness
from mq.tools.mqctl.top.limits import NAMES_MAX
from mq.tools.mqctl.top.seen import Seen


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether mq answers. `since_s`: since when it does, or does not, by the steady clock; `why`:
    what stands in the way, None where nothing does.
    """

    since_s: float
    why: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether mq does not answer."""
        return self.why is not None


@dataclass(frozen=True, slots=True)
class Health:
    """How mq itself was at the last look; None where it did not say. `unready`: why it is not
    ready.
    """

    readiness: Readiness | None = None
    unready: str | None = None
    members: Members | None = None
    memory: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Entry:
    """A queue of the list. `seen`: None where mq never said how it is. `tried_s`: when it was asked
    about last; `trouble`: why the last answer was none.
    """

    seen: Seen | None = None
    tried_s: float | None = None
    trouble: str | None = None


@dataclass(slots=True)
class Board:
    """What is known. The only mutable thing of the view: `asking` fills it, all else reads it."""

    reach: Reach
    health: Health = Health()
    entries: dict[str, Entry] = field(default_factory=dict)
    """By the queue's name."""
    has_all_names: bool = False
    """Whether the list of the queues was read to its end."""
    has_more: bool = False
    """Whether there are more queues than can be known."""
    _listed: set[str] = field(default_factory=set)

    def answered(self, now_s: float) -> None:
        """mq answered."""
        if self.reach.is_lost:
            self.reach = Reach(now_s)

    def lost(self, now_s: float, why: str) -> None:
        """mq did not answer."""
        self.reach = Reach(self.reach.since_s if self.reach.is_lost else now_s, why)

    def list_names(self, names: Iterable[str]) -> None:
        """These are there: a part of the list."""
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
        """The list was read to its end: what was not in it is gone."""
        for name in self.entries.keys() - self._listed:
            del self.entries[name]
        self.has_more = len(self._listed) > len(self.entries)
        self.has_all_names = True
        self._listed = set()

    def begin_list(self) -> None:
        """The list is read from its beginning, whatever of it was read before."""
        self._listed = set()

    def take(self, said: Description, now_s: float) -> None:
        """An answer about a queue."""
        entry = self.entries.setdefault(said.name, Entry())
        entry.tried_s, entry.trouble = now_s, None
        if entry.seen is None:
            entry.seen = Seen.first(said, now_s)
        else:
            entry.seen.take(said, now_s)

    def refused(self, name: str, now_s: float, why: str) -> None:
        """mq would not say how a queue is. What was known of it stays, and grows old."""
        if (entry := self.entries.get(name)) is not None:
            entry.tried_s, entry.trouble = now_s, why

    def forget(self, name: str) -> None:
        """The queue is gone."""
        self.entries.pop(name, None)

    def tried_s(self) -> dict[str, float | None]:
        """When each queue was asked about last."""
        return {name: entry.tried_s for name, entry in self.entries.items()}

    @property
    def seen_count(self) -> int:
        """How many queues were seen at least once."""
        return sum(entry.seen is not None for entry in self.entries.values())
