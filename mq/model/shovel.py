"""Which of a sideline's messages a shovel takes back to their queue, and why it leaves others.

Pure. `mq/store/shovel/shovel.py` decides so under the inode's lock, just before it moves a
message; a dry run decides so without.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple, Self

from mq.model.clock import parse_rfc3339, rfc3339
from mq.model.expiry import has_expired, is_expired
from mq.model.limits import GROUP_OPERATIONS_MAX, KIB
from mq.model.message import Stamp
from mq.model.names import MessageId
from mq.model.selection import Selection
from mq.model.settings import QueueSettings


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
    """The queue's settings cannot be read."""
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


# Bounds of shovels' runs.

# What one worker has in hand at a time, and all of a run: each is a file that is open.
SHOVEL_BATCH_MAX: Final = 128
SHOVEL_IN_HAND_MAX: Final = 256
# How often a run looks whether it is to stop, and says how far it is; and after how long of saying
# nothing another may take its turn.
SHOVEL_LOOK_S: Final = 0.25
SHOVEL_TOLD_EVERY_S: Final = 0.5
SHOVEL_SILENT_S: Final = 10.0
# After how long a run goes on that met an error, and how often.
SHOVEL_AGAIN_S: Final = 10.0
SHOVEL_AGAIN_MAX: Final = 1
# What may be asked for: messages a second, messages in all.
SHOVEL_RATE_MAX: Final = 1_000_000
SHOVEL_LIMIT_MAX: Final = 1_000_000_000
SHOVEL_OLDER_THAN_S_MAX: Final = 366 * 24 * 3600
# What a rate lets through at once, in seconds of it.
SHOVEL_RATE_BURST_S: Final = 0.1
# How long a request waits for a run to have stopped, and how often it looks; how often it is tried
# to begin one where somebody only looks whether one runs, and how long between.
SHOVEL_STOP_WAIT_S: Final = 1.0
SHOVEL_STOP_LOOK_S: Final = 0.05
SHOVEL_TRIES_MAX: Final = 5
SHOVEL_TRY_WAIT_S: Final = 0.01
# Runs at a time: those of requests in an mq process, and scheduled ones in an mq-mover.
SHOVEL_RUNS_MAX: Final = 16
SHOVEL_SCHEDULED_RUNS_MAX: Final = 4
# A schedule is at least so long, and looked at so often; how long an mq-mover that ends waits for
# its runs.
SHOVEL_SCHEDULED_S_MIN: Final = 1.0
SHOVEL_SCHEDULES_LOOK_S: Final = 1.0
SHOVEL_END_S: Final = 5.0
SHOVEL_FILE_BYTES_MAX: Final = 64 * KIB

_RELATIONS: Final = {
    "a batch is one commit group": SHOVEL_BATCH_MAX <= GROUP_OPERATIONS_MAX,
    "a run is heard of more than once before its turn is taken": (
        2 * (SHOVEL_LOOK_S + SHOVEL_TOLD_EVERY_S) < SHOVEL_SILENT_S
    ),
}
for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(_relation)


# How fast a shovel's run may go on.


class Pacing:
    """So many messages a second at most, `rate` None: any number. One thread at a time."""

    def __init__(self, rate: int | None, now_s: float) -> None:
        self._rate = rate
        self._next_s = now_s

    def wait_s(self, now_s: float) -> float:
        """How long until more may be taken on."""
        return max(0.0, self._next_s - now_s)

    def at_once(self, most: int) -> int:
        """How many may be taken on together: what the rate lets through in a short while, at least
        one.
        """
        if self._rate is None:
            return most
        return min(most, max(1, math.floor(self._rate * SHOVEL_RATE_BURST_S)))

    def took(self, count: int, now_s: float) -> None:
        """So many were taken on. What was not done earlier is not made up for."""
        if self._rate is not None:
            self._next_s = max(self._next_s, now_s) + count / self._rate

    def gave_back(self, count: int) -> None:
        """So many of them were not moved after all."""
        if self._rate is not None:
            self._next_s -= count / self._rate


# What is said of a shovel's run, while it goes on and after it.

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


# When a queue's shovel is due.


def interval_s(settings: QueueSettings) -> float | None:
    """How often it runs; None: only when somebody asks."""
    if settings.shovel_interval_s <= 0:
        return None
    return max(settings.shovel_interval_s, SHOVEL_SCHEDULED_S_MIN)


def due_in_s(every_s: float, since_ms: int, now_ms: int) -> float:
    """In how many seconds it is due, when the last run of the schedule ended at `since_ms`, or,
    where there was none, the settings are of then. Where the clock was set back that may have been
    later than now: then it is due after one interval.
    """
    return max(0.0, every_s - max(0, now_ms - since_ms) / 1000)


# What the workers of a shovel's run share: how many messages may still be moved, what became of
# those that were looked at, and how the run stands.


class Tally:
    """Of one run. One thread at a time: whoever uses it holds the run's lock."""

    def __init__(self, progress: Progress, limit: int | None) -> None:
        self._progress = progress
        self._left = limit
        self._in_hand = 0
        self._stayed: Counter[str] = Counter()

    @property
    def progress(self) -> Progress:
        """As of now."""
        return replace(self._progress, stayed=dict(self._stayed))

    @property
    def is_anything_in_hand(self) -> bool:
        """Whether some are being moved at this moment."""
        return self._in_hand > 0

    def room(self, most: int) -> int:
        """How many may be taken in hand, of `most`."""
        return most if self._left is None else min(most, self._left)

    def takes(self, count: int) -> None:
        """So many are in hand."""
        self._in_hand += count
        if self._left is not None:
            self._left -= count

    def gives_back(self, count: int) -> None:
        """So many are not in hand any more, and were not moved."""
        self._in_hand -= count
        if self._left is not None:
            self._left += count

    def settles(self, moved: int, stayed: Mapping[str, int], lost: int, failed: int) -> None:
        """What became of some that were in hand; `lost`: others had them meanwhile."""
        stay = sum(stayed.values())
        self._in_hand -= moved
        self.gives_back(stay + lost + failed)
        self._stayed.update(stayed)
        was = self._progress
        self._progress = replace(
            was,
            looked_at=was.looked_at + moved + stay + lost,
            moved=was.moved + moved,
            failed=was.failed + failed,
        )

    def stands(self, state: RunState, error: str | None = None) -> None:
        """How the run stands from here on; `error` None: the last one stays."""
        self._progress = replace(self._progress, state=state, error=error or self._progress.error)

    def ends(self, state: RunState, ms: int) -> None:
        """How it ended."""
        self._progress = self._progress.ended(state, ms)
