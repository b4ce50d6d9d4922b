"""A queue of which a model says what is known and who gets it, for real consumers: no folders."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from harness.api import STILL_MS, id_at
from harness.clock import FakeClock
from mq.broker.claims import Claimer
from mq.broker.consumers import Consumer, Terms
from mq.broker.memory import Memory
from mq.broker.permits import Permits
from mq.broker.queue import Queue
from mq.broker.ready import IdBudget, Share
from mq.broker.scanning import ScanLimits
from mq.broker.waiting import Subscription
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.model.settings import QueueSettings


def message(number: int, priority: int = 0) -> MessageId:
    """An id, in the order of the numbers."""
    millis, number = divmod(number, 1000)
    text = id_at(STILL_MS + millis, number)
    return MessageId.parse(text + (f",p={priority}" if priority else ""))


class Ask:
    """One message that somebody asked for."""

    def __init__(self, selection: Selection | None, priority: int) -> None:
        self.selection = selection
        self.priority = priority
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class ModelQueue(Queue):
    """Its messages are `known` in the order of delivery; what is asked for waits in `asks` until
    `serve` gives it. `woken` are the consumers that were told, in that order.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.known: list[MessageId] = []
        self.asks: list[Ask] = []
        self.woken: list[Subscription] = []
        process = SimpleNamespace(
            root=SimpleNamespace(clock=clock, now_ms=clock.now_ms),
            committer=None,
            share=Share(),
            memory=Memory(0),
            ids=IdBudget(),
            scan_limits=ScanLimits(),
            siblings=None,
            permits=Permits(clock.now_ms, clock.steady_s),
            watch=_nothing,
            refreshing=_nothing,
        )
        super().__init__(QueueName.parse("q"), cast(Any, process), QueueSettings())

    def claimer(self, selection: Selection | None = None) -> Claimer:
        ready = SimpleNamespace(holds=lambda name: self.holds(selection, name))
        begin = lambda _, priority=0, allowance=None: self._ask(selection, priority)  # noqa: E731
        return cast(Any, SimpleNamespace(begin=begin, ready=ready))

    def _ask(self, selection: Selection | None, priority: int) -> "asyncio.Future[Any]":
        self.asks.append(Ask(selection, priority))
        return self.asks[-1].future

    def work(self, selection: Selection | None) -> int:
        asked = sum(1 for ask in self.asks if ask.selection == selection)
        return max(0, len(self.of(selection)) - asked)

    def notify(self, notified: Any) -> None:
        woken = list(notified)
        self.woken += woken
        armed = (
            Counter(each.selection for each in self.subscriptions if each.is_armed) if woken else {}
        )
        for selection in {each.selection for each in woken if each.woken_for is None}:
            # Not more than there is: these were told of no message that came.
            assert armed[selection] <= self.work(selection)
        # Nor while one above would take all that they might.
        active = (
            {(each.priority, each.selection) for each in self.subscriptions} if woken else set()
        )
        for priority, selection in {(each.priority, each.selection) for each in woken}:
            assert not any(
                above > priority and other in (None, selection) for above, other in active
            )
        super().notify(woken)

    def holds(self, selection: Selection | None, name: str) -> bool:
        """Whether a message is among those of a selection."""
        return any(each.text == name for each in self.of(selection))

    def of(self, selection: Selection | None) -> list[MessageId]:
        """The messages of a selection."""
        return [each for each in self.known if selection is None or self.is_of(selection, each)]

    def is_of(self, selection: Selection | None, message_id: MessageId) -> bool:
        """Whether a message is of a selection."""
        return selection is None or bool(selection.matches_name(message_id.text))

    def publish(self, *ids: MessageId) -> None:
        """Messages become ready."""
        self.known = sorted({*self.known, *ids}, key=lambda each: (-each.priority, each.text))
        self.notify([woken for each in ids for woken in self.subscriptions.arrived(each.text)])

    def look(self, *ids: MessageId) -> None:
        """Messages are found that others published."""
        self.known = sorted({*self.known, *ids}, key=lambda each: (-each.priority, each.text))
        self.notify(self.subscriptions.more_known())

    def take(self, message_id: MessageId) -> None:
        """Another process took it."""
        self.known.remove(message_id)

    def serve(self, count: int = 1) -> None:
        """Answers so many asks, those of a higher priority first."""
        self.asks = [ask for ask in self.asks if not ask.future.done()]
        self.asks.sort(key=lambda ask: -ask.priority)
        for ask in self.asks[:count]:
            self.asks.remove(ask)
            found = [
                each
                for each in self.of(ask.selection)
                if self.subscriptions.may_take(ask.priority, each.text)
            ]
            if found:
                self.known.remove(found[0])
            ask.future.set_result(found[0] if found else None)
        self.asks_ended()

    def asks_ended(self) -> None:
        """As fetches end: what is known may be others'."""
        self.notify(self.subscriptions.wake())


class Customer(Consumer):
    """A consumer that pulls, or not, when it is told, and keeps what it gets."""

    __slots__ = ("asked", "errors", "got", "is_idle", "is_paused", "pull_size")

    def __init__(self, queue: ModelQueue, credit: int, *more: Any, pull_size: int = 1) -> None:
        super().__init__(queue, Terms(credit, *more), self._go_on, self._hear)
        self.got: list[MessageId] = []
        self.errors: list[Exception] = []
        self.is_idle = False
        """Whether it does nothing when it is told."""
        self.is_paused = False
        self.pull_size = pull_size
        self.asked: set[asyncio.Future[Any]] = set()
        """What it has asked for, and has not come."""

    def pause(self) -> None:
        self.is_paused = True
        super().pause()

    def resume(self) -> None:
        self.is_paused = False
        super().resume()

    def act(self) -> None:
        """Pulls, when it is its turn."""
        if self.is_notified and not self.in_flight:
            for asked in self.pull(self.pull_size):
                self.asked.add(asked)
                asked.add_done_callback(self._take)

    def _go_on(self) -> None:
        if not self.is_idle:
            self.act()

    def _take(self, asked: "asyncio.Future[Any]") -> None:
        self.asked.discard(asked)
        if not asked.cancelled() and asked.result() is not None:
            self.got.append(asked.result())
        if not self.in_flight:
            self._go_on()

    def _hear(self, error: Exception) -> None:
        self.errors.append(error)


def _nothing(queue: Queue) -> None:
    """Nobody hears of it."""
