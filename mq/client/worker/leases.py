"""Keeping messages from lapsing while a worker has them in hand, begun or not."""

import asyncio
import logging
from datetime import datetime
from typing import Final

from mq.client.errors import AlreadySettled, ClientError, NotUsable, one_line
from mq.client.options import Seams
from mq.client.worker.delivery import LOST, Delivery
from mq.client.worker.lease import Lease, ServerTime

_log: Final = logging.getLogger("mq.worker")
_OVER: Final[tuple[type[ClientError], ...]] = (AlreadySettled, NotUsable, *LOST)


class Leases:
    """Extends the lease of each message that it holds, when a third of it is left. Of one event
    loop.
    """

    def __init__(self, seams: Seams) -> None:
        self._clock = seams.clock
        self._server = ServerTime()
        self._extending: set[asyncio.Task[None]] = set()

    @property
    def knows_time(self) -> bool:
        """Whether mq's clock was ever heard."""
        return self._server.is_known

    def heard(self, server_time: datetime) -> None:
        """mq's clock says this, about now."""
        self._server = self._server.heard(_ms(server_time), self._clock.now_ms())

    def hold(self, delivery: Delivery, usual_s: float) -> None:
        """From here on it is extended, by `usual_s` where it has lapsed before it came."""
        left_s = self._server.left_s(_ms(delivery.message.due), self._clock.now_ms())
        delivery.lease = lease = Lease.of(left_s, usual_s, self._clock.steady_s())
        self._ring_at(delivery, lease.extend_at_s)

    def let_go(self, delivery: Delivery) -> None:
        """It is not extended any more; a request on its way goes on."""
        delivery.lease = None
        if delivery.timer is not None:
            delivery.timer.cancel()
            delivery.timer = None

    async def extend(self, delivery: Delivery, seconds: float) -> datetime:
        """Has it be due so many seconds from now; when that is. Raises as a message's `extend`
        does; one that is not there any more is lost from then on.
        """
        began_s = self._clock.steady_s()
        try:
            due = await delivery.message.extend(seconds)
        except LOST:
            self.lose(delivery)
            raise
        self._server = self._server.heard(_ms(due) - 1000 * seconds, self._clock.now_ms())
        if delivery.lease is not None:
            delivery.lease = delivery.lease.extended(seconds, began_s)
            self._ring_at(delivery, delivery.lease.extend_at_s)
        return due

    def lose(self, delivery: Delivery) -> None:
        """It is another's, or gone. Its handler is told by `is_lost`, and goes on."""
        if not delivery.is_lost:
            _log.warning(
                "%s is no longer the worker's: it lapsed, or is gone; what its handler says of it "
                "is not done",
                delivery.named,
                extra={"fields": delivery.facts},
            )
        delivery.is_lost = True
        self.let_go(delivery)

    async def close(self) -> None:
        """Ends what is on its way."""
        for task in self._extending:
            task.cancel()
        if self._extending:
            await asyncio.wait(self._extending)

    def _ring_at(self, delivery: Delivery, at_s: float) -> None:
        if delivery.timer is not None:
            delivery.timer.cancel()
        delay_s = max(at_s - self._clock.steady_s(), 0.0)
        delivery.timer = asyncio.get_running_loop().call_later(delay_s, self._begin, delivery)

    def _begin(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._keep(delivery))
        self._extending.add(task)
        task.add_done_callback(self._extending.discard)

    async def _keep(self, delivery: Delivery) -> None:
        lease = delivery.lease
        if lease is None or delivery.is_over:
            return
        try:
            # In time for another try, whatever time-outs the client has.
            async with asyncio.timeout(lease.patience_s(self._clock.steady_s())):
                await self.extend(delivery, lease.whole_s)
        except _OVER:
            return
        except (ClientError, TimeoutError) as error:
            now_s = self._clock.steady_s()
            left_s = lease.left_s(now_s)
            _log.warning(
                "%s could not be kept: %s; tries again, %.1f s before it is due",
                *(delivery.named, one_line(error), left_s),
                extra={"fields": {**delivery.facts, "error": one_line(error), "left_s": left_s}},
            )
            if delivery.lease is not None:
                self._ring_at(delivery, lease.again_at_s(now_s))


def _ms(when: datetime) -> float:
    return when.timestamp() * 1000
