"""What is said of a shovel's run, while it goes on and after it: pure.

Floor 0.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Self

from mq.clock import parse_rfc3339, rfc3339

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD: Final = re.compile(r"[a-z]+(?:[-_ ][a-z]+)*")


class RunState(Enum):
    """How a run stands."""

    RUNNING = "running"
    WAITING = "waiting"
    """It met an error, and goes on in a while where that was."""
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """Its process is gone, or stands still, and has not said how it ended."""

    @property
    def is_under_way(self) -> bool:
        """Whether something is still to come of it."""
        return self in (RunState.RUNNING, RunState.WAITING)


class Trigger(Enum):
    """Who began a run."""

    SCHEDULED = "scheduled"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Progress:
    """A run, and how far it is. Times are milliseconds since the epoch."""

    id: str
    queue: str
    by: Trigger
    began_ms: int
    dry_run: bool = False
    criteria: Mapping[str, object] = field(default_factory=dict)
    """What it moves, as its criteria say it for JSON."""
    rate: int | None = None
    """Messages a second at most."""
    concurrency: int = 1
    state: RunState = RunState.RUNNING
    ended_ms: int | None = None
    looked_at: int = 0
    moved: int = 0
    """Of a dry run, how many would have been."""
    stayed: Mapping[str, int] = field(default_factory=dict)
    """How many, by why."""
    failed: int = 0
    """How often a message could not be moved that should have been."""
    error: str | None = None
    """The last error, as the type of its problem has it."""

    def ended(self, state: RunState, ms: int) -> Self:
        """As it is in the end."""
        return replace(self, state=state, ended_ms=ms)

    def as_json(self) -> dict[str, object]:
        """As the file and the answers have it."""
        return {
            "id": self.id,
            "queue": self.queue,
            "state": self.state.value,
            "by": self.by.value,
            "dry_run": self.dry_run,
            "criteria": dict(self.criteria),
            "rate": self.rate,
            "concurrency": self.concurrency,
            "began": rfc3339(self.began_ms),
            "ended": None if self.ended_ms is None else rfc3339(self.ended_ms),
            "looked_at": self.looked_at,
            "moved": self.moved,
            "stayed": dict(self.stayed),
            "failed": self.failed,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Record:
    """What a queue's file says: its run that goes on, or the last one; and since when the schedule
    counts: when the last scheduled run came to its end.
    """

    run: Progress
    scheduled_ms: int | None = None

    def printed(self) -> bytes:
        """As the file has it."""
        at = None if self.scheduled_ms is None else rfc3339(self.scheduled_ms)
        return json.dumps({**self.run.as_json(), "scheduled": at}).encode() + b"\n"

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Raises ValueError: the file is torn, or somebody else's."""
        try:
            found = json.loads(text)
            return cls(_progress(found), _time(found["scheduled"]))
        except (KeyError, TypeError, RecursionError, AttributeError) as error:
            raise ValueError(repr(error)) from None


def _progress(found: dict[str, Any]) -> Progress:
    criteria, stayed = found["criteria"], found["stayed"]
    counts = {str(why): _count(number) for why, number in stayed.items()}
    if not all(map(_WORD.fullmatch, counts)):
        raise ValueError("no words")
    began_ms = _time(found["began"])
    if began_ms is None or _ID.fullmatch(found["id"]) is None:
        raise ValueError("no id, or no time")
    return Progress(
        found["id"],
        _text(found["queue"]),
        Trigger(found["by"]),
        began_ms,
        found["dry_run"] is True,
        {str(name): _said(value) for name, value in criteria.items()},
        None if found["rate"] is None else _count(found["rate"]),
        _count(found["concurrency"]),
        RunState(found["state"]),
        _time(found["ended"]),
        _count(found["looked_at"]),
        _count(found["moved"]),
        counts,
        _count(found["failed"]),
        None if found["error"] is None else _text(found["error"]),
    )


def _time(found: object) -> int | None:
    return None if found is None else parse_rfc3339(_text(found))


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise ValueError("no text")
    return found


def _count(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError("no count")
    return found


def _said(found: object) -> object:
    if found is not None and not isinstance(found, str | int | float):
        raise ValueError("nothing that criteria say")
    return found
