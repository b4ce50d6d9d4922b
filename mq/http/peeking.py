"""`GET /{queue}/peek`: a queue's messages as lines of JSON, in order, nothing consumed."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from mq.errors import BadParameter
from mq.http.answers import Answer
from mq.http.parameters import Query
from mq.http.query import Choices, Id, Whole
from mq.http.rows import MEDIA_TYPE, members, row
from mq.http.service import Service
from mq.lifecycle import State
from mq.limits import BATCH_MESSAGES_MAX, PEEK_MESSAGES_DEFAULT
from mq.names import QueueName
from mq.store.peek import Page
from mq.store.read import Reading

STATES: Final = {
    state.value: state for state in (State.READY, State.DELAYED, State.LEASED, State.REMOVED)
}
STATE: Final = Choices(
    "state", tuple(STATES), "Messages of which states, one state after the other.",
    default=(State.READY.value,),
)  # fmt: skip
COUNT: Final = Whole(
    "count", 1, BATCH_MESSAGES_MAX, "How many at most; a page of less is the last one.",
    default=PEEK_MESSAGES_DEFAULT,
)  # fmt: skip
AFTER: Final = Id(
    "after", "The id behind which the page begins, also one that is gone; with one state alone."
)
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
    states = tuple(STATES[word] for word in STATE.of(query))
    count = COUNT.of(query) or PEEK_MESSAGES_DEFAULT
    after = AFTER.of(query)
    if after is not None and len(states) > 1:
        raise BadParameter("after", "left out where there is more than one state")
    return Page(states, count, after)


def _lines(found: list[Reading]) -> bytes:
    return b"".join(row(_members(reading), reading.body) for reading in found)


def _members(reading: Reading) -> dict[str, object]:
    said = members(reading.id, reading.stamp, reading.headers)
    return {"id": said.pop("id"), "state": reading.state.value, **said, "size": reading.size}
