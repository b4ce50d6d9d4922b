"""`/{queue}/keys/{key}`: a message by its lookup key, read without being consumed, or deleted."""

from collections.abc import Mapping

from aiohttp import web

from mq.http.answers import Answer
from mq.http.messages import DELETED
from mq.http.reading import read_message
from mq.http.service import Service
from mq.model.errors import KeyNotFound, MessageNotFound
from mq.model.names import Key, QueueName
from mq.protocol import parameters
from mq.protocol.etags import parse_if_match


async def read(
    service: Service, request: web.BaseRequest, path: Mapping[str, str]
) -> Answer | web.StreamResponse:
    """GET or HEAD: the message that has the key and lives, as by its id."""
    name, key = _named(path)
    message_id = await service.broker.find_key(name, key)
    try:
        return await read_message(service, request, name, message_id, with_removed=False)
    except MessageNotFound:
        raise KeyNotFound(key.text) from None  # It was removed just now.


async def delete(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """DELETE: 202 once the message that has the key is gone for good."""
    name, key = _named(path)
    if_receives = parse_if_match(request.headers.getall("If-Match", []))
    await service.broker.remove_by_key(name, key, if_receives)
    return DELETED


def _named(path: Mapping[str, str]) -> tuple[QueueName, Key]:
    return QueueName.parse(path["queue"]), parameters.parsed_key(path["key"], "key")
