"""Reads messages without consuming them: by id, by key, their history, and peeks."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from mq.http.answers import Answer, Streamed, json_answer
from mq.http.bodies import download, message_headers
from mq.http.request import Request
from mq.http.service import Service
from mq.model.clock import rfc3339
from mq.model.errors import KeyNotFound, MessageNotFound
from mq.model.headers import GROUPED_BY
from mq.model.lifecycle import State
from mq.model.message import Part
from mq.model.names import MessageId, QueueName
from mq.protocol import parameters
from mq.protocol.conditions import Wanted, etag, wanted
from mq.protocol.fetching import GROUP_COUNT, GROUPS_SHOWN_DEFAULT, page_of
from mq.protocol.rows import MEDIA_TYPE, OWN_ORIGIN, members, row
from mq.store.core.failures import read_failures as failures_of
from mq.store.core.root import Root
from mq.store.history.read import Past
from mq.store.history.read import read_history as events_of
from mq.store.operations.read import Reading

_HEAD: Final = "HEAD"
_NO_STORE: Final = {"Cache-Control": "no-store"}
_PEEK_HEADERS: Final = {
    "Content-Type": MEDIA_TYPE,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    **OWN_ORIGIN,
}


async def read(service: Service, request: Request, path: Mapping[str, str]) -> Answer | Streamed:
    """GET or HEAD: 200 with the message, or 206 with the wanted range."""
    queue, message_id = QueueName.parse(path["queue"]), MessageId.parse(path["id"])
    return await read_message(service, request, queue, message_id)


async def read_message(
    service: Service,
    request: Request,
    queue: QueueName,
    message_id: MessageId,
    with_removed: bool = True,
) -> Answer | Streamed:
    """The answer to a GET or HEAD of the message. Removed messages are not found unless
    `with_removed`.

    Raises QueueNotFound, MessageNotFound, RangeUnsatisfiable, Unavailable.
    """
    reading = await service.broker.read(
        queue, message_id, lambda size, receives: _part(request, size, receives), with_removed
    )
    status, headers = _head(request, queue, reading)
    if reading.part is None:
        return Answer(status, headers)
    if reading.descriptor is None:
        return Answer(status, headers, reading.body or b"", reservation=reading.reservation)
    size = reading.part.size
    body = download(service.broker, reading.descriptor, reading.offset, size)
    return Streamed(status, headers, body, size)


def _wanted(request: Request, receives: int) -> Wanted | None:
    ranges = request.headers.getall("Range", [])
    return wanted(ranges, request.headers.get("If-Range"), etag(receives))


def _part(request: Request, size: int, receives: int) -> Part | None:
    """The part of the body to read; none for a HEAD, which has no ranges."""
    if request.method == _HEAD:
        return None
    asked = _wanted(request, receives)
    return Part(0, size) if asked is None else asked.of(size)


def _head(request: Request, queue: QueueName, reading: Reading) -> tuple[int, Mapping[str, str]]:
    """The answer's status and headers."""
    more = {"X-Message-State": reading.state.value, "Accept-Ranges": "bytes"}
    if reading.failure:
        more["X-Message-Reason"] = reading.failure
    status, part = 200, reading.part
    if part is None:
        more["Content-Length"] = str(reading.size)
    elif part.size and _wanted(request, reading.stamp.receives) is not None:
        status = 206
        last = part.first + part.size - 1
        more["Content-Range"] = f"bytes {part.first}-{last}/{reading.size}"
    return status, message_headers(queue, reading.id, reading.stamp, reading.headers, more)


async def read_by_key(
    service: Service, request: Request, path: Mapping[str, str]
) -> Answer | Streamed:
    """GET or HEAD of `/{queue}/keys/{key}`: the living message that has the key."""
    name, key = QueueName.parse(path["queue"]), parameters.parsed_key(path["key"], "key")
    message_id = await service.broker.find_key(name, key)
    try:
        return await read_message(service, request, name, message_id, with_removed=False)
    except MessageNotFound:
        raise KeyNotFound(key.text) from None  # It was removed just now.


async def read_history(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET or HEAD of a message's history: 200 with its events, by time."""
    name, message_id = QueueName.parse(path["queue"]), MessageId.parse(path["id"])
    said = await past_of(service, name, partial(events_of, message_id=message_id))
    return json_answer({"id": message_id.text, **said}, headers=_NO_STORE)


async def past_of(
    service: Service, name: QueueName, read: Callable[[Root, QueueName], Past]
) -> dict[str, object]:
    """Events that `read` finds in the queue's history, as members of an answer."""
    broker = service.broker
    queue = await broker.queue(name)
    is_on = broker.refresher.usable(queue).history
    past = await broker.committer.call(read, broker.root, name)
    return {"recording": is_on, "left_out": past.left_out, "events": past.events}


async def read_failures(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET or HEAD of a message's failures: 200 with the newest, the newest last."""
    name, message_id = QueueName.parse(path["queue"]), MessageId.parse(path["id"])
    broker = service.broker
    # Raises if the message does not exist.
    await broker.read(name, message_id, lambda size, receives: None, True)
    found = await broker.committer.call(failures_of, broker.root, message_id)
    return json_answer({"id": message_id.text, "failures": found}, headers=_NO_STORE)


async def peek(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET of `/{queue}/peek`: 200 with a line for each message of the page."""
    name = QueueName.parse(path["queue"])
    found, after = await service.broker.peek(name, page_of(request.query))
    more = {} if after is None else {"X-Peek-After": after.text}
    # In a thread: a page may have some megabytes.
    lines = await service.broker.committer.call(_lines, name, found)
    return Answer(200, {**_PEEK_HEADERS, **more}, lines)


async def list_groups(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET of `/{queue}/groups`: 200 with the groups that wait for a fetched message."""
    name = QueueName.parse(path["queue"])
    count = GROUP_COUNT.of(request.query) or GROUPS_SHOWN_DEFAULT
    heads = await service.broker.heads(name, count)
    return json_answer({"groups": [head_row(*head) for head in heads]}, headers=_NO_STORE)


def head_row(since_ms: int, reading: Reading) -> dict[str, object]:
    """A group, by the message that it waits for."""
    group = {value for name, value in reading.headers if name == GROUPED_BY}
    return {
        **({"group": group.pop()} if group else {}),
        "id": reading.id.text,
        "state": reading.state.value,
        "receives": reading.stamp.receives,
        "due": rfc3339(reading.stamp.due_ms),
        "since": rfc3339(since_ms),
    }


def _lines(queue: QueueName, found: list[Reading]) -> bytes:
    return b"".join(row(peeked_members(queue, reading), reading.body) for reading in found)


def peeked_members(queue: QueueName, reading: Reading) -> dict[str, object]:
    """The members of a message that is not consumed, without its body."""
    is_ready = reading.state is State.READY
    said = members(queue, reading.id, reading.stamp, reading.headers, is_ready=is_ready)
    if reading.failure:
        said["reason"] = reading.failure
    return {"id": said.pop("id"), "state": reading.state.value, **said, "size": reading.size}
