"""A run of a worker: fetches, handles and settles messages, and drains.

It needs no locks, since all is in one event loop. A fetched message waits in the supply until a
place is free; its place is free again once it is settled.
"""

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from mq.client.client import AsyncClient, sender_of
from mq.client.errors import one_line
from mq.client.http_transport import shown_url
from mq.client.message import AsyncMessage, return_unhandled
from mq.client.options import Seams
from mq.client.worker.calling import CANCELLED_END_S, Batch, Calling, Exited
from mq.client.worker.choices import WORKER_PREFETCH_MAX, Plan
from mq.client.worker.dispatching import WORKER_QUEUES_MAX
from mq.client.worker.handlers import Handler
from mq.client.worker.leases import Delivery, Leases
from mq.client.worker.polling import Poller, Polls, find, follow
from mq.client.worker.reporting import Reporting
from mq.client.worker.settling import Settling
from mq.client.worker.supply import Ripening, Supply
from mq.client.worker.verdicts import Release, Verdict, failure_of, with_failure
from mq.model.limits import BATCH_MESSAGES_MAX, CONSUMERS_MAX

# Releases of a drain that go on at once, and how long a handler that is cut short may take to end.
RELEASES_AT_ONCE: Final = 32
CUT_END_S: Final = 1.0
RELEASED_AT_END_S: Final = 5.0

Begun: TypeAlias = "dict[Delivery, asyncio.Future[bool] | None]"
"""The messages of a call, each with the report to mq that it begins."""

_log: Final = logging.getLogger("mq.worker")


class Run:
    """A run of a worker, from its first fetch to the end of its drain. `total`: how many messages
    to handle at a time, now. `follow`: gets the queues' settings `consumers`.
    """

    def __init__(
        self,
        plan: Plan,
        client: AsyncClient,
        total: Callable[[], int],
        follow: Callable[[Iterable[int]], None],
        seams: Seams,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._plan = plan
        self._total = total
        self._seams = seams
        self._client = client
        self._leases = Leases(seams)
        self._settling = Settling(self._leases, seams)
        self._calling = Calling(plan.middleware, self._leases)
        self._url = url = shown_url(client.url)
        self._named = f"the worker of {', '.join(plan.table.queues)} at {url}"
        self._polls = Polls(
            wanted=self._wanted,
            came=self._came,
            leases=self._leases,
            seams=seams,
            url=url,
            visibility_s=plan.visibility_s,
            priority=plan.priority,
        )
        self._supply: Supply[Handler | None, Delivery] = Supply((), lambda each: each.handler)
        self._polling: dict[str, tuple[Poller, asyncio.Task[None]]] = {}
        self._dropping: set[asyncio.Task[None]] = set()
        self._reporting = Reporting(sender_of(client), seams, self._returned)
        self._follow = follow
        self._handling: set[asyncio.Task[None]] = set()
        self._calls: Counter[Handler | None] = Counter()
        self._ripening = Ripening(self._supply, self.fill)
        self._is_draining = False
        # It is asked to end, or failed.
        self._over: asyncio.Future[None] = self.loop.create_future()
        self._cut: asyncio.Future[None] = self.loop.create_future()

    def stop(self) -> None:
        """Asks it to drain and end."""
        if not self._over.done():
            self._over.set_result(None)

    async def run(self) -> None:
        """Runs until it is asked to end, and drains; cancelled, it waits for no handler. Raises
        final errors: Refused, NotUsable.
        """
        for name in self._plan.table.names:
            self._add_queue(name)
        reporting = asyncio.create_task(self._reporting.run())
        helping = [asyncio.create_task(each) for each in self._helpers()]
        ending: set[asyncio.Future[Any]] = {self._over, *helping}
        drain_s = self._plan.drain_s
        try:
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            drain_s = 0.0
            raise
        finally:
            self._over.cancel()
            for task in helping:
                task.cancel()
            await self._drain(drain_s)
            reporting.cancel()
            await asyncio.wait({reporting})
        for future in (*helping, self._over):
            if future.done() and not future.cancelled() and (error := future.exception()):
                raise error

    def _helpers(self) -> Iterator[Coroutine[Any, Any, None]]:
        if self._plan.follow_setting:
            yield follow(self._client, lambda: self._polling, self._follow, self._seams)
        if self._plan.table.has_patterns:
            yield find(self._client, self._found, self._seams)

    # The queues.

    def _add_queue(self, name: str) -> None:
        self._supply.add(name)
        poller = Poller(self._client.queue(name), self._polls)
        task = asyncio.create_task(poller.run())
        self._polling[name] = (poller, task)
        task.add_done_callback(self._ended_polling)

    def _ended_polling(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) and not self._over.done():
            self._over.set_exception(error)

    def _found(self, queues: Sequence[str]) -> None:
        """mq has these queues: takes up those that fit a pattern, and drops those that are gone."""
        chosen = self._plan.table.chosen(queues)
        named = self._plan.table.names
        gone = self._polling.keys() - {*named, *chosen}
        new = [each for each in chosen if each not in self._polling]
        room = WORKER_QUEUES_MAX - len(self._polling) + len(gone)
        for queue in gone:
            self._drop_queue(queue)
        for queue in new[:room]:
            self._add_queue(queue)
        if gone or new[:room]:
            facts = {"found": new[:room], "gone": sorted(gone)}
            _log.info(
                "%s has %d queues: %d are new, %d are gone",
                *(self._named, len(self._polling), len(new[:room]), len(gone)),
                extra={"fields": facts},
            )
        if new[room:]:
            _log.warning(
                "%s has %d queues, the most: it leaves %d others that fit, "
                "such as %s; use narrower patterns, and a worker for each",
                *(self._named, len(self._polling), len(new[room:]), new[room]),
            )

    def _drop_queue(self, name: str) -> None:
        poller, polling = self._polling.pop(name)
        self._plan.table.forget(name)
        waiting = self._supply.remove(name)
        for handler in {each.handler for each in waiting}:
            if handler is not None:
                self._ripening.changed(name, handler)
        for each in waiting:
            self._reporting.begins(each)  # It is reported no more.

        async def drop() -> None:
            await asyncio.gather(poller.stop(polling), self._release_all(waiting))

        self._beside(drop())

    def _beside(self, dropping: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(dropping)
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    # Messages that arrive, and their places.

    def _wanted(self, queue: str) -> int:
        if queue not in self._polling:
            return 0
        total = self._total()
        handlers = self._plan.table.of(queue)
        size = max((each.size for each in handlers), default=1)
        limits = [each.options.consumers for each in handlers]
        places, free = total, total - len(self._handling)
        if None not in limits:
            places = min(total, sum(each or 0 for each in limits))
            free = min(free, places - sum(self._calls[each] for each in handlers))
        prefetch = self._plan.prefetch
        if prefetch is None:
            prefetch = min(places * size, WORKER_PREFETCH_MAX)
        return min(self._supply.wanted(queue, max(free, 0), prefetch, size), BATCH_MESSAGES_MAX)

    def _came(self, queue: str, messages: Sequence[AsyncMessage], usual_s: float) -> None:
        deliveries = [
            Delivery(each, self._url, self._plan.table.handler(queue, each), self.loop.time())
            for each in messages
        ]
        for delivery in deliveries:
            self._leases.hold(delivery, usual_s)
        if queue not in self._polling:  # It was dropped while they were on their way.
            self._beside(self._release_all(deliveries))
            return
        self._supply.put(queue, deliveries)
        self._reporting.came(deliveries)
        for handler in {each.handler for each in deliveries}:
            if handler is not None and handler.options.max is not None:
                self._ripening.changed(queue, handler)
        self.fill()

    def _returned(self, deliveries: Sequence[Delivery]) -> None:
        """mq may have returned messages that wait, since it lost the connection of their report."""
        self._supply.drop(deliveries)
        for delivery in deliveries:
            self._leases.let_go(delivery)
            if delivery.handler is not None:
                self._ripening.changed(delivery.message.queue, delivery.handler)
        self.fill()

    def _size(self, queue: str, handler: Handler | None, waiting: int) -> int:
        """How many of a handler's messages go into a call now."""
        if handler is None:
            return 1
        if self._calls[handler] >= (handler.options.consumers or CONSUMERS_MAX):
            return 0
        if waiting >= handler.size:
            return handler.size
        return waiting if (queue, handler) in self._ripening.ripe else 0

    def fill(self) -> None:
        """Starts handlers while there are free places."""
        while not self._is_draining and len(self._handling) < self._total():
            taken = self._supply.take(self._size)
            if not taken:
                break
            begun = {each: self._reporting.begins(each) for each in taken}
            handler = taken[0].handler
            if handler is not None:
                self._ripening.changed(taken[0].message.queue, handler)
            begun = {each: since for each, since in begun.items() if not each.is_lost}
            if begun:
                task = asyncio.create_task(self._handle_all(handler, begun))
                self._handling.add(task)
                self._calls[handler] += 1
                task.add_done_callback(functools.partial(self._ended, handler))
        for poller, _ in self._polling.values():
            poller.look_again()

    def _ended(self, handler: Handler | None, task: "asyncio.Task[None]") -> None:
        self._handling.discard(task)
        self._calls[handler] -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error(
                "%s failed on a message by an error of its own: %s",
                *(self._named, one_line(error, with_kind=True)),
                exc_info=error,
            )
        self.fill()

    # One call, and each of its messages.

    async def _handle_all(self, handler: Handler | None, begun: Begun) -> None:
        batch = None
        if handler is not None and handler.options.max is not None:
            batch = Batch(self._calling, handler, list(begun))
        handling = (self._handle(each, since, batch) for each, since in begun.items())
        for error in await asyncio.gather(*handling, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    async def _handle(
        self, delivery: Delivery, begun: "asyncio.Future[bool] | None", batch: Batch | None
    ) -> None:
        """Calls the handler once mq has the report that it begins, and settles the message."""
        try:
            try:
                if begun is None or await begun:
                    verdict = await self._verdict(delivery, batch)
                else:
                    verdict = Release(unhandled=True)
            finally:
                if batch is not None:
                    batch.left(delivery)
            await self._settling.settle(delivery, verdict)
        finally:
            self._leases.let_go(delivery)
        if delivery.straggler is not None:
            # It has a place as long as its handler runs.
            _log.warning(
                "the handler of %s goes on beyond its time, and has its place until it ends",
                delivery.named,
                extra={"fields": delivery.facts},
            )
            await self._ends_or_is_cut(delivery.straggler)

    async def _ends_or_is_cut(self, what: "asyncio.Future[object]") -> None:
        waiting: set[asyncio.Future[Any]] = {what, self._cut}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    async def _verdict(self, delivery: Delivery, batch: Batch | None) -> Verdict:
        calling = asyncio.create_task(self._calling.call(delivery, batch))
        await self._ends_or_is_cut(calling)
        if not calling.done():
            calling.cancel()
            await asyncio.wait({calling}, timeout=CANCELLED_END_S + CUT_END_S)
        attempts, chance = delivery.message.attempts, self._seams.chance()
        if self._cut.done() and (not calling.done() or calling.cancelled()):
            _log.warning(
                "the handler of %s was cut short at the end of drain_s: the message is released",
                delivery.named,
                extra={"fields": delivery.facts},
            )
            return Release()
        error: BaseException | None
        if calling.cancelled():
            error = Exited("the handler raised CancelledError")
        else:
            error = calling.exception()
        options = delivery.handler.options if delivery.handler else self._plan.options
        if error is None:
            return options.of_result(calling.result(), attempts, chance)
        handler = "" if delivery.handler is None else delivery.handler.name
        failure = failure_of(error, handler)
        verdict = with_failure(options.of_error(error, attempts, chance), failure)
        facts = {**delivery.facts, "verdict": type(verdict).__name__.lower()}
        _log.warning(
            "the handler failed on %s: %s; %s",
            *(delivery.named, one_line(error, with_kind=True), verdict.says),
            exc_info=error,
            extra={"fields": facts},
        )
        return verdict

    # The end.

    async def _drain(self, drain_s: float) -> None:
        self._is_draining = True
        _log.info(
            "%s drains: its handlers of %d messages have %g s",
            *(self._named, len(self._handling), drain_s),
            extra={"fields": {"handled": len(self._handling), "drain_s": drain_s}},
        )
        ends_s = self._seams.clock.steady_s() + drain_s
        releasing = asyncio.create_task(self._release())
        left_s = max(ends_s - self._seams.clock.steady_s(), 0.0)
        if self._handling:
            await asyncio.wait(self._handling, timeout=left_s)
        self._cut.set_result(None)
        last = {releasing, *self._dropping, *self._handling}
        _, late = await asyncio.wait(last, timeout=CANCELLED_END_S + CUT_END_S + RELEASED_AT_END_S)
        for task in late:
            task.cancel()
        if late:
            _log.warning(
                "%s could not settle %d messages in time: they are delivered "
                "again when they are due",
                *(self._named, len(late)),
                extra={"fields": {"tasks": len(late)}},
            )
            await asyncio.wait(late)
        await self._leases.close()
        self._calling.close()
        _log.info("%s has drained", self._named)

    async def _release(self) -> None:
        """Releases the messages whose handlers have not begun: those that wait now, then those that
        arrive until the pollers have ended.
        """
        stopping = [poller.stop(task) for poller, task in self._polling.values()]
        await asyncio.gather(*stopping, self._release_all(self._supply.take_all()))
        await self._release_all(self._supply.take_all())

    async def _release_all(self, deliveries: Iterable[Delivery]) -> None:
        """Releases all together, then each remaining one by itself."""
        deliveries = list(deliveries)
        await return_unhandled(each.message for each in deliveries)
        turn = asyncio.Semaphore(RELEASES_AT_ONCE)

        async def release(delivery: Delivery) -> None:
            async with turn:
                await self._settling.settle(delivery, Release(unhandled=True))
                self._leases.let_go(delivery)

        await asyncio.gather(*(release(each) for each in deliveries))
