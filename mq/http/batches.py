"""Many messages in one request: `?split`, `?count=N`, and those that settle many (`/{queue}/acks`).

Requests for one message go on to `messages`. A failed item of an answer has the `problem` that a
request for it alone would get.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, TypeVar

from mq.broker import batches, fetching
from mq.broker.broker import Broker
from mq.broker.memory import Reservation
from mq.broker.settling import Disposition, IfReceives, Remove, Reschedule, Sideline, settle_many
from mq.http import messages
from mq.http.answers import Answer, Result, Streamed, json_answer
from mq.http.bodies import download, held_body, json_object
from mq.http.request import Request
from mq.http.service import Service
from mq.model.clock import rfc3339
from mq.model.errors import (
    AlreadySideline,
    BadName,
    BadParameter,
    BatchTooLarge,
    BodyTooLarge,
    MessageNotFound,
)
from mq.model.limits import BATCH_BYTES_MAX, CHUNK_BYTES, SPLIT_LINES_MAX
from mq.model.message import PLAIN, Delivery, Envelope, GivenBack, Posted, Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.batches import (
    ACKED,
    EXTENDED,
    RELEASED,
    SIDELINED,
    Settlement,
    check_rows,
    posted,
    settlements_of,
)
from mq.protocol.bodies import PACK, SPLIT, lines_of
from mq.protocol.envelopes import envelope_of_each, idempotency_of
from mq.protocol.fetching import COUNT, terms_of
from mq.protocol.parameters import message_id as message_id_of
from mq.protocol.query import Schema
from mq.protocol.rows import MEDIA_TYPE, OWN_ORIGIN, delivered, is_text, row, row_in_parts
from mq.protocol.sidelines import sidelined
from mq.store.operations.sideline import Sidelined
from mq.store.operations.streams import Download

T = TypeVar("T")

_NO_STORE: Final = {"Cache-Control": "no-store"}
_NOTHING: Final = Answer(204, _NO_STORE)


def publish(service: Service, request: Request, path: Mapping[str, str]) -> Result:
    """POST: the body is one message; with `split`, each of its lines or rows is one."""
    if request.raw_query:
        split, in_packs = SPLIT.of(request.query), PACK.of(request.query) == "true"
        if split is not None:
            return _publish_many(service, request, path, split == "rows", in_packs)
    return messages.publish(service, request, path)


async def _publish_many(
    service: Service, request: Request, path: Mapping[str, str], as_rows: bool, in_packs: bool
) -> Answer:
    name = QueueName.parse(path["queue"])
    await service.broker.queue(name)  # A missing queue is refused before the body is read.
    now_ms = service.broker.root.now_ms()
    envelope = PLAIN
    if as_rows:
        check_rows(request.query, request.headers, in_packs)
    else:
        envelope = envelope_of_each(request.query, request.headers, now_ms, in_packs)
    reservation = service.broker.memory.receive()
    lines = await _lines(service, request, reservation)
    ends: Sequence[batches.Published]
    read = partial(posted, now_ms=now_ms)
    if in_packs and lines and (key := idempotency_of(request.headers)) is not None:
        if as_rows:
            envelope, lines = _of_one_envelope(list(map(read, lines)))
        envelope = replace(envelope, idempotency=key)
        ends = await batches.publish_pack(service.broker, name, lines, envelope)
    elif as_rows:
        ends = await batches.publish_rows(service.broker, name, lines, read, in_packs)
    else:
        ends = await batches.publish_many(service.broker, name, lines, envelope, in_packs)
    rows = (_published(service, request, end) for end in ends)
    return Answer(200, {**_NO_STORE, "Content-Type": MEDIA_TYPE}, b"".join(rows))


def _of_one_envelope(rows: Sequence[Posted]) -> tuple[Envelope, list[bytes]]:
    """The envelope of all rows, and their bodies. Raises BadParameter if they differ."""
    envelope = rows[0].envelope
    if any(each.envelope != envelope for each in rows) or envelope.idempotency is not None:
        raise BadParameter(
            "idempotency-key", "for rows of equal attributes, and none of their own, with pack=true"
        )
    return envelope, [each.body for each in rows]


async def _lines(
    service: Service, request: Request, reservation: Reservation | None
) -> list[bytes]:
    """The body's lines. Raises BatchTooLarge, and what `held_body` does."""
    try:
        body = await held_body(service, request, BATCH_BYTES_MAX, reservation)
    except BodyTooLarge:
        raise BatchTooLarge(SPLIT_LINES_MAX, BATCH_BYTES_MAX) from None
    lines: list[bytes] = []
    for line in lines_of(body):
        if len(lines) == SPLIT_LINES_MAX:
            raise BatchTooLarge(SPLIT_LINES_MAX, BATCH_BYTES_MAX)
        lines.append(line)
    return lines


def _published(service: Service, request: Request, end: batches.Published) -> bytes:
    if isinstance(end, MessageId):
        # An id needs no escapes in JSON.
        return f'{{"id": "{end.text}"}}\n'.encode("ascii")
    return row({"problem": service.error_responses.item(end, request.method, request.target)})


def fetch(service: Service, request: Request, path: Mapping[str, str]) -> Result:
    """GET: the next message; with `count`, the next ones, a line of JSON each."""
    count = COUNT.of(request.query) if request.raw_query else None
    if count is None:
        return messages.fetch(service, request, path)
    return _fetch_many(service, request, path, count)


async def _fetch_many(
    service: Service, request: Request, path: Mapping[str, str], count: int
) -> Answer | Streamed:
    wanted = terms_of(request.query, request.headers)
    terms = messages.consumer_terms(request, wanted, wanted.packs)
    name, broker = QueueName.parse(path["queue"]), service.broker
    found = await fetching.fetch_many(broker, name, count, terms, wanted.wait_s)
    if not found:
        return _NOTHING
    headers = {**_NO_STORE, **OWN_ORIGIN, "Content-Type": MEDIA_TYPE}
    return Streamed(200, headers, _Rows(broker, deque(found)), None)


class _Rows:
    """The rows of a fetch of many. Messages that were not sent are released at the end."""

    def __init__(self, broker: Broker, unsent: deque[Delivery]) -> None:
        self._broker = broker
        self._unsent = unsent
        self._body: Download | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """About a chunk of rows at a time, or one row with a streamed body in parts."""
        while self._unsent:
            if self._unsent[0].body is None:
                async for part in self._large(self._unsent[0]):
                    yield part
                self._unsent.popleft()
                continue
            found, size = [], 0
            for delivery in self._unsent:
                if delivery.body is None or size >= CHUNK_BYTES:
                    break
                found.append(row(delivered(delivery), delivery.body))
                size += len(found[-1])
            yield b"".join(found)
            for _ in found:
                self._unsent.popleft()

    async def close(self) -> None:
        """Releases the messages that were not sent."""
        if self._unsent:
            self._broker.begin_release(list(self._unsent), unhandled=True)
        if self._body is not None:
            await self._body.close()

    async def _large(self, delivery: Delivery) -> AsyncIterator[bytes]:
        """One row with a streamed body, read twice: first to see whether all of it is text."""
        if delivery.descriptor is None:
            raise ValueError("the body is held")
        of = (delivery.descriptor, delivery.offset, delivery.size)
        body = self._body = download(self._broker, *of)
        self._unsent[0] = delivery._replace(descriptor=None)  # `close` closes it.
        as_text = await is_text(body.chunks())
        async for part in row_in_parts(delivered(delivery), body.chunks(), as_text):
            yield part
        self._body = None
        await body.close()


async def acknowledge(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """POST: deletes many messages; 200 with one result each, in their order."""

    def disposition(said: Settlement) -> Disposition[bool]:
        return Remove(_seen(said))

    def facts(message_id: MessageId, removed: bool) -> Facts:
        return {"status": messages.DELETED.status}

    return await _settle(service, request, path, ACKED, disposition, facts)


async def extend(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """POST: sets when many messages are due; 200 with one result each."""

    def disposition(said: Settlement) -> Disposition[Stamp]:
        return Reschedule(said.due_in_s, _seen(said))

    return await _settle(service, request, path, EXTENDED, disposition, _rescheduled, "due_in_s")


async def release(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """POST: ends many deliveries; 200 with one result each."""

    def disposition(said: Settlement) -> Disposition[Stamp]:
        given = GivenBack.UNHANDLED if said.unhandled else GivenBack.YES
        return Reschedule(said.due_in_s, _seen(said), given, said.failure)

    return await _settle(service, request, path, RELEASED, disposition, _rescheduled)


async def sideline(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """POST: moves many messages to the sideline; 200 with one result each."""
    if (name := QueueName.parse(path["queue"])).is_sideline:
        raise AlreadySideline(name.text)

    def disposition(said: Settlement) -> Disposition[Sidelined]:
        return Sideline(said.reason, _seen(said), said.failure)

    def facts(message_id: MessageId, end: Sidelined) -> Facts:
        return {"status": 200, **sidelined(message_id, *end)}

    return await _settle(service, request, path, SIDELINED, disposition, facts)


Facts: TypeAlias = Mapping[str, object]
"""What the result of a settled message has beside its id."""


def _seen(said: Settlement) -> IfReceives | None:
    return None if said.receives is None else IfReceives(said.receives)


def _rescheduled(message_id: MessageId, stamp: Stamp) -> Facts:
    return {"status": 200, "due": rfc3339(stamp.due_ms), "receives": stamp.receives}


async def _settle(
    service: Service,
    request: Request,
    path: Mapping[str, str],
    fields: Mapping[str, Schema],
    disposition: Callable[[Settlement], Disposition[T]],
    facts: Callable[[MessageId, T], Facts],
    needed: str = "id",
) -> Answer:
    """Settles each message of the request; one result each, in their order. `fields`, `needed`:
    see `settlements_of`.
    """
    name, broker = QueueName.parse(path["queue"]), service.broker
    await broker.queue(name)
    rows = settlements_of(await json_object(service, request), fields, needed)
    wanted: dict[MessageId, Disposition[T]] = {}
    ends: dict[str, Facts] = {}
    for each in dict.fromkeys(rows):
        try:
            wanted[message_id_of(each.id)] = disposition(each)
        except (BadName, MessageNotFound) as error:
            ends[each.id] = _problem(service, request, error)
    for message_id, end in (await settle_many(broker, name, wanted)).items():
        if isinstance(end, BaseException):
            ends[message_id.text] = _problem(service, request, end)
        else:
            ends[message_id.text] = facts(message_id, end)
    return json_answer({"results": [{"id": each.id, **ends[each.id]} for each in rows]})


def _problem(service: Service, request: Request, error: BaseException) -> Facts:
    problem = service.error_responses.item(error, request.method, request.target)
    return {"status": problem["status"], "problem": problem}
