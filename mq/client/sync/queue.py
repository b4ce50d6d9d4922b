"""A queue, for threads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO, Literal

from mq.client.limits import PREFETCH_DEFAULT, PUBLISHING_MAX_DEFAULT
from mq.client.queue.queue import AsyncQueue
from mq.client.sync.consumer import Consumer
from mq.client.sync.message import Message
from mq.client.sync.portal import Portal
from mq.client.values import (
    ABSENT,
    Description,
    Extended,
    History,
    NewMessage,
    PeekedMessage,
    Published,
    Reason,
    Schedule,
    Settings,
    Settled,
    ShovelProgress,
    Sidelined,
    State,
    StoredMessage,
    Via,
)
from mq.model.limits import BATCH_MESSAGES_MAX, PEEK_MESSAGES_DEFAULT


class Queue:
    """One queue of a Client, which makes it: `client.queue("orders")`. Each word is AsyncQueue's,
    with its arguments, its answer and what it raises.
    """

    __slots__ = ("_portal", "_queue")

    def __init__(self, queue: AsyncQueue, portal: Portal) -> None:
        self._queue = queue
        self._portal = portal

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._queue.name

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    def create(self, *, bucket: int | None = None, shards: int | None = None) -> bool:
        """Makes the queue where it is not there; whether this made it. Durable on return."""
        return self._portal.run(lambda: self._queue.create(bucket=bucket, shards=shards))

    def describe(self) -> Description:
        """Its counts and settings, some of them a second old."""
        return self._portal.run(self._queue.describe)

    def delete(self) -> None:
        """Deletes the queue and its messages. Durable on return."""
        self._portal.run(self._queue.delete)

    def purge(self) -> datetime:
        """Purges all messages that were published until now; until when. Durable on return."""
        return self._portal.run(self._queue.purge)

    def publish(
        self,
        body: bytes | bytearray | memoryview | str | BinaryIO = b"",
        *,
        json: Any = ABSENT,
        delay_s: float | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        key: str | None = None,
        visibility_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
    ) -> str:
        """Publishes a message; its id. Durable on return."""
        return self.publish_message(
            NewMessage(
                *(body, json, delay_s, at, priority, key, visibility_s, headers, content_type),
                idempotency_key,
            )
        )

    def publish_message(self, message: NewMessage) -> str:
        """Publishes what a NewMessage says; its id. Durable on return."""
        return self._portal.run(lambda: self._queue.publish_message(message))

    def publish_many(
        self,
        messages: Iterable[NewMessage | bytes | str],
        *,
        concurrency: int = PUBLISHING_MAX_DEFAULT,
    ) -> list[Published]:
        """Publishes each message, so many at a time; what became of each, in their order."""
        # Here, so that what makes them may use this client.
        made = list(messages)
        return self._portal.run(lambda: self._queue.publish_many(made, concurrency=concurrency))

    def publish_lines(
        self,
        body: bytes | str | BinaryIO,
        *,
        delay_s: float | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        visibility_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> list[Published]:
        """Publishes each line of the body that is not empty, in one request."""
        return self._portal.run(
            lambda: self._queue.publish_lines(
                body,
                delay_s=delay_s,
                at=at,
                priority=priority,
                visibility_s=visibility_s,
                headers=headers,
                content_type=content_type,
            )
        )

    def fetch(
        self,
        *,
        wait_s: float = 0.0,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
    ) -> Message | None:
        """The next message; None where there is none, nor within `wait_s`. Durable on return."""
        found = self._portal.run(
            lambda: self._queue.fetch(wait_s=wait_s, visibility_s=visibility_s, select=select)
        )
        return None if found is None else Message(found, self._portal)

    def fetch_many(
        self,
        count: int,
        *,
        wait_s: float = 0.0,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
    ) -> list[Message]:
        """At most `count` messages, in order; it waits only while there is none."""
        found = self._portal.run(
            lambda: self._queue.fetch_many(
                count, wait_s=wait_s, visibility_s=visibility_s, select=select
            )
        )
        return [Message(each, self._portal) for each in found]

    def consume(
        self,
        *,
        prefetch: int = PREFETCH_DEFAULT,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
        priority: int = 0,
        via: Via = "auto",
    ) -> Consumer:
        """Messages as they become ready: `for message in queue.consume()`."""
        consumer = self._queue.consume(
            prefetch=prefetch,
            visibility_s=visibility_s,
            select=select,
            priority=priority,
            via=via,
        )
        return Consumer(consumer, self._portal)

    def read(self, message_id: str, *, start: int = 0, length: int | None = None) -> StoredMessage:
        """A message, or a part of its body, in whatever state it is; nothing is consumed."""
        return self._portal.run(lambda: self._queue.read(message_id, start=start, length=length))

    def read_key(self, key: str, *, start: int = 0, length: int | None = None) -> StoredMessage:
        """The message that has the key, as `read` gives it."""
        return self._portal.run(lambda: self._queue.read_key(key, start=start, length=length))

    def delete_message(self, message_id: str, *, receives: int | None = None) -> None:
        """Deletes a message, whoever has it. Durable on return."""
        self._portal.run(lambda: self._queue.delete_message(message_id, receives=receives))

    def delete_messages(self, ids: Sequence[str]) -> list[Settled]:
        """Deletes up to 1000 messages, whoever has them; what became of each, in their order."""
        return self._portal.run(lambda: self._queue.delete_messages(ids))

    def delete_key(self, key: str, *, receives: int | None = None) -> None:
        """Deletes the message that has the key. Durable on return."""
        self._portal.run(lambda: self._queue.delete_key(key, receives=receives))

    def extend(self, message_id: str, seconds: float, *, receives: int | None = None) -> Extended:
        """Has a message be due so many seconds from now. Durable on return."""
        return self._portal.run(lambda: self._queue.extend(message_id, seconds, receives=receives))

    def release(
        self, message_id: str, *, delay_s: float = 0.0, receives: int | None = None
    ) -> Extended:
        """Has a message be ready after so many seconds. Durable on return."""
        return self._portal.run(
            lambda: self._queue.release(message_id, delay_s=delay_s, receives=receives)
        )

    def sideline(
        self, message_id: str, *, reason: Reason = "rejected", receives: int | None = None
    ) -> Sidelined:
        """Moves a message to the queue's sideline. Durable on return."""
        return self._portal.run(
            lambda: self._queue.sideline(message_id, reason=reason, receives=receives)
        )

    def history(self, message_id: str) -> History:
        """What became of a message, where the queue's setting `history` is true."""
        return self._portal.run(lambda: self._queue.history(message_id))

    def peek(
        self,
        *,
        states: Iterable[State] = ("ready",),
        count: int = PEEK_MESSAGES_DEFAULT,
        after: str | None = None,
    ) -> list[PeekedMessage]:
        """At most `count` messages of these states; nothing is consumed."""
        return self._portal.run(lambda: self._queue.peek(states=states, count=count, after=after))

    def browse(
        self, states: Iterable[State] = ("ready",), *, count: int = BATCH_MESSAGES_MAX
    ) -> Iterator[PeekedMessage]:
        """All messages of these states, one state after the other, in pages of `count`."""
        return self._portal.iterate(self._queue.browse(states, count=count))

    def settings(self) -> Settings:
        """What is effective, and the entity tag."""
        return self._portal.run(self._queue.settings)

    def change_settings(
        self, changes: Mapping[str, Any], *, if_match: str | None = None
    ) -> Settings:
        """Sets these, None for a default; what is effective then. Durable on return."""
        return self._portal.run(lambda: self._queue.change_settings(changes, if_match=if_match))

    def schedule(
        self,
        name: str,
        body: bytes | str | BinaryIO = b"",
        *,
        json: Any = ABSENT,
        every_s: float | None = None,
        delay_s: float | None = None,
        cron: str | None = None,
        tz: str | None = None,
        count: int | None = None,
        until: datetime | None = None,
        overlap: Literal["allow", "skip"] | None = None,
        priority: int | None = None,
        key: str | None = None,
        visibility_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Schedule:
        """Makes a schedule, or replaces the one of that name. Durable on return."""
        return self._portal.run(
            lambda: self._queue.schedule(
                name,
                body,
                json=json,
                every_s=every_s,
                delay_s=delay_s,
                cron=cron,
                tz=tz,
                count=count,
                until=until,
                overlap=overlap,
                priority=priority,
                key=key,
                visibility_s=visibility_s,
                headers=headers,
                content_type=content_type,
            )
        )

    def schedules(self) -> list[Schedule]:
        """All of the queue's, by name, without their bodies."""
        return self._portal.run(self._queue.schedules)

    def get_schedule(self, name: str) -> Schedule:
        """What a schedule says, and how far it is."""
        return self._portal.run(lambda: self._queue.get_schedule(name))

    def delete_schedule(self, name: str) -> None:
        """Has it fire no more; its messages stay. Durable on return."""
        self._portal.run(lambda: self._queue.delete_schedule(name))

    def shovel(
        self,
        *,
        limit: int | None = None,
        rate: int | None = None,
        older_than_s: float | None = None,
        key: str | None = None,
        priority: str | int | None = None,
        max_receives: int | None = None,
        dry_run: bool | None = None,
    ) -> str:
        """Begins to move what lies in the sideline back to the queue; the run's id."""
        return self._portal.run(
            lambda: self._queue.shovel(
                limit=limit,
                rate=rate,
                older_than_s=older_than_s,
                key=key,
                priority=priority,
                max_receives=max_receives,
                dry_run=dry_run,
            )
        )

    def shovel_progress(self) -> ShovelProgress:
        """How far the run is, or what came of the last."""
        return self._portal.run(self._queue.shovel_progress)

    def stop_shovel(self) -> ShovelProgress:
        """Has the run end after what it has in hand; how it stands."""
        return self._portal.run(self._queue.stop_shovel)
