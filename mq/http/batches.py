"""Many messages in one request: `?split=lines`, `?count=N`, and `/{queue}/acks`.

What is asked for one message alone goes on to `messages`. The items of an answer that went wrong
have a `problem`, which is what a request that went wrong so would be answered.
"""

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from aiohttp import web

from mq.broker import batches
from mq.broker.memory import Hand
from mq.broker.queue import Queue
from mq.http import messages
from mq.http.answers import SERVER, Answer, json_answer
from mq.http.bodies import held_body, json_object
from mq.http.carried import download
from mq.http.service import Service
from mq.model.errors import BadName, BatchTooLarge, BodyTooLarge, Unavailable
from mq.model.limits import BATCH_BYTES_MAX, CHUNK_BYTES, SPLIT_LINES_MAX
from mq.model.message import Delivery
from mq.model.names import MessageId, QueueName
from mq.protocol.bodies import ids_of
from mq.protocol.carried import OWN_ORIGIN
from mq.protocol.envelopes import envelope_of_each
from mq.protocol.fetching import COUNT, terms_of
from mq.protocol.lines import SPLIT, lines_of
from mq.protocol.rows import MEDIA_TYPE, delivered, is_text, row, row_in_parts

_log = logging.getLogger("mq.http")

_NO_STORE: Final = {"Cache-Control": "no-store"}
_NOTHING: Final = Answer(204, _NO_STORE)


async def publish(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """POST: the body is one message; with `split`, each of its lines is one."""
    if SPLIT.of(request.query) is None:
        return await messages.publish(service, request, path)
    name = QueueName.parse(path["queue"])
    await service.broker.queue(name)  # A missing queue is told before the body is read.
    now_ms = service.broker.root.now_ms()
    envelope = envelope_of_each(request.query, request.headers, now_ms)
    hand = service.broker.memory.receive()
    lines = await _lines(service, request, hand)
    ends = await batches.publish_many(service.broker, name, lines, envelope)
    rows = (_published(service, request, end) for end in ends)
    return Answer(200, {**_NO_STORE, "Content-Type": MEDIA_TYPE}, b"".join(rows))


async def _lines(service: Service, request: web.BaseRequest, hand: Hand | None) -> list[bytes]:
    """The body's lines, which `hand` counts. Raises BatchTooLarge, and what `held_body` does."""
    try:
        body = await held_body(service, request, BATCH_BYTES_MAX, hand)
    except BodyTooLarge:
        raise BatchTooLarge(SPLIT_LINES_MAX, BATCH_BYTES_MAX) from None
    lines: list[bytes] = []
    for line in lines_of(body):
        if len(lines) == SPLIT_LINES_MAX:
            raise BatchTooLarge(SPLIT_LINES_MAX, BATCH_BYTES_MAX)
        lines.append(line)
    return lines


def _published(service: Service, request: web.BaseRequest, end: batches.Published) -> bytes:
    if isinstance(end, MessageId):
        # An id needs no escapes in JSON.
        return f'{{"id": "{end.text}"}}\n'.encode("ascii")
    return row({"problem": service.complaints.item(end, request.method, request.raw_path)})


async def fetch(
    service: Service, request: web.BaseRequest, path: Mapping[str, str]
) -> Answer | web.StreamResponse:
    """GET: the next message; with `count`, the next ones, a line of JSON each."""
    count = COUNT.of(request.query)
    if count is None:
        return await messages.fetch(service, request, path)
    visibility_s, wait_s, selection = terms_of(request.query, request.headers)
    name, broker = QueueName.parse(path["queue"]), service.broker
    queue = await broker.queue(name)
    found = await batches.fetch_many(broker, name, count, visibility_s, wait_s, selection)
    if not found:
        return _NOTHING
    return await _Sending(service, request, queue, deque(found)).send()


class _Sending:
    """The answer of a fetch of many: what was not sent when it ends is released."""

    def __init__(
        self,
        service: Service,
        request: web.BaseRequest,
        queue: Queue,
        unsent: deque[Delivery],
    ) -> None:
        self._broker = service.broker
        self._request = request
        self._queue = queue
        self._unsent = unsent
        headers = {**_NO_STORE, **OWN_ORIGIN, "Content-Type": MEDIA_TYPE}
        self._response = web.StreamResponse(headers=headers)
        self._response.headers["Server"] = SERVER

    async def send(self) -> web.StreamResponse:
        """Sends all: the response has been sent on return."""
        try:
            await self._response.prepare(self._request)
            while self._unsent:
                await self._send_some()
        except Unavailable as error:
            # The status is sent: a connection cut short is the only way left to say so.
            _log.warning("a body could not be read", extra={"fields": {"error": repr(error)}})
            self._response.force_close()
            if self._request.transport is not None:
                self._request.transport.abort()
        finally:
            batches.give_back(self._queue, self._unsent)
        return self._response

    async def _send_some(self) -> None:
        """One body that is not held, or rows of about a chunk."""
        if self._unsent[0].body is None:
            await self._send_large(self._unsent[0])
            self._unsent.popleft()
            return
        part, rows = bytearray(), 0
        for delivery in self._unsent:
            if delivery.body is None or len(part) >= CHUNK_BYTES:
                break
            part += row(delivered(delivery), delivery.body)
            rows += 1
        await self._response.write(part)
        await self._request.writer.drain()
        for _ in range(rows):
            self._unsent.popleft()

    async def _send_large(self, delivery: Delivery) -> None:
        """It is read twice, since its first bytes do not say whether it is text."""
        if delivery.descriptor is None:
            raise ValueError("the body is held")
        body = download(self._broker, delivery.descriptor, delivery.offset, delivery.size)
        self._unsent[0] = replace(delivery, descriptor=None)  # Which is closed here.
        try:
            as_text = await is_text(body.chunks())
            async for part in row_in_parts(delivered(delivery), body.chunks(), as_text):
                await self._response.write(part)
                await self._request.writer.drain()
        finally:
            await body.close()


async def acknowledge(
    service: Service, request: web.BaseRequest, path: Mapping[str, str]
) -> Answer:
    """POST: deletes many messages; 200 with one result each, in their order."""
    name = QueueName.parse(path["queue"])
    await service.broker.queue(name)
    texts = ids_of(await json_object(service, request))
    ids: dict[str, MessageId] = {}
    ends: dict[str, BaseException | None] = {}
    for text in texts:
        try:
            ids[text] = MessageId.parse(text)
        except BadName as error:
            ends[text] = error
    if ids:
        found = await batches.remove_many(service.broker, name, list(ids.values()))
        ends |= {message_id.text: end for message_id, end in found.items()}
    return json_answer({"results": [_result(service, request, each, ends[each]) for each in texts]})


def _result(
    service: Service, request: web.BaseRequest, text: str, error: BaseException | None
) -> dict[str, object]:
    if error is None:
        return {"id": text, "status": messages.DELETED.status}
    problem = service.complaints.item(error, request.method, request.raw_path)
    return {"id": text, "status": problem["status"], "problem": problem}
