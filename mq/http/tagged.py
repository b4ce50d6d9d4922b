"""`/{queue}/tags/{tag}`: the messages that have a tag: lists, deletes, sidelines, history."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mq.broker.settling import Disposition, Remove, Sideline, settle
from mq.http.answers import Answer, json_answer
from mq.http.reading import past_of
from mq.http.request import Request
from mq.http.service import Service
from mq.model.errors import AlreadySideline, MessageNotFound, QueueNotFound
from mq.model.limits import BATCH_MESSAGES_MAX
from mq.model.names import Key, QueueName
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
    return await _each(service, request, path, Remove())


async def sideline_all(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """POST: 200 once the messages are in the sideline, on stable media."""
    name, _ = _names(path)
    if name.is_sideline:
        raise AlreadySideline(name.text)
    return await _each(service, request, path, Sideline(reason_of(request.query)))


async def read_history(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET or HEAD of its history: 200 with the events of its messages, by time."""
    name, tag = _names(path)
    said = await past_of(service, name, partial(read_tag_history, tag=tag))
    return json_answer({"tag": tag.text, **said}, headers={"Cache-Control": "no-store"})


async def _each(
    service: Service, request: Request, path: Mapping[str, str], how: Disposition[Any]
) -> Answer:
    """Settles each message of a page; answers with how many were settled and how many failed."""
    name, tag = _names(path)
    page = await service.broker.tagged(name, tag, BATCH_MESSAGES_MAX, TAG_AFTER.of(request.query))
    ids = [each.id for each in page.messages]
    done = failed = 0
    for first in range(0, len(ids), _TOGETHER):
        group = ids[first : first + _TOGETHER]
        acts = (settle(service.broker, name, each, how) for each in group)
        ends = await asyncio.gather(*acts, return_exceptions=True)
        for end in ends:
            if isinstance(end, QueueNotFound | asyncio.CancelledError):
                raise end
            done += not isinstance(end, BaseException)
            failed += isinstance(end, BaseException) and not isinstance(end, MessageNotFound)
    return json_answer({"done": done, "failed": failed, "after": _after(page)})


def _after(page: TagPage) -> str | None:
    return None if page.after is None else page.after.text
