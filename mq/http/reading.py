"""`GET` and `HEAD /{queue}/messages/{id}`: a message as it is, not consumed, whole or a range."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from mq.http.answers import Answer
from mq.http.carried import download, message_headers, sent
from mq.http.service import Service
from mq.model.looking import Part
from mq.model.names import MessageId, QueueName
from mq.protocol.etags import etag
from mq.protocol.ranges import Wanted, wanted
from mq.store.operations.read import Reading

_HEAD: Final = "HEAD"


async def read(
    service: Service, request: web.BaseRequest, path: Mapping[str, str]
) -> Answer | web.StreamResponse:
    """GET or HEAD: 200 with the message; 206 with the range of it that was asked for."""
    queue, message_id = QueueName.parse(path["queue"]), MessageId.parse(path["id"])
    return await read_message(service, request, queue, message_id)


async def read_message(
    service: Service,
    request: web.BaseRequest,
    queue: QueueName,
    message_id: MessageId,
    with_removed: bool = True,
) -> Answer | web.StreamResponse:
    """The answer to a GET or HEAD of the message; it has been sent on return where the body is not
    held. What is removed is not found unless `with_removed`.

    Raises QueueNotFound, MessageNotFound, RangeUnsatisfiable, Unavailable.
    """
    reading = await service.broker.read(
        queue, message_id, lambda size, receives: _part(request, size, receives), with_removed
    )
    status, headers = _head(request, queue, reading)
    if reading.part is None:
        return Answer(status, headers)
    if reading.descriptor is None:
        return Answer(status, headers, reading.body or b"", hand=reading.hand)
    body = download(service.broker, reading.descriptor, reading.offset, reading.part.size)
    return await sent(request, status, headers, body)


def _wanted(request: web.BaseRequest, receives: int) -> Wanted | None:
    ranges = request.headers.getall("Range", [])
    return wanted(ranges, request.headers.get("If-Range"), etag(receives))


def _part(request: web.BaseRequest, size: int, receives: int) -> Part | None:
    """What of the body to read: nothing for a HEAD, for which no range is defined either."""
    if request.method == _HEAD:
        return None
    asked = _wanted(request, receives)
    return Part(0, size) if asked is None else asked.of(size)


def _head(
    request: web.BaseRequest, queue: QueueName, reading: Reading
) -> tuple[int, Mapping[str, str]]:
    """The answer's status and headers."""
    more = {"X-Message-State": reading.state.value, "Accept-Ranges": "bytes"}
    status, part = 200, reading.part
    if part is None:
        more["Content-Length"] = str(reading.size)
    elif part.size and _wanted(request, reading.stamp.receives) is not None:
        status = 206
        last = part.first + part.size - 1
        more["Content-Range"] = f"bytes {part.first}-{last}/{reading.size}"
    return status, message_headers(queue, reading.id, reading.stamp, reading.headers, more)
