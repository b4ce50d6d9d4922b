"""What requests are answered with, as values: frozen, typed, times with their zone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from mq.client.bodies import GivenBody
from mq.client.errors import ClientError
from mq.model.names import CONTENT_TYPE_DEFAULT

State: TypeAlias = Literal["ready", "delayed", "leased", "removed"]
"""Where a message is."""
Via: TypeAlias = Literal["auto", "websocket", "poll"]
"""How a consumer gets its messages."""
Reason: TypeAlias = Literal["rejected", "exception"]
"""Why a consumer sidelines a message."""


class Absent:
    """Nothing was said: None would be a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to publish. Its body is `body`, or `json` as JSON; `delay_s` in seconds or `at`, a
    time; the rest as `publish` has it.
    """

    body: GivenBody = b""
    json: Any = ABSENT
    delay_s: float | None = None
    at: datetime | None = None
    priority: int | None = None
    key: str | None = None
    visibility_s: int | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one of many messages: it has an `id`, and is on stable media; or a `problem`,
    which says whether it may be there all the same.
    """

    id: str | None = None
    problem: ClientError | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one of many that were to be deleted. `is_done`: it is gone for good."""

    id: str
    status: int
    problem: ClientError | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is gone for good."""
        return self.problem is None


@dataclass(frozen=True, slots=True)
class Carried:
    """What any message says of itself that was read, peeked at or fetched."""

    queue: str
    id: str
    body: bytes
    headers: Mapping[str, str]
    receives: int
    published: datetime
    due: datetime
    priority: int
    key: str | None
    sidelined: str | None
    """In a sideline, why it came there, where that is known."""

    @property
    def content_type(self) -> str:
        """Its Content-Type."""
        return self.headers.get("content-type", CONTENT_TYPE_DEFAULT)

    def text(self) -> str:
        """The body as text in UTF-8. Raises UnicodeDecodeError."""
        return self.body.decode()

    def json(self) -> Any:
        """What the body says as JSON. Raises ValueError."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class StoredMessage(Carried):
    """A message that was read: nothing was consumed. `body` is the part that was asked for, `size`
    the whole body's bytes.
    """

    state: State
    size: int


@dataclass(frozen=True, slots=True)
class PeekedMessage(Carried):
    """A message that was peeked at: nothing was consumed. `body` is at most the first 4 KiB of the
    `size` bytes that it has.
    """

    state: State
    size: int
    sidelined_at: datetime | None
    """In a sideline, since when it is there."""


@dataclass(frozen=True, slots=True)
class Extended:
    """A message's new due time, and how often it has been received."""

    id: str
    due: datetime
    receives: int


@dataclass(frozen=True, slots=True)
class Sidelined:
    """Where a message went that was sidelined: the sideline's name, and the reason, of the first
    time where it was asked for again.
    """

    id: str
    queue: str
    receives: int
    reason: str


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """Something that became of a message."""

    time: datetime
    event: str
    receives: int | None
    due: datetime | None
    lease: str | None
    reason: str | None
    process: str | None


@dataclass(frozen=True, slots=True)
class History:
    """What became of a message. `recording`: whether its queue records now; `left_out`: how many
    events there were before those told.
    """

    id: str
    recording: bool
    left_out: int
    events: tuple[HistoryEvent, ...]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A queue of a list."""

    name: str
    sideline: bool


@dataclass(frozen=True, slots=True)
class Description:
    """A queue's counts, its settings, and what one process did with it since it began (`totals`).
    `as_of`: of when each figure is. `process`: `index` and `of`, which process answered.
    """

    name: str
    ready: int
    delayed: int
    in_flight: int
    leased: int
    overdue: int
    removed: int
    sidelined: int
    foreign: int
    oldest_ready_age_s: float | None
    expired: bool
    totals: Mapping[str, int]
    process: Mapping[str, int]
    as_of: Mapping[str, datetime]
    settings: Mapping[str, Any]
    said: Mapping[str, Any]
    """The answer as it was, with what this version does not know."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A queue's effective settings by name, as JSON has them; their entity tag is an `if_match`."""

    values: Mapping[str, Any]
    etag: str

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A queue's schedule, and how far it is. `is_new`: whether this PUT made it, None elsewhere.
    `problem`: in a list, what is wrong with one whose file is damaged; its other facts are empty.
    """

    name: str
    every_s: float | None
    delay_s: float | None
    cron: str | None
    tz: str | None
    next: datetime | None
    fired: int
    skipped: int
    last: str | None
    count: int | None
    until: datetime | None
    overlap: str
    priority: int | None
    key: str | None
    visibility_s: int | None
    size: int
    headers: Mapping[str, str]
    body: bytes
    is_new: bool | None = None
    problem: ClientError | None = None


@dataclass(frozen=True, slots=True)
class ShovelProgress:
    """How far the run of a shovel is that goes on, or what came of the last one; `state` is
    `scheduled` where none has run yet, and there is no more than when the next is.
    """

    queue: str
    state: str
    id: str | None
    by: str | None
    dry_run: bool
    criteria: Mapping[str, Any]
    rate: int | None
    concurrency: int | None
    began: datetime | None
    ended: datetime | None
    looked_at: int
    moved: int
    stayed: Mapping[str, int]
    failed: int
    error: str | None
    interval_s: float | None
    next: datetime | None

    @property
    def is_over(self) -> bool:
        """Whether nothing goes on."""
        return self.state not in ("running", "waiting")


@dataclass(frozen=True, slots=True)
class Member:
    """A process that shares the upkeep, as it told of itself. `said`: all of that."""

    name: str
    host: str
    pid: int
    started: datetime
    told: datetime
    gone: bool
    leads: bool
    connected: bool
    queues_count: int
    said: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Members:
    """The processes that share the upkeep. `assigned`: whose the queue is that was asked for."""

    leader: str | None
    members: tuple[Member, ...]
    assigned: str | None


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a look at all queues found: how many, and how many of them are new to the process that
    was asked, have other settings, or are gone since its last look.
    """

    queues: int
    new: int
    changed: int
    gone: int


@dataclass(frozen=True, slots=True)
class Readiness:
    """What mq can promise now: the durability of a success, and what is free."""

    durability: str
    file_system: str
    commit: str
    free_bytes: int
    free_inodes: int
    below_reserve: bool


@dataclass(frozen=True, slots=True)
class Subscription:
    """A queue of a consumer. `priority` (0 to 9) is the consumer's, over a WebSocket; `prefetch`:
    how many messages may wait in the client, None: as the consumer says; `select` as of a fetch.
    """

    queue: str
    priority: int = 0
    prefetch: int | None = None
    visibility_s: float | None = None
    select: str | None = None
