"""One connection's subscriptions: a consumer of each queue, and their claims.

The session decides whose turn it is, and a consumer claims as much as may be sent soon. Claimed
messages that cannot be sent are released, and their credit is restored.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from mq.broker.broker import Broker
from mq.broker.consumers import Consumer, Origin, Terms
from mq.broker.settling import begin_return
from mq.http.metering import DELIVERS
from mq.metrics.meter import Meter
from mq.model.errors import ConsumerEnded, MqError, NotSubscribed, QueueExpired, QueueNotFound
from mq.model.message import Delivery
from mq.model.names import QueueName
from mq.model.selection import Selection
from mq.protocol.consume.frames import Wanted
from mq.protocol.consume.session import Session
from mq.store.packs.fetching import items_of

_ENDS: Final = (QueueNotFound, QueueExpired, ConsumerEnded)


class _Taker:
    """Takes the messages of one subscription: see mq.broker.consumers.Taker."""

    __slots__ = ("_all", "_began_s", "queue")

    def __init__(self, subscriptions: "Subscriptions", queue: str) -> None:
        self.queue = queue
        self._all = subscriptions
        self._began_s: deque[float] = deque()
        """When the claims began that go on; they end in this order."""

    def room(self) -> int:
        return self._all.room(self.queue)

    def begins(self) -> None:
        self._began_s.append(self._all.claim_begins())

    def got(self, delivery: Delivery) -> None:
        self._all.claimed(delivery, self._began_s.popleft())

    def missed(self) -> None:
        self._began_s.popleft()
        self._all.claim_ended()

    def failed(self, error: MqError) -> None:
        self._all.failed(self.queue, error)


class Subscriptions:
    """A connection's subscriptions. Calls `on_message` when one is to be sent, and `on_gone` for a
    queue that was deleted or has expired. `meter` counts claims.
    """

    def __init__(
        self,
        broker: Broker,
        session: Session,
        on_message: Callable[[], None],
        on_gone: Callable[[str, MqError], None],
        meter: Meter | None = None,
        origin: Origin | None = None,
    ) -> None:
        self._broker = broker
        self._session = session
        self._on_message = on_message
        self._on_gone = on_gone
        self._meter = meter
        self._origin = origin
        self._consumers: dict[str, Consumer] = {}
        self._turn: tuple[str, int] | None = None
        """The queue whose turn it is, and how many of its messages may be claimed."""
        self._is_paused = False
        self._has_ended = False
        self._releases: set[asyncio.Task[None]] = set()

    @property
    def queues(self) -> list[str]:
        return list(self._consumers)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    async def subscribe(self, wanted: Wanted) -> None:
        """Begins a subscription. Raises BadName, BadParameter, QueueNotFound, AlreadySubscribed,
        TooManySubscriptions, TooMuchCredit, TooManySelections, Unavailable.
        """
        name = QueueName.parse(wanted.queue)
        selection = None if wanted.select is None else Selection.parse(wanted.select)
        self._session.subscribe(name.text, wanted.credit, self._broker.root.now_ms())
        try:
            consumer = await self._broker.consuming.subscribe(
                name,
                Terms(
                    *(wanted.credit, wanted.priority, wanted.visibility_s, selection),
                    *(self._origin, "", wanted.packs),
                ),
                _Taker(self, name.text),
            )
        except BaseException:
            self._session.unsubscribe(name.text)
            raise
        self._consumers[name.text] = consumer
        if self._has_ended:
            consumer.close()
        elif self._is_paused:
            consumer.pause()

    def unsubscribe(self, queue: str) -> None:
        """Ends a subscription; sent messages stay the client's. Raises NotSubscribed."""
        self._session.unsubscribe(queue)
        if (consumer := self._consumers.pop(queue, None)) is not None:
            consumer.close()
            for _ in range(consumer.in_flight):  # What these bring is released.
                self._session.claim_ended()

    def grant(self, queue: str, credit: int) -> None:
        """Adds to a subscription's credit. Raises NotSubscribed, TooMuchCredit."""
        consumer = self._consumers.get(queue)
        if consumer is None:
            raise NotSubscribed(queue)
        self._session.grant(queue, credit, self._broker.root.now_ms())
        self._go_on(queue, consumer, credit)

    def go_on(self) -> None:
        """There may be room for messages again: gives each queue that waits for it its turn."""
        while not self._is_paused and (turn := self._session.next_claim()) is not None:
            self._session.has_nothing(turn[0])
            if (consumer := self._consumers.get(turn[0])) is not None:
                self._turn = turn
                consumer.go_on()
                self._turn = None

    def room(self, queue: str) -> int:
        """How many messages of the queue may be claimed now. With 0 its turn comes with `go_on`."""
        turn, self._turn = self._turn, None
        if self._is_paused or (turn is None and self._session.has_turns):
            turn = None  # Others wait for room.
        elif turn is None:
            self._session.has_something(queue)
            turn = self._session.next_claim()
            self._session.has_nothing(queue)
        if turn is not None and turn[0] == queue:
            return turn[1]
        self._session.has_something(queue)
        return 0

    def claim_begins(self) -> float:
        """Returns the time, in seconds of the meter's clock."""
        self._session.claims(1)
        return 0.0 if self._meter is None else self._meter.steady_s()

    def lapsed(self, delivery: Delivery) -> None:
        """A message became due before it was sent: it is ready for others."""
        if delivery.descriptor is not None:
            self._broker.root.files.close(delivery.descriptor)
        self._credit_again(delivery)

    def give_back_unsent(self) -> None:
        """Releases the messages that were claimed and not sent."""
        unsent = self._session.take_back_unsent()
        self._give_back(unsent)
        for delivery in unsent:
            self._credit_again(delivery)

    def pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            for consumer in self._consumers.values():
                consumer.pause()

    def resume(self) -> None:
        if not self._is_paused or self._has_ended:
            return
        self._is_paused = False
        for queue, consumer in list(self._consumers.items()):
            consumer.resume()
            self._go_on(queue, consumer, 0)

    def end(self) -> None:
        """Ends claiming; later claims are released."""
        self.pause()
        self._has_ended = True
        self.give_back_unsent()

    def close(self) -> None:
        """The connection is gone: releases what the client holds."""
        self.end()
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()
        self._release(*self._session.end())
        if fetched := self._session.take_prefetched():
            self._track(begin_return(self._broker, [(e.queue, e.id, e.receives) for e in fetched]))

    async def released(self, within_s: float) -> None:
        """Waits until all releases are done, `within_s` at most."""
        if self._releases:
            await asyncio.wait(self._releases, timeout=within_s)

    def _go_on(self, queue: str, consumer: Consumer, credit: int) -> None:
        if credit:
            consumer.grant(credit)
        # A consumer that takes nothing does not notice by itself.
        if consumer.queue.is_gone:
            self.failed(queue, QueueNotFound(queue))

    def failed(self, queue: str, error: MqError) -> None:
        """Ends the subscription if its queue is gone, or if it was ended by request: then what the
        client holds of the queue is released too. The broker logs and retries other errors.
        """
        if not isinstance(error, _ENDS) or queue not in self._consumers:
            return
        self.unsubscribe(queue)
        if isinstance(error, ConsumerEnded):
            self._release(*self._session.take_back(queue))
        self._on_gone(queue, error)

    def claimed(self, delivery: Delivery, began_s: float) -> None:
        """A claim brought messages, those of a pack or one."""
        if self._meter is not None:
            self._meter.request(DELIVERS, 200, self._meter.steady_s() - began_s)
        found = items_of(delivery)
        if not self._has_ended and self._session.arrived(*found):
            self._on_message()
        else:
            self._give_back(found)
        self.claim_ended()

    def claim_ended(self) -> None:
        self._session.claim_ended()
        self.go_on()

    def _credit_again(self, delivery: Delivery) -> None:
        consumer = self._consumers.get(delivery.queue.text)
        if consumer is not None:
            consumer.grant(1)

    def _release(self, begun: Sequence[Delivery], unhandled: Sequence[Delivery]) -> None:
        self._give_back(unhandled)
        if begun:
            self._track(self._broker.begin_release(begun))

    def _give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Releases messages that no program had."""
        if deliveries:
            self._track(self._broker.begin_release(deliveries, unhandled=True))

    def _track(self, release: "asyncio.Task[None]") -> None:
        self._releases.add(release)
        release.add_done_callback(self._releases.discard)
