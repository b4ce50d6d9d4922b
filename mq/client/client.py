"""The client for event loops."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from mq import __version__
from mq.access.tls import Certificates
from mq.client import wire
from mq.client.consuming.consumer import PREFETCH_DEFAULT, AsyncConsumer, Consumers
from mq.client.errors import BadName, Unanswered
from mq.client.http_transport import (
    ANSWER_BYTES_MAX_DEFAULT,
    CONNECTIONS_MAX_DEFAULT,
    HttpTransport,
    shown_url,
    whole_url,
)
from mq.client.lingering import LINGER_MS_MAX, Linger
from mq.client.options import URL_DEFAULT, Retry, Seams, Timeouts
from mq.client.queue import AsyncQueue
from mq.client.sending import Again, Call, Sender
from mq.client.transport import Answer, Pairs, Transport
from mq.client.values import (
    Member,
    Members,
    QueueEntry,
    Readiness,
    Refreshed,
    Subscription,
    Sums,
    TrendPoint,
    Trends,
    Via,
)
from mq.client.wire import Members as Found
from mq.model.errors import BadName as Malformed
from mq.model.names import QueueName
from mq.protocol import queues
from mq.protocol.queues import QUEUES_LISTED_MAX


def check_queue_name(name: str) -> None:
    """Raises BadName for a text that is not a queue name."""
    try:
        QueueName.parse(name)
    except Malformed as error:
        raise BadName(f"{name!r} is not a queue name: it must be {error.expected}") from None


class AsyncClient:
    """All of mq's HTTP interface, for the tasks of one event loop. Use `async with
    AsyncClient(url)`, or call `close()` at the end. Every request may raise Unauthenticated,
    Forbidden, Unavailable, Unanswered and NotMq.

    `url`: mq's. `token`: sent as a bearer token. `ca_file`: the certificate authorities for an
    https URL, instead of the system's. `certificate`, `key`: the client's, for a server that asks
    for one. All are PEM files; the certificate's file may have the key too. `timeouts`, `retry`:
    how long it waits, and how it retries. `connections_max`: its connections at a time; further
    requests wait. Fetches that wait at mq have as many connections of their own, and each WebSocket
    has one. `answer_bytes_max`: the longest answer that it reads into memory; a longer one raises
    AnswerTooLarge. `linger_ms`: how long a single publish may wait for others of its queue and
    attributes, which are published as a pack then, where the queue takes packs; 0: not at all.
    `transport`: carries the requests, instead of HTTP to `url`. `seams`: for tests. A forked
    process has connections of its own; a consumer or message that was open stays the parent's
    (NotUsable). Raises ValueError for a malformed URL, options out of bounds, and unusable files.
    """

    url: str
    """mq's URL."""

    def __init__(
        self,
        url: str = URL_DEFAULT,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        connections_max: int = CONNECTIONS_MAX_DEFAULT,
        answer_bytes_max: int = ANSWER_BYTES_MAX_DEFAULT,
        linger_ms: float = 0.0,
        transport: Transport | None = None,
        seams: Seams | None = None,
    ) -> None:
        self.url = url = whole_url(url)
        headers: Pairs = (("User-Agent", f"mq-client/{__version__}"),)
        if token is not None:
            headers = (*headers, ("Authorization", f"Bearer {token}"))
        context = Certificates(ca_file, certificate, key).context(url)
        self._sender = Sender(
            transport or HttpTransport(url, connections_max, context, answer_bytes_max),
            headers,
            timeouts or Timeouts(),
            retry or Retry(),
            seams or Seams(),
            shown_url(url),
        )
        if not 0 <= linger_ms <= LINGER_MS_MAX:
            raise ValueError(
                f"linger_ms must be milliseconds from 0 to {LINGER_MS_MAX:g}, not {linger_ms!r}"
            )
        if linger_ms:
            self._sender.linger = Linger(self._sender, linger_ms / 1000)
        self._consumers = Consumers(self._sender)

    def queue(self, name: str) -> AsyncQueue:
        """A queue by its name, without a request. Raises BadName."""
        check_queue_name(name)
        return AsyncQueue(name, self._sender, self._consumers)

    async def queues(self, *, page: int = QUEUES_LISTED_MAX) -> AsyncIterator[QueueEntry]:
        """Lists all queues by name, sidelines too, `page` in a request."""
        after: str | None = None
        while True:
            query = ((queues.AFTER, after), (queues.COUNT, page))
            call = Call(wire.request_to("list_queues", query=query), _page)
            entries, after = await self._sender.send(call)
            for entry in entries:
                yield entry
            if after is None:
                return

    def consume(
        self,
        *subscriptions: str | Subscription,
        prefetch: int = PREFETCH_DEFAULT,
        via: Via = "auto",
    ) -> AsyncConsumer:
        """Delivers messages of several queues as they become ready, over one connection.

        `prefetch`: how many messages of each queue wait in the client, in addition to those that
        the program has. `via`: `websocket`, `poll` (long polls), or `auto`: a WebSocket, and long
        polls where a proxy blocks WebSockets.

        Raises NotUsable, BadName, ValueError. A lost connection is opened again, without an end to
        the retries. Taking a message raises final errors, such as QueueNotFound, and errors of the
        first connection.
        """
        wanted = [Subscription(each) if isinstance(each, str) else each for each in subscriptions]
        for one in wanted:
            check_queue_name(one.queue)
        return self._consumers.open(wanted, prefetch, via)

    async def members(self, queue: str | None = None) -> Members:
        """Lists the processes that share the upkeep of queues; with a queue's name, also the
        process that has this queue.
        """

        def read(answer: Answer) -> Members:
            found = Found.of(answer)
            each = tuple(_member(one) for one in found.each("members"))
            assigned = None if queue is None else found.inner("assigned").text_or_none(queue)
            return Members(found.text_or_none("leader"), each, assigned)

        request = wire.request_to("list_members", query=((queues.MEMBERS_QUEUE, queue),))
        return await self._sender.send(Call(request, read))

    async def trends(
        self, span: Literal["hour", "day", "week"] = "hour", queue: str | None = None
    ) -> Trends:
        """Reads the load of the last hour, day or week: of a queue, or of all queues together.
        Raises QueueNotFound.
        """
        query = ((queues.TRENDS_RANGE, span), (queues.TRENDS_QUEUE, queue))
        return await self._sender.send(Call(wire.request_to("read_trends", query=query), _trends))

    async def refresh(self) -> Refreshed:
        """Makes every process of the root scan all queues now. Returns the result of the process
        that answers.
        """
        return await self._sender.send(Call(wire.request_to("refresh"), _refreshed))

    async def is_alive(self) -> bool:
        """Whether mq answers, in one attempt."""
        try:
            return await self._sender.send(Call(wire.request_to("livez"), _is_alive, Again.NEVER))
        except Unanswered:
            return False

    async def readiness(self) -> Readiness:
        """Reads the durability of mq's root and its free space, in one attempt. Raises Unavailable
        where mq cannot store.
        """
        return await self._sender.send(Call(wire.request_to("readyz"), _readiness, Again.NEVER))

    async def memory(self) -> Mapping[str, Any]:
        """Reads the use of memory of the process that answers, as JSON."""
        return await self._sender.send(Call(wire.request_to("read_memory"), _object))

    async def openapi(self) -> Mapping[str, Any]:
        """Reads mq's OpenAPI document."""
        return await self._sender.send(Call(wire.request_to("openapi"), _object))

    async def close(self) -> None:
        """Ends the client's consumers and connections, within a bounded time. May be called again;
        any other call then raises NotUsable.
        """
        await self._consumers.close()
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


def sender_of(client: AsyncClient) -> Sender:
    """The sender of the client's requests, for the worker."""
    return client._sender  # noqa: SLF001


def _page(answer: Answer) -> tuple[list[QueueEntry], str | None]:
    found = Found.of(answer)
    entries = [each.value(QueueEntry) for each in found.each("queues")]
    return entries, found.text_or_none("next")


def _is_alive(answer: Answer) -> bool:
    return Found.of(answer).truth("alive")


def _readiness(answer: Answer) -> Readiness:
    return Found.of(answer).value(Readiness)


def _object(answer: Answer) -> Mapping[str, Any]:
    return Found.of(answer).raw


def _member(found: Found) -> Member:
    count = found.inner("queues").whole("count")
    return found.value(Member, name=found.text("member"), queues_count=count, said=found.raw)


def _trends(answer: Answer) -> Trends:
    found = Found.of(answer)
    points = tuple(each.value(TrendPoint) for each in found.each("points"))
    last = None if found.raw.get("last") is None else found.inner("last").value(Sums)
    return Trends(found.whole("step_s"), points, last)


def _refreshed(answer: Answer) -> Refreshed:
    return Found.of(answer).value(Refreshed)
