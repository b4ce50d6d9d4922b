"""A scrape: what all processes counted, what they hold, and what the disk says."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from prometheus_client.metrics_core import Metric

from mq.broker.accounts import Totals
from mq.broker.broker import Broker
from mq.metrics import disk, told
from mq.metrics.disk import Counted, Disk, Looked
from mq.metrics.families import page_of
from mq.metrics.meter import Meter
from mq.metrics.plan import Key
from mq.model.metrics_limits import DISK_S, KEPT_EVERY_S

_log = logging.getLogger("mq.metrics")
T = TypeVar("T")

Connections = Callable[[], tuple[int, int]]
"""How many connections there are, and how many of them consume by a WebSocket."""


class Scrapes:
    """One process's, on its event loop's thread."""

    def __init__(self, meter: Meter, broker: Broker, looks: Disk) -> None:
        self.meter = meter
        self._broker = broker
        self._disk = looks
        self._looking: asyncio.Task[Looked] | None = None
        self._counting: asyncio.Task[Counted] | None = None
        self._counted: Counted | None = None
        """As was last found."""
        self.connections: Connections = lambda: (0, 0)
        """Who serves says how many there are."""

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The page for an Accept header, and its media type."""
        looked, counted = await asyncio.gather(self._look(), self._count())
        self.keep()
        families: list[Metric] = [*told.families_of(self.meter), *disk.families_of(looked, counted)]
        return page_of(families, accept)

    def keep(self) -> None:
        """Writes down, for whichever process answers, what this one counted elsewhere and holds."""
        self.meter.keep(figures_of(self._broker, *self.connections()))

    async def keep_on(self) -> None:
        """Does so again and again, until cancelled."""
        while True:
            self.keep()
            await asyncio.sleep(KEPT_EVERY_S)

    async def _look(self) -> Looked | None:
        """What the disk says; None: it does not answer."""
        self._looking = _asking(self._looking, self._disk.look)
        return await _found(self._looking)

    async def _count(self) -> Counted | None:
        """What is known of queues: a count of large ones goes on behind."""
        self._counting = _asking(self._counting, self._disk.count)
        self._counted = await _found(self._counting) or self._counted
        return self._counted


def _asking(
    asking: "asyncio.Task[T] | None", ask: Callable[[], Coroutine[Any, Any, T]]
) -> "asyncio.Task[T]":
    """What asks. One at a time: where the disk hangs, another would too."""
    if asking is None or asking.done():
        asking = asyncio.create_task(ask())
        asking.add_done_callback(_hear)
    return asking


async def _found(asking: "asyncio.Task[T]") -> T | None:
    """What was found, after DISK_S at most; None: nothing, or not yet."""
    await asyncio.wait((asking,), timeout=DISK_S)
    if not asking.done() or asking.cancelled() or asking.exception() is not None:
        return None
    return asking.result()


def _hear(asked: "asyncio.Task[Any]") -> None:
    """Nobody may have waited for its end."""
    error = None if asked.cancelled() else asked.exception()
    if error is not None:
        _log.warning("a scrape lacks what the disk says", extra={"fields": {"error": repr(error)}})


def figures_of(broker: Broker, connections: int, websockets: int) -> Mapping[Key, float]:
    """What a broker counted and holds, by the names of the plan."""
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
        found["mq_memory_evicted", name] = figures.evicted
        found["mq_memory_held_bytes", name] = figures.bytes
        found["mq_memory_in_hand_bytes", name] = figures.in_hand_bytes
        found["mq_memory_bodies", name] = figures.bodies
    return found
