"""`/{queue}/messages` and `/{queue}/messages/{id}`: publish, fetch and delete a message."""

from collections.abc import AsyncIterator, Mapping
from typing import Final

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.bodies import body_chunks, json_object
from mq.http.carried import download, message_headers, sent
from mq.http.service import Service
from mq.model.clock import rfc3339
from mq.model.limits import BODY_HELD_BYTES_MAX, CHUNK_BYTES, SMALL_CHUNK_BYTES
from mq.model.message import Delivery, Envelope
from mq.model.names import MessageId, QueueName
from mq.protocol.bodies import due_in_s_of
from mq.protocol.envelopes import envelope_of
from mq.protocol.etags import parse_if_match
from mq.protocol.fetching import terms_of

DELETED: Final = Answer(202)
_NOTHING: Final = Answer(204, {"Cache-Control": "no-store"})


async def publish(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """POST: 201 once the message is on stable media."""
    name = QueueName.parse(path["queue"])
    queue = await service.broker.queue(name)  # A missing queue is told before the body is read.
    envelope = envelope_of(request.query, request.headers, service.broker.root.now_ms())
    body_bytes_max = service.broker.keeper.usable(queue).body_bytes_max
    chunks = body_chunks(request, body_bytes_max, service.settings.body_idle_s)
    memory, held = service.broker.memory, bytearray()
    hand = memory.receive() if (request.content_length or 0) <= BODY_HELD_BYTES_MAX else None
    if hand is not None:
        async for chunk in chunks:
            held += chunk
            if len(held) > BODY_HELD_BYTES_MAX or not memory.grow(hand, len(chunk)):
                break
        else:
            return published(name, await service.broker.publish(name, held, envelope, hand))
    return published(name, await _upload(service, name, envelope, held, chunks))


async def fetch(
    service: Service, request: web.BaseRequest, path: Mapping[str, str]
) -> Answer | web.StreamResponse:
    """GET: the next message, claimed for its visibility; 204 when there is none."""
    visibility_s, wait_s, selection = terms_of(request.query, request.headers)
    delivery = await service.broker.consuming.fetch(
        QueueName.parse(path["queue"]), visibility_s, wait_s, selection
    )
    if delivery is not None and delivery.descriptor is not None:
        return await stream(service, request, delivery)
    return fetched(delivery)


async def reschedule(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """PATCH: 200 once the message's new due time is on stable media."""
    name = QueueName.parse(path["queue"])
    message_id = MessageId.parse(path["id"])
    if_match = request.headers.getall("If-Match", [])
    if_receives = parse_if_match(if_match)
    wanted = await json_object(service, request)
    due_in_s, given = due_in_s_of(wanted, if_match)
    stamp = await service.broker.reschedule(name, message_id, due_in_s, if_receives, given)
    return json_answer(
        {"id": message_id.text, "due": rfc3339(stamp.due_ms), "receives": stamp.receives},
        headers={"ETag": f'"{stamp.receives}"'},
    )


async def delete(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """DELETE: 202 once the message is gone for good, also when it was before."""
    name = QueueName.parse(path["queue"])
    message_id = MessageId.parse(path["id"])
    if_receives = parse_if_match(request.headers.getall("If-Match", []))
    await service.broker.remove(name, message_id, if_receives)
    return DELETED


async def _upload(
    service: Service,
    name: QueueName,
    envelope: Envelope,
    held: bytearray,
    chunks: AsyncIterator[bytes],
) -> MessageId:
    upload = await service.broker.upload(name, envelope)
    hand = service.broker.memory.receive(CHUNK_BYTES)
    part_bytes = SMALL_CHUNK_BYTES if hand is None else CHUNK_BYTES
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
    """The answer to a publish."""
    text = message_id.text
    headers = {
        "X-Message-Id": text,
        "Location": f"/{name.text}/messages/{text}",
        "Content-Type": "application/json",
    }
    # An id needs no escapes in JSON, nor in a URL.
    return Answer(201, headers, f'{{"id": "{text}"}}\n'.encode("ascii"))


def fetched(delivery: Delivery | None) -> Answer:
    """The answer to a fetch whose body is held."""
    if delivery is None or delivery.body is None:
        return _NOTHING
    return Answer(200, _headers(delivery), delivery.body, hand=delivery.hand)


async def stream(
    service: Service, request: web.BaseRequest, delivery: Delivery
) -> web.StreamResponse:
    """Answers a fetch whose body is not held: the response has been sent on return."""
    if delivery.descriptor is None:
        raise ValueError("the body is held")
    body = download(service.broker, delivery.descriptor, delivery.offset, delivery.size)
    return await sent(request, 200, _headers(delivery), body)


def _headers(delivery: Delivery) -> Mapping[str, str]:
    return message_headers(delivery.queue, delivery.id, delivery.stamp, delivery.headers)
