"""`/{queue}/messages` and `/{queue}/messages/{id}`: publish, fetch and delete a message."""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Final

from mq.broker import settling
from mq.broker.consumers import Fetch, Seen, Terms
from mq.broker.queue import Queue
from mq.broker.settling import Remove, Reschedule
from mq.http.answers import Answer, Pending, Result, Streamed, json_answer
from mq.http.bodies import SMALL_CHUNK_BYTES, body_chunks, download, json_object, message_headers
from mq.http.request import Request, Sender
from mq.http.service import Service
from mq.model.clock import rfc3339
from mq.model.errors import BodyTooLarge
from mq.model.limits import BODY_HELD_BYTES_MAX, CHUNK_BYTES
from mq.model.message import Delivery, Envelope
from mq.model.names import MessageId, QueueName
from mq.protocol import parameters
from mq.protocol.bodies import due_in_s_of
from mq.protocol.conditions import parse_if_match
from mq.protocol.envelopes import envelope_of
from mq.protocol.fetching import Wanted, terms_of

DELETED: Final = Answer(202)
_NOTHING: Final = Answer(204, {"Cache-Control": "no-store"})
_REMOVE: Final = Remove()


def publish(service: Service, request: Request, path: Mapping[str, str]) -> Result:
    """Publishes one message: 201 once it is on stable media."""
    queue = service.broker.known(path["queue"])
    if queue is not None:
        return _publish(service, request, queue)
    # A missing queue is refused before the body is read.
    name = QueueName.parse(path["queue"])
    return _with_queue(service, name, partial(_publish, service, request))


def _publish(service: Service, request: Request, queue: Queue) -> Result:
    broker, body = service.broker, request.body
    envelope = _envelope(service, request)
    bytes_max = broker.refresher.usable(queue).body_bytes_max
    size = body.size
    if body.is_whole and size <= BODY_HELD_BYTES_MAX and not request.head.expects:
        if size > bytes_max:
            raise BodyTooLarge(bytes_max)
        reservation = broker.memory.receive(size)
        if reservation is not None:
            future = broker.publisher.begin(queue, body.take(), envelope, reservation)
            return Pending(future, partial(published, queue.name))
    return _receive(service, request, queue.name, envelope, bytes_max)


def _envelope(service: Service, request: Request) -> Envelope:
    if request.raw_query:
        return envelope_of(request.query, request.headers, service.broker.root.now_ms())
    envelope = request.head.envelope
    if envelope is None:
        envelope = request.head.envelope = envelope_of(request.query, request.headers, 0)
    return envelope


async def _receive(
    service: Service, request: Request, name: QueueName, envelope: Envelope, bytes_max: int
) -> Result:
    """Publishes a body that is still to come, or is too large to be held."""
    chunks = body_chunks(request, bytes_max, service.settings.body_idle_s)
    memory, held = service.broker.memory, bytearray()
    reservation = memory.receive() if (request.head.length or 0) <= BODY_HELD_BYTES_MAX else None
    if reservation is not None:
        async for chunk in chunks:
            held += chunk
            if len(held) > BODY_HELD_BYTES_MAX or not memory.grow(reservation, len(chunk)):
                break
        else:
            queue = await service.broker.queue(name)
            future = service.broker.publisher.begin(queue, held, envelope, reservation)
            return Pending(future, partial(published, name))
    return published(name, await _upload(service, name, envelope, held, chunks))


def fetch(service: Service, request: Request, path: Mapping[str, str]) -> Result:
    """GET: the next message, claimed for its visibility; 204 when there is none."""
    wanted = terms_of(request.query, request.headers)
    # A fetch that waits can also wait for the queue's settings.
    known = service.broker.used if wanted.wait_s > 0 else service.broker.known
    queue = known(path["queue"])
    if queue is not None:
        return _fetch(service, request, wanted, queue)
    name = QueueName.parse(path["queue"])
    return _with_queue(service, name, partial(_fetch, service, request, wanted))


def _fetch(service: Service, request: Request, wanted: Wanted, queue: Queue) -> Pending:
    if wanted.wait_s > 0 or queue.active is not None:
        terms = consumer_terms(request, wanted)
        poll = service.broker.consuming.begin_poll(queue, wanted.wait_s, terms)
        return Pending(poll.future, partial(fetched, service), poll.abandon)
    fetch = Fetch(queue, wanted.priority, wanted.visibility_s, wanted.selection)
    fetch.begin()
    return Pending(fetch.future, partial(fetched, service), fetch.abandon)


async def _with_queue(
    service: Service, name: QueueName, begin: Callable[[Queue], Result]
) -> Result:
    """The result of `begin` for a queue of unknown settings. Raises QueueNotFound, Unavailable."""
    return begin(await service.broker.queue(name))


def consumer_terms(request: Sender, wanted: Wanted, packs: bool = False) -> Terms:
    """The terms of a fetch that waits. `packs`: it takes packs whole."""
    return Terms(
        1,
        wanted.priority,
        wanted.visibility_s,
        wanted.selection,
        _Poll(request),
        "" if wanted.consumer is None else wanted.consumer.text,
        packs,
    )


class _Poll:
    __slots__ = ("_request",)

    def __init__(self, request: Sender) -> None:
        self._request = request

    def seen(self, queue: str) -> Seen:
        """The poll as others see it. It holds no message."""
        return Seen("poll", *self._request.sender())

    async def released(self) -> None:
        """Returns at once: a claim for an ended poll is released in the background."""


async def reschedule(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """PATCH: 200 once the new due time is on stable media."""
    name = QueueName.parse(path["queue"])
    message_id = parameters.message_id(path["id"])
    if_match = request.headers.getall("If-Match", [])
    if_receives = parse_if_match(if_match)
    wanted = await json_object(service, request)
    due_in_s, given, failure = due_in_s_of(wanted, if_match)
    how = Reschedule(due_in_s, if_receives, given, failure)
    stamp = await settling.settle(service.broker, name, message_id, how)
    return json_answer(
        {"id": message_id.text, "due": rfc3339(stamp.due_ms), "receives": stamp.receives},
        headers={"ETag": f'"{stamp.receives}"'},
    )


def delete(service: Service, request: Request, path: Mapping[str, str]) -> Result:
    """DELETE: 202 once the deletion is on stable media, also if it was earlier."""
    name = QueueName.parse(path["queue"])
    message_id = parameters.message_id(path["id"])
    how = _REMOVE
    if "If-Match" in request.headers:
        how = Remove(parse_if_match(request.headers.getall("If-Match")))
    return Pending(settling.begin(service.broker, name, message_id, how), _deleted)


async def delete_by_key(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """DELETE of `/{queue}/keys/{key}`: 202 once the deletion is on stable media."""
    name, key = QueueName.parse(path["queue"]), parameters.parsed_key(path["key"], "key")
    if_receives = parse_if_match(request.headers.getall("If-Match", []))
    await service.broker.remove_by_key(name, key, if_receives)
    return DELETED


def _deleted(removed: bool) -> Answer:
    return DELETED


async def _upload(
    service: Service,
    name: QueueName,
    envelope: Envelope,
    held: bytearray,
    chunks: AsyncIterator[bytes],
) -> MessageId:
    upload = await service.broker.upload(name, envelope)
    reservation = service.broker.memory.receive(CHUNK_BYTES)
    part_bytes = SMALL_CHUNK_BYTES if reservation is None else CHUNK_BYTES
    try:
        async for chunk in chunks:
            held += chunk
            if len(held) >= part_bytes:
                await upload.write(held)
                held = bytearray()
        await upload.write(held)
        return await service.broker.finish(name, upload)
    finally:
        await upload.abort()


def published(name: QueueName, message_id: MessageId) -> Answer:
    """The answer to a publish: 201 with the message's id and URL."""
    text = message_id.text
    headers = {
        "X-Message-Id": text,
        "Location": f"/{name.text}/messages/{text}",
        "Content-Type": "application/json",
    }
    # An id needs no escapes in JSON, nor in a URL.
    return Answer(201, headers, f'{{"id": "{text}"}}\n'.encode("ascii"))


def fetched(service: Service, delivery: Delivery | None) -> Answer | Streamed:
    """The answer to a fetch: 200 with the message, 204 without one."""
    if delivery is None:
        return _NOTHING
    more = {"X-Message-Reason": delivery.failure} if delivery.failure else {}
    headers = message_headers(delivery.queue, delivery.id, delivery.stamp, delivery.headers, more)
    if delivery.body is not None:
        return Answer(200, headers, delivery.body, reservation=delivery.reservation)
    if delivery.descriptor is None:
        raise ValueError("a delivery has neither a body nor a descriptor")
    body = download(service.broker, delivery.descriptor, delivery.offset, delivery.size)
    return Streamed(200, headers, body, delivery.size)
