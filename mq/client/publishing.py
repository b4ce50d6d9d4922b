"""Publishes to a queue: one message, many, lines."""

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, cast

from mq.client import wire
from mq.client.bodies import GivenBody, body_of
from mq.client.errors import ClientError, NotUsable, Problem, Unanswered
from mq.client.sending import Again, Call, OfQueue, Sender
from mq.client.together import together
from mq.client.transport import Answer, BodyStream, Pairs, Request
from mq.client.values import ABSENT, Absent, NewMessage, Published
from mq.client.wire import Given, Members
from mq.model.limits import KIB, PACK_MESSAGES_MIN
from mq.model.names import CONTENT_TYPE_DEFAULT
from mq.protocol import bodies, envelopes
from mq.protocol.rows import MEDIA_TYPE as ROWS
from mq.protocol.rows import body_member

# How many requests `publish_many` makes at a time.
PUBLISHING_MAX_DEFAULT: Final = 32
PUBLISHING_MAX: Final = 1000
# The limits of a request of `publish_many`: messages, and bytes of bodies. JSON makes six times as
# many bytes at worst, and a row has at most 1 MiB. A larger body has a request of its own.
ROWS_MAX: Final = 128
ROWS_BYTES_MAX: Final = 128 * KIB
# The statuses from here on are a server's failures.
_SERVERS: Final = 500


class Publishing(OfQueue):
    """Publishes messages to a queue."""

    __slots__ = ()

    async def publish(
        self,
        body: GivenBody = b"",
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
        or an async iterable, which are streamed. Or `json`, sent as `application/json`. `delay_s`
        or `at` (a time with its zone, or RFC 3339 text): when it is ready, else at once.
        `priority`: 0 to 9, 9 first. `key`: a lookup key that no other living message of the queue
        has. `visibility_s`: how long a fetch hides it. `ttl_s`: after how long it expires.
        `tags`: at most 9 texts, by which messages are found. `headers`: those that mq keeps are
        delivered with it. `idempotency_key`: publishes with the same key are one; without it each
        call has its own, so that its retries are safe. `group`: messages of one group are delivered
        one at a time, in order.

        Raises QueueNotFound, QueueExpired, KeyTaken, TooLarge, Refused, Unavailable, Unanswered;
        ValueError and TypeError for an argument that cannot be sent, and for headers that the
        message would not keep.
        """
        return await self.publish_message(
            NewMessage(
                *(body, json, delay_s, at, priority, key, visibility_s, headers, content_type),
                idempotency_key,
                ttl_s=ttl_s,
                group=group,
                tags=tags,
            )
        )

    async def publish_message(self, message: NewMessage) -> str:
        """Publishes a NewMessage; returns its id. Durable on return. Raises as `publish` does."""
        linger = self._sender.linger
        if linger is not None and (found := await linger.publish(self.name, message)) is not None:
            return found
        key = message.idempotency_key or str(uuid.uuid4())
        return await self._sender.send(publish_call(self.name, message, key))

    async def publish_many(
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
        if not 1 <= concurrency <= PUBLISHING_MAX:
            raise ValueError(
                f"concurrency must be a whole number from 1 to {PUBLISHING_MAX}, not {concurrency}"
            )
        found: list[Published] = []
        packer = Packer(self.name, self._sender) if pack else None
        todo = _parts(messages, may_share if pack else None)
        unreachable: Unanswered | None = None

        async def publisher() -> None:
            nonlocal unreachable
            for part in todo:
                places = range(len(found), len(found) + len(part))
                found.extend([Published()] * len(part))
                ends = [Published(problem=unreachable)] * len(part)
                if unreachable is None:
                    in_pack = None if packer is None else await packer.publish(part)
                    ends = await self._publish_part(part) if in_pack is None else in_pack
                for place, end in zip(places, ends, strict=True):
                    found[place] = end
                    if isinstance(end.problem, Unanswered):
                        unreachable = end.problem

        await together(*(publisher() for _ in range(concurrency)))
        return found

    async def _publish_part(self, part: "list[NewMessage]") -> list[Published]:
        """Publishes messages by one request; repeats those whose problem may pass by one request
        each. Raises NotUsable; ValueError and TypeError.
        """
        keyed = [
            each
            if each.idempotency_key
            else dataclasses.replace(each, idempotency_key=str(uuid.uuid4()))
            for each in part
        ]
        try:
            if len(keyed) == 1:
                return [Published(await self.publish_message(keyed[0]))]
            ends = await self._sender.send(rows_call(self.name, keyed))
        except NotUsable:
            raise
        except ClientError as error:
            return [Published(problem=error)] * len(part)
        for place, end in enumerate(ends):
            if isinstance(end.problem, Problem) and end.problem.retryable:
                [ends[place]] = await self._publish_part([keyed[place]])
        return ends

    async def publish_lines(
        self,
        body: GivenBody,
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
        message = NewMessage(
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
        )
        return await self._sender.send(lines_call(self.name, message, pack))

    async def publish_rows(self, body: GivenBody, *, pack: bool = False) -> list[Published]:
        """Publishes each row of the body, one JSON object a line with the message's attributes, in
        one request of at most 10,000 rows and 8 MiB. Otherwise as `publish_lines`.
        """
        content, _ = content_of(body, ABSENT)
        query = ((bodies.SPLIT, "rows"), (bodies.PACK, "true" if pack else None))
        headers = (("Content-Type", ROWS),)
        request = wire.request_to("publish", self.name, query=query, headers=headers, body=content)
        return await self._sender.send(Call(request, _published, Again.UNDONE))


def publish_call(queue: str, message: NewMessage, idempotency_key: str) -> Call[str]:
    """Publishes a message; returns its id. Safe to retry, by its idempotency key."""
    # In quotes, where any character may be part of a header's value.
    key = ((envelopes.IDEMPOTENCY.name, f'"{idempotency_key}"'),)
    return Call(_publish(queue, message, ((envelopes.KEY, message.key),), key), _id)


# The limits of a request that becomes one pack: messages, and bytes of bodies.
PACK_ROWS_MAX: Final = 100
PACK_BYTES_SENT_MAX: Final = 512 * KIB


def may_share(message: NewMessage) -> tuple[object, ...] | None:
    """A value that messages of one pack have in common; None: this one goes by itself."""
    own = (message.key, message.group, message.ttl_s, message.idempotency_key)
    if message.tags or any(each is not None for each in own):
        return None
    body, default = content_of(message.body, message.json)
    if not isinstance(body, bytes) or len(body) > ROWS_BYTES_MAX:
        return None
    headers = tuple(sorted((message.headers or {}).items()))
    kind = message.content_type or default or CONTENT_TYPE_DEFAULT
    at = (message.delay_s, message.at, message.priority, message.visibility_s)
    return (*at, headers, kind)


class Packer:
    """Publishes messages of a queue as packs: each request has an idempotency key, and all or none
    of its messages are published.
    """

    def __init__(self, queue: str, sender: Sender) -> None:
        self._queue = queue
        self._sender = sender
        self.is_refused = False
        """Whether the queue takes no packs."""

    async def publish(self, part: Sequence[NewMessage]) -> list[Published] | None:
        """Publishes messages that may share, as one pack. Returns the result of each; None, and
        nothing was published, where mq refuses them together. Raises NotUsable; ValueError and
        TypeError.
        """
        if self.is_refused or len(part) < PACK_MESSAGES_MIN or may_share(part[0]) is None:
            return None
        try:
            return await self._sender.send(pack_call(self._queue, part, str(uuid.uuid4())))
        except NotUsable:
            raise
        except Problem as problem:
            if not problem.retryable and HTTPStatus.BAD_REQUEST <= problem.status < _SERVERS:
                self.is_refused = problem.slug == "not-packed"
                return None
            return [Published(problem=problem)] * len(part)
        except ClientError as error:
            return [Published(problem=error)] * len(part)


def pack_call(
    queue: str, messages: Sequence[NewMessage], idempotency_key: str
) -> Call[list[Published]]:
    """Publishes messages that may share, all or none. Safe to retry, by the idempotency key."""
    first = messages[0]
    body = [cast(bytes, content_of(each.body, each.json)[0]) for each in messages]
    key = (envelopes.IDEMPOTENCY.name, f'"{idempotency_key}"')
    pack = (bodies.PACK, "true")
    if all(each and b"\n" not in each and each[-1:] != b"\r" for each in body):
        _, default = content_of(first.body, first.json)
        kind = first.content_type or default
        lines = dataclasses.replace(first, body=b"\n".join(body), json=ABSENT, content_type=kind)
        request = _publish(queue, lines, ((bodies.SPLIT, "lines"), pack), (key,))
    else:
        rows = b"\n".join(wire.json_body(_row(each)) for each in messages)
        query, headers = ((bodies.SPLIT, "rows"), pack), (("Content-Type", ROWS), key)
        request = wire.request_to("publish", queue, query=query, headers=headers, body=rows)
    return Call(request, _all_published(len(messages)))


def rows_call(queue: str, messages: Sequence[NewMessage]) -> Call[list[Published]]:
    """Publishes messages that have idempotency keys, a row each: safe to retry."""
    body = b"\n".join(wire.json_body(_row(each)) for each in messages)

    headers = (("Content-Type", ROWS),)
    query = ((bodies.SPLIT, "rows"),)
    request = wire.request_to("publish", queue, query=query, headers=headers, body=body)
    return Call(request, _all_published(len(messages)))


def _all_published(count: int) -> Callable[[Answer], list[Published]]:
    """Reads an answer that must have a row for each of `count` messages."""

    def read(answer: Answer) -> list[Published]:
        found = _published(answer)
        if len(found) != count:
            raise wire.not_mq(answer, "has not one row for each message")
        return found

    return read


def _row(message: NewMessage) -> dict[str, object]:
    body, default = content_of(message.body, message.json)
    kind, *kept = wire.message_headers(
        message.content_type, message.headers, default or CONTENT_TYPE_DEFAULT
    )
    said = {name: getattr(message, name) for name in envelopes.ATTRIBUTES}
    said["tags"] = list(tags_given(message.tags)) or None
    return {
        **body_member(cast(bytes, body)),
        **{
            name: wire.json_value(envelopes.ATTRIBUTES[name], value)
            for name, value in said.items()
            if value is not None
        },
        "content_type": kind[1],
        "headers": dict(kept),
        "idempotency_key": message.idempotency_key,
    }


def _parts(
    messages: Iterable[NewMessage | bytes | str],
    alike: Callable[[NewMessage], object] | None = None,
) -> Iterator[list[NewMessage]]:
    """Splits messages into those of one request each, in order. `alike`: a value that those of
    a pack have in common, None for others. Raises TypeError, ValueError.
    """
    part: list[NewMessage] = []
    size, shared = 0, None
    for each in messages:
        message = each if isinstance(each, NewMessage) else NewMessage(each)
        body, _ = content_of(message.body, message.json)
        more = len(body) if isinstance(body, bytes) else ROWS_BYTES_MAX + 1
        own = None if alike is None else alike(message)
        rows_max, bytes_max = (
            (ROWS_MAX, ROWS_BYTES_MAX) if shared is None else (PACK_ROWS_MAX, PACK_BYTES_SENT_MAX)
        )
        if part and (len(part) == rows_max or size + more > bytes_max or own != shared):
            yield part
            part, size = [], 0
        part.append(message)
        size, shared = size + more, own
    if part:
        yield part


def _id(answer: Answer) -> str:
    return Members.of(answer).text("id")


def lines_call(queue: str, message: NewMessage, pack: bool = False) -> Call[list[Published]]:
    """Publishes each line of a body as a message. Not safe to retry."""
    query = ((bodies.SPLIT, "lines"), (bodies.PACK, "true" if pack else None))
    request = _publish(queue, message, query)
    return Call(request, _published, Again.UNDONE)


def _published(answer: Answer) -> list[Published]:
    found = [(each, each.problem("problem")) for each in wire.rows_in(answer)]
    return [Published(None, it) if it else Published(each.text("id")) for each, it in found]


def _publish(
    queue: str, message: NewMessage, more: Sequence[Given], headers: Pairs = ()
) -> Request:
    body, default = content_of(message.body, message.json)
    query = (
        *more,
        (envelopes.DELAY, message.delay_s),
        (envelopes.AT, message.at),
        (envelopes.PRIORITY, message.priority),
        (envelopes.VISIBILITY, message.visibility_s),
        (envelopes.TTL, message.ttl_s),
        (envelopes.GROUP, message.group),
        *((envelopes.TAG, tag) for tag in tags_given(message.tags)),
    )
    kept = wire.message_headers(message.content_type, message.headers, default)
    return wire.request_to("publish", queue, query=query, headers=(*kept, *headers), body=body)


def tags_given(tags: Sequence[str]) -> Sequence[str]:
    """The tags of a message. Raises TypeError for a text."""
    if isinstance(tags, str):
        raise TypeError(f"tags must be a sequence of texts, such as [{tags!r}], not a text")
    return tags


def content_of(body: GivenBody, json: Any) -> tuple[bytes | BodyStream, str | None]:
    """A message's body, from `body` or `json`, and its Content-Type by default. Raises ValueError
    for both.
    """
    if isinstance(json, Absent):
        return body_of(body), wire.TEXT if isinstance(body, str) else None
    if body != b"":
        raise ValueError("a message has a body or a json, not both: omit one")
    return wire.json_body(json), wire.JSON
