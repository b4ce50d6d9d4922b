"""Request bodies in, message bodies out. Bodies over BODY_HELD_BYTES_MAX are streamed."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from multidict import CIMultiDict

from mq.broker.broker import Broker
from mq.broker.memory import Reservation
from mq.http.request import Request
from mq.http.service import Service
from mq.model.errors import BodyTooLarge, BodyTooSlow, ExpectationUnknown, NoMemory
from mq.model.headers import Headers
from mq.model.limits import BODY_BYTES_PER_S_MIN, CHUNK_BYTES, KIB, MIB
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.bodies import check_json, object_of
from mq.protocol.rows import fact_headers, is_content_type
from mq.store.operations.streams import Download

JSON_BYTES_MAX: Final = MIB
SMALL_CHUNK_BYTES: Final = 32 * KIB

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


async def body_chunks(request: Request, bytes_max: int, idle_s: float) -> AsyncIterator[bytes]:
    """The request's body as it comes. The client may take `idle_s`, and a second more for each
    BODY_BYTES_PER_S_MIN; the consumer's own time does not count.

    An expected 100-continue is sent here, after all refusals that need no body. Raises
    BodyTooLarge, BodyTooSlow, BodyUnreadable, ExpectationUnknown.
    """
    if (request.head.length or 0) > bytes_max:
        raise BodyTooLarge(bytes_max)
    _answer_expectation(request)
    body, now_s = request.body, asyncio.get_running_loop().time
    size, waited_s = 0, 0.0
    while True:
        began_s = now_s()
        left_s = idle_s + size / BODY_BYTES_PER_S_MIN - waited_s
        try:
            async with asyncio.timeout(min(idle_s, left_s)):
                chunk = await body.read()
        except TimeoutError:
            raise BodyTooSlow(idle_s) from None
        waited_s += now_s() - began_s
        if not chunk:
            return
        size += len(chunk)
        if size > bytes_max:
            raise BodyTooLarge(bytes_max)
        yield chunk


async def held_body(
    service: Service, request: Request, bytes_max: int, reservation: Reservation | None
) -> bytes | bytearray:
    """The request's whole body, counted by `reservation`. Raises NoMemory, and what `body_chunks`
    does.
    """
    whole = request.body
    if whole.is_whole and not request.head.expects:
        if whole.size > bytes_max:
            raise BodyTooLarge(bytes_max)
        if reservation is None or not service.broker.memory.grow(reservation, whole.size):
            raise NoMemory
        return whole.take()
    body = bytearray()
    async for chunk in body_chunks(request, bytes_max, service.settings.body_idle_s):
        if reservation is None or not service.broker.memory.grow(reservation, len(chunk)):
            raise NoMemory
        body += chunk
    return body


async def json_object(service: Service, request: Request) -> dict[str, Any]:
    """The request's body, which must be a JSON object of at most JSON_BYTES_MAX.

    Raises MediaTypeUnknown, BadBody, and what `held_body` does.
    """
    check_json(request.content_type)
    reservation = service.broker.memory.receive()
    return object_of(bytes(await held_body(service, request, JSON_BYTES_MAX, reservation)))


def _answer_expectation(request: Request) -> None:
    expected = request.headers.get("Expect")
    if expected is None or not request.head.is_http_1_1:
        return  # HTTP/1.0 has no interim answers (RFC 9110, section 10.1.1).
    if expected.lower() != "100-continue":
        raise ExpectationUnknown
    request.client.write(_CONTINUE)


_NO_MORE: Final[Mapping[str, str]] = {}


def message_headers(
    queue: QueueName,
    message_id: MessageId,
    stamp: Stamp,
    kept: Headers,
    more: Mapping[str, str] = _NO_MORE,
) -> Mapping[str, str]:
    """A message's own headers, its kept headers, and `more`."""
    headers = fact_headers(queue, message_id, stamp, more)
    return _with_kept(headers, kept) if kept else headers


def _with_kept(headers: dict[str, str], kept: Headers) -> Mapping[str, str]:
    """Both joined: names may repeat, and a kept Content-Type replaces the default."""
    joined = CIMultiDict(headers)
    for name, value in kept:
        if is_content_type(name):
            joined["Content-Type"] = value
        else:
            joined.add(name, value)
    return joined


def download(broker: Broker, descriptor: int, offset: int, size: int) -> Download:
    """A body to be streamed in chunks, in small ones if the memory budget has no room."""
    reservation = broker.memory.hold(CHUNK_BYTES) if size > SMALL_CHUNK_BYTES else None
    chunk_bytes = SMALL_CHUNK_BYTES if reservation is None else CHUNK_BYTES
    return Download(broker.root.files, descriptor, offset, size, chunk_bytes, reservation)
