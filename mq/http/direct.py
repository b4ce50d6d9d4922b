"""The direct way: the three plain requests, begun as soon as they are parsed, with no task.

A publish, a fetch or a delete that carries nothing but what nearly all carry, or a fetch that waits
for a message and says no more than that, goes from aiohttp's parser to the broker, and its answer
from the broker to the socket. Whatever else a request may have (a query, a header that means
something, a body that has not come whole) goes the long way by `app`, which answers the plain ones
just the same.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import HttpVersion11, StreamReader
from aiohttp.http_parser import RawRequestMessage

from mq.access.rules import check
from mq.broker.queue import Queue
from mq.http.access import Shown
from mq.http.answers import Answer
from mq.http.complaints import Complaints
from mq.http.messages import DELETED, fetched, published
from mq.http.metering import DELETES, FETCHES, PUBLISHES, WAITS, outcome_of
from mq.http.service import Service
from mq.metrics.plan import GONE
from mq.model.errors import BadName
from mq.model.limits import BODY_HELD_BYTES_MAX, WAIT_S_MAX
from mq.model.message import PLAIN, Delivery, Envelope
from mq.model.names import CONTENT_TYPE_DEFAULT, CONTENT_TYPES, FORM_DEFAULT, MessageId
from mq.protocol.fetching import preferred_wait_s
from mq.protocol.routes import TABLE

# Headers that change nothing of an answer, as clients write them. What Connection, Content-Length
# and Host say is the parser's to judge.
_PLAIN: Final = frozenset(
    form.encode()
    for name in (
        "Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Connection",
        "Content-Length", "Content-Type", "Host", "Prefer", "User-Agent",
    )
    for form in (name, name.lower())
)  # fmt: skip
_ONLY_WAIT: Final = re.compile(r"wait=[0-9]{1,2}(?:\.[0-9]{1,3})?")
_RIGHTS: Final = {
    "POST": TABLE["/{queue}/messages"]["POST"].right,
    "GET": TABLE["/{queue}/messages"]["GET"].right,
    "DELETE": TABLE["/{queue}/messages/{id}"]["DELETE"].right,
}
# What a Content-Type says that a name can carry. Others go the long way.
_ENVELOPES: Final = {
    CONTENT_TYPE_DEFAULT: PLAIN,
    FORM_DEFAULT: PLAIN,
    **{content_type: Envelope(extension) for content_type, extension in CONTENT_TYPES.items()},
}


@dataclass(frozen=True, slots=True)
class InHand:
    """A request that was begun: its end to come, how that is answered (None: its body is not
    held), and what to do when the client is gone before. `operation` is its number among all
    operations, and it began at `began_s`, where requests are measured.
    """

    message: RawRequestMessage
    future: "asyncio.Future[Any]"
    answer: Callable[[Any], Answer | None]
    operation: int
    began_s: float
    abandon: Callable[[], None] | None = None


class DirectWay:
    """Begins plain requests of a service."""

    def __init__(self, service: Service, complaints: Complaints) -> None:
        self.service = service
        self._broker = service.broker
        self._access = service.access
        self._complaints = complaints
        self._meter = service.meter

    def begin(
        self,
        message: RawRequestMessage,
        body: StreamReader,
        shown: Shown,
        transport: asyncio.BaseTransport | None,
    ) -> InHand | None:
        """Begins the request, whose body must have come whole; None: it is not a plain one, or one
        that its connection's client may not send, who is told so the long way.
        """
        path, _, query = message.path.partition("?")
        parts = path.split("/")
        wait_s = _wait_s(message, query) if _is_plain(message, body) else None
        if parts[0] or parts[2:3] != ["messages"] or wait_s is None:
            return None
        if self._access.is_on and not _is_allowed(message, parts[1], shown, transport):
            return None
        # Only what this process knows: a name that is none, or an unknown queue, is not among it.
        # A delete asks for no settings, and who waits can wait for them.
        needs_settings = message.method != "DELETE" and not wait_s
        queue = self._broker.known(parts[1]) if needs_settings else self._broker.used(parts[1])
        if queue is None:
            return None
        began_s = 0.0 if self._meter is None else self._meter.steady_s()
        return self._begin(message, body, queue, parts, wait_s, began_s)

    def _begin(
        self,
        message: RawRequestMessage,
        body: StreamReader,
        queue: Queue,
        parts: list[str],
        wait_s: float,
        began_s: float,
    ) -> InHand | None:
        match message.method, len(parts), body.total_bytes:
            case "POST", 3, size if size <= min(BODY_HELD_BYTES_MAX, queue.settings.body_bytes_max):
                return self._publish(message, queue, body, began_s)
            case "GET", 3, 0:
                return self._fetch(message, queue, wait_s, began_s)
            case "DELETE", 4, 0:
                return self._delete(message, queue, parts[3], began_s)
        return None

    def failed(self, in_hand: InHand, error: BaseException) -> Answer:
        """The answer to a request that ended with an error."""
        return self._complaints.answer(error, in_hand.message.method, in_hand.message.path)

    def ended(self, in_hand: InHand, status: int | None) -> None:
        """A request was answered with this status; None: nobody was there for an answer."""
        if self._meter is not None:
            outcome = GONE if status is None else outcome_of(status)
            seconds = self._meter.steady_s() - in_hand.began_s
            self._meter.request(in_hand.operation, outcome, seconds)

    def _publish(
        self, message: RawRequestMessage, queue: Queue, body: StreamReader, began_s: float
    ) -> InHand | None:
        envelope = _ENVELOPES.get(message.headers.get("Content-Type", CONTENT_TYPE_DEFAULT))
        if envelope is None:
            return None
        hand = self._broker.memory.receive(body.total_bytes)
        if hand is None:
            return None  # The long way writes it as it comes.
        future = self._broker.begin_publish(queue, body.read_nowait(), envelope, hand)
        return InHand(
            message,
            future,
            lambda message_id: published(queue.name, message_id),
            PUBLISHES,
            began_s,
        )

    def _fetch(
        self, message: RawRequestMessage, queue: Queue, wait_s: float, began_s: float
    ) -> InHand | None:
        consuming = self._broker.consuming
        if wait_s > 0 and consuming.is_full:
            return None  # The long way says so.
        if wait_s > 0:
            poll = consuming.begin_poll(queue, wait_s)
            return InHand(message, poll.future, _fetched, WAITS, began_s, poll.abandon)
        future = consuming.begin_fetch(queue)
        return InHand(message, future, _fetched, FETCHES, began_s, lambda: queue.abandon(future))

    def _delete(
        self, message: RawRequestMessage, queue: Queue, text: str, began_s: float
    ) -> InHand | None:
        try:
            message_id = MessageId.parse(text)
        except BadName:
            return None  # Percent-encoded, or no id at all.
        future = self._broker.begin_remove(queue.name, message_id)
        return InHand(message, future, _deleted, DELETES, began_s)


class LongWay(DirectWay):
    """Begins none: they all go the long way, where each is traced."""

    def begin(
        self,
        message: RawRequestMessage,
        body: StreamReader,
        shown: Shown,
        transport: asyncio.BaseTransport | None,
    ) -> None:
        """None."""


def _is_plain(message: RawRequestMessage, body: StreamReader) -> bool:
    if message.should_close or message.upgrade or message.chunked or message.compression:
        return False
    if message.version != HttpVersion11 or not body.is_eof():
        return False
    return all(name in _PLAIN for name, _ in message.raw_headers)


def _is_allowed(
    message: RawRequestMessage,
    queue: str,
    shown: Shown,
    transport: asyncio.BaseTransport | None,
) -> bool:
    needed = _RIGHTS.get(message.method)
    if needed is None:
        return False
    try:
        check(shown.caller(message.headers.getall("Authorization", ()), transport), needed, queue)
    except Exception:  # Whatever it is, the long way tells.
        return False
    return True


def _wait_s(message: RawRequestMessage, query: str) -> float | None:
    """How long a request waits; None: it says something else, or that is to be told."""
    if not query:
        prefers = message.method == "GET" and "Prefer" in message.headers
        return preferred_wait_s(message.headers.getall("Prefer")) if prefers else 0
    if message.method != "GET" or _ONLY_WAIT.fullmatch(query) is None:
        return None
    wait_s = float(query.partition("=")[2])
    return wait_s if wait_s <= WAIT_S_MAX else None


def _fetched(delivery: Delivery | None) -> Answer | None:
    if delivery is not None and delivery.body is None:
        return None
    return fetched(delivery)


def _deleted(removed: bool) -> Answer:
    return DELETED
