"""A worker while it runs: what it fetches, handles and settles, and how it ends.

All of it happens in one event loop, whose turns need no locks: a message is put into the supply
when it came, taken from it when a place is free, and its place is free again once it is settled.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mq.client import address
from mq.client.client import AsyncClient
from mq.client.errors import one_line
from mq.client.message import AsyncMessage
from mq.client.options import Seams
from mq.client.worker.calling import Calling, Exited, Handler, Middleware
from mq.client.worker.delivery import Delivery
from mq.client.worker.dispatching import Table
from mq.client.worker.following import Following
from mq.client.worker.leases import Leases
from mq.client.worker.polling import Poller
from mq.client.worker.settling import Settling
from mq.client.worker.supply import Supply
from mq.client.worker.verdicts import Policy, Release, Verdict
from mq.model.worker_limits import CANCELLED_END_S, CUT_END_S, RELEASED_AT_END_S, RELEASES_AT_ONCE

_log: Final = logging.getLogger("mq.worker")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker was told."""

    table: Table[Handler]
    policy: Policy
    middleware: tuple[Middleware, ...] = ()
    time_limit_s: float | None = None
    visibility_s: float | None = None
    prefetch: int | None = None
    drain_s: float = 0.0
    follow_setting: bool = False


class Run:
    """One run of a worker, from its first poll to the end of its drain."""

    def __init__(
        self,
        plan: Plan,
        client: AsyncClient,
        total: Callable[[], int],
        say: Callable[[Iterable[int]], None],
        seams: Seams,
    ) -> None:
        """`total`: how many messages are handled at a time, now. `say`: is told what the queues'
        settings say of it.
        """
        self._plan = plan
        self._total = total
        self._seams = seams
        self._leases = Leases(seams)
        self._settling = Settling(self._leases, seams)
        self._calling = Calling(plan.table, plan.middleware, plan.time_limit_s, self._leases)
        url = address.shown(client.url)
        queues = [client.queue(name) for name in plan.table.queues]
        self._supply: Supply[Delivery] = Supply(plan.table.queues)
        self._pollers = [
            Poller(each, plan.visibility_s, self._wanted, self._came, self._leases, seams, url)
            for each in queues
        ]
        self._following = Following(queues, say, seams) if plan.follow_setting else None
        self._handling: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._cut: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, asked: asyncio.Event) -> None:
        """Until it is `asked` to end, and has drained; or is cancelled: then it waits for no
        handler. Raises what keeps it from going on: Refused, NotUsable.
        """
        polling = [asyncio.create_task(each.run()) for each in self._pollers]
        asking = asyncio.create_task(asked.wait())
        helping = [asyncio.create_task(self._following.run())] if self._following else []
        ending: set[asyncio.Future[Any]] = {*polling, *helping, asking}
        drain_s = self._plan.drain_s
        try:
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            drain_s = 0.0
            raise
        finally:
            for task in (asking, *helping):
                task.cancel()
            await self._drain(polling, drain_s)
        for task in polling:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def look_again(self) -> None:
        """The number of those that are handled at a time may have changed."""
        self._fill()

    # Messages that come, and their places.

    def _wanted(self, queue: str) -> int:
        free = max(self._total() - len(self._handling), 0)
        prefetch = self._total() if self._plan.prefetch is None else self._plan.prefetch
        return self._supply.wanted(queue, free, prefetch)

    def _came(self, queue: str, messages: Sequence[AsyncMessage], usual_s: float) -> None:
        deliveries = [Delivery(message) for message in messages]
        for delivery in deliveries:
            self._leases.hold(delivery, usual_s)
        self._supply.put(queue, deliveries)
        self._fill()

    def _fill(self) -> None:
        """Begins as many as there are places."""
        while not self._is_draining and len(self._handling) < self._total():
            delivery = self._supply.take()
            if delivery is None:
                break
            if not delivery.is_lost:
                task = asyncio.create_task(self._handle(delivery))
                self._handling.add(task)
                task.add_done_callback(self._ended)
        for poller in self._pollers:
            poller.look_again()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._handling.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a mistake of the worker's own", exc_info=error)
        self._fill()

    # One message.

    async def _handle(self, delivery: Delivery) -> None:
        try:
            verdict = await self._verdict(delivery)
            await self._settling.settle(delivery, verdict)
        finally:
            self._leases.let_go(delivery)
        if delivery.straggler is not None:
            # Its place is taken as long as its handler goes on.
            _log.warning(
                "the handler of %s goes on beyond its time, and keeps its place until it ends",
                delivery.named,
                extra={"fields": delivery.facts},
            )
            await self._ends_or_is_cut(delivery.straggler)

    async def _ends_or_is_cut(self, what: "asyncio.Future[object]") -> None:
        waiting: set[asyncio.Future[Any]] = {what, self._cut}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    async def _verdict(self, delivery: Delivery) -> Verdict:
        calling = asyncio.create_task(self._calling.call(delivery))
        await self._ends_or_is_cut(calling)
        if not calling.done():
            calling.cancel()
            await asyncio.wait({calling}, timeout=CANCELLED_END_S + CUT_END_S)
        receives, chance = delivery.message.receives, self._seams.chance()
        if self._cut.done() and (not calling.done() or calling.cancelled()):
            _log.warning(
                "the handler of %s was cut short: the message is given back",
                delivery.named,
                extra={"fields": delivery.facts},
            )
            return Release()
        error: BaseException | None
        if calling.cancelled():
            error = Exited("the handler raised CancelledError")
        else:
            error = calling.exception()
        if error is None:
            return self._plan.policy.of_result(calling.result(), receives, chance)
        verdict = self._plan.policy.of_error(error, receives, chance)
        facts = {**delivery.facts, "verdict": type(verdict).__name__.lower()}
        _log.warning(
            "the handler failed over %s: %s; %s",
            *(delivery.named, one_line(error, with_kind=True), verdict.says),
            exc_info=error,
            extra={"fields": facts},
        )
        return verdict

    # The end.

    async def _drain(self, polling: "Sequence[asyncio.Task[None]]", drain_s: float) -> None:
        self._is_draining = True
        _log.info(
            "drains: %d messages are being handled, and have %g s",
            *(len(self._handling), drain_s),
            extra={"fields": {"handled": len(self._handling), "drain_s": drain_s}},
        )
        ends_s = self._seams.clock.steady_s() + drain_s
        releasing = asyncio.create_task(self._release(polling))
        left_s = max(ends_s - self._seams.clock.steady_s(), 0.0)
        if self._handling:
            await asyncio.wait(self._handling, timeout=left_s)
        self._cut.set_result(None)
        last = {releasing, *self._handling}
        _, late = await asyncio.wait(last, timeout=CANCELLED_END_S + CUT_END_S + RELEASED_AT_END_S)
        for task in late:
            task.cancel()
        if late:
            _log.warning(
                "%d messages could not be settled in time: they come back when they are due",
                len(late),
                extra={"fields": {"tasks": len(late)}},
            )
            await asyncio.wait(late)
        await self._leases.close()
        self._calling.close()
        _log.info("drained")

    async def _release(self, polling: "Sequence[asyncio.Task[None]]") -> None:
        """Gives back what was not begun: what waits at once, and then what came until the polls
        ended.
        """
        stopping = [each.stop(task) for each, task in zip(self._pollers, polling, strict=True)]
        await asyncio.gather(*stopping, self._release_waiting())
        await self._release_waiting()

    async def _release_waiting(self) -> None:
        turn = asyncio.Semaphore(RELEASES_AT_ONCE)

        async def release(delivery: Delivery) -> None:
            async with turn:
                await self._settling.settle(delivery, Release(unhandled=True))
                self._leases.let_go(delivery)

        await asyncio.gather(*(release(each) for each in self._supply.take_all()))
