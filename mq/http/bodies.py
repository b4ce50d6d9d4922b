"""Request bodies in, message bodies out; neither held beyond BODY_HELD_BYTES_MAX."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from aiohttp import ClientPayloadError, HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

from mq.broker.memory import Hand
from mq.http.service import Service
from mq.model.errors import BodyTooLarge, BodyTooSlow, BodyUnreadable, ExpectationUnknown, NoMemory
from mq.model.limits import BODY_BYTES_PER_S_MIN, JSON_BYTES_MAX
from mq.protocol.bodies import check_json, object_of

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


async def body_chunks(
    request: web.BaseRequest, bytes_max: int, idle_s: float
) -> AsyncIterator[bytes]:
    """The request's body as it comes. What the client takes for it is `idle_s` and no more than a
    second for each BODY_BYTES_PER_S_MIN of it; the time is not counted that others take for it.

    A client that expects 100-continue is told so here, after whatever could be refused before.
    Raises BodyTooLarge, BodyTooSlow, BodyUnreadable, ExpectationUnknown.
    """
    if (request.content_length or 0) > bytes_max:
        raise BodyTooLarge(bytes_max)
    await _answer_expectation(request)
    content, now_s = request.content, asyncio.get_running_loop().time
    size, waited_s = 0, 0.0
    while True:
        try:
            if content.is_eof():
                chunk = content.read_nowait()
            else:
                began_s = now_s()
                left_s = idle_s + size / BODY_BYTES_PER_S_MIN - waited_s
                async with asyncio.timeout(min(idle_s, left_s)):
                    chunk = await content.readany()
                waited_s += now_s() - began_s
        except TimeoutError:
            raise BodyTooSlow(idle_s) from None
        except (ClientPayloadError, HttpProcessingError, web.RequestPayloadError, ConnectionError):
            raise BodyUnreadable from None
        if not chunk:
            return
        size += len(chunk)
        if size > bytes_max:
            raise BodyTooLarge(bytes_max)
        yield chunk


async def held_body(
    service: Service, request: web.BaseRequest, bytes_max: int, hand: Hand | None
) -> bytearray:
    """The request's whole body, which `hand` counts in memory. Raises NoMemory, and what
    `body_chunks` does.
    """
    body = bytearray()
    async for chunk in body_chunks(request, bytes_max, service.settings.body_idle_s):
        if hand is None or not service.broker.memory.grow(hand, len(chunk)):
            raise NoMemory
        body += chunk
    return body


async def json_object(service: Service, request: web.BaseRequest) -> dict[str, Any]:
    """The request's body, which must be a JSON object of at most JSON_BYTES_MAX.

    Raises MediaTypeUnknown, BadBody, and what `held_body` does.
    """
    check_json(request.content_type)
    hand = service.broker.memory.receive()
    return object_of(bytes(await held_body(service, request, JSON_BYTES_MAX, hand)))


async def _answer_expectation(request: web.BaseRequest) -> None:
    expected = request.headers.get("Expect")
    if expected is None or request.version < HttpVersion11:
        return  # Who speaks HTTP/1.0 knows no interim answer (RFC 9110, section 10.1.1).
    if expected.lower() != "100-continue":
        raise ExpectationUnknown
    await request.writer.write(_CONTINUE)
    # What was written is no part of the response: aiohttp would take it for one begun.
    request.writer.output_size = 0
