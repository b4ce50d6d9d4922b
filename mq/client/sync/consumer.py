"""A consumer, for threads."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from mq.client.consuming.consumer import AsyncConsumer
from mq.client.errors import NotUsable
from mq.client.sync.message import Message
from mq.client.sync.portal import Portal


class Consumer:
    """`for message in consumer`, or `consumer.next()`; all as AsyncConsumer has it. Several threads
    may take messages of one.
    """

    __slots__ = ("_consumer", "_portal")

    def __init__(self, consumer: AsyncConsumer, portal: Portal) -> None:
        self._consumer = consumer
        self._portal = portal

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        found = self.next()
        if found is None:
            raise StopIteration
        return found

    def next(self, wait_s: float | None = None) -> Message | None:
        """The next message; None when none came within `wait_s`, or the consumer was closed."""
        found = self._portal.run(lambda: self._consumer.next(wait_s))
        return None if found is None else Message(found, self._portal)

    def close(self) -> None:
        """Gives back what was prefetched and not taken, within a bounded time. What came over a
        WebSocket and is not settled yet is given back with it: settle before. May be called again.
        """
        try:
            self._portal.run(self._consumer.close)
        except NotUsable:
            # With its client a consumer is closed.
            if not self._portal.is_over:
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
