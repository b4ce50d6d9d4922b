"""What the processes that share upkeep tell of themselves, and what follows from all of it. Pure.

One JSON object a member; FORMAT.md, "Members", has its fields. It is for eyes: nothing is
decided by it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from mq.model.clock import parse_rfc3339, rfc3339
from mq.model.errors import BadName
from mq.model.names import QueueName
from mq.model.upkeep_limits import TOLD_GONE_S, TOLD_QUEUES_MAX

_VERSION: Final = 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Acted:
    """What a policy has done since its process began; times are milliseconds since the epoch."""

    turns: int = 0
    acted: int = 0
    failed: int = 0
    last_ms: int | None = None
    """When it last acted on something."""
    next_ms: int | None = None
    """When its next turn is due."""


@dataclass(frozen=True, slots=True)
class Doing:
    """What a member does, and what it knows of the others."""

    coordinator: str
    """Its kind: file, zookeeper, alone."""
    leader: str | None = None
    """Who leads, as far as the member knows."""
    is_connected: bool = True
    queues: tuple[QueueName, ...] = ()
    """Those whose upkeep is its own, by name."""
    policies: Mapping[str, Acted] = field(default_factory=dict)
    redelivery: Mapping[str, int] = field(default_factory=dict)
    """Figures of what needs no leader, by their names."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member as it told of itself."""

    name: str
    host: str
    pid: int
    started_ms: int
    told_ms: int
    doing: Doing
    queues_count: int
    """How many queues are its own; `doing` has the names of the first of them."""

    @property
    def leads(self) -> bool:
        """Whether it says that it leads."""
        return self.doing.is_connected and self.doing.leader == self.name

    def is_gone(self, now_ms: int) -> bool:
        """Whether it has told nothing for so long that it is no longer there, or stopped."""
        return now_ms - self.told_ms > TOLD_GONE_S * 1000

    def as_json(self) -> dict[str, object]:
        """As its file has it."""
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
        """What a member's file says. Raises ValueError: it is none, or of a version not known."""
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
    """What a policy has done, as files and answers have it."""
    times = {"last": acted.last_ms, "next": acted.next_ms}
    said = {name: None if ms is None else rfc3339(ms) for name, ms in times.items()}
    return {"turns": acted.turns, "acted": acted.acted, "failed": acted.failed, **said}


def leader_of(members: Iterable[Member], now_ms: int) -> str | None:
    """Who leads: of those who say so and are there, the one that said so last. None: nobody does
    at this moment, as while another takes over.
    """
    leading = [each for each in members if each.leads and not each.is_gone(now_ms)]
    return max(leading, key=lambda each: each.told_ms).name if leading else None


def owner_of(members: Iterable[Member], queue: QueueName, now_ms: int) -> str | None:
    """Whose the queue's upkeep is: of those who say so and are there, the one that said so last.
    None: nobody's at this moment, or of one who has more queues than it names.
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
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value


def _count(value: object) -> int:
    count = _typed(value, int)
    if isinstance(value, bool) or count < 0:
        raise ValueError(f"{value!r} counts nothing")
    return count


def _time(value: object) -> int:
    return parse_rfc3339(_typed(value, str))
