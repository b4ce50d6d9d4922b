"""The client for threads."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mq.client.client import AsyncClient
from mq.client.limits import CONNECTIONS_MAX_DEFAULT, PREFETCH_DEFAULT, URL_DEFAULT
from mq.client.options import Retry, Seams, Timeouts
from mq.client.sync.consumer import Consumer
from mq.client.sync.portal import Portal
from mq.client.sync.queue import Queue
from mq.client.transport import Transport
from mq.client.values import Members, QueueEntry, Readiness, Refreshed, Subscription, Via
from mq.model.upkeep_limits import QUEUES_LISTED_MAX


class Client:
    """All of mq's HTTP interface, for many threads. `with Client(url)`, or `close()` at the end.

    Each word is AsyncClient's, which runs in an event loop of a background thread: a call waits for
    it, and an interrupt of the calling thread cancels it. A process that is forked from this one
    cannot use it (NotUsable), and makes its own. The arguments are AsyncClient's.
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
        self._client = AsyncClient(
            url,
            token=token,
            ca_file=ca_file,
            certificate=certificate,
            key=key,
            timeouts=timeouts,
            retry=retry,
            connections_max=connections_max,
            transport=transport,
            seams=seams,
        )
        self._portal = Portal(self._client.close)

    @property
    def url(self) -> str:
        """Where mq is."""
        return self._client.url

    def queue(self, name: str) -> Queue:
        """A queue by its name; nothing is asked of mq. Raises BadName."""
        return Queue(self._client.queue(name), self._portal)

    def queues(self, *, page: int = QUEUES_LISTED_MAX) -> Iterator[QueueEntry]:
        """All queues by name, sidelines too, asked for in pages."""
        return self._portal.iterate(self._client.queues(page=page))

    def consume(
        self,
        *subscriptions: str | Subscription,
        prefetch: int = PREFETCH_DEFAULT,
        via: Via = "auto",
    ) -> Consumer:
        """Messages of several queues as they become ready, over one connection. All as
        AsyncClient.consume has it.
        """
        consumer = self._client.consume(*subscriptions, prefetch=prefetch, via=via)
        return Consumer(consumer, self._portal)

    def members(self, queue: str | None = None) -> Members:
        """The processes that share the upkeep; with a queue's name, whose that is."""
        return self._portal.run(lambda: self._client.members(queue))

    def refresh(self) -> Refreshed:
        """Has every process of the root look at all queues now."""
        return self._portal.run(self._client.refresh)

    def is_alive(self) -> bool:
        """Whether mq answers; asked once."""
        return self._portal.run(self._client.is_alive)

    def readiness(self) -> Readiness:
        """What mq promises now; asked once. Raises Unavailable where it can persist nothing."""
        return self._portal.run(self._client.readiness)

    def memory(self) -> Mapping[str, Any]:
        """What the process that answers holds in memory."""
        return self._portal.run(self._client.memory)

    def openapi(self) -> Mapping[str, Any]:
        """The interface for machines."""
        return self._portal.run(self._client.openapi)

    def close(self) -> None:
        """Ends the client's consumers, connections and thread, within a bounded time. Calls that
        other threads are in raise NotUsable. May be called again.
        """
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
