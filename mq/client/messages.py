"""A queue's messages: fetches them, reads them, and changes them by id or key."""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, fields
from http import HTTPStatus
from typing import Final, cast

from mq.client import wire
from mq.client.consuming import frames
from mq.client.consuming.patience import Patience
from mq.client.errors import ClientError
from mq.client.message import (
    AsyncMessage,
    Fetched,
    Settler,
    Target,
    Why,
    delete_call,
    extend_call,
    failures_call,
    reason_member,
    release_by_id_call,
    said,
    settle_many_call,
    sideline_call,
)
from mq.client.sending import Again, Call, OfQueue, nothing
from mq.client.transport import Answer, Pairs, Request
from mq.client.values import (
    Extended,
    Failed,
    FollowedMessage,
    GroupHead,
    History,
    HistoryEvent,
    PeekedMessage,
    Reason,
    Settled,
    Sidelined,
    State,
    StoredMessage,
    TagEvent,
    Tagged,
    TaggedMessage,
    TagHistory,
)
from mq.client.wire import Given, Members, Row
from mq.model.failure import Failure
from mq.model.limits import BATCH_MESSAGES_MAX
from mq.protocol import fetching, sidelines
from mq.protocol.conditions import RANGE
from mq.protocol.fetching import GROUPS_SHOWN_DEFAULT, PEEK_MESSAGES_DEFAULT

# The bytes of a poller's random name.
POLLER_NAME_BYTES: Final = 8

_CONTENT_RANGE: Final = re.compile(r"bytes \d{1,18}-\d{1,18}/(\d{1,18})")


class Messages(OfQueue):
    """A queue's messages. A change with `receives` applies to that delivery alone: it raises
    DeliveredAgain when the message was delivered again.
    """

    __slots__ = ()

    async def fetch(
        self,
        *,
        wait_s: float = 0.0,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
        priority: int = 0,
        consumer: str | None = None,
    ) -> AsyncMessage | None:
        """Fetches the next message; None when none is ready within `wait_s` (at most 60). No other
        consumer gets it until its `due`. Durable on return. `visibility_s`: the visibility timeout;
        None: the message's or the queue's. `select`: terms such as `priority:5..`, `key:eu-*`.
        `priority`: the consumer's, 0 to 9; consumers of a higher one are served first. `consumer`:
        its name, where the setting `active_consumer` is `single`; None: each connection is a
        consumer.

        Raises QueueNotFound, QueueExpired, Refused, Unavailable, Unanswered. A fetch is not retried
        after a lost answer: its message is delivered again when its visibility timeout ends.
        """
        terms = Terms(wait_s, visibility_s, select, priority, consumer)
        row = await self._sender.send(fetch_call(self.name, terms))
        return None if row is None else AsyncMessage(self.name, row, Settler(self._sender))

    async def fetch_many(
        self,
        count: int,
        *,
        wait_s: float = 0.0,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
        priority: int = 0,
        consumer: str | None = None,
        packs: bool = False,
    ) -> list[AsyncMessage]:
        """Fetches at most `count` (1 to 1000) messages, in order. Waits only for the first one.
        `packs`: takes packs whole, which is faster; the last one may exceed `count`. Otherwise as
        `fetch`.
        """
        terms = Terms(wait_s, visibility_s, select, priority, consumer, packs)
        call = fetch_many_call(self.name, count, terms)
        settler = Settler(self._sender)
        return [AsyncMessage(self.name, row, settler) for row in await self._sender.send(call)]

    async def read(
        self, message_id: str, *, start: int = 0, length: int | None = None
    ) -> StoredMessage:
        """Reads a message in any state without consuming it. `start`, `length`: a part of its body,
        in bytes. Raises MessageNotFound; Refused for a part beyond the body's end.
        """
        request = wire.request_to(
            "read_message", self.name, message_id, headers=_range(start, length)
        )
        return await self._sender.send(Call(request, self._stored))

    async def read_key(
        self, key: str, *, start: int = 0, length: int | None = None
    ) -> StoredMessage:
        """Reads the message that has the key, as `read` does. Raises KeyNotFound."""
        request = wire.request_to("read_by_key", self.name, key, headers=_range(start, length))
        return await self._sender.send(Call(request, self._stored))

    def _stored(self, answer: Answer) -> StoredMessage:
        size = len(answer.body)
        if answer.status == HTTPStatus.PARTIAL_CONTENT:
            part = _CONTENT_RANGE.fullmatch(answer.header("Content-Range") or "")
            if part is None:
                raise wire.not_mq(answer, "has no valid Content-Range")
            size = int(part[1])
        row = wire.single_row(answer)
        priority, key = wire.priority_and_key(row.id)
        return StoredMessage(
            *(self.name, row.id, row.body, row.headers, row.receives, row.published, row.due),
            *(priority, key, row.sidelined),
            state=_state(answer.header("X-Message-State") or ""),
            size=size,
            schedule=row.schedule,
            group=row.group,
            reason=row.reason,
            tags=row.tags,
        )

    async def delete_message(self, message_id: str, *, receives: int | None = None) -> None:
        """Deletes a message in any state; deleting it again succeeds. Durable on return. Raises
        MessageNotFound, DeliveredAgain.
        """
        await self._sender.send(delete_call(Target(self.name, message_id, receives)))

    async def delete_messages(self, messages: Iterable[str | Fetched]) -> list[Settled]:
        """Deletes up to 1000 messages in any state. Returns the result of each, in order. Durable
        on return, where `is_done`.

        A message is an id, or a fetched message, which stands for that delivery alone. The fetched
        message does not record that it is settled. The same holds for `extend_messages`,
        `release_messages` and `sideline_messages`.
        """
        call = settle_many_call("acknowledge", self.name, _rows(messages))
        return await self._sender.send(call)

    async def extend_messages(
        self, messages: Iterable[str | Fetched], seconds: float
    ) -> list[Settled]:
        """Makes up to 1000 messages due in `seconds`. Otherwise as `delete_messages`."""
        rows = _rows(messages, due_in_s=round(seconds, 3))
        return await self._sender.send(settle_many_call("extend_messages", self.name, rows))

    async def release_messages(
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
        failure = Failure(reason) if isinstance(reason, str) else reason
        rows = _rows(messages, due_in_s=round(delay_s, 3), **reason_member(said(failure)))
        return await self._sender.send(settle_many_call("release_messages", self.name, rows))

    async def sideline_messages(
        self, messages: Iterable[str | Fetched], *, reason: Reason | str | Failure = "rejected"
    ) -> list[Settled]:
        """Moves up to 1000 messages to the queue's sideline. `reason`: as for Message.sideline.
        Otherwise as `delete_messages`.
        """
        rows = _rows(messages, **reason_member(Why.of(reason).said()))
        return await self._sender.send(settle_many_call("sideline_messages", self.name, rows))

    async def delete_key(self, key: str, *, receives: int | None = None) -> None:
        """Deletes the message that has the key. Durable on return. Raises KeyNotFound,
        DeliveredAgain. Not retried once mq may have carried it out: another message may have the
        key then.
        """
        headers = wire.if_match(receives)
        request = wire.request_to("delete_by_key", self.name, key, headers=headers)
        await self._sender.send(Call(request, nothing, Again.UNDONE))

    async def extend(
        self, message_id: str, seconds: float, *, receives: int | None = None
    ) -> Extended:
        """Makes a fetched, delayed or ready message due in `seconds`. Durable on return. Raises
        MessageNotFound, DeliveredAgain.
        """
        target = Target(self.name, message_id, receives)
        return await self._sender.send(extend_call(target, seconds))

    async def release(
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
        failure = Failure(reason) if isinstance(reason, str) else reason
        target = Target(self.name, message_id, receives)
        return await self._sender.send(release_by_id_call(target, delay_s, failure))

    async def sideline(
        self,
        message_id: str,
        *,
        reason: Reason | str | Failure = "rejected",
        receives: int | None = None,
    ) -> Sidelined:
        """Moves a message to the queue's sideline. `reason`: as for Message.sideline. Durable on
        return. Raises MessageNotFound, MessageLeased, DeliveredAgain; Refused in a sideline.
        """
        target = Target(self.name, message_id, receives)
        return await self._sender.send(sideline_call(target, Why.of(reason)))

    async def failures(self, message_id: str) -> tuple[Failed, ...]:
        """Reads why consumers released or sidelined a message: the newest five reasons, the newest
        last. Raises MessageNotFound.
        """
        return await self._sender.send(failures_call(Target(self.name, message_id)))

    async def history(self, message_id: str) -> History:
        """Reads the events of a message, where the queue's setting `history` is true. Raises
        MessageNotFound.
        """
        request = wire.request_to("read_history", self.name, message_id)
        return await self._sender.send(Call(request, _history))

    async def peek(
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
        states, found = tuple(states), list[PeekedMessage]()
        terms = select if select is None or isinstance(select, str) else ",".join(select)
        while True:
            query = (
                (fetching.STATE, states),
                (fetching.PEEK_COUNT, count - len(found)),
                (fetching.PEEK_AFTER, after),
                (fetching.PEEK_SELECT, terms),
                (fetching.PEEK_TAG, tag),
            )
            request = wire.request_to("peek", self.name, query=query)
            page, after = await self._sender.send(Call(request, self._peeked))
            found += page
            if after is None or len(found) >= count:
                return found

    async def groups(self, *, count: int = GROUPS_SHOWN_DEFAULT) -> list[GroupHead]:
        """Lists the groups whose head was fetched and is not settled, the longest first. Delete,
        release or sideline the head to let its group continue.
        """
        request = wire.request_to("list_groups", self.name, query=((fetching.GROUP_COUNT, count),))
        return await self._sender.send(Call(request, _groups))

    def _peeked(self, answer: Answer) -> tuple[list[PeekedMessage], str | None]:
        rows = [self._peeked_row(each) for each in wire.rows_in(answer)]
        return rows, answer.header("X-Peek-After")

    def _peeked_row(self, found: Members) -> PeekedMessage:
        row = found.row()
        priority, key = wire.priority_and_key(row.id)
        return PeekedMessage(
            *(self.name, row.id, row.body, row.headers, row.receives, row.published, row.due),
            *(priority, key, row.sidelined),
            state=_state(found.text("state")),
            size=found.whole("size"),
            sidelined_at=row.sidelined_at,
            schedule=row.schedule,
            group=row.group,
            reason=row.reason,
            tags=row.tags,
        )

    async def browse(
        self, states: Iterable[State] = ("ready",), *, count: int = BATCH_MESSAGES_MAX
    ) -> AsyncIterator[PeekedMessage]:
        """Lists all messages of these states, one state after the other, in pages of `count`."""
        async for page in self._pages(tuple(states), count):
            for message in page:
                yield message

    async def _pages(
        self, states: Sequence[State], count: int
    ) -> AsyncIterator[list[PeekedMessage]]:
        """The pages of `browse`."""
        for state in states:
            after: str | None = None
            while True:
                page = await self.peek(states=(state,), count=count, after=after)
                yield page
                if len(page) < count:
                    break
                after = page[-1].id

    async def follow(
        self, *, select: str | Iterable[str] | None = None, last: int = 0
    ) -> AsyncIterator[FollowedMessage]:
        """Shows each message that becomes ready, without consuming it, after the `last` past ones
        (0 to 1000). `select`: only messages of a selection. A lost connection is opened again;
        messages of the time between are not shown. Raises QueueNotFound, also when the queue is
        deleted, and other final errors.
        """
        terms = select if select is None or isinstance(select, str) else ",".join(select)
        sender = self._sender
        sender.check_usable()
        patience = Patience(self.name, sender.shown_url, sender.retry, sender.seams)
        while True:
            try:
                socket = await sender.connect(wire.request_to("consume"))
                try:
                    await socket.send(frames.follow(self.name, terms, last))
                    while True:
                        found = frames.parse_followed(await socket.receive())
                        if found is None:
                            patience.succeeded()
                            last = 0
                            continue
                        patience.went_well()
                        yield self._followed(*found)
                finally:
                    await socket.close()
            except ClientError as error:
                await patience.after(error)

    def _followed(self, found: Members, dropped: int) -> FollowedMessage:
        row = self._peeked_row(found)
        shown = {each.name: getattr(row, each.name) for each in fields(row)}
        return FollowedMessage(**shown, dropped=dropped)

    async def tagged(
        self, tag: str, *, count: int | None = None, after: str | None = None
    ) -> Tagged:
        """Lists at most `count` (100) messages that have the tag, after the id `after`."""
        query = ((fetching.PEEK_COUNT, count), (fetching.TAG_AFTER, after))
        request = wire.request_to("list_tagged", self.name, tag, query=query)
        return await self._sender.send(Call(request, _tagged))

    async def delete_tagged(self, tag: str) -> int:
        """Deletes all messages that have the tag, in requests of 1000. Returns how many. Durable on
        return.
        """
        return await self._all("delete_tagged", tag)

    async def sideline_tagged(self, tag: str, *, reason: Reason = "rejected") -> int:
        """Moves all messages that have the tag to the sideline, in requests of 1000. Returns how
        many. Durable on return. Raises AlreadySideline.
        """
        return await self._all("sideline_tagged", tag, ((sidelines.REASON, reason),))

    async def tag_history(self, tag: str) -> TagHistory:
        """Reads the events of messages that were published with the tag, including removed ones,
        where the queue's setting `history` is true: the latest 1000 events, of the newest 10000
        messages.
        """
        request = wire.request_to("read_tag_history", self.name, tag)
        return await self._sender.send(Call(request, _tag_history))

    async def _all(self, endpoint: str, tag: str, query: tuple[wire.Given, ...] = ()) -> int:
        done, after = 0, None
        while True:
            more = (*query, (fetching.TAG_AFTER, after))
            request = wire.request_to(endpoint, self.name, tag, query=more)
            found = await self._sender.send(Call(request, Members.of, Again.SAFE))
            done, after = done + found.whole("done"), found.text_or_none("after")
            if after is None:
                return done


@dataclass(frozen=True, slots=True)
class Terms:
    """The options of a fetch: how long mq waits for a message, the visibility timeout (None: the
    message's or the queue's), the selection, the consumer's priority and name (None: no name), and
    whether it takes packs whole.
    """

    wait_s: float = 0.0
    visibility_s: float | None = None
    select: str | Iterable[str] | None = None
    priority: int = 0
    consumer: str | None = None
    packs: bool = False


def fetch_call(queue: str, terms: Terms) -> Call[Row | None]:
    """Fetches the next message. Not retried after a lost answer: the fetched message is delivered
    again anyway, and a retry would delay a second one.
    """

    def read(answer: Answer) -> Row | None:
        return None if answer.status == HTTPStatus.NO_CONTENT else wire.single_row(answer)

    return Call(_fetch(queue, terms), read, Again.ANSWERED)


def fetch_many_call(queue: str, count: int, terms: Terms) -> Call[list[Row]]:
    """Fetches at most `count` messages. Not retried after a lost answer."""

    def read(answer: Answer) -> list[Row]:
        # An answer of 204 has no rows.
        return [each.row() for each in wire.rows_in(answer)]

    return Call(_fetch(queue, terms, (fetching.COUNT, count)), read, Again.ANSWERED)


def _fetch(queue: str, terms: Terms, *more: Given) -> Request:
    query = (
        *more,
        (fetching.WAIT, terms.wait_s or None),
        (fetching.VISIBILITY, terms.visibility_s),
        (fetching.SELECT, terms.select),
        (fetching.CONSUMER_PRIORITY, terms.priority or None),
        (fetching.CONSUMER, terms.consumer),
        (fetching.PACKS, "true" if terms.packs else None),
    )
    return wire.request_to("fetch", queue, query=query, wait_s=terms.wait_s)


def _range(start: int, length: int | None) -> Pairs:
    if start < 0 or (length is not None and length < 1):
        raise ValueError(
            f"a part must have a start of at least 0 and a length of at least 1, not {start} and "
            f"{length}"
        )
    if not start and length is None:
        return ()
    last = "" if length is None else str(start + length - 1)
    return ((RANGE.name, f"bytes={start}-{last}"),)


def _rows(messages: Iterable[str | Fetched], **more: object) -> list[dict[str, object]]:
    """The rows of a request that settles many messages."""
    return [
        {"id": each, **more}
        if isinstance(each, str)
        else {"id": each.id, "receives": each.receives, **more}
        for each in messages
    ]


def _state(text: str) -> State:
    # A newer mq may have other states: the value is passed on.
    return cast(State, text)


def _history(answer: Answer) -> History:
    found = Members.of(answer)
    events = tuple(each.value(HistoryEvent) for each in found.each("events"))
    return found.value(History, events=events)


def _tag_history(answer: Answer) -> TagHistory:
    found = Members.of(answer)
    events = tuple(each.value(TagEvent) for each in found.each("events"))
    return found.value(TagHistory, events=events)


def _groups(answer: Answer) -> list[GroupHead]:
    return [
        GroupHead(
            each.text("group") if "group" in each.raw else None,
            *(each.text("id"), _state(each.text("state")), each.whole("receives")),
            *(each.time("due"), each.time("since")),
        )
        for each in Members.of(answer).each("groups")
    ]


def _tagged(answer: Answer) -> Tagged:
    found = Members.of(answer)
    messages = tuple(each.value(TaggedMessage) for each in found.each("messages"))
    return Tagged(found.whole("entries"), messages, found.text_or_none("after"))
