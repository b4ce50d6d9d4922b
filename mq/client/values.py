"""The values of answers: frozen, typed, times with their zone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from mq.client.bodies import GivenBody
from mq.client.errors import ClientError
from mq.model.errors import suggestion
from mq.model.names import CONTENT_TYPE_DEFAULT

State: TypeAlias = Literal["ready", "delayed", "leased", "removed"]
"""Where a message is."""
Via: TypeAlias = Literal["auto", "websocket", "poll"]
"""A consumer's transport."""
Reason: TypeAlias = Literal["rejected", "exception"]
"""Why a consumer sidelines a message."""


class Absent:
    """An argument that is left out, where None is a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to publish. Its fields are the arguments of `publish`."""

    body: GivenBody = b""
    json: Any = ABSENT
    delay_s: float | None = None
    at: datetime | str | None = None
    priority: int | None = None
    key: str | None = None
    visibility_s: int | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    idempotency_key: str | None = None
    ttl_s: int | None = None
    group: str | None = None
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """The result of publishing one of many messages: `id`, and it is durable; or `problem`."""

    id: str | None = None
    problem: ClientError | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of deleting, extending, releasing or sidelining one of many messages."""

    id: str
    status: int
    problem: ClientError | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is done, durably."""
        return self.problem is None


@dataclass(frozen=True, slots=True)
class Fired:
    """The firing that published a message: its schedule's name, its due time, and its number, from
    1.
    """

    name: str
    due: datetime
    number: int


class Content:
    """A message's headers and body."""

    __slots__ = ()

    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """Its Content-Type."""
        return self.headers.get("content-type", CONTENT_TYPE_DEFAULT)

    def text(self) -> str:
        """The body as text in UTF-8. Raises UnicodeDecodeError."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as a value of JSON. Raises ValueError."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Carried(Content):
    """The common fields of messages that were read or peeked at."""

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
    """In a sideline, the reason, if known."""
    schedule: Fired | None = field(default=None, kw_only=True)
    """The firing of a schedule that published it."""
    group: str | None = field(default=None, kw_only=True)
    """The messages of one group are delivered one at a time."""
    reason: str | None = field(default=None, kw_only=True)
    """Why it was last released or sidelined, in one line, if its consumer gave a reason."""
    tags: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class StoredMessage(Carried):
    """A message that was read. `body`: the requested part; `size`: the whole body's bytes."""

    state: State
    size: int


@dataclass(frozen=True, slots=True)
class PeekedMessage(Carried):
    """A message that was peeked at. `body`: at most the first 4 KiB of its `size` bytes."""

    state: State
    size: int
    sidelined_at: datetime | None
    """In a sideline, when it came there."""


@dataclass(frozen=True, slots=True)
class GroupHead:
    """A group of messages, and the message that it waits for; `since`: when that was first fetched.
    `group`: None if its file does not name it.
    """

    group: str | None
    id: str
    state: State
    receives: int
    due: datetime
    since: datetime


@dataclass(frozen=True, slots=True)
class FollowedMessage(PeekedMessage):
    """A message of a followed queue. `dropped`: how many messages before it were left out because
    the program was slow.
    """

    dropped: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class Extended:
    """A message's new due time, and how often it was delivered."""

    id: str
    due: datetime
    receives: int


@dataclass(frozen=True, slots=True)
class Sidelined:
    """A sidelined message: its sideline, and the reason, of the first time for a repeat."""

    id: str
    queue: str
    receives: int
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a message was released or sidelined (`event`), as its consumer reported it; `receives`:
    its deliveries until then.
    """

    time: datetime
    event: str
    queue: str
    receives: int
    type: str | None
    text: str | None
    trace: str | None
    handler: str | None


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """An event in a message's history."""

    time: datetime
    event: str
    receives: int | None
    due: datetime | None
    lease: str | None
    reason: str | None
    process: str | None


@dataclass(frozen=True, slots=True)
class History:
    """A message's history. `recording`: whether its queue records now; `left_out`: how many earlier
    events are not in it.
    """

    id: str
    recording: bool
    left_out: int
    events: tuple[HistoryEvent, ...]


@dataclass(frozen=True, slots=True)
class TagEvent(HistoryEvent):
    """An event of a message that was published with a tag."""

    id: str


@dataclass(frozen=True, slots=True)
class TagHistory:
    """The events of messages that were published with a tag. `recording`: whether the queue records
    now; `left_out`: how many earlier events are not in it.
    """

    tag: str
    recording: bool
    left_out: int
    events: tuple[TagEvent, ...]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A queue in a list."""

    name: str
    sideline: bool


@dataclass(frozen=True, slots=True)
class Description:
    """A queue's counts, its settings and its totals: one process's since its start (`totals`), and
    all processes' since the queue was created (`lifetime`). `as_of`: when each figure was taken.
    `process`: `index` and `of`, the process that answered.
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
    lifetime: Mapping[str, int]
    process: Mapping[str, int]
    as_of: Mapping[str, datetime]
    settings: Mapping[str, Any]
    said: Mapping[str, Any]
    """The whole answer, with members that this version does not know."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A queue's effective settings by name, as JSON has them. `etag`: for `if_match`."""

    values: Mapping[str, Any]
    etag: str

    def __getitem__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise KeyError(f"no setting {name}{suggestion(name, self.values)}") from None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A queue's schedule, and its state. `next` is None once it has ended, and while it is
    `waiting` for the end of its last message. `is_new`: whether `schedule` created it, None
    elsewhere. `problem`: in a list, why a damaged file could not be read; the other fields are then
    empty.
    """

    name: str
    every_s: float | None
    delay_s: float | None
    cron: str | None
    tz: str | None
    next: datetime | None
    waiting: bool
    fired: int
    skipped: int
    last: str | None
    count: int | None
    until: datetime | None
    overlap: str
    after: str
    misfire: str
    priority: int | None
    key: str | None
    visibility_s: int | None
    ttl_s: int | None
    group: str | None
    tags: tuple[str, ...]
    size: int
    headers: Mapping[str, str]
    body: bytes
    is_new: bool | None = None
    problem: ClientError | None = None


@dataclass(frozen=True, slots=True)
class TaggedMessage:
    """A message that has a tag: its id, and its state."""

    id: str
    state: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """Some of the messages that have a tag, by id. `entries`: how many messages in the queue and
    its sideline have it, including some that have just gone. `after`: the id after which to
    continue; None: these are the last ones.
    """

    entries: int
    messages: tuple[TaggedMessage, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class ShovelProgress:
    """The state of a shovel's run, or of its last one. `state` is `scheduled` where none has run
    yet; then only `interval_s` and `next` are known.
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
        """Whether no run goes on."""
        return self.state not in ("running", "waiting")


@dataclass(frozen=True, slots=True)
class Member:
    """A process that shares the upkeep of queues, by its last report, at `told`. `said`: the whole
    report.
    """

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
    """The processes that share the upkeep of queues. `assigned`: the one of the queue that was
    asked for.
    """

    leader: str | None
    members: tuple[Member, ...]
    assigned: str | None


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """The load from `time` on, for a step. `published`, `fetched` and `deleted` are counts of the
    `seconds` that mq measured, 0 for none. The others are the largest values of the step.
    """

    time: datetime
    seconds: float
    published: int
    fetched: int
    deleted: int
    ready: int
    delayed: int
    in_flight: int
    sidelined: int
    oldest_ready_age_s: float


@dataclass(frozen=True, slots=True)
class Sums:
    """The last sample of all queues together, at `time`. `uncounted`: how many of the `queues` mq
    could not count.
    """

    time: datetime
    queues: int
    uncounted: int
    ready: int
    delayed: int
    in_flight: int
    sidelined: int
    oldest_ready_age_s: float


@dataclass(frozen=True, slots=True)
class Trends:
    """The load of a queue, or of all queues together. `points`: oldest first, each for `step_s`.
    `last`: of all queues, if there was a sample.
    """

    step_s: int
    points: tuple[TrendPoint, ...]
    last: Sums | None


@dataclass(frozen=True, slots=True)
class QueueConsumer:
    """A consumer of a queue: a `websocket` or a long `poll`, in one process of mq. `caller`: the
    name in its token or certificate. `active`: whether it gets messages; if the setting
    `active_consumer` is `single`, at most one consumer is. `credit`: how many more messages it may
    get. `in_flight`: how many it holds. `delivered`: how many it got.
    """

    id: str
    process: int
    via: str
    address: str
    caller: str | None
    since: datetime
    active: bool
    priority: int
    credit: int
    in_flight: int
    delivered: int
    deliveries_per_s: float | None
    select: str | None
    said: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueueConsumers:
    """The consumers of a queue, the oldest first. `complete`: all processes of mq answered, and
    none has more than it listed.
    """

    consumers: tuple[QueueConsumer, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a scan of all queues: how many there are; how many are new, changed or gone
    since the last scan of the process that answered.
    """

    queues: int
    new: int
    changed: int
    gone: int


@dataclass(frozen=True, slots=True)
class Readiness:
    """The durability of mq's root, and its free space."""

    durability: str
    file_system: str
    commit: str
    free_bytes: int
    free_inodes: int
    below_reserve: bool


@dataclass(frozen=True, slots=True)
class Subscription:
    """A queue of a consumer. `priority` (0 to 9): those of a higher one are served first.
    `prefetch`: how many messages wait in the client; None: the consumer's. `visibility_s`,
    `select`, `packs`: as of a fetch of many.
    """

    queue: str
    priority: int = 0
    prefetch: int | None = None
    visibility_s: float | None = None
    select: str | None = None
    packs: bool = False
