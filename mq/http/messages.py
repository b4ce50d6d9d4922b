"""`/{queue}/messages` and `/{queue}/messages/{id}`: publish, fetch and delete a message."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, cast

from aiohttp import web

from mq.errors import BadBody, BadPrecondition
from mq.http.answers import Answer, json_answer, rfc3339
from mq.http.bodies import body_chunks, json_object
from mq.http.carried import message_headers, sent
from mq.http.envelopes import envelope_of
from mq.http.query import Header, Seconds, Terms
from mq.http.service import Service
from mq.limits import (
    BODY_HELD_BYTES_MAX,
    CHUNK_BYTES,
    DUE_IN_S_MAX,
    VISIBILITY_S_MAX,
    VISIBILITY_S_MIN,
    WAIT_S_MAX,
)
from mq.message import Delivery, Envelope
from mq.names import MessageId, QueueName
from mq.selection import Selection
from mq.store.find import Precondition
from mq.store.streams import Download

# A list of entity tags; empty elements are ignored (RFC 9110, section 5.6.1).
_ENTITY_TAGS: Final = re.compile(r'[\s,]*(?:W/)?"[^"]*"(?:\s*,[\s,]*(?:W/)?"[^"]*")*[\s,]*')
DELETED: Final = Answer(202)
_NOTHING: Final = Answer(204, {"Cache-Control": "no-store"})
_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\b")
_ENTITY_TAG: Final = re.compile(r'(W/)?"([^"]*)"')

VISIBILITY: Final = Seconds(
    "visibility", VISIBILITY_S_MIN, VISIBILITY_S_MAX,
    "For how long what is fetched is its fetcher's; left out, as the message or its queue says.",
)  # fmt: skip
WAIT: Final = Seconds(
    "wait", 0, WAIT_S_MAX, "How long a fetch that finds nothing waits for a message."
)
SELECT: Final = Terms(
    "select",
    "Which messages to fetch: those of which all these terms hold, with commas between; "
    "`priority:5..`, `key:PREFIX*`, `content-type:text/*`, `header:ce-type=order.created`.",
)
PREFER: Final = Header(
    "Prefer", {"type": "string"},
    "`wait=S` (RFC 7240) does what the parameter does, cut to what that takes. Any other "
    "preference is passed over.",
    example="wait=20",
)  # fmt: skip
IF_MATCH: Final = Header(
    "If-Match", {"type": "string", "pattern": rf"^(?:\s*\*\s*|{_ENTITY_TAGS.pattern})$"},
    "The entity tag of what the client knows, several with commas, or `*` for any.",
    example='"1"',
)  # fmt: skip


async def publish(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """POST: 201 once the message is on stable media."""
    name = QueueName.parse(path["queue"])
    queue = await service.broker.queue(name)  # A missing queue is told before the body is read.
    envelope = envelope_of(request.query, request.headers, service.broker.root.now_ms())
    body_bytes_max = service.broker.keeper.usable(queue).body_bytes_max
    chunks = body_chunks(request, body_bytes_max, service.settings.body_idle_s)
    held = bytearray()
    if (request.content_length or 0) <= BODY_HELD_BYTES_MAX:
        async for chunk in chunks:
            held += chunk
            if len(held) > BODY_HELD_BYTES_MAX:
                break
        else:
            return published(name, await service.broker.publish(name, held, envelope))
    return published(name, await _upload(service, name, envelope, held, chunks))


async def fetch(
    service: Service, request: web.BaseRequest, path: Mapping[str, str]
) -> Answer | web.StreamResponse:
    """GET: the next message, claimed for its visibility; 204 when there is none."""
    visibility_s, wait_s, selection = terms_of(request)
    delivery = await service.broker.consuming.fetch(
        QueueName.parse(path["queue"]), visibility_s, wait_s, selection
    )
    if delivery is not None and delivery.descriptor is not None:
        return await stream(service, request, delivery)
    return fetched(delivery)


def terms_of(request: web.BaseRequest) -> tuple[float | None, float, Selection | None]:
    """For how long the client would have what it fetches (None: as that or the queue says), how
    long it would wait, and which messages it would have. Raises BadParameter.
    """
    return VISIBILITY.of(request.query), _wait_s(request), SELECT.of(request.query)


def _wait_s(request: web.BaseRequest) -> float:
    """How long the client would wait: `?wait=`, else `Prefer: wait=` (RFC 7240), which is cut to
    what mq does. Raises BadParameter.
    """
    wait_s = WAIT.of(request.query)
    if wait_s is not None:
        return wait_s
    return preferred_wait_s(request.headers.getall("Prefer", []))


def preferred_wait_s(values: list[str]) -> float:
    """How long a client would wait, by what its Prefer headers say."""
    preferred = _WAIT.search(", ".join(values))
    return min(float(preferred[1]), WAIT_S_MAX) if preferred else 0


async def reschedule(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """PATCH: 200 once the message's new due time is on stable media."""
    name = QueueName.parse(path["queue"])
    message_id = MessageId.parse(path["id"])
    if_receives = parse_if_match(request.headers.getall("If-Match", []))
    wanted = await json_object(request, service.settings.body_idle_s)
    due_in_s = _due_in_s(wanted)
    stamp = await service.broker.reschedule(name, message_id, due_in_s, if_receives)
    return json_answer(
        {"id": message_id.text, "due": rfc3339(stamp.due_ms), "receives": stamp.receives},
        headers={"ETag": f'"{stamp.receives}"'},
    )


def _due_in_s(wanted: dict[str, object]) -> float:
    due_in_s = wanted.get("due_in_s")
    is_number = isinstance(due_in_s, int | float) and not isinstance(due_in_s, bool)
    if len(wanted) == 1 and is_number and 0 <= (found := cast(float, due_in_s)) <= DUE_IN_S_MAX:
        return round(found, 3)
    raise BadBody(f'{{"due_in_s": seconds from 0 to {DUE_IN_S_MAX}}}, and nothing else')


async def delete(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """DELETE: 202 once the message is gone for good, also when it was before."""
    name = QueueName.parse(path["queue"])
    message_id = MessageId.parse(path["id"])
    if_receives = parse_if_match(request.headers.getall("If-Match", []))
    await service.broker.remove(name, message_id, if_receives)
    return DELETED


def parse_if_match(values: list[str]) -> Precondition | None:
    """What If-Match says of a message's receives. None without the header. Raises
    BadPrecondition.
    """
    matches = parse_tags(values)
    return None if matches is None else lambda receives: matches(str(receives))


def parse_tags(values: list[str]) -> Callable[[str], bool] | None:
    """Which entity tags If-Match names: any of a list, or `*` for any at all.

    None without the header. A weak tag never matches (RFC 9110, section 13.1.1), nor one that
    no answer gives out. Raises BadPrecondition.
    """
    if not values:
        return None
    text = ", ".join(values).strip()
    if text == "*":
        return lambda tag: True
    if _ENTITY_TAGS.fullmatch(text) is None:
        raise BadPrecondition
    tags = {tag for weak, tag in _ENTITY_TAG.findall(text) if not weak}
    return lambda tag: tag in tags


async def _upload(
    service: Service,
    name: QueueName,
    envelope: Envelope,
    held: bytearray,
    chunks: AsyncIterator[bytes],
) -> MessageId:
    upload = await service.broker.upload(name, envelope)
    try:
        async for chunk in chunks:
            held += chunk
            if len(held) >= CHUNK_BYTES:
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
    return Answer(200, _headers(delivery), delivery.body)


async def stream(
    service: Service, request: web.BaseRequest, delivery: Delivery
) -> web.StreamResponse:
    """Answers a fetch whose body is not held: the response has been sent on return."""
    if delivery.descriptor is None:
        raise ValueError("the body is held")
    files = service.broker.root.files
    download = Download(files, delivery.descriptor, delivery.offset, delivery.size)
    return await sent(request, 200, _headers(delivery), download)


def _headers(delivery: Delivery) -> Mapping[str, str]:
    return message_headers(delivery.id, delivery.stamp, delivery.headers)
