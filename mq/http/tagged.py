"""`/{queue}/tags/{tag}`: the messages that have a tag: lists, deletes, sidelines, history."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from mq.http.answers import Answer, json_answer
from mq.http.reading import past_of
from mq.http.request import Request
from mq.http.service import Service
from mq.model.errors import AlreadySideline, MessageNotFound, QueueNotFound
from mq.model.limits import BATCH_MESSAGES_MAX
from mq.model.names import Key, MessageId, QueueName
from mq.protocol import parameters
from mq.protocol.fetching import PEEK_COUNT, PEEK_MESSAGES_DEFAULT, TAG_AFTER
from mq.protocol.sidelines import reason_of
from mq.store.history.read import read_tag_history
from mq.store.operations.tagged import TagPage

# Messages that one request settles together.
_TOGETHER: Final = 100


def _names(path: Mapping[str, str]) -> tuple[QueueName, Key]:
    return QueueName.parse(path["queue"]), parameters.parsed_key(path["tag"], "tag")


async def read_all(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET: 200 with a page of ids and states."""
    name, tag = _names(path)
    count = PEEK_COUNT.of(request.query) or PEEK_MESSAGES_DEFAULT
    page = await service.broker.tagged(name, tag, count, TAG_AFTER.of(request.query))
    messages = [{"id": each.id.text, "state": each.state.value} for each in page.messages]
    said = {"entries": page.entries, "messages": messages, "after": _after(page)}
    return json_answer(said, headers={"Cache-Control": "no-store"})


async def delete_all(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """DELETE: 200 once the deletions are on stable media."""
    name, _ = _names(path)
    return await _each(service, request, path, partial(service.broker.begin_remove, name))


async def sideline_all(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """POST: 200 once the messages are in the sideline, on stable media."""
    name, _ = _names(path)
    if name.is_sideline:
        raise AlreadySideline(name.text)
    reason = reason_of(request.query)

    def sideline(message_id: MessageId) -> Awaitable[object]:
        return service.broker.sideline(name, message_id, reason)

    return await _each(service, request, path, sideline)


async def read_history(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET or HEAD of its history: 200 with the events of its messages, by time."""
    name, tag = _names(path)
    said = await past_of(service, name, partial(read_tag_history, tag=tag))
    return json_answer({"tag": tag.text, **said}, headers={"Cache-Control": "no-store"})


async def _each(
    service: Service,
    request: Request,
    path: Mapping[str, str],
    act: Callable[[MessageId], Awaitable[object]],
) -> Answer:
    """Acts on each message of a page; answers with how many acts succeeded and how many failed."""
    name, tag = _names(path)
    page = await service.broker.tagged(name, tag, BATCH_MESSAGES_MAX, TAG_AFTER.of(request.query))
    ids = [each.id for each in page.messages]
    done = failed = 0
    for first in range(0, len(ids), _TOGETHER):
        group = ids[first : first + _TOGETHER]
        ends = await asyncio.gather(*map(act, group), return_exceptions=True)
        for end in ends:
            if isinstance(end, QueueNotFound | asyncio.CancelledError):
                raise end
            done += not isinstance(end, BaseException)
            failed += isinstance(end, BaseException) and not isinstance(end, MessageNotFound)
    return json_answer({"done": done, "failed": failed, "after": _after(page)})


def _after(page: TagPage) -> str | None:
    return None if page.after is None else page.after.text
