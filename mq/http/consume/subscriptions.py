"""One connection's subscriptions: a consumer of each queue, and what is claimed by them.

The session decides whose turn it is; a consumer is asked for as much as may be sent soon. What is
claimed and cannot be sent goes back, and its credit with it.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mq.broker.broker import Broker
from mq.broker.consumer import Consumer
from mq.http.metering import DELIVERS, outcome_of
from mq.metrics.meter import Meter
from mq.model.errors import MqError, QueueExpired, QueueNotFound
from mq.model.message import Delivery
from mq.model.names import QueueName
from mq.model.selection import Selection
from mq.protocol.consume.errors import NotSubscribed
from mq.protocol.consume.frames import Wanted
from mq.protocol.consume.session import Session

_CLAIMED: Final = outcome_of(200)


class Subscriptions:
    """What a connection is subscribed to. `on_message` is told when there is one to be sent,
    `on_gone` of a queue that is gone, or has expired; `meter`, where there is one, of each message
    that was claimed.
    """

    def __init__(
        self,
        broker: Broker,
        session: Session,
        on_message: Callable[[], None],
        on_gone: Callable[[str, MqError], None],
        meter: Meter | None = None,
    ) -> None:
        self._broker = broker
        self._session = session
        self._on_message = on_message
        self._on_gone = on_gone
        self._meter = meter
        self._consumers: dict[str, Consumer] = {}
        self._is_paused = False
        self._has_ended = False

    @property
    def queues(self) -> list[str]:
        """Those whose subscription has begun."""
        return list(self._consumers)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is claimed for now."""
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
                priority=wanted.priority,
                credit=wanted.credit,
                visibility_s=wanted.visibility_s,
                selection=selection,
                on_notified=partial(self._notified, name.text),
                on_error=partial(self._failed, name.text),
            )
        except BaseException:
            self._session.unsubscribe(name.text)
            raise
        self._consumers[name.text] = consumer
        if self._has_ended:
            consumer.close()
        elif self._is_paused:
            consumer.pause()
        if consumer.is_notified:  # Its turn came before it was known here.
            self._notified(name.text)

    def unsubscribe(self, queue: str) -> None:
        """Ends a subscription; what was sent stays the client's. Raises NotSubscribed."""
        self._session.unsubscribe(queue)
        if (consumer := self._consumers.pop(queue, None)) is not None:
            consumer.close()

    def grant(self, queue: str, credit: int) -> None:
        """So many more messages may come. Raises NotSubscribed, TooMuchCredit."""
        consumer = self._consumers.get(queue)
        if consumer is None:
            raise NotSubscribed(queue)
        self._session.grant(queue, credit, self._broker.root.now_ms())
        self._go_on(queue, consumer, credit)

    def claim(self) -> None:
        """Claims what may be sent soon, queue by queue."""
        while not self._is_paused and (turn := self._session.next_claim()) is not None:
            queue, most = turn
            self._session.has_nothing(queue)
            consumer = self._consumers.get(queue)
            if consumer is None:
                continue  # It is being subscribed to.
            began_s = 0.0 if self._meter is None else self._meter.steady_s()
            futures = consumer.pull(most)
            self._session.claims(len(futures))
            for future in futures:
                future.add_done_callback(partial(self._claimed, queue, consumer, began_s))

    def lapsed(self, delivery: Delivery) -> None:
        """A message was not sent in its time: it is nobody's."""
        if delivery.descriptor is not None:
            self._broker.root.files.close(delivery.descriptor)
        self._credit_again(delivery)

    def give_back_unsent(self) -> None:
        """Others may have what was claimed and not sent."""
        unsent = self._session.take_back_unsent()
        self._give_back(unsent)
        for delivery in unsent:
            self._credit_again(delivery)

    def pause(self) -> None:
        """Nothing more is claimed for now."""
        if not self._is_paused:
            self._is_paused = True
            for consumer in self._consumers.values():
                consumer.pause()

    def resume(self) -> None:
        """It goes on after a pause."""
        if not self._is_paused or self._has_ended:
            return
        self._is_paused = False
        for queue, consumer in list(self._consumers.items()):
            consumer.resume()
            self._go_on(queue, consumer, 0)

    def end(self) -> None:
        """Nothing more is claimed; what comes all the same is given back."""
        self.pause()
        self._has_ended = True
        self.give_back_unsent()

    def close(self) -> None:
        """The connection is gone; what the client holds is released."""
        self.end()
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()
        begun, unhandled = self._session.end()
        self._give_back(unhandled)
        if begun:
            self._broker.begin_release(begun)

    def _go_on(self, queue: str, consumer: Consumer, credit: int) -> None:
        if credit:
            consumer.grant(credit)
        # One that takes nothing does not hear of that by itself.
        if consumer.queue.is_gone:
            self._failed(queue, QueueNotFound(queue))

    def _notified(self, queue: str) -> None:
        self._session.has_something(queue)
        self.claim()

    def _failed(self, queue: str, error: MqError) -> None:
        """Of what may pass the broker says more in the log, and tries again."""
        if isinstance(error, QueueNotFound | QueueExpired) and queue in self._consumers:
            self.unsubscribe(queue)
            self._on_gone(queue, error)

    def _claimed(
        self,
        queue: str,
        consumer: Consumer,
        began_s: float,
        future: "asyncio.Future[Delivery | None]",
    ) -> None:
        self._session.claim_ended()
        error = None if future.cancelled() else future.exception()
        if isinstance(error, QueueNotFound | QueueExpired) and not consumer.is_closed:
            self._failed(queue, error)
            return
        delivery = None if error is not None or future.cancelled() else future.result()
        if delivery is not None and self._meter is not None:
            self._meter.request(DELIVERS, _CLAIMED, self._meter.steady_s() - began_s)
        is_wanted = not self._has_ended and not consumer.is_closed
        if delivery is not None and is_wanted and self._session.arrived(delivery):
            self._on_message()
        elif delivery is not None:
            self._give_back([delivery])
        if consumer.is_notified and consumer.credit:
            self._session.has_something(queue)
        self.claim()

    def _credit_again(self, delivery: Delivery) -> None:
        consumer = self._consumers.get(delivery.queue.text)
        if consumer is not None:
            consumer.grant(1)

    def _give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Of what no program had."""
        if deliveries:
            self._broker.begin_release(deliveries, unhandled=True)
