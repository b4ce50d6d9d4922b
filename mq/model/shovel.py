"""Which messages of a sideline a shovel returns to their queue, and why others stay. Pure.

`mq/store/shovel/shovel.py` decides under the inode's lock, just before it moves a message. A dry
run decides without the lock.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple, Self

from mq.model.clock import parse_rfc3339, rfc3339
from mq.model.expiry import has_expired, is_expired, lived_out
from mq.model.limits import GROUP_OPERATIONS_MAX, KIB, TURN_SILENT_S
from mq.model.message import Stamp
from mq.model.names import MessageId
from mq.model.selection import Selection
from mq.model.settings import QueueSettings


class Why(Enum):
    """Why a message stayed. The value is the word in a shovel's progress."""

    NOT_SELECTED = "not-selected"
    """Its id, key or priority does not match the criteria."""
    RECEIVES = "receives"
    """It has `max_receives` receives or more."""
    LATER = "later"
    """It was sidelined after the pass began; the next pass looks at it."""
    TOO_YOUNG = "too-young"
    """It was sidelined less than `older_than_s` ago."""
    EXPIRED = "expired"
    """It would be expired in its queue."""
    PURGED = "purged"
    """Its queue's purge mark covers it, so it would count as purged there."""
    CHANGED = "changed"
    """It changed since it was chosen: it was delivered, or left and came back."""
    KEY_TAKEN = "key-taken"
    """A living message has its key."""
    QUEUE_MISSING = "queue-missing"
    """Its queue does not exist."""
    QUEUE_EXPIRED = "queue-expired"
    """Its queue has expired."""
    QUEUE_FULL = "queue-full"
    """Its queue is at its limit."""
    SETTINGS_UNREADABLE = "settings-unreadable"
    """The queue's settings cannot be read."""
    BUSY = "busy"
    """Another process holds it or its key."""
    GONE = "gone"
    """It left the sideline: fetched, deleted, purged, or moved by another process."""


@dataclass(frozen=True, slots=True)
class Criteria:
    """Which messages a shovel moves; None: any. Made and checked by `of`.

    `limit` is the largest number of messages to move; the run counts them. `older_than_s` counts
    from the time of sidelining. `key` and `priority` are written as in a selection's terms. A
    message with `max_receives` receives or more stays; 0 means no limit. `ids`: the number of named
    messages, whose files are `_files`; 0: any message.
    """

    limit: int | None = None
    older_than_s: float | None = None
    key: str | None = None
    priority: str | None = None
    max_receives: int = 0
    ids: int = 0
    _files: frozenset[str] = frozenset()
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
        ids: Collection[MessageId] = (),
    ) -> Self:
        """Makes criteria. Raises BadParameter for a key or priority that no selection accepts."""
        said = priority is not None or key is not None
        selection = Selection.of(priority=priority, key=key) if said else None
        # A pack moves whole, whichever of its messages is named.
        packs = [each.pack() for each in ids if each.pack_size]
        files = frozenset(each.text for each in (*ids, *packs))
        return cls(limit, older_than_s, key, priority, max_receives, len(ids), files, selection)

    def selects(self, name: str) -> bool:
        """Whether the message with this name, an id as text, matches ids, key and priority."""
        if self.ids and name not in self._files:
            return False
        return self._selection is None or self._selection.matches_name(name) is True

    def as_json(self) -> dict[str, object]:
        """The given criteria by parameter, of the ids their number."""
        said: dict[str, object] = {
            "ids": self.ids or None,
            "limit": self.limit,
            "older_than_s": self.older_than_s,
            "key": self.key,
            "priority": self.priority,
        }
        found = {name: value for name, value in said.items() if value is not None}
        return {**found, "max_receives": self.max_receives}


ALL: Final = Criteria.of()


class Found(NamedTuple):
    """A message of a sideline, as a scan found it."""

    id: MessageId
    stamp: Stamp


class Times(NamedTuple):
    """The start of a pass, and now: milliseconds since the epoch, by the root's clock."""

    began_ms: int
    now_ms: int


def why_the_queue_takes_none(settings: QueueSettings | None, now_ms: int) -> Why | None:
    """Why a queue with these settings takes no message back; None: it does. `settings` None: they
    are unreadable.
    """
    if settings is None:
        return Why.SETTINGS_UNREADABLE
    return Why.QUEUE_EXPIRED if is_expired(settings, now_ms) else None


def why_it_stays(
    criteria: Criteria, settings: QueueSettings, found: Found, times: Times
) -> Why | None:
    """Why a message stays in the sideline, by its name, its stamp and its queue's settings; None:
    it may move. The first reason counts, criteria before the rest.
    """
    why = _why_not_meant(criteria, found, times)
    if why is not None:
        return why
    if 0 < criteria.max_receives <= found.stamp.attempts:
        return Why.RECEIVES
    ttl_s = lived_out(found.id, settings.message_ttl_s)
    if has_expired(found.id.published_ms, ttl_s, times.now_ms):
        return Why.EXPIRED
    return None


def _why_not_meant(criteria: Criteria, found: Found, times: Times) -> Why | None:
    """Applies the criteria. A stamp in the future is not a time of sidelining: a crash prevented
    that stamp. Such a message counts as sidelined before the pass, but not `older_than_s` ago.
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

# Messages that one worker, and a whole run, hold at a time. Each is an open file.
SHOVEL_BATCH_MAX: Final = 128
SHOVEL_IN_HAND_MAX: Final = 256
# How often a run checks for a stop request and writes its progress.
SHOVEL_LOOK_S: Final = 0.25
SHOVEL_TOLD_EVERY_S: Final = 0.5
# The pause of a run after an error, and the number of such pauses.
SHOVEL_AGAIN_S: Final = 10.0
SHOVEL_AGAIN_MAX: Final = 1
# Bounds of a request: messages a second, ids, messages in all.
SHOVEL_RATE_MAX: Final = 1_000_000
SHOVEL_IDS_MAX: Final = 100
SHOVEL_LIMIT_MAX: Final = 1_000_000_000
SHOVEL_OLDER_THAN_S_MAX: Final = 366 * 24 * 3600
# The burst that a rate allows, in seconds of that rate.
SHOVEL_RATE_BURST_S: Final = 0.1
# How long a request waits for a run to stop, and its interval of checks; how often a request tries
# to begin a run while another process only checks for one, and the pause between.
SHOVEL_STOP_WAIT_S: Final = 1.0
SHOVEL_STOP_LOOK_S: Final = 0.05
SHOVEL_TRIES_MAX: Final = 5
# A run that has ended releases its turn within moments.
SHOVEL_ENDING_TRIES_MAX: Final = 100
SHOVEL_TRY_WAIT_S: Final = 0.01
# Runs at a time: those of requests in an mq process, and scheduled ones in an mq-mover.
SHOVEL_RUNS_MAX: Final = 16
SHOVEL_SCHEDULED_RUNS_MAX: Final = 4
# The shortest interval of a schedule, the interval at which mq-mover checks it, and how long an
# ending mq-mover waits for its runs.
SHOVEL_SCHEDULED_S_MIN: Final = 1.0
SHOVEL_SCHEDULES_LOOK_S: Final = 1.0
SHOVEL_END_S: Final = 5.0
SHOVEL_FILE_BYTES_MAX: Final = 64 * KIB
# Runs of requests that a shovel's file keeps beside the last one.
SHOVEL_EARLIER_MAX: Final = 9

_RELATIONS: Final = {
    "a batch is one commit group": SHOVEL_BATCH_MAX <= GROUP_OPERATIONS_MAX,
    "a run is heard of more than once before its turn is taken": (
        2 * (SHOVEL_LOOK_S + SHOVEL_TOLD_EVERY_S) < TURN_SILENT_S
    ),
}
for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(_relation)


# The speed of a shovel's run.


class Pacing:
    """Limits a run to `rate` messages a second; None: no limit. For one thread at a time."""

    def __init__(self, rate: int | None, now_s: float) -> None:
        self._rate = rate
        self._next_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until the rate allows more."""
        return max(0.0, self._next_s - now_s)

    def at_once(self, most: int) -> int:
        """The number of messages that may be taken together: the rate's burst, at least one."""
        if self._rate is None:
            return most
        return min(most, max(1, math.floor(self._rate * SHOVEL_RATE_BURST_S)))

    def took(self, count: int, now_s: float) -> None:
        """Counts taken messages. Unused rate is not saved up."""
        if self._rate is not None:
            self._next_s = max(self._next_s, now_s) + count / self._rate

    def gave_back(self, count: int) -> None:
        """Takes back the count of messages that were taken and not moved."""
        if self._rate is not None:
            self._next_s -= count / self._rate


# The progress of a shovel's run, during the run and after it.

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD: Final = re.compile(r"[a-z]+(?:[-_ ][a-z]+)*")


class RunState(Enum):
    RUNNING = "running"
    WAITING = "waiting"
    """It met an error, and continues there after a pause."""
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """Its process died or was stopped, without a report of the end."""

    @property
    def is_under_way(self) -> bool:
        """Whether the run may still move messages."""
        return self in (RunState.RUNNING, RunState.WAITING)


class Trigger(Enum):
    SCHEDULED = "scheduled"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Progress:
    """A run and its progress. Times are milliseconds since the epoch."""

    id: str
    queue: str
    by: Trigger
    began_ms: int
    dry_run: bool = False
    criteria: Mapping[str, object] = field(default_factory=dict)
    """Its criteria as JSON."""
    rate: int | None = None
    """The limit of messages a second."""
    concurrency: int = 1
    state: RunState = RunState.RUNNING
    ended_ms: int | None = None
    looked_at: int = 0
    moved: int = 0
    """Messages that a dry run would have moved."""
    stayed: Mapping[str, int] = field(default_factory=dict)
    """Counts, by the reason."""
    failed: int = 0
    """The number of messages whose move failed."""
    error: str | None = None
    """The problem type of the last error."""
    into: str | None = None
    """The queue that messages go to; None: the shovel's own."""

    def ended(self, state: RunState, ms: int) -> Self:
        return replace(self, state=state, ended_ms=ms)

    def as_json(self) -> dict[str, object]:
        """The progress as files and answers have it."""
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
            **({} if self.into is None else {"into": self.into}),
        }


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a queue's shovel file: its current or last run; the end of the last scheduled
    run, from which the schedule counts; and what requests began before, the latest first.
    """

    run: Progress
    scheduled_ms: int | None = None
    earlier: tuple[Progress, ...] = ()

    def printed(self) -> bytes:
        at = None if self.scheduled_ms is None else rfc3339(self.scheduled_ms)
        content: dict[str, object] = {**self.run.as_json(), "scheduled": at}
        if self.earlier:
            content["earlier"] = [each.as_json() for each in self.earlier]
        return json.dumps(content).encode() + b"\n"

    @property
    def before_next(self) -> "tuple[Progress, ...]":
        """The `earlier` of the next run."""
        was = (self.run,) if self.run.by is Trigger.REQUEST and not self.run.dry_run else ()
        return (*was, *self.earlier)[:SHOVEL_EARLIER_MAX]

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Parses a file's content. Raises ValueError for a torn or foreign file."""
        try:
            found = json.loads(text)
            earlier = found.get("earlier", [])[:SHOVEL_EARLIER_MAX]
            return cls(_progress(found), _time(found["scheduled"]), tuple(map(_progress, earlier)))
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
        None if found.get("into") is None else _text(found["into"]),
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


# When a queue's scheduled shovel is due.


def interval_s(settings: QueueSettings) -> float | None:
    """The interval of scheduled runs; None: only requests begin runs."""
    if settings.shovel_interval_s <= 0:
        return None
    return max(settings.shovel_interval_s, SHOVEL_SCHEDULED_S_MIN)


def due_in_s(every_s: float, since_ms: int, now_ms: int) -> float:
    """Seconds until the next scheduled run, counted from `since_ms`: the end of the last one or,
    without one, the time of the settings. If a clock that was set back puts that in the future, the
    run is due after one interval.
    """
    return max(0.0, every_s - max(0, now_ms - since_ms) / 1000)


# Shared by the workers of a run: how many messages may still move, the results so far, the state.


class Tally:
    """The shared counts of one run. The caller holds the run's lock."""

    def __init__(self, progress: Progress, limit: int | None) -> None:
        self._progress = progress
        self._left = limit
        self._in_hand = 0
        self._stayed: Counter[str] = Counter()

    @property
    def progress(self) -> Progress:
        return replace(self._progress, stayed=dict(self._stayed))

    @property
    def is_anything_in_hand(self) -> bool:
        """Whether workers are moving messages now."""
        return self._in_hand > 0

    def room(self, most: int) -> int:
        """How many messages, up to `most`, a worker may take; the last pack may exceed that."""
        return most if self._left is None else max(0, min(most, self._left))

    def takes(self, count: int) -> None:
        """Counts messages that a worker has taken."""
        self._in_hand += count
        if self._left is not None:
            self._left -= count

    def gives_back(self, count: int) -> None:
        """Takes back the count of messages that a worker took and did not move."""
        self._in_hand -= count
        if self._left is not None:
            self._left += count

    def settles(self, moved: int, stayed: Mapping[str, int], lost: int, failed: int) -> None:
        """Counts the results of taken messages; `lost` are those that another process moved
        first.
        """
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
        """Sets the run's state; `error` None keeps the last error."""
        self._progress = replace(self._progress, state=state, error=error or self._progress.error)

    def ends(self, state: RunState, ms: int) -> None:
        self._progress = self._progress.ended(state, ms)
