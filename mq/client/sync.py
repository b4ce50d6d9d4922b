"""The client for threads. Generated from the one for event loops: change that, and run
`python tests/harness/sync_client.py`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from mq.client.bodies import Body
from mq.client.client import AsyncClient
from mq.client.consuming.consumer import PREFETCH_DEFAULT, AsyncConsumer
from mq.client.errors import ClientError
from mq.client.http_transport import ANSWER_BYTES_MAX_DEFAULT, CONNECTIONS_MAX_DEFAULT
from mq.client.message import AsyncMessage, Fetched, release_within, unreleased
from mq.client.options import CLOSE_S, URL_DEFAULT, Retry, Seams, Timeouts
from mq.client.portal import Portal
from mq.client.publishing import PUBLISHING_MAX_DEFAULT
from mq.client.queue import AsyncQueue
from mq.client.transport import Transport
from mq.client.values import (
    ABSENT,
    Description,
    Extended,
    Failed,
    FollowedMessage,
    GroupHead,
    History,
    Members,
    NewMessage,
    PeekedMessage,
    Published,
    QueueConsumers,
    QueueEntry,
    Readiness,
    Reason,
    Refreshed,
    Schedule,
    Settings,
    Settled,
    ShovelProgress,
    Sidelined,
    State,
    StoredMessage,
    Subscription,
    Tagged,
    TagHistory,
    Trends,
    Via,
)
from mq.model.failure import Failure
from mq.model.limits import BATCH_MESSAGES_MAX
from mq.protocol.fetching import GROUPS_SHOWN_DEFAULT, PEEK_MESSAGES_DEFAULT
from mq.protocol.queues import QUEUES_LISTED_MAX


class Message(Fetched):
    """A fetched message. `with message:` deletes it at the end of the block, and releases it when
    an exception leaves the block, unless the block settles it.

    Each method applies to this delivery alone: once the message was delivered again, it raises
    DeliveredAgain and changes nothing. Settling a message twice in the same way does nothing; in
    another way, it raises AlreadySettled.
    """

    __slots__ = ("_inner", "_portal")

    def __init__(self, inner: AsyncMessage, portal: Portal) -> None:
        super().__init__(inner.queue, inner.row)
        self._inner = inner
        self._portal = portal

    @property
    def due(self) -> datetime:
        """The end of its visibility timeout, by mq's clock."""
        return self._inner.due

    @property
    def settled(self) -> str | None:
        """How it was settled: deleted, released, sidelined; None: it is not."""
        return self._inner.settled

    def delete(self) -> None:
        """Deletes the message, which is handled. Durable on return."""
        self._portal.run(self._inner.delete)

    def release(
        self, delay_s: float = 0.0, *, unhandled: bool = False, reason: str | Failure | None = None
    ) -> None:
        """Makes the message ready again after `delay_s`. `reason` is kept with it: at most 8 KiB.
        With `unhandled`, which takes neither, the delivery does not count towards the queue's
        `max_receives`. Durable on return.
        """
        self._portal.run(lambda: self._inner.release(delay_s, unhandled=unhandled, reason=reason))

    def sideline(self, reason: Reason | str | Failure = "rejected") -> None:
        """Moves the message to its queue's sideline (dead-letter queue). `reason`: `rejected`,
        `exception`, a text, or a Failure, which mq keeps with the message; at most 8 KiB. Durable
        on return.
        """
        self._portal.run(lambda: self._inner.sideline(reason))

    def failures(self) -> tuple[Failed, ...]:
        """Reads why it was released or sidelined: the newest five reasons, the newest last."""
        return self._portal.run(self._inner.failures)

    def extend(self, seconds: float) -> datetime:
        """Keeps the message for `seconds` from now; returns until when. Durable on return."""
        return self._portal.run(lambda: self._inner.extend(seconds))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.settled is not None:
            return
        if error is None:
            self.delete()
            return
        try:
            self._portal.run(
                lambda: release_within(
                    self._inner, None if isinstance(error, Exception) else CLOSE_S
                )
            )
        except (ClientError, TimeoutError) as failed:
            error.add_note(unreleased(self, failed))


class Consumer:
    """Delivers messages: `for message in consumer`, or `consumer.next()`; several threads may take
    messages of one. It begins with the first message that is taken, or at `with`. The end of the
    block, and `close`, release the messages that were not taken.
    """

    __slots__ = ("_inner", "_portal")

    def __init__(self, inner: AsyncConsumer, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        found = self.next()
        if found is None:
            raise StopIteration
        return found

    def next(self, wait_s: float | None = None) -> Message | None:
        """Takes the next message; returns None when none came within `wait_s`, or the consumer was
        closed. Raises final errors, such as QueueNotFound; before the first success also those that
        prevent it, such as CouldNotConnect.
        """
        found = self._portal.run(lambda: self._inner.next(wait_s))
        return None if found is None else Message(found, self._portal)

    def close(self) -> None:
        """Ends the consumer, and releases the messages that were not taken; on return mq has done
        so, unless its storage takes longer than 2 s, or still stores a claim. Messages of a
        WebSocket that were taken and are not settled are released too: settle them before. May be
        called again.
        """
        self._portal.run_last(self._inner.close)

    def __enter__(self) -> Self:
        self._portal.run(self._inner.__aenter__)
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Queue:
    """A queue of a Client, which makes it: `client.queue("orders")`. It is only a name; its first
    request shows whether mq has the queue. Each method but `create` raises QueueNotFound.
    """

    __slots__ = ("_inner", "_portal")

    def __init__(self, inner: AsyncQueue, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def create(self, *, bucket: int | None = None, shards: int | None = None) -> bool:
        """Creates the queue, where it does not exist; returns whether it did (False for a repeat
        after a lost answer). Durable on return. `bucket`, `shards`: how it stores a large backlog.
        Raises SettingsFixed where it exists with others, QueueExpired.
        """
        return self._portal.run(lambda: self._inner.create(bucket=bucket, shards=shards))

    def describe(self) -> Description:
        """Reads the queue's counts, some of them a second old, and its settings."""
        return self._portal.run(self._inner.describe)

    def delete(self) -> None:
        """Deletes the queue and its messages. Durable on return."""
        self._portal.run(self._inner.delete)

    def purge(self) -> datetime:
        """Deletes all messages that were published until now; returns that time. Durable on return.
        Not repeated once it may be done: a repeat would delete messages that were published since.
        """
        return self._portal.run(self._inner.purge)

    def settings(self) -> Settings:
        """Reads the queue's effective settings, and their entity tag."""
        return self._portal.run(self._inner.settings)

    def change_settings(
        self,
        changes: Mapping[str, Any] | None = None,
        *,
        if_match: str | None = None,
        **settings: Any,
    ) -> Settings:
        """Sets these settings, by keywords or a mapping, None for a default; returns the effective
        ones. Durable on return. `if_match`: their entity tag; raises SettingsChanged where they
        have changed since. Raises Refused for an unknown setting or a value out of bounds,
        ValueError without a setting, and for one that is given twice.
        """
        return self._portal.run(
            lambda: self._inner.change_settings(changes, if_match=if_match, **settings)
        )

    def consumers(self) -> QueueConsumers:
        """Lists the queue's consumers at this moment, in all processes of mq."""
        return self._portal.run(self._inner.consumers)

    def end_consumer(self, consumer: str) -> None:
        """Ends a consumer by its id, and releases its messages of the queue. Its program gets a
        Problem. Raises a Problem where there is none of this id.
        """
        self._portal.run(lambda: self._inner.end_consumer(consumer))

    def consume(
        self,
        *,
        prefetch: int = PREFETCH_DEFAULT,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
        priority: int = 0,
        via: Via = "auto",
        packs: bool = False,
    ) -> Consumer:
        """Delivers messages as they become ready: `for message in queue.consume()`. See
        Client.consume, which takes several queues. `packs`: as of `fetch_many`; the last pack may
        exceed `prefetch`.
        """
        return Consumer(
            self._inner.consume(
                prefetch=prefetch,
                visibility_s=visibility_s,
                select=select,
                priority=priority,
                via=via,
                packs=packs,
            ),
            self._portal,
        )

    def publish(
        self,
        body: Body = b"",
        *,
        json: Any = ABSENT,
        delay_s: float | None = None,
        at: datetime | str | None = None,
        priority: int | None = None,
        key: str | None = None,
        visibility_s: int | None = None,
        ttl_s: int | None = None,
        tags: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        group: str | None = None,
    ) -> str:
        """Publishes a message; returns its id. Durable on return.

        `body`: bytes; text, sent as UTF-8 with `text/plain`; a file that is open for reading bytes,
        which is streamed. Or `json`, sent as `application/json`. `delay_s` or `at` (a time with its
        zone, or RFC 3339 text): when it is ready, else at once. `priority`: 0 to 9, 9 first. `key`:
        a lookup key that no other living message of the queue has. `visibility_s`: how long a fetch
        hides it. `ttl_s`: after how long it expires. `tags`: at most 9 texts, by which messages are
        found. `headers`: those that mq keeps are delivered with it. `idempotency_key`: publishes
        with the same key are one; without it each call has its own, so that its retries are safe.
        `group`: messages of one group are delivered one at a time, in order.

        Raises QueueNotFound, QueueExpired, KeyTaken, TooLarge, Refused, Unavailable, Unanswered;
        ValueError and TypeError for an argument that cannot be sent, and for headers that the
        message would not keep.
        """
        return self.publish_message(
            NewMessage(
                *(body, json, delay_s, at, priority, key, visibility_s, headers, content_type),
                idempotency_key,
                ttl_s=ttl_s,
                group=group,
                tags=tags,
            )
        )

    def publish_message(self, message: NewMessage) -> str:
        """Publishes a NewMessage; returns its id. Durable on return. Raises as `publish` does."""
        return self._portal.run(lambda: self._inner.publish_message(message))

    def publish_many(
        self,
        messages: Iterable[NewMessage | bytes | str],
        *,
        concurrency: int = PUBLISHING_MAX_DEFAULT,
        pack: bool = False,
    ) -> list[Published]:
        """Publishes the messages in requests of up to 128, `concurrency` at a time. Returns the
        result of each, in order. A message with an `id` is durable on return. They become ready in
        about this order. Large bodies, files and iterables have requests of their own.

        `pack`: messages with equal attributes share files, which is faster, where the queue's
        setting `pack_messages_max` allows it: requests of up to 100.

        A message's failure is its `problem`. Once mq cannot be reached, the other messages are not
        tried, and get the same problem. Raises NotUsable; ValueError and TypeError for a message
        that cannot be sent, when earlier ones may be published.
        """
        taken = list(messages)
        return self._portal.run(
            lambda: self._inner.publish_many(taken, concurrency=concurrency, pack=pack)
        )

    def publish_lines(
        self,
        body: Body,
        *,
        delay_s: float | None = None,
        at: datetime | str | None = None,
        priority: int | None = None,
        visibility_s: int | None = None,
        ttl_s: int | None = None,
        tags: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
        group: str | None = None,
        pack: bool = False,
    ) -> list[Published]:
        """Publishes each line of the body that is not empty as a message, in one request of at most
        10,000 lines and 8 MiB. Returns the result of each, in order; a line with an `id` is durable
        on return. `pack`: they share files, which is faster, as far as the queue allows.

        Not retried once mq may have carried it out: lines have no idempotency keys. Raises as
        `publish` does.
        """
        return self._portal.run(
            lambda: self._inner.publish_lines(
                body,
                delay_s=delay_s,
                at=at,
                priority=priority,
                visibility_s=visibility_s,
                ttl_s=ttl_s,
                tags=tags,
                headers=headers,
                content_type=content_type,
                group=group,
                pack=pack,
            )
        )

    def publish_rows(self, body: Body, *, pack: bool = False) -> list[Published]:
        """Publishes each row of the body, one JSON object a line with the message's attributes, in
        one request of at most 10,000 rows and 8 MiB. Otherwise as `publish_lines`.
        """
        return self._portal.run(lambda: self._inner.publish_rows(body, pack=pack))

    def fetch(
        self,
        *,
        wait_s: float = 0.0,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
        priority: int = 0,
        consumer: str | None = None,
    ) -> Message | None:
        """Fetches the next message; None when none is ready within `wait_s` (at most 60). No other
        consumer gets it until its `due`. Durable on return. `visibility_s`: the visibility timeout;
        None: the message's or the queue's. `select`: terms such as `priority:5..`, `key:eu-*`.
        `priority`: the consumer's, 0 to 9; consumers of a higher one are served first. `consumer`:
        its name, where the setting `active_consumer` is `single`; None: each connection is a
        consumer.

        Raises QueueNotFound, QueueExpired, Refused, Unavailable, Unanswered. A fetch is not retried
        after a lost answer: its message is delivered again when its visibility timeout ends.
        """
        found = self._portal.run(
            lambda: self._inner.fetch(
                wait_s=wait_s,
                visibility_s=visibility_s,
                select=select,
                priority=priority,
                consumer=consumer,
            )
        )
        return None if found is None else Message(found, self._portal)

    def fetch_many(
        self,
        count: int,
        *,
        wait_s: float = 0.0,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
        priority: int = 0,
        consumer: str | None = None,
        packs: bool = False,
    ) -> list[Message]:
        """Fetches at most `count` (1 to 1000) messages, in order. Waits only for the first one.
        `packs`: takes packs whole, which is faster; the last one may exceed `count`. Otherwise as
        `fetch`.
        """
        return [
            Message(each, self._portal)
            for each in self._portal.run(
                lambda: self._inner.fetch_many(
                    count,
                    wait_s=wait_s,
                    visibility_s=visibility_s,
                    select=select,
                    priority=priority,
                    consumer=consumer,
                    packs=packs,
                )
            )
        ]

    def read(self, message_id: str, *, start: int = 0, length: int | None = None) -> StoredMessage:
        """Reads a message in any state without consuming it. `start`, `length`: a part of its body,
        in bytes. Raises MessageNotFound; Refused for a part beyond the body's end.
        """
        return self._portal.run(lambda: self._inner.read(message_id, start=start, length=length))

    def read_key(self, key: str, *, start: int = 0, length: int | None = None) -> StoredMessage:
        """Reads the message that has the key, as `read` does. Raises KeyNotFound."""
        return self._portal.run(lambda: self._inner.read_key(key, start=start, length=length))

    def delete_message(self, message_id: str, *, receives: int | None = None) -> None:
        """Deletes a message in any state; deleting it again succeeds. Durable on return. Raises
        MessageNotFound, DeliveredAgain.
        """
        self._portal.run(lambda: self._inner.delete_message(message_id, receives=receives))

    def delete_messages(self, messages: Iterable[str | Fetched]) -> list[Settled]:
        """Deletes up to 1000 messages in any state. Returns the result of each, in order. Durable
        on return, where `is_done`.

        A message is an id, or a fetched message, which stands for that delivery alone. The fetched
        message does not record that it is settled. The same holds for `extend_messages`,
        `release_messages` and `sideline_messages`.
        """
        taken = list(messages)
        return self._portal.run(lambda: self._inner.delete_messages(taken))

    def extend_messages(self, messages: Iterable[str | Fetched], seconds: float) -> list[Settled]:
        """Makes up to 1000 messages due in `seconds`. Otherwise as `delete_messages`."""
        taken = list(messages)
        return self._portal.run(lambda: self._inner.extend_messages(taken, seconds))

    def release_messages(
        self,
        messages: Iterable[str | Fetched],
        *,
        delay_s: float = 0.0,
        reason: str | Failure | None = None,
    ) -> list[Settled]:
        """Makes up to 1000 messages ready after `delay_s`; `reason` is kept with each. Otherwise as
        `delete_messages`; after a lost answer, DeliveredAgain for a fetched message may mean that
        it was released.
        """
        taken = list(messages)
        return self._portal.run(
            lambda: self._inner.release_messages(taken, delay_s=delay_s, reason=reason)
        )

    def sideline_messages(
        self, messages: Iterable[str | Fetched], *, reason: Reason | str | Failure = "rejected"
    ) -> list[Settled]:
        """Moves up to 1000 messages to the queue's sideline. `reason`: as for Message.sideline.
        Otherwise as `delete_messages`.
        """
        taken = list(messages)
        return self._portal.run(lambda: self._inner.sideline_messages(taken, reason=reason))

    def delete_key(self, key: str, *, receives: int | None = None) -> None:
        """Deletes the message that has the key. Durable on return. Raises KeyNotFound,
        DeliveredAgain. Not retried once mq may have carried it out: another message may have the
        key then.
        """
        self._portal.run(lambda: self._inner.delete_key(key, receives=receives))

    def extend(self, message_id: str, seconds: float, *, receives: int | None = None) -> Extended:
        """Makes a fetched, delayed or ready message due in `seconds`. Durable on return. Raises
        MessageNotFound, DeliveredAgain.
        """
        return self._portal.run(lambda: self._inner.extend(message_id, seconds, receives=receives))

    def release(
        self,
        message_id: str,
        *,
        delay_s: float = 0.0,
        receives: int | None = None,
        reason: str | Failure | None = None,
    ) -> Extended:
        """Makes a message ready after `delay_s`. `reason` is kept with it. Durable on return.
        Raises MessageNotFound, DeliveredAgain.
        """
        return self._portal.run(
            lambda: self._inner.release(
                message_id, delay_s=delay_s, receives=receives, reason=reason
            )
        )

    def sideline(
        self,
        message_id: str,
        *,
        reason: Reason | str | Failure = "rejected",
        receives: int | None = None,
    ) -> Sidelined:
        """Moves a message to the queue's sideline. `reason`: as for Message.sideline. Durable on
        return. Raises MessageNotFound, MessageLeased, DeliveredAgain; Refused in a sideline.
        """
        return self._portal.run(
            lambda: self._inner.sideline(message_id, reason=reason, receives=receives)
        )

    def failures(self, message_id: str) -> tuple[Failed, ...]:
        """Reads why consumers released or sidelined a message: the newest five reasons, the newest
        last. Raises MessageNotFound.
        """
        return self._portal.run(lambda: self._inner.failures(message_id))

    def history(self, message_id: str) -> History:
        """Reads the events of a message, where the queue's setting `history` is true. Raises
        MessageNotFound.
        """
        return self._portal.run(lambda: self._inner.history(message_id))

    def peek(
        self,
        *,
        states: Iterable[State] = ("ready",),
        count: int = PEEK_MESSAGES_DEFAULT,
        after: str | None = None,
        select: str | Iterable[str] | None = None,
        tag: str | None = None,
    ) -> list[PeekedMessage]:
        """Lists at most `count` (1 to 1000) messages of these states, one state after the other,
        without consuming them. `after`: the id after which the page begins, for one state.
        `select`: only messages of a selection, for one state. `tag`: only messages that have it, by
        id. With either it makes requests until it has `count` messages, or has seen all.
        """
        taken = list(states)
        return self._portal.run(
            lambda: self._inner.peek(states=taken, count=count, after=after, select=select, tag=tag)
        )

    def groups(self, *, count: int = GROUPS_SHOWN_DEFAULT) -> list[GroupHead]:
        """Lists the groups whose head was fetched and is not settled, the longest first. Delete,
        release or sideline the head to let its group continue.
        """
        return self._portal.run(lambda: self._inner.groups(count=count))

    def browse(
        self, states: Iterable[State] = ("ready",), *, count: int = BATCH_MESSAGES_MAX
    ) -> Iterator[PeekedMessage]:
        """Lists all messages of these states, one state after the other, in pages of `count`."""
        for state in tuple(states):
            after: str | None = None
            while True:
                page = self.peek(states=(state,), count=count, after=after)
                yield from page
                if len(page) < count:
                    break
                after = page[-1].id

    def follow(
        self, *, select: str | Iterable[str] | None = None, last: int = 0
    ) -> Iterator[FollowedMessage]:
        """Shows each message that becomes ready, without consuming it, after the `last` past ones
        (0 to 1000). `select`: only messages of a selection. A lost connection is opened again;
        messages of the time between are not shown. Raises QueueNotFound, also when the queue is
        deleted, and other final errors.
        """
        return self._portal.iterate(self._inner.follow(select=select, last=last))

    def tagged(self, tag: str, *, count: int | None = None, after: str | None = None) -> Tagged:
        """Lists at most `count` (100) messages that have the tag, after the id `after`."""
        return self._portal.run(lambda: self._inner.tagged(tag, count=count, after=after))

    def delete_tagged(self, tag: str) -> int:
        """Deletes all messages that have the tag, in requests of 1000. Returns how many. Durable on
        return.
        """
        return self._portal.run(lambda: self._inner.delete_tagged(tag))

    def sideline_tagged(self, tag: str, *, reason: Reason = "rejected") -> int:
        """Moves all messages that have the tag to the sideline, in requests of 1000. Returns how
        many. Durable on return. Raises AlreadySideline.
        """
        return self._portal.run(lambda: self._inner.sideline_tagged(tag, reason=reason))

    def tag_history(self, tag: str) -> TagHistory:
        """Reads the events of messages that were published with the tag, including removed ones,
        where the queue's setting `history` is true: the latest 1000 events, of the newest 10000
        messages.
        """
        return self._portal.run(lambda: self._inner.tag_history(tag))

    def schedule(
        self,
        name: str,
        body: Body = b"",
        *,
        json: Any = ABSENT,
        every_s: float | None = None,
        delay_s: float | None = None,
        cron: str | None = None,
        tz: str | None = None,
        count: int | None = None,
        until: datetime | str | None = None,
        overlap: Literal["allow", "skip"] | None = None,
        after: Literal["due", "done"] | None = None,
        misfire: Literal["once", "skip", "all"] | None = None,
        priority: int | None = None,
        key: str | None = None,
        visibility_s: int | None = None,
        ttl_s: int | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Schedule:
        """Creates a schedule, or replaces the one of this name; the same schedule again changes
        nothing. Durable on return. `body` or `json`: of each message, as in `publish`. Either
        `every_s`, with `delay_s` before the first message; or `cron`, in the time zone `tz`.
        `count` and `until` end it. `after="done"` counts the next firing from the end of the last
        message. Of missed firings `misfire` fires one, none, or all. `priority`, `key`,
        `visibility_s`, `ttl_s`, `group` and `tags`: of each message, as in `publish`. Raises
        QueueNotFound, Refused; ValueError and TypeError for an argument that cannot be sent.
        """
        return self._portal.run(
            lambda: self._inner.schedule(
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
                after=after,
                misfire=misfire,
                priority=priority,
                key=key,
                visibility_s=visibility_s,
                ttl_s=ttl_s,
                group=group,
                tags=tags,
                headers=headers,
                content_type=content_type,
            )
        )

    def schedules(self) -> list[Schedule]:
        """Lists the queue's schedules by name, without their bodies."""
        return self._portal.run(self._inner.schedules)

    def get_schedule(self, name: str) -> Schedule:
        """Reads a schedule, how often it has fired, and when it fires next. Raises
        ScheduleNotFound.
        """
        return self._portal.run(lambda: self._inner.get_schedule(name))

    def delete_schedule(self, name: str) -> None:
        """Deletes a schedule; its messages stay. Durable on return. Raises ScheduleNotFound."""
        self._portal.run(lambda: self._inner.delete_schedule(name))

    def shovel(
        self,
        *,
        ids: Collection[str] = (),
        limit: int | None = None,
        rate: int | None = None,
        older_than_s: float | None = None,
        key: str | None = None,
        priority: str | int | None = None,
        max_receives: int | None = None,
        dry_run: bool | None = None,
    ) -> str:
        """Starts to move the sideline's messages back to the queue; returns the run's id. `rate`:
        messages a second. Only messages with these `ids`, of a `key` such as `eu-*`, of a
        `priority` such as 5 or `3..7`, sidelined at least `older_than_s` ago, with fewer than
        `max_receives` receives. `dry_run`: only counts. Raises ShovelRunning, Refused.
        Not repeated once it may be done.
        """
        return self._portal.run(
            lambda: self._inner.shovel(
                ids=ids,
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
        """Reads the state of the running shovel, or of the last one. Raises ShovelNotFound."""
        return self._portal.run(self._inner.shovel_progress)

    def stop_shovel(self) -> ShovelProgress:
        """Stops the running shovel after the messages in flight; returns its state. Raises
        ShovelNotFound.
        """
        return self._portal.run(self._inner.stop_shovel)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._inner.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Client:
    """All of mq's HTTP interface, for many threads. Use `with Client(url)`, or call `close()` at
    the end. Every request may raise Unauthenticated, Forbidden, Unavailable, Unanswered and NotMq.

    `url`: mq's. `token`: sent as a bearer token. `ca_file`: the certificate authorities for an
    https URL, instead of the system's. `certificate`, `key`: the client's, for a server that asks
    for one. All are PEM files; the certificate's file may have the key too. `timeouts`, `retry`:
    how long it waits, and how it retries. `connections_max`: its connections at a time; further
    requests wait. Fetches that wait at mq have as many connections of their own, and each WebSocket
    has one. `answer_bytes_max`: the longest answer that it reads into memory; a longer one raises
    AnswerTooLarge. `linger_ms`: how long a single publish may wait for others of its queue and
    attributes, which are published as a pack then, where the queue takes packs; 0: not at all.
    `transport`: carries the requests, instead of HTTP to `url`. `seams`: for tests. A forked
    process has connections of its own; a consumer or message that was open stays the parent's
    (NotUsable). Raises ValueError for a malformed URL, options out of bounds, and unusable files.

    Its calls run in an event loop of a background thread: a call waits for its end, and an
    interrupt of the calling thread cancels it.
    """

    def __init__(
        self,
        url: str = URL_DEFAULT,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        connections_max: int = CONNECTIONS_MAX_DEFAULT,
        answer_bytes_max: int = ANSWER_BYTES_MAX_DEFAULT,
        linger_ms: float = 0.0,
        transport: Transport | None = None,
        seams: Seams | None = None,
    ) -> None:
        self._inner = AsyncClient(
            url,
            token=token,
            ca_file=ca_file,
            certificate=certificate,
            key=key,
            timeouts=timeouts,
            retry=retry,
            connections_max=connections_max,
            answer_bytes_max=answer_bytes_max,
            linger_ms=linger_ms,
            transport=transport,
            seams=seams,
        )
        self._portal = Portal(self._inner.close)

    @property
    def url(self) -> str:
        """mq's URL."""
        return self._inner.url

    def queue(self, name: str) -> Queue:
        """A queue by its name, without a request. Raises BadName."""
        return Queue(self._inner.queue(name), self._portal)

    def queues(self, *, page: int = QUEUES_LISTED_MAX) -> Iterator[QueueEntry]:
        """Lists all queues by name, sidelines too, `page` in a request."""
        return self._portal.iterate(self._inner.queues(page=page))

    def consume(
        self,
        *subscriptions: str | Subscription,
        prefetch: int = PREFETCH_DEFAULT,
        via: Via = "auto",
    ) -> Consumer:
        """Delivers messages of several queues as they become ready, over one connection.

        `prefetch`: how many messages of each queue wait in the client, in addition to those that
        the program has. `via`: `websocket`, `poll` (long polls), or `auto`: a WebSocket, and long
        polls where a proxy blocks WebSockets.

        Raises NotUsable, BadName, ValueError. A lost connection is opened again, without an end to
        the retries. Taking a message raises final errors, such as QueueNotFound, and errors of the
        first connection.
        """
        return Consumer(
            self._inner.consume(*subscriptions, prefetch=prefetch, via=via), self._portal
        )

    def members(self, queue: str | None = None) -> Members:
        """Lists the processes that share the upkeep of queues; with a queue's name, also the
        process that has this queue.
        """
        return self._portal.run(lambda: self._inner.members(queue))

    def trends(
        self, span: Literal["hour", "day", "week"] = "hour", queue: str | None = None
    ) -> Trends:
        """Reads the load of the last hour, day or week: of a queue, or of all queues together.
        Raises QueueNotFound.
        """
        return self._portal.run(lambda: self._inner.trends(span, queue))

    def refresh(self) -> Refreshed:
        """Makes every process of the root scan all queues now. Returns the result of the process
        that answers.
        """
        return self._portal.run(self._inner.refresh)

    def is_alive(self) -> bool:
        """Whether mq answers, in one attempt."""
        return self._portal.run(self._inner.is_alive)

    def readiness(self) -> Readiness:
        """Reads the durability of mq's root and its free space, in one attempt. Raises Unavailable
        where mq cannot store.
        """
        return self._portal.run(self._inner.readiness)

    def memory(self) -> Mapping[str, Any]:
        """Reads the use of memory of the process that answers, as JSON."""
        return self._portal.run(self._inner.memory)

    def openapi(self) -> Mapping[str, Any]:
        """Reads mq's OpenAPI document."""
        return self._portal.run(self._inner.openapi)

    def close(self) -> None:
        """Ends the client's consumers, connections and thread, within a bounded time. May be called
        again; any other call then raises NotUsable, also one that another thread is waiting for.
        """
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
