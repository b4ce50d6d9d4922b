"""Consumers: subscriptions and long polls of the queues of one process, and plain fetches."""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from mq.broker.active import Seat
from mq.broker.queue import Queue
from mq.broker.tailing import Tail
from mq.broker.waiters import Allowance
from mq.broker.waiting import Event, State, Subscription
from mq.model.errors import ConsumerEnded, MqError, QueueExpired, QueueNotFound, TooManyWaiters
from mq.model.limits import LOOK_INTERVAL_S, WAITERS_MAX_DEFAULT
from mq.model.message import Delivery
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.store.core.root import Root

# Messages that are claimed at once, at most.
COHORT_MAX: Final = 32

# A consumer's rate is counted over at least so long.
RATE_WINDOW_S: Final = 10.0

# Deadlines that were taken back and are in the heap still, beyond which it is made anew.
_OVER_MAX: Final = 1000


def _does_nothing() -> None:
    """Stands in for a callback where no caller waits."""


def _ignores(error: MqError | None = None) -> None:
    """Replaces the callbacks of a closed consumer."""


@dataclass(slots=True, order=True)
class Deadline:
    """The end of a wait, in seconds of a steady clock, when `time_is_up` is called. None:
    cancelled.
    """

    end_s: float
    _number: int
    time_is_up: Callable[[], None] | None = field(compare=False)


class Deadlines:
    """The ends of all waits. Use it on the event loop's thread."""

    def __init__(self, steady_s: Callable[[], float]) -> None:
        self._steady_s = steady_s
        self._heap: list[Deadline] = []
        self._numbers = itertools.count()
        self._over = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, end_s: float, time_is_up: Callable[[], None]) -> Deadline:
        deadline = Deadline(end_s, next(self._numbers), time_is_up)
        heapq.heappush(self._heap, deadline)
        if self._heap[0] is deadline:
            self._set_timer()
        return deadline

    def take_back(self, deadline: Deadline) -> None:
        """Cancels a deadline, and drops all references to it."""
        if deadline.time_is_up is None:
            return
        deadline.time_is_up = None
        self._over += 1
        if self._over > max(_OVER_MAX, len(self._heap) // 2):
            self._heap = [each for each in self._heap if each.time_is_up is not None]
            heapq.heapify(self._heap)
            self._over = 0

    def end_all(self) -> None:
        """Ends all waits at once."""
        heap, self._heap, self._over = self._heap, [], 0
        self._set_timer()
        for deadline in heap:
            self._end(deadline)

    def _end(self, deadline: Deadline) -> None:
        time_is_up, deadline.time_is_up = deadline.time_is_up, None
        if time_is_up is not None:
            time_is_up()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            # The clock may go on otherwise than the loop's.
            left_s = min(max(0.0, self._heap[0].end_s - self._steady_s()), LOOK_INTERVAL_S)
            self._timer = asyncio.get_running_loop().call_later(left_s, self._rings)

    def _rings(self) -> None:
        self._timer = None
        now_s = self._steady_s()
        while self._heap and (self._heap[0].time_is_up is None or self._heap[0].end_s <= now_s):
            deadline = heapq.heappop(self._heap)
            self._over -= deadline.time_is_up is None
            self._end(deadline)
        self._set_timer()


@dataclass(frozen=True, slots=True)
class Seen:
    """A consumer as the API shows it: `websocket` or `poll`, its address and caller (None:
    unknown), and the messages of one queue that it has.
    """

    via: str
    address: str
    caller: str | None
    in_flight: int = 0


class Origin(Protocol):
    def seen(self, queue: str) -> Seen:
        """The consumer of this queue as the API shows it."""
        ...

    async def released(self) -> None:
        """Waits, for a moment at most, until the messages of an ended consumer are released."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What a consumer takes: at most `credit` messages, of a `selection` if it has one, with a
    visibility timeout of `visibility_s` seconds (None: the message's or the queue's). Consumers of
    a higher `priority` get messages first. `name` identifies a consumer in a queue with an active
    consumer: polls of one name are one consumer. With "", those of one connection are.
    """

    credit: int = 1
    priority: int = 0
    visibility_s: float | None = None
    selection: Selection | None = None
    origin: Origin | None = None
    name: str = ""
    packs: bool = False
    """Whether it takes packs whole. The last one may exceed its credit."""


ANY_MESSAGE: Final = Terms()


class Consumer(Subscription):
    """One subscription to a queue. Use it on the event loop's thread.

    mq calls `on_notified` when a message may be there for it. It then calls `pull`, and pulls again
    as long as `is_notified` is true when its messages have come. Each message uses one of its
    credit.

    mq calls `on_error` with QueueNotFound or QueueExpired when the queue has ended, and with
    ConsumerEnded when a request ended the consumer: the consumer is closed then. It also passes on
    errors that may go away, after which the consumer stays. Neither callback is called after
    `close`.
    """

    __slots__ = (
        "_allowance", "_before_window", "_began_s", "_credit", "_failed_to", "_in_flight",
        "_is_closed", "_is_paused", "_news", "_on_error", "_on_notified", "_rate", "_visibility_s",
        "_window_s", "delivered", "on_closed", "queue", "seat", "serial", "since_ms", "terms",
    )  # fmt: skip

    def __init__(
        self,
        queue: Queue,
        terms: Terms,
        on_notified: Callable[[], None],
        on_error: Callable[[MqError], None],
    ) -> None:
        super().__init__(terms.priority, terms.selection)
        self.queue = queue
        self._credit = terms.credit
        self._visibility_s = terms.visibility_s
        self._allowance = Allowance(terms.credit) if terms.packs else None
        self._on_notified = on_notified
        self._on_error = on_error
        self._in_flight: set[asyncio.Future[Delivery | None]] = set()
        self._news = 0
        self._failed_to = False
        """Whether anything it asked for did not come."""
        self._is_paused = False
        self._is_closed = False
        self.on_closed: Callable[[], None] = _does_nothing
        """Called once, when it has ended."""
        self.terms = terms
        self.seat: Seat | None = None
        """Where one consumer gets the queue's messages alone."""
        self.serial = 0
        """Its number among all of the process."""
        self.delivered = 0
        """How many messages it got."""
        self.since_ms = queue.root.now_ms()
        """When it came, in milliseconds since the epoch."""
        self._began_s = self._window_s = queue.root.clock.steady_s()
        self._before_window = 0
        self._rate = 0.0

    @property
    def credit(self) -> int:
        """How many more messages it takes, without those that it is waiting for; negative after a
        pack that exceeded it.
        """
        return self._credit

    @property
    def is_notified(self) -> bool:
        """Whether it has been notified and should pull."""
        return self.state is State.NOTIFIED

    @property
    def is_closed(self) -> bool:
        """Whether the consumer or its queue has ended."""
        return self._is_closed

    @property
    def is_active(self) -> bool:
        active = self.queue.active
        return active is None or (self.seat is not None and active.has_turn(self.seat))

    @property
    def in_flight(self) -> int:
        """How many messages it is waiting for."""
        return len(self._in_flight)

    def rate(self, now_s: float) -> float:
        """Messages a second, over the last RATE_WINDOW_S or since it began."""
        self._count(now_s)
        if self._window_s > self._began_s:
            return self._rate
        return self.delivered / max(now_s - self._began_s, 1.0)

    def _count(self, now_s: float) -> None:
        if now_s - self._window_s >= RATE_WINDOW_S:
            self._rate = (self.delivered - self._before_window) / (now_s - self._window_s)
            self._window_s, self._before_window = now_s, self.delivered

    def begin(self) -> None:
        """Starts to consume. Raises QueueNotFound where the queue is gone."""
        self.queue.join(self)
        if self.queue.active is None:
            self._want()
        else:
            self.sit()

    def sit(self) -> None:
        """Waits to become the active consumer, as the queue has one from here on."""
        if (active := self.queue.active) is None:
            return
        self._rests()
        self.seat = Seat(self._name(), self.priority, self._has_turn, self._rests, self._is_refused)
        active.join(self.seat)

    def grant(self, count: int) -> None:
        """Adds `count` messages to its credit."""
        self._credit += count
        if self._allowance is not None:
            self._allowance.left += count
        self._want()

    def pause(self) -> None:
        """Takes no further messages until `resume`. Messages that it has asked for still come."""
        self._is_paused = True
        self._rests()

    def resume(self) -> None:
        self._is_paused = False
        self._want()

    def pull(self, count: int = COHORT_MAX) -> "list[asyncio.Future[Delivery | None]]":
        """Asks for at most `count` messages, within its credit and its share of the candidates, or
        for one if no candidate is known. Returns a future for each: a delivery, None where none was
        ready, or an error of a fetch. Do not cancel them.

        When the last future's callbacks run, `is_notified` says whether to pull again.
        """
        queue = self.queue
        count = min(count, self._credit, queue.subscriptions.share(self))
        if self._allowance is not None:
            count = min(count, self._allowance.left)  # Packs may be on their way.
        if count < 1 or self._is_closed or not self.is_active:
            return []
        self._credit -= count
        if not self._in_flight:
            self._news, self._failed_to = queue.subscriptions.news(self), False
        claimer = queue.claimer(self.selection)
        futures = [
            claimer.begin(self._visibility_s, self.priority, self._allowance) for _ in range(count)
        ]
        self._in_flight.update(futures)
        queue.subscriptions.pulls(self)
        for future in futures:
            future.add_done_callback(self._came)
        queue.used()
        if self._credit <= 0:
            queue.notify(queue.subscriptions.stops(self, Event.OUT_OF_CREDIT))
        return futures

    def close(self) -> None:
        """Ends the consumer, and cancels its pending futures: their messages go to other consumers.
        The owner still has the messages of futures that are done, and must release them.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for future in self._in_flight:
            future.cancel()
        self._in_flight.clear()
        self.queue.leave(self)
        if self.seat is not None and self.queue.active is not None:
            self.queue.active.leave(self.seat)
        self.on_closed()
        # They are mostly bound methods: a cycle would wait for the garbage collector.
        self._on_notified = self._on_error = _ignores

    def was_notified(self) -> None:
        """Called by the queue: it is this consumer's turn."""
        if self.state is State.NOTIFIED and not self._is_closed:
            self._on_notified()

    def failed(self, error: MqError) -> None:
        """Called by the queue: a scan or a claim failed, or the queue has ended."""
        if self._is_closed:
            return
        on_error = self._on_error
        if isinstance(error, QueueNotFound | QueueExpired | ConsumerEnded):
            if self.seat is not None:
                self.seat.name = ""  # So that another becomes the active one at once.
            self.close()
        on_error(error)

    def _want(self) -> None:
        if self._credit > 0 and not self._is_paused and not self._is_closed and self.is_active:
            self.queue.wants(self)

    def _name(self) -> str:
        """Its name among those that may be the active consumer."""
        return ""

    def _has_turn(self) -> None:
        self._want()

    def _rests(self) -> None:
        if self.state is not State.NOT_INTERESTED:
            self.queue.notify(self.queue.subscriptions.stops(self, Event.PAUSED))

    def _is_refused(self) -> None: ...

    def _came(self, future: "asyncio.Future[Delivery | None]") -> None:
        if self._is_closed:
            return
        is_over = future.cancelled() or future.exception() is not None
        delivery = None if is_over else future.result()
        if delivery is None:
            self._credit += 1
            self._failed_to = self._failed_to or not self._is_covered
        else:
            messages = 1 if self._allowance is None else delivery.id.items or 1
            self._credit -= messages - 1
            self.delivered += messages
        self._in_flight.discard(future)
        if self._in_flight:
            return
        self._count(self.queue.root.clock.steady_s())
        subscriptions = self.queue.subscriptions
        if self._failed_to or not self.queue.work(self.selection):
            self.queue.notify(subscriptions.found_nothing(self, self._news))
        else:
            self.queue.notify(subscriptions.found(self))
        if self._credit <= 0 and self._allowance is not None:
            self.queue.notify(subscriptions.stops(self, Event.OUT_OF_CREDIT))
        self._want()

    @property
    def _is_covered(self) -> bool:
        """Whether what it asked for is covered by packs: then some of its requests get nothing."""
        return self._allowance is not None and self._allowance.left <= 0


class Poll(Consumer):
    """One long poll. `future` answers it: a delivery, None after the wait, or an error of a fetch.
    It has no task, and its first look is its own.
    """

    __slots__ = ("_deadline", "_deadlines", "_drains", "_end_s", "_is_late", "future")

    def __init__(
        self,
        queue: Queue,
        deadlines: Deadlines,
        end_s: float,
        drains: Callable[[], bool],
        terms: Terms,
    ) -> None:
        super().__init__(queue, terms, self._ask, self._fail)
        self._deadlines = deadlines
        self._drains = drains
        self._end_s = end_s
        self._is_late = end_s <= queue.root.clock.steady_s()
        """Whether it waits no more; one that never does only asks."""
        self._deadline: Deadline | None = None
        self.future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """Asks at once, and waits when no message is ready."""
        self.queue.join(self)
        if self.queue.active is None:
            self._ask()
        else:
            self.sit()

    def sit(self) -> None:
        if self._deadline is None and not self._is_late:
            self._deadline = self._deadlines.add(self._end_s, self._time_is_up)
        super().sit()

    def begin_after(self, refreshing: "asyncio.Task[None]") -> None:
        """Begins once the queue's settings have been read again."""
        if self.is_closed:
            return
        try:
            refreshing.result()
            self.begin()
        except MqError as error:
            self._fail(error)
        except asyncio.CancelledError:
            self._answer(None)

    def abandon(self) -> None:
        """The client is gone: releases the message that was claimed for it, now or later."""
        self._end()
        self.queue.abandon(self.future)

    def _name(self) -> str:
        origin = self.terms.origin
        if self.terms.name or origin is None:
            return self.terms.name
        return origin.seen(self.queue.name.text).address

    def _has_turn(self) -> None:
        self._ask()

    def _is_refused(self) -> None:
        is_over = self._is_late or self._drains()
        if is_over and not self.in_flight and not self.is_closed:
            self._answer(None)

    def _ask(self) -> None:
        for asked in self.pull(1):
            asked.add_done_callback(self._came_to_poll)

    def _came_to_poll(self, asked: "asyncio.Future[Delivery | None]") -> None:
        if asked.cancelled():
            return
        error = asked.exception()
        delivery = asked.result() if error is None else None
        if self.is_closed:
            if delivery is not None:
                self.queue.release(delivery)
        elif error is not None:
            self._end()
            self.future.set_exception(error)
        elif delivery is not None or self._is_late or self._drains():
            self._answer(delivery)
        elif self._deadline is None:
            self._deadline = self._deadlines.add(self._end_s, self._time_is_up)

    def _time_is_up(self) -> None:
        """Ends the wait. A claim in progress is still answered."""
        self._is_late = True
        if not self.in_flight:
            self._answer(None)

    def _fail(self, error: MqError) -> None:
        self._end()
        if not self.future.done():
            self.future.set_exception(error)

    def _answer(self, delivery: Delivery | None) -> None:
        self._end()
        self.future.set_result(delivery)

    def _end(self) -> None:
        self.close()
        if self._deadline is not None:
            self._deadlines.take_back(self._deadline)


class Queues(Protocol):
    """Where consumers find their queues."""

    root: Root

    async def queue(self, name: QueueName) -> Queue:
        """The queue, with settings half a second old at most. Raises QueueNotFound."""
        ...

    def refreshing(self, queue: Queue) -> "asyncio.Task[None] | None":
        """The pending read of the settings, where one is due. Do not cancel it."""
        ...

    def watch(self, queue: Queue) -> None:
        """Reports the messages that other processes publish to the queue from here on."""
        ...


class Consuming:
    """The consumers of all queues of one broker, and plain fetches."""

    def __init__(self, queues: Queues, waiters_max: int = WAITERS_MAX_DEFAULT) -> None:
        self.waiters = 0
        """How many consumers there are, by long polls and subscriptions."""
        self._waiters_max = waiters_max
        self._queues = queues
        self._steady_s = queues.root.clock.steady_s
        self._deadlines = Deadlines(self._steady_s)
        self._serials = itertools.count(1)
        self._drains = False

    @property
    def is_full(self) -> bool:
        """Whether WAITERS_MAX consumers are connected already."""
        return self.waiters >= self._waiters_max

    async def subscribe(
        self,
        name: QueueName,
        terms: Terms,
        on_notified: Callable[[], None],
        on_error: Callable[[MqError], None],
    ) -> Consumer:
        """Adds a consumer to the queue (see Consumer). Raises QueueNotFound, QueueExpired,
        TooManyWaiters, Unavailable.

        `on_notified` may be called before this returns. Register the consumer before you await, or
        ask `is_notified` of the result.
        """
        queue = await self._queues.queue(name)
        queue.check_life()
        consumer = Consumer(queue, terms, on_notified, on_error)
        self._begin(consumer, consumer.begin)
        self._queues.watch(queue)  # So that a consumer without credit learns of the queue's end.
        return consumer

    async def follow(self, name: QueueName, tail: Tail, there: Iterable[MessageId]) -> Queue:
        """Follows the queue until `unfollow`. `there`: its newest messages so far. Raises
        QueueNotFound, QueueExpired, TooManyWaiters, Unavailable.
        """
        queue = await self._queues.queue(name)
        queue.check_life()
        if self.is_full:
            raise TooManyWaiters(self._waiters_max)
        queue.follow(tail, there)
        self.waiters += 1
        return queue

    def unfollow(self, queue: Queue, tail: Tail) -> None:
        queue.tails.discard(tail)
        self.waiters -= 1

    async def fetch(
        self,
        name: QueueName,
        terms: Terms = ANY_MESSAGE,
        wait_s: float = 0,
    ) -> Delivery | None:
        """Claims the queue's next message; waits for it up to `wait_s` seconds. None when no
        message is ready by then. Raises TooManyWaiters and Unavailable; QueueNotFound and
        QueueExpired also while it waits. When the caller is cancelled, a claimed message is
        released. Durable on return: yes.
        """
        queue = await self._queues.queue(name)
        if wait_s <= 0 and queue.active is None:
            allowance = Allowance(1) if terms.packs else None
            of = (terms.visibility_s, terms.selection, terms.priority, allowance)
            future = queue.begin_fetch(*of)
            abandon: Callable[[], None] = lambda: queue.abandon(future)  # noqa: E731
        else:
            poll = self.begin_poll(queue, wait_s, terms)
            future, abandon = poll.future, poll.abandon
        try:
            return await future
        except asyncio.CancelledError:
            abandon()
            raise

    def begin_poll(self, queue: Queue, wait_s: float, terms: Terms = ANY_MESSAGE) -> Poll:
        """Like `fetch` with a wait, but with settings that may be old, and without a task. A caller
        that goes before the answer calls `abandon`. Raises TooManySelections, TooManyWaiters;
        QueueNotFound where the queue is known to be gone.
        """
        end_s = self._steady_s() + wait_s
        poll = Poll(queue, self._deadlines, end_s, lambda: self._drains, terms)
        if (refreshing := self._queues.refreshing(queue)) is not None:
            self._begin(poll, lambda: refreshing.add_done_callback(poll.begin_after))
        else:
            self._begin(poll, poll.begin)
        return poll

    def _begin(self, consumer: Consumer, begin: Callable[[], None]) -> None:
        """Counts the consumer until its end, if it can begin."""
        if self.is_full:
            raise TooManyWaiters(self._waiters_max)
        consumer.serial = next(self._serials)
        begin()
        if not consumer.is_closed:
            self.waiters += 1
            consumer.on_closed = self._has_left

    def _has_left(self) -> None:
        self.waiters -= 1

    def stop_waiting(self) -> None:
        """Answers all waits with None; later ones do not wait."""
        self._drains = True
        self._deadlines.end_all()
