"""A history: what clients asked of a cluster, when, and what they were told; and a rule of it.

Times are the machine's wall clock in microseconds since the epoch, taken just before a request is
sent and just after all of its answer was read. Daemons on the same machine have the same clock, so
that a due time compares with them. `status` None: no answer came, and nobody knows what happened.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class Publish:
    """A publish of the body with this number; each number is asked for once."""

    number: int
    process: str
    began_us: int
    ended_us: int
    status: int | None
    id: str | None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.status == 201


@dataclass(frozen=True, slots=True)
class Fetch:
    """A fetch. Of a delivery (200): `number` is None when the body is torn, or nobody's."""

    process: str
    began_us: int
    ended_us: int
    status: int | None
    id: str | None = None
    number: int | None = None
    receives: int = 0
    due_us: int = 0

    @property
    def is_delivery(self) -> bool:
        return self.status == 200


@dataclass(frozen=True, slots=True)
class Delete:
    """A delete; `receives`: on condition that the message's are these (If-Match)."""

    id: str
    process: str
    began_us: int
    ended_us: int
    status: int | None
    receives: int | None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.status == 202

    @property
    def may_have_removed(self) -> bool:
        """Whether the message may be gone by it: not after a refusal."""
        return self.status not in (404, 412)


@dataclass(frozen=True, slots=True)
class Reschedule:
    """Another due time for a message, so long from when mq acts; on condition that its receives are
    these. Of a success: `due_us` is the time that was told.
    """

    id: str
    process: str
    began_us: int
    ended_us: int
    status: int | None
    receives: int
    due_in_us: int
    due_us: int = 0

    @property
    def is_acknowledged(self) -> bool:
        return self.status == 200


@dataclass(frozen=True, slots=True)
class Create:
    """The making of the queue: 201, or 200 when it was there."""

    process: str
    began_us: int
    ended_us: int
    status: int | None
    id: None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.status in (200, 201)


@dataclass(frozen=True, slots=True)
class Drop:
    """The deletion of the queue. Whoever asks waits: what was not answered is over by its end."""

    process: str
    began_us: int
    ended_us: int
    status: int | None
    id: None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.status == 200

    @property
    def may_have_removed(self) -> bool:
        """Whether the queue may be gone by it: not where there was none."""
        return self.status != 404


Operation: TypeAlias = Publish | Fetch | Delete | Reschedule | Create | Drop


@dataclass(frozen=True, slots=True)
class Stall:
    """A process that stood still in the middle of an operation with this message."""

    process: str
    place: str
    id: str
    began_us: int
    ended_us: int


@dataclass(frozen=True)
class History:
    """All that was asked of one queue, and the ids that lie in its root alive at the end.

    `visibility_us`: that of every delivery, where it is one and the same. `clocks_apart_us`: how
    far apart the daemons' clocks may be, where each measures the server's clock by itself.
    """

    operations: list[Operation] = field(default_factory=list)
    alive: frozenset[str] = frozenset()
    visibility_us: int | None = None
    stalls: list[Stall] = field(default_factory=list)
    clocks_apart_us: int = 0

    @cached_property
    def publishes(self) -> list[Publish]:
        return [each for each in self.operations if isinstance(each, Publish)]

    @cached_property
    def fetches(self) -> list[Fetch]:
        return [each for each in self.operations if isinstance(each, Fetch)]

    @cached_property
    def deletes(self) -> list[Delete]:
        return [each for each in self.operations if isinstance(each, Delete)]

    @cached_property
    def reschedules_of(self) -> dict[str, list[Reschedule]]:
        """By id, in the order of their answers."""
        found: dict[str, list[Reschedule]] = defaultdict(list)
        for each in sorted(self.operations, key=lambda operation: operation.ended_us):
            if isinstance(each, Reschedule):
                found[each.id].append(each)
        return dict(found)

    def held_until_us(self, fetch: Fetch) -> int:
        """Until when a delivery is surely its client's: its due time, or the soonest to which
        anybody may have brought that forward.
        """
        sooner = (
            each.began_us + each.due_in_us
            for each in self.reschedules_of.get(fetch.id or "", [])
            if each.receives == fetch.receives and self.may_have_acted(each)
        )
        return min([fetch.due_us, *sooner]) - self.clocks_apart_us

    def may_have_acted(self, reschedule: Reschedule) -> bool:
        """Whether the message may have another due time by it: not after a refusal; but a 404 may
        be of a queue that was dropped when all but the answer was done.
        """
        if reschedule.status == 404:
            return any(
                drop.may_have_removed
                and drop.began_us < reschedule.ended_us
                and drop.ended_us > reschedule.began_us
                for drop in self.drops
            )
        return reschedule.status != 412

    @cached_property
    def changes(self) -> list[Create | Drop]:
        """What was asked of the queue itself, as it was begun."""
        found = [each for each in self.operations if isinstance(each, Create | Drop)]
        return sorted(found, key=lambda each: each.began_us)

    @cached_property
    def drops(self) -> list[Drop]:
        return [each for each in self.changes if isinstance(each, Drop)]

    @cached_property
    def acknowledged(self) -> dict[str, Publish]:
        """The publishes that were answered 201, by id."""
        return {each.id: each for each in self.publishes if each.is_acknowledged and each.id}

    @cached_property
    def deliveries(self) -> dict[str, list[Fetch]]:
        """By id, in the order of their answers."""
        found: dict[str, list[Fetch]] = defaultdict(list)
        for each in sorted(self.fetches, key=lambda fetch: fetch.ended_us):
            if each.is_delivery and each.id is not None:
                found[each.id].append(each)
        return dict(found)

    @cached_property
    def deletes_of(self) -> dict[str, list[Delete]]:
        """By id, in the order of their answers."""
        found: dict[str, list[Delete]] = defaultdict(list)
        for each in sorted(self.deletes, key=lambda delete: delete.ended_us):
            found[each.id].append(each)
        return dict(found)

    def deleted_us(self, message_id: str) -> int | None:
        """When the message's first acknowledged delete was answered."""
        for each in self.deletes_of.get(message_id, []):
            if each.is_acknowledged:
                return each.ended_us
        return None

    def there_us(self, message_id: str) -> int | None:
        """By when the message was there for sure; None when nobody was told of it."""
        publish = self.acknowledged.get(message_id)
        told = [publish] if publish else []
        return min(
            (each.ended_us for each in (*told, *self.deliveries.get(message_id, []))), default=None
        )

    def may_be_gone(self, message_id: str) -> bool:
        """Whether anybody asked for its delete, or its queue's since it was published."""
        publish = self.acknowledged.get(message_id)
        since_us = publish.began_us if publish else 0
        return any(each.may_have_removed for each in self.deletes_of.get(message_id, [])) or any(
            drop.may_have_removed and drop.ended_us >= since_us for drop in self.drops
        )

    def about(self, message_id: str) -> list[Operation]:
        """Every operation that names the message, as they began."""
        named = [each for each in self.operations if each.id == message_id]
        return sorted(named, key=lambda operation: operation.began_us)


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that does not hold, for which message, and what shows it."""

    rule: str
    id: str | None
    text: str


Rule = Callable[[History], Iterator[Breach]]
