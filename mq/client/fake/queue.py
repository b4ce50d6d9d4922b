"""A queue of the fake: its messages, its keys, its settings. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mq.client.fake.message import Message
from mq.client.fake.past import Pasts
from mq.client.fake.ready import Ready
from mq.client.fake.takers import Takers
from mq.model.errors import MessageNotFound, QueueExpired
from mq.model.expiry import is_expired
from mq.model.lifecycle import State
from mq.model.limits import BUCKET_DIGITS_DEFAULT, PURGE_MARK_KEPT_S
from mq.model.names import Key, MessageId, QueueName
from mq.model.schedule import Armed
from mq.model.settings import DIGITS_SETTING, SHARDS_SETTING, QueueSettings
from mq.model.shovel import Record


@dataclass(slots=True)
class Totals:
    """What was done with a queue by requests, as its description has it."""

    published: int = 0
    fetched: int = 0
    redelivered: int = 0
    deleted: int = 0
    extended: int = 0
    released: int = 0
    sidelined: int = 0
    expired: int = 0
    lost_races: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """How a queue would keep a large backlog; it is remembered, and means nothing here."""

    digits: int = BUCKET_DIGITS_DEFAULT
    shards: int = 1


@dataclass(frozen=True, slots=True)
class Once:
    """The first publish of an idempotency key."""

    id: MessageId
    at_ms: int


@dataclass(slots=True, eq=False)
class Queue:
    """A queue. `messages` are all that there is of it, by their ids' texts, also those removed."""

    name: QueueName
    shape: Shape
    settings: QueueSettings
    changed_ms: int
    """When its settings were changed last."""
    fields: dict[str, object] = field(default_factory=dict)
    """What was said of its settings."""
    messages: dict[str, Message] = field(default_factory=dict)
    ready: Ready = field(default_factory=Ready)
    keys: dict[Key, Message] = field(default_factory=dict)
    onces: dict[Key, Once] = field(default_factory=dict)
    schedules: dict[str, Armed] = field(default_factory=dict)
    shovel: Record | None = None
    purged_ms: int | None = None
    totals: Totals = field(default_factory=Totals)
    pasts: Pasts = field(default_factory=Pasts)
    takers: Takers = field(default_factory=Takers)
    is_gone: bool = False

    def effective(self) -> dict[str, object]:
        """The effective settings, by field."""
        shape = {DIGITS_SETTING: self.shape.digits, SHARDS_SETTING: self.shape.shards}
        return {**self.settings.as_json(), **shape}

    def check_life(self, now_ms: int) -> None:
        """Raises QueueExpired for one that takes and gives nothing any more."""
        if self.settings.expires_at is not None and is_expired(self.settings, now_ms):
            raise QueueExpired(self.name.text, self.settings.expires_at)

    def add(self, message: Message) -> None:
        """A message comes here, in the state that it says."""
        message.queue = self.name
        self.messages[message.id.text] = message
        was_sidelined = self.name.is_sideline and message.stamp.reason
        if message.id.key is not None and not was_sidelined:  # That has given its key up.
            self.keys[message.id.key] = message
        if message.state is State.READY:
            self.ready.add(message)

    def move(self, message: Message, state: State) -> None:
        """A message of the queue goes from one state to another; removed, its key is free."""
        if message.state is State.READY:
            self.ready.discard(message)
        message.state = state
        if state is State.READY:
            self.ready.add(message)
        if state is State.REMOVED:
            self._free_key(message)

    def take_out(self, message: Message) -> None:
        """A message goes to another queue, or is forgotten."""
        self.ready.discard(message)
        self._free_key(message)
        self.messages.pop(message.id.text, None)

    def _free_key(self, message: Message) -> None:
        key = message.id.key
        if key is not None and self.keys.get(key) is message:
            del self.keys[key]

    def within(self, state: State) -> list[Message]:
        """Its messages of a state: ready ones in the order of delivery, others by their ids."""
        if state is State.READY:
            return list(self.ready)
        found = [each for each in self.messages.values() if each.state is state]
        return sorted(found, key=lambda each: each.id.text)

    def alive(self) -> Iterator[Message]:
        """Those that are not removed."""
        return (each for each in tuple(self.messages.values()) if each.lives)

    def find(self, message_id: MessageId) -> Message:
        """The message of this id, for what may change it, also when it is removed. Raises
        MessageNotFound.
        """
        message = self.messages.get(message_id.text)
        if message is None or message.was_purged:
            raise MessageNotFound(message_id.text)
        return message

    def has(self, message: Message, state: State) -> bool:
        """Whether the message is here, and in this state; never once the queue is gone."""
        is_here = not self.is_gone and self.messages.get(message.id.text) is message
        return is_here and message.state is state

    def purge_covers(self, message_id: MessageId, now_ms: int) -> bool:
        """Whether the queue was purged after this message's publish, and remembers that still."""
        if self.purged_ms is None or now_ms - self.purged_ms >= PURGE_MARK_KEPT_S * 1000:
            return False
        return message_id.published_ms <= self.purged_ms
