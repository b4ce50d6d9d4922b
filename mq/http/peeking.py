"""`GET /{queue}/peek`: a queue's messages as lines of JSON, in order, nothing consumed."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from mq.http.answers import Answer
from mq.http.service import Service
from mq.model.names import QueueName
from mq.protocol.carried import OWN_ORIGIN
from mq.protocol.peeking import page_of, peeked
from mq.protocol.rows import MEDIA_TYPE, row
from mq.store.operations.read import Reading

_HEADERS: Final = {
    "Content-Type": MEDIA_TYPE,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    **OWN_ORIGIN,
}


async def peek(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: 200 with a line for each message of the page, none where there is none."""
    name = QueueName.parse(path["queue"])
    found = await service.broker.peek(name, page_of(request.query))
    # In a thread: a page may have some megabytes.
    return Answer(200, _HEADERS, await service.broker.committer.call(_lines, name, found))


def _lines(queue: QueueName, found: list[Reading]) -> bytes:
    return b"".join(row(_members(queue, reading), reading.body) for reading in found)


def _members(queue: QueueName, reading: Reading) -> dict[str, object]:
    facts = (reading.id, reading.stamp, reading.headers, reading.state, reading.size)
    return peeked(queue, *facts)
