"""Request bodies in, message bodies out; neither held beyond BODY_HELD_BYTES_MAX."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from mq.errors import (
    BodyTooLarge,
    BodyTooSlow,
    BodyUnreadable,
    ExpectationUnknown,
)
from mq.interface.bodies import check_json, object_of
from mq.limits import JSON_BYTES_MAX

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


async def body_chunks(
    request: web.BaseRequest, bytes_max: int, idle_s: float
) -> AsyncIterator[bytes]:
    """The request's body as it comes.

    A client that expects 100-continue is told so here, after whatever could be refused before.
    Raises BodyTooLarge, BodyTooSlow, BodyUnreadable, ExpectationUnknown.
    """
    if (request.content_length or 0) > bytes_max:
        raise BodyTooLarge(bytes_max)
    await _answer_expectation(request)
    content = request.content
    size = 0
    while True:
        try:
            if content.is_eof():
                chunk = content.read_nowait()
            else:
                async with asyncio.timeout(idle_s):
                    chunk = await content.readany()
        except TimeoutError:
            raise BodyTooSlow(idle_s) from None
        except (ClientPayloadError, HttpProcessingError, ConnectionError):
            raise BodyUnreadable from None
        if not chunk:
            return
        size += len(chunk)
        if size > bytes_max:
            raise BodyTooLarge(bytes_max)
        yield chunk


async def json_object(request: web.BaseRequest, idle_s: float) -> dict[str, Any]:
    """The request's body, which must be a JSON object of at most JSON_BYTES_MAX.

    Raises MediaTypeUnknown, BadBody, and what `body_chunks` does.
    """
    check_json(request.content_type)
    return object_of(
        b"".join([chunk async for chunk in body_chunks(request, JSON_BYTES_MAX, idle_s)])
    )


async def _answer_expectation(request: web.BaseRequest) -> None:
    expected = request.headers.get("Expect")
    if expected is None:
        return
    if expected.lower() != "100-continue":
        raise ExpectationUnknown
    await request.writer.write(_CONTINUE)
    # What was written is no part of the response: aiohttp would take it for one begun.
    request.writer.output_size = 0
