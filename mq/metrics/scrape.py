"""A scrape: all processes' counters and gauges, and the disk's figures."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeVar

from prometheus_client.metrics_core import Metric

from mq.broker.accounts import Totals
from mq.broker.broker import Broker
from mq.metrics import disk, told
from mq.metrics.disk import Counted, Disk, Looked
from mq.metrics.families import page_of
from mq.metrics.meter import Meter
from mq.metrics.plan import Key
from mq.model.log import logger

DISK_S: Final = 2.0
"""How long a scrape waits for the disk; Prometheus itself gives up after ten seconds."""
KEPT_EVERY_S: Final = 1.0
"""The interval at which each of several processes writes its other counts and gauges to the board.
"""

_log = logger("mq.metrics")
T = TypeVar("T")

Connections = Callable[[], tuple[int, int]]
"""Returns the numbers of connections and of WebSockets among them."""


class Scrapes:
    """One process's scrapes, on its event loop's thread."""

    def __init__(self, meter: Meter, broker: Broker, looks: Disk) -> None:
        self.meter = meter
        self._broker = broker
        self._disk = looks
        self._looking: asyncio.Task[Looked] | None = None
        self._counting: asyncio.Task[Counted] | None = None
        self._counted: Counted | None = None
        """The last result."""
        self.connections: Connections = lambda: (0, 0)
        """The server replaces it."""

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The page for an Accept header, and its media type."""
        looked, counted = await asyncio.gather(self._look(), self._count())
        self.keep()
        families: list[Metric] = [*told.families_of(self.meter), *disk.families_of(looked, counted)]
        return page_of(families, accept)

    def keep(self) -> None:
        """Writes this process's other counts and gauges to the board, for the process that answers
        the scrape.
        """
        self.meter.keep(figures_of(self._broker, *self.connections()))

    async def keep_on(self) -> None:
        """Calls `keep` every KEPT_EVERY_S, until cancelled."""
        while True:
            self.keep()
            await asyncio.sleep(KEPT_EVERY_S)

    async def _look(self) -> Looked | None:
        """The result of the probe; None: the disk does not answer."""
        self._looking = _asking(self._looking, self._disk.look)
        return await _found(self._looking)

    async def _count(self) -> Counted | None:
        """The last counts of queues; counting large queues continues in the background."""
        self._counting = _asking(self._counting, self._disk.count)
        self._counted = await _found(self._counting) or self._counted
        return self._counted


def _asking(
    asking: "asyncio.Task[T] | None", ask: Callable[[], Coroutine[Any, Any, T]]
) -> "asyncio.Task[T]":
    """The pending probe, or a new one. One at a time: if the disk hangs, another one would hang
    too.
    """
    if asking is None or asking.done():
        asking = asyncio.create_task(ask())
        asking.add_done_callback(_hear)
    return asking


async def _found(asking: "asyncio.Task[T]") -> T | None:
    """The result, after at most DISK_S; None: there is none yet."""
    await asyncio.wait((asking,), timeout=DISK_S)
    if not asking.done() or asking.cancelled() or asking.exception() is not None:
        return None
    return asking.result()


def _hear(asked: "asyncio.Task[Any]") -> None:
    """Logs a failure: the scrape may not wait for the result any more."""
    error = None if asked.cancelled() else asked.exception()
    if error is not None:
        _log.warning(
            "a scrape lacks the figures of the disk", extra={"fields": {"error": repr(error)}}
        )


def figures_of(broker: Broker, connections: int, websockets: int) -> Mapping[Key, float]:
    """A broker's counts and gauges, by the names of the plan."""
    memory, queues = broker.memory.figures(), broker.in_use()
    totals = Totals()
    for each in (broker.gone_totals, *(queue.totals for queue in queues)):
        totals.add(each)
    messages = asdict(totals)
    found: dict[Key, float] = {
        ("mq_lost_races", ""): messages.pop("lost_races"),
        ("mq_memory_bodies_wanted", "hit"): memory.hits,
        ("mq_memory_bodies_wanted", "miss"): memory.misses,
        ("mq_memory_bodies_wanted", "refused"): memory.refused,
        ("mq_memory_evicted", ""): memory.evicted,
        ("mq_history_lines_dropped", ""): broker.root.history.dropped_total,
        ("mq_clock_steps", ""): broker.root.steps.count,
        ("mq_memory_budget_bytes", ""): memory.budget_bytes,
        ("mq_memory_ids", ""): broker.ids.total,
        ("mq_connections", ""): connections,
        ("mq_websockets", ""): websockets,
        ("mq_consumers", ""): sum(queue.consumers for queue in queues),
        ("mq_commit_operations_waiting", ""): broker.committer.waiting,
        ("mq_queues_used", ""): len(queues),
    }
    found |= {("mq_messages", event): count for event, count in messages.items()}
    for holder, figures in memory.holders.items():
        name = holder.name.lower()
        found["mq_memory_held_bytes", name] = figures.bytes
        found["mq_memory_bodies", name] = figures.bodies
    return found
