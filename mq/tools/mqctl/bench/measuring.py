"""Runs a bench: makes its queue, warms up, measures, and cleans up, whatever stops it."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mq.client.client import AsyncClient
from mq.client.errors import Problem
from mq.client.sending import Sender
from mq.client.values import Readiness
from mq.model.clock import Clock
from mq.tools.mqctl.bench.keeping import Keeping, Left
from mq.tools.mqctl.bench.limits import IN_HAND_S
from mq.tools.mqctl.bench.load import GaveUp, Load
from mq.tools.mqctl.bench.pace import Turns
from mq.tools.mqctl.bench.plan import Plan
from mq.tools.mqctl.bench.report import Outcome
from mq.tools.mqctl.bench.tally import Tally

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PUBLISH: Final = "publish"
FETCH: Final = "fetch"
DELETE: Final = "delete"


class Stop:
    """The first signal stops the load; those after it change nothing: cleaning has its own end."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told
        self._heard = asyncio.Event()
        self.number: signal.Signals | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Signals are heard within the block."""
        loop = asyncio.get_running_loop()
        heard = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        for each in heard:
            loop.add_signal_handler(each, self._hear, each)
        try:
            yield
        finally:
            for each in heard:
                loop.remove_signal_handler(each)

    def _hear(self, number: signal.Signals) -> None:
        if self.number is None:
            self.number = number
            self._told("stopping: the queue is taken away first")
        else:
            self._told("still cleaning up; that ends by itself")
        self._heard.set()

    async def wait(self) -> None:
        """Until a signal comes."""
        await self._heard.wait()


@dataclass(slots=True)
class Found:
    """What was measured so far."""

    tallies: tuple[Tally, ...] = field(
        default_factory=lambda: (Tally(PUBLISH), Tally(FETCH), Tally(DELETE))
    )
    busy_share: float = 0.0
    gave_up: str | None = None
    missing: int = 0
    has_ended_early: bool = False


class Measuring:
    """One bench. `client` makes and cleans, and tries again; `sender` measures, and tries nothing
    again: an error is an error. `cpu_s`: what this process has used of its core. `told` says a line
    to whoever looks on.
    """

    def __init__(
        self,
        plan: Plan,
        client: AsyncClient,
        sender: Sender,
        clock: Clock,
        cpu_s: Callable[[], float],
        told: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._client = client
        self._sender = sender
        self._clock = clock
        self._cpu_s = cpu_s
        self._told = told
        self.left = Left()

    async def run(self, shown_url: str) -> tuple[Outcome, signal.Signals | None]:
        """The outcome, and the signal that stopped it. Raises ClientError and Holds before there is
        anything to measure; `left` says then what is left.
        """
        stop = Stop(self._told)
        found = Found()
        with stop.listening():
            server = await self._readiness()
            keeping = Keeping(self._client, self._plan)
            try:
                # Not cut short by a signal: it is to be known what was made.
                await keeping.prepare(self._clock.now_ms())
                await self._until_stopped(keeping, stop, found)
            finally:
                self.left = await keeping.clean()
        outcome = Outcome(
            *(self._plan, shown_url, server, found.tallies, found.busy_share, self.left),
            missing=found.missing,
            stopped_by=None if stop.number is None else stop.number.name,
            gave_up=found.gave_up,
            has_ended_early=found.has_ended_early,
        )
        return outcome, stop.number

    async def _readiness(self) -> Readiness | None:
        """How durable a success is; None where mq is not ready, as the errors will say."""
        try:
            return await self._client.readiness()
        except Problem:
            return None

    async def _until_stopped(self, keeping: Keeping, stop: Stop, found: Found) -> None:
        load = Load(self._sender, self._plan, self._clock.steady_s, select=not keeping.is_own)
        loading = asyncio.create_task(self._load(load, found))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([loading, stopped], return_when=asyncio.FIRST_COMPLETED)
            # What is on its way is answered yet: it is known then what there is to clean up.
            load.stop()
            await asyncio.wait([loading], timeout=IN_HAND_S)
        finally:
            for each in (loading, stopped):
                each.cancel()
            await asyncio.wait([loading, stopped])
        if load.met_others:
            keeping.has_others = True
            found.gave_up = "somebody else publishes to the queue"
        if not loading.cancelled() and (error := loading.exception()) is not None:
            raise error

    async def _load(self, load: Load, found: Found) -> None:
        try:
            if self._plan.warm_up_s:
                self._told(f"warming up for {self._plan.warm_up_s:g} s")
                await self._warm_up(load)
            await self._measure(load, found)
        except GaveUp as error:
            found.gave_up = str(error)

    async def _warm_up(self, load: Load) -> None:
        """Opens all connections, and has mq and its disk do everything some times."""
        publish, fetch, delete = Found().tallies
        half_s = self._plan.warm_up_s / 2
        await load.publish(publish, self._turns(None, half_s), None)
        await load.consume(fetch, delete, self._turns(None, half_s), publish.messages)

    def _turns(self, count: int | None, seconds: float | None) -> Turns:
        now_s = self._clock.steady_s()
        end_s = None if seconds is None else now_s + seconds
        return Turns(now_s, count, end_s, self._plan.turns_per_s)

    async def _measure(self, load: Load, found: Found) -> None:
        plan = self._plan
        publish, fetch, delete = found.tallies
        began_s, began_cpu_s = self._clock.steady_s(), self._cpu_s()
        try:
            self._told(f"publishing to {plan.name}")
            turns = None if plan.messages is None else -(-plan.messages // plan.batch)
            await load.publish(publish, self._turns(turns, plan.seconds), plan.messages)
            self._told("fetching and deleting")
            await load.consume(fetch, delete, self._turns(None, plan.seconds), publish.messages)
        finally:
            passed_s = self._clock.steady_s() - began_s
            used_s = self._cpu_s() - began_cpu_s
            found.busy_share = used_s / passed_s if passed_s > 0 else 0.0
        if load.is_stopping:
            return
        if plan.seconds is None:
            found.missing = max(0, publish.messages - fetch.messages)
        else:
            found.has_ended_early = fetch.messages < publish.messages
