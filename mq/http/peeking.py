"""`GET /{queue}/peek`: a queue's messages as lines of JSON, in order, nothing consumed."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from mq.errors import BadName, BadParameter
from mq.http import parameters
from mq.http.answers import Answer
from mq.http.parameters import Query
from mq.http.rows import MEDIA_TYPE, members, row
from mq.http.service import Service
from mq.lifecycle import State
from mq.limits import BATCH_MESSAGES_MAX, PEEK_MESSAGES_DEFAULT
from mq.names import MessageId, QueueName
from mq.store.peek import Page
from mq.store.read import Reading

PEEK_PARAMETERS: Final = frozenset({"state", "count", "after"})
_STATES: Final = {
    state.value: state for state in (State.READY, State.DELAYED, State.LEASED, State.REMOVED)
}
_HEADERS: Final = {
    "Content-Type": MEDIA_TYPE,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


async def peek(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: 200 with a line for each message of the page, none where there is none."""
    name = QueueName.parse(path["queue"])
    found = await service.broker.peek(name, page_of(request.query))
    # In a thread: a page may have some megabytes.
    return Answer(200, _HEADERS, await service.broker.committer.call(_lines, found))


def page_of(query: Query) -> Page:
    """The page that a query asks for. Raises BadParameter."""
    states = _states(parameters.one(query, "state"))
    count = parameters.whole(query, "count", 1, BATCH_MESSAGES_MAX)
    text = parameters.one(query, "after")
    if text is None:
        return Page(states, count or PEEK_MESSAGES_DEFAULT)
    if len(states) > 1:
        raise BadParameter("after", "left out where there is more than one state")
    try:
        after = MessageId.parse(text)
    except BadName as error:
        raise BadParameter("after", f"an id, {error.expected}") from None
    return Page(states, count or PEEK_MESSAGES_DEFAULT, after)


def _states(text: str | None) -> tuple[State, ...]:
    if text is None:
        return (State.READY,)
    words = text.split(",")
    if len(set(words)) < len(words) or not set(words) <= _STATES.keys():
        raise BadParameter("state", f"some of {','.join(_STATES)}, each once")
    return tuple(_STATES[word] for word in words)


def _lines(found: list[Reading]) -> bytes:
    return b"".join(row(_members(reading), reading.body) for reading in found)


def _members(reading: Reading) -> dict[str, object]:
    said = members(reading.id, reading.stamp, reading.headers)
    return {"id": said.pop("id"), "state": reading.state.value, **said, "size": reading.size}
