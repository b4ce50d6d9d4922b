"""The reports of processes that share upkeep, and conclusions from them. Pure.

A report is one JSON object; FORMAT.md, "Members", has its fields. Reports are for people: no
decision depends on them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from mq.model.clock import parse_rfc3339, rfc3339
from mq.model.errors import BadName
from mq.model.names import QueueName

# The longest interval between two reports of a member, the silence after which it is shown as gone,
# and the number of queues that a report names.
TOLD_EVERY_S: Final = 10.0
TOLD_GONE_S: Final = 3 * TOLD_EVERY_S
TOLD_QUEUES_MAX: Final = 10_000

_VERSION: Final = 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Acted:
    """A policy's counts since its process began; times are milliseconds since the epoch."""

    turns: int = 0
    acted: int = 0
    failed: int = 0
    last_ms: int | None = None
    """The time of its last action."""
    next_ms: int | None = None
    """The time of its next turn."""


@dataclass(frozen=True, slots=True)
class Doing:
    """A member's current work, and what it knows of the others."""

    coordinator: str
    """Its kind: file, zookeeper, or alone."""
    leader: str | None = None
    """The leader, as far as the member knows."""
    is_connected: bool = True
    queues: tuple[QueueName, ...] = ()
    """The queues that the member keeps up, by name."""
    policies: Mapping[str, Acted] = field(default_factory=dict)
    redelivery: Mapping[str, int] = field(default_factory=dict)
    """Counts of the work that needs no leader, by name."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member's report."""

    name: str
    host: str
    pid: int
    started_ms: int
    told_ms: int
    doing: Doing
    queues_count: int
    """The number of its queues; `doing` names only the first of them."""

    @property
    def leads(self) -> bool:
        """Whether the member reports itself as leader."""
        return self.doing.is_connected and self.doing.leader == self.name

    def is_gone(self, now_ms: int) -> bool:
        """Whether the last report is so old that the member has ended or is stopped."""
        return now_ms - self.told_ms > TOLD_GONE_S * 1000

    def as_json(self) -> dict[str, object]:
        doing = self.doing
        return {
            "version": _VERSION,
            "member": self.name,
            "host": self.host,
            "pid": self.pid,
            "started": rfc3339(self.started_ms),
            "told": rfc3339(self.told_ms),
            "coordinator": doing.coordinator,
            "leader": doing.leader,
            "connected": doing.is_connected,
            "queues": {
                "count": self.queues_count,
                "names": [queue.text for queue in doing.queues[:TOLD_QUEUES_MAX]],
            },
            "policies": {name: acted_json(acted) for name, acted in doing.policies.items()},
            "redelivery": dict(doing.redelivery),
        }

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Parses a member's report. Raises ValueError for another file or version."""
        try:
            said = _typed(json.loads(text), dict)
            if said["version"] != _VERSION:
                raise ValueError("another version")
            queues = _typed(said["queues"], dict)
            doing = Doing(
                _typed(said["coordinator"], str),
                None if said["leader"] is None else _typed(said["leader"], str),
                _typed(said["connected"], bool),
                tuple(QueueName.parse(_typed(each, str)) for each in _typed(queues["names"], list)),
                {name: _acted(each) for name, each in _typed(said["policies"], dict).items()},
                {name: _count(each) for name, each in _typed(said["redelivery"], dict).items()},
            )
            return cls(
                _typed(said["member"], str),
                _typed(said["host"], str),
                _count(said["pid"]),
                _time(said["started"]),
                _time(said["told"]),
                doing,
                _count(queues["count"]),
            )
        except (KeyError, BadName, RecursionError) as error:
            raise ValueError(f"no member's file: {error!r}") from None


def acted_json(acted: Acted) -> dict[str, object]:
    """A policy's counts, as in files and answers."""
    times = {"last": acted.last_ms, "next": acted.next_ms}
    said = {name: None if ms is None else rfc3339(ms) for name, ms in times.items()}
    return {"turns": acted.turns, "acted": acted.acted, "failed": acted.failed, **said}


def leader_of(members: Iterable[Member], now_ms: int) -> str | None:
    """The leader: of the present members that report themselves as leader, the one with the latest
    report. None: no leader now, as while another member takes over.
    """
    leading = [each for each in members if each.leads and not each.is_gone(now_ms)]
    return max(leading, key=lambda each: each.told_ms).name if leading else None


def owner_of(members: Iterable[Member], queue: QueueName, now_ms: int) -> str | None:
    """The member that keeps up the queue: of the present members that report it, the one with the
    latest report. None: no member now, or a member with more queues than its report names.
    """
    own = [
        each
        for each in members
        if each.doing.is_connected and queue in each.doing.queues and not each.is_gone(now_ms)
    ]
    return max(own, key=lambda each: each.told_ms).name if own else None


def _acted(said: object) -> Acted:
    fields = _typed(said, dict)
    times = (None if fields[name] is None else _time(fields[name]) for name in ("last", "next"))
    return Acted(*(_count(fields[name]) for name in ("turns", "acted", "failed")), *times)


def _typed(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is not {kind.__name__}")
    return value


def _count(value: object) -> int:
    count = _typed(value, int)
    if isinstance(value, bool) or count < 0:
        raise ValueError(f"{value!r} counts nothing")
    return count


def _time(value: object) -> int:
    return parse_rfc3339(_typed(value, str))
