"""What an answer that carries a message has: its headers, and a body that is not held."""

import logging
from collections.abc import Mapping
from typing import Final

from aiohttp import web
from multidict import CIMultiDict

from mq.broker.broker import Broker
from mq.http.answers import SERVER
from mq.model.errors import Unavailable
from mq.model.headers import Headers
from mq.model.limits import CHUNK_BYTES, SMALL_CHUNK_BYTES
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.carried import fact_headers, is_content_type
from mq.store.operations.streams import Download

_log = logging.getLogger("mq.http")

_NO_MORE: Final[Mapping[str, str]] = {}


def message_headers(
    queue: QueueName,
    message_id: MessageId,
    stamp: Stamp,
    kept: Headers,
    more: Mapping[str, str] = _NO_MORE,
) -> Mapping[str, str]:
    """Those that say what the message is, those that it keeps, and `more` of the answer."""
    headers = fact_headers(queue, message_id, stamp, more)
    return _with_kept(headers, kept) if kept else headers


def _with_kept(headers: dict[str, str], kept: Headers) -> Mapping[str, str]:
    """All of them: a name may stand there twice, and a Content-Type that was kept is the one."""
    joined = CIMultiDict(headers)
    for name, value in kept:
        if is_content_type(name):
            joined[name] = value
        else:
            joined.add(name, value)
    return joined


def download(broker: Broker, descriptor: int, offset: int, size: int) -> Download:
    """A body that is not held, to be sent bit by bit: in small bits where there is no room."""
    hand = broker.memory.hold(CHUNK_BYTES) if size > SMALL_CHUNK_BYTES else None
    chunk_bytes = SMALL_CHUNK_BYTES if hand is None else CHUNK_BYTES
    return Download(broker.root.files, descriptor, offset, size, chunk_bytes, hand)


async def sent(
    request: web.BaseRequest, status: int, headers: Mapping[str, str], download: Download
) -> web.StreamResponse:
    """Answers with a body that is not held, which has been sent on return, and its file closed."""
    try:
        response = web.StreamResponse(status=status, headers=headers)
        response.headers["Server"] = SERVER
        response.content_length = download.size
        await response.prepare(request)
        async for chunk in download.chunks():
            await response.write(chunk)
            # Else aiohttp lets some chunks gather before it looks whether the client reads.
            await request.writer.drain()
    except Unavailable as error:
        # The status is sent: a connection cut short is the only way left to say so.
        _log.warning("a body could not be read", extra={"fields": {"error": repr(error)}})
        response.force_close()
        if request.transport is not None:
            request.transport.abort()
    finally:
        await download.close()
    return response
