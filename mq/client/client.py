"""The client for event loops."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mq import __version__
from mq.access.client_certificates import Certificates
from mq.client import address
from mq.client.calls import queues, upkeep
from mq.client.consuming.consumer import AsyncConsumer
from mq.client.consuming.consumers import Consumers
from mq.client.errors import BadName, Unanswered
from mq.client.http_transport import HttpTransport
from mq.client.limits import CONNECTIONS_MAX_DEFAULT, PREFETCH_DEFAULT, URL_DEFAULT
from mq.client.options import Retry, Seams, Timeouts
from mq.client.queue.queue import AsyncQueue
from mq.client.sending import Sender
from mq.client.transport import Pairs, Transport
from mq.client.values import Members, QueueEntry, Readiness, Refreshed, Subscription, Via
from mq.model.errors import BadName as Malformed
from mq.model.names import QueueName
from mq.model.upkeep_limits import QUEUES_LISTED_MAX


class AsyncClient:
    """All of mq's HTTP interface, for many tasks of one event loop. `async with AsyncClient(url)`,
    or `close()` at the end.

    `token`: sent as a bearer token. `ca_file`: whose servers an https URL may lead to, instead of
    those that the system believes; `certificate`, `key`: what is shown to a server that asks who
    comes; all PEM files, the key perhaps in the certificate's. `timeouts`, `retry`: how long it
    waits, and how it tries again. `connections_max`: how many connections it has open at a time; a
    request waits for one. Fetches that wait at mq, and so a consumer's long polls, have as many
    beside them of their own. A WebSocket has its own beside them. `transport`: what carries the
    requests, instead of HTTP to `url`. `seams`: for tests. Raises ValueError for what is no URL of
    HTTP, and for files that cannot be used.
    """

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
        transport: Transport | None = None,
        seams: Seams | None = None,
    ) -> None:
        self.url = url = address.whole(url)
        headers: Pairs = (("User-Agent", f"mq-client/{__version__}"),)
        if token is not None:
            headers = (*headers, ("Authorization", f"Bearer {token}"))
        context = Certificates(ca_file, certificate, key).context(url)
        self._sender = Sender(
            transport or HttpTransport(url, connections_max, context),
            headers,
            timeouts or Timeouts(),
            retry or Retry(),
            seams or Seams(),
            address.shown(url),
        )
        self._consumers = Consumers(self._sender)

    def queue(self, name: str) -> AsyncQueue:
        """A queue by its name; nothing is asked of mq. Raises BadName."""
        try:
            QueueName.parse(name)
        except Malformed as error:
            raise BadName(f"{name!r} is no queue's name: {error.expected}") from None
        return AsyncQueue(name, self._sender, self._consumers)

    async def queues(self, *, page: int = QUEUES_LISTED_MAX) -> AsyncIterator[QueueEntry]:
        """All queues by name, sidelines too, asked for in pages."""
        after: str | None = None
        while True:
            entries, after = await self._sender.send(queues.page(after, page))
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
        """Messages of several queues as they become ready, over one connection.

        `prefetch`: how many messages of each queue may wait in the client for whoever takes them,
        beside those that were taken. `via`: a WebSocket, or long polls; by itself a WebSocket, and
        long polls where something between here and mq does not let it through.

        Raises NotUsable, BadName, ValueError. A connection that is lost is made anew for as long as
        that takes; taking a message raises what is final, such as QueueNotFound, and what stands in
        the way of the first connection.
        """
        wanted = [Subscription(each) if isinstance(each, str) else each for each in subscriptions]
        for one in wanted:
            self.queue(one.queue)
        return self._consumers.open(wanted, prefetch, via)

    async def members(self, queue: str | None = None) -> Members:
        """The processes that share the upkeep; with a queue's name, whose that is."""
        return await self._sender.send(upkeep.members(queue))

    async def refresh(self) -> Refreshed:
        """Has every process of the root look at all queues now."""
        return await self._sender.send(upkeep.refresh())

    async def is_alive(self) -> bool:
        """Whether mq answers; asked once."""
        try:
            return await self._sender.send(upkeep.is_alive())
        except Unanswered:
            return False

    async def readiness(self) -> Readiness:
        """What mq promises now; asked once. Raises Unavailable where it can persist nothing."""
        return await self._sender.send(upkeep.readiness())

    async def memory(self) -> Mapping[str, Any]:
        """What the process that answers holds in memory."""
        return await self._sender.send(upkeep.memory())

    async def openapi(self) -> Mapping[str, Any]:
        """The interface for machines."""
        return await self._sender.send(upkeep.openapi())

    async def close(self) -> None:
        """Ends the client's consumers and connections, within a bounded time. May be called again;
        from then on all else raises NotUsable.
        """
        await self._consumers.close()
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
