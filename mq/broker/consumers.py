"""Consumers: subscriptions and long polls of the queues of one process, and plain fetches."""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from mq.broker.active import Seat
from mq.broker.deadlines import Deadline, Deadlines
from mq.broker.queue import BaseConsumer, Queue
from mq.broker.tailing import Tail
from mq.broker.waiting import Waiter
from mq.model.errors import ConsumerEnded, MqError, QueueExpired, QueueNotFound, TooManyWaiters
from mq.model.limits import LOOK_INTERVAL_S, WAITERS_MAX_DEFAULT
from mq.model.message import Delivery
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.store.core.root import Root

# A consumer's rate is counted over at least so long.
RATE_WINDOW_S: Final = 10.0


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


class Taker(Protocol):
    """The owner of a subscription, which gets its messages."""

    def room(self) -> int:
        """How many claims may begin for it now. With 0 the consumer stands in no line until
        `Consumer.go_on`.
        """
        ...

    def begins(self) -> None:
        """A claim begins."""
        ...

    def got(self, delivery: Delivery) -> None:
        """A claim brought a message."""
        ...

    def missed(self) -> None:
        """A claim brought nothing."""
        ...

    def failed(self, error: MqError) -> None:
        """The consumer is closed, with QueueNotFound, QueueExpired, or ConsumerEnded; or another
        error, which may go away, and the consumer stays. Not called after `Consumer.close`.
        """
        ...


class Consumer(BaseConsumer):
    """One subscription to a queue. Use it on the event loop's thread.

    It stands in its queue's line as long as it has credit, is not paused, and its `taker` has room.
    Each message uses one of its credit.
    """

    __slots__ = (
        "_before_window", "_began_s", "_is_closed", "_is_paused", "_rate", "_taker", "_window_s",
        "delivered", "on_closed", "queue", "seat", "serial", "since_ms", "terms",
    )  # fmt: skip

    def __init__(self, queue: Queue, terms: Terms, taker: Taker | None = None) -> None:
        super().__init__(
            terms.credit, terms.priority, terms.visibility_s, terms.selection, terms.packs
        )
        self.queue = queue
        self.terms = terms
        self._taker = taker
        self._is_paused = False
        self._is_closed = False
        self.on_closed: Callable[[], None] | None = None
        """Called once, when it has ended."""
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
    def is_gone(self) -> bool:
        """Whether the consumer or its queue has ended."""
        return self._is_closed

    @property
    def is_active(self) -> bool:
        active = self.queue.active
        return active is None or (self.seat is not None and active.has_turn(self.seat))

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
            self.go_on()
        else:
            self.sit()

    def sit(self) -> None:
        if (active := self.queue.active) is None:
            return
        self._rests()
        self.seat = Seat(self._name(), self.priority, self.go_on, self._rests, self._is_refused)
        active.join(self.seat)

    def grant(self, count: int) -> None:
        """Adds `count` messages to its credit."""
        self.credit += count
        self.go_on()

    def pause(self) -> None:
        """Takes no further messages until `resume`. Messages that are being claimed still come."""
        self._is_paused = True
        self._rests()

    def resume(self) -> None:
        self._is_paused = False
        self.go_on()

    @property
    def wants(self) -> bool:
        may = not self._is_paused and not self._is_closed and self.is_active
        return may and self.credit > 0

    def go_on(self) -> None:
        """Stands in its line, where it may and has credit."""
        if self.wants:
            self.queue.stand(self)

    def close(self) -> None:
        """Ends the consumer. Messages that are being claimed for it are released."""
        if self._is_closed:
            return
        self._is_closed = True
        self.queue.leave(self)
        if self.seat is not None and self.queue.active is not None:
            self.queue.active.leave(self.seat)
        if self.on_closed is not None:
            self.on_closed()
        # Its owner has it: a cycle would wait for the garbage collector.
        self._taker = self.on_closed = None

    # Called by the queue

    def room(self) -> int:
        if not self.is_active:  # Its turn may have lapsed: nothing else looks.
            return 0
        return self.credit if self._taker is None else self._taker.room()

    def begins(self) -> None:
        self.queue.used()
        if self._taker is not None:
            self._taker.begins()

    def got(self, delivery: Delivery) -> None:
        self.delivered += delivery.id.items or 1
        self._count(self.queue.root.clock.steady_s())
        if self._taker is not None:
            self._taker.got(delivery)

    def missed(self) -> None:
        if self._taker is not None:
            self._taker.missed()

    def found_nothing(self) -> None:
        """It waits on."""

    def failed(self, error: BaseException) -> None:
        """The queue has ended, or a scan or claim failed."""
        taker = self._taker
        if isinstance(error, QueueNotFound | QueueExpired | ConsumerEnded):
            if self.seat is not None:
                self.seat.name = ""  # So that another becomes the active one at once.
            self.close()
        else:
            self._rests()
            asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self.go_on)
        if taker is not None and isinstance(error, MqError):
            taker.failed(error)

    def _name(self) -> str:
        """Its name among those that may be the active consumer."""
        return ""

    def _rests(self) -> None:
        self.queue.rests(self)

    def _is_refused(self) -> None: ...


class Fetch(Waiter):
    """One request for the next message. `future` answers it: a delivery, None when none is ready,
    or an error. A caller that stops waiting calls `abandon`.
    """

    __slots__ = ("future", "queue")
    stays = False

    def __init__(
        self,
        queue: Queue,
        priority: int = 0,
        visibility_s: float | None = None,
        selection: Selection | None = None,
        takes_packs: bool = False,
    ) -> None:
        super().__init__(1, priority, visibility_s, selection, takes_packs)
        self.is_fresh = True
        self.queue = queue
        self.future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """Raises TooManySelections."""
        if self.queue.is_gone:
            self.failed(QueueNotFound(self.queue.name.text))
        else:
            self.queue.stand(self)

    @property
    def is_gone(self) -> bool:
        return self.future.done()

    def begins(self) -> None:
        """It has the one claim."""

    def got(self, delivery: Delivery) -> None:
        self.future.set_result(delivery)

    def missed(self) -> None:
        self.is_fresh = True

    def found_nothing(self) -> None:
        self.queue.lines.leave(self)
        self.future.set_result(None)

    def failed(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def abandon(self) -> None:
        """The caller is gone: releases the message that was claimed for it, now or later."""
        self.queue.rests(self)
        release_answer(self.queue, self.future)


def release_answer(queue: Queue, future: "asyncio.Future[Delivery | None]") -> None:
    """Cancels the answer, or releases the message that has come in this turn of the loop."""
    if not future.cancel() and not future.cancelled() and future.exception() is None:
        delivery = future.result()
        if delivery is not None:
            queue.release(delivery)


class Poll(Consumer):
    """One long poll. `future` answers it: a delivery, None after the wait, or an error of a fetch.
    It has no task.
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
        super().__init__(queue, terms)
        self.is_fresh = True
        self._deadlines = deadlines
        self._drains = drains
        self._end_s = end_s
        self._is_late = end_s <= queue.root.clock.steady_s()
        """Whether it waits no more; one that never does only asks."""
        self._deadline: Deadline | None = None
        self.future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()

    @property
    def is_gone(self) -> bool:
        return super().is_gone or self.future.done()

    def sit(self) -> None:
        self._wait()
        super().sit()

    def begin_after(self, refreshing: "asyncio.Task[None]") -> None:
        """Begins once the queue's settings have been read again."""
        if self.is_gone:
            return
        try:
            refreshing.result()
            self.begin()
        except MqError as error:
            self.failed(error)
        except asyncio.CancelledError:
            self._answer(None)

    def abandon(self) -> None:
        """The client is gone: releases the message that was claimed for it, now or later."""
        self.close()
        release_answer(self.queue, self.future)

    def close(self) -> None:
        super().close()
        if self._deadline is not None:
            self._deadlines.take_back(self._deadline)

    def _time_is_up(self) -> None:
        """Ends the wait. A claim in progress is still answered."""
        self._is_late = True
        if not self.in_flight and not self.is_gone:
            self._answer(None)

    def got(self, delivery: Delivery) -> None:
        super().got(delivery)
        self._answer(delivery)

    def missed(self) -> None:
        self.is_fresh = self._is_late
        self._wait()

    def found_nothing(self) -> None:
        if self._is_late or self._drains():
            self._answer(None)
        else:
            self._wait()

    def failed(self, error: BaseException) -> None:
        self.close()
        if not self.future.done():
            self.future.set_exception(error)

    def _wait(self) -> None:
        if self._deadline is None and not self._is_late:
            self._deadline = self._deadlines.add(self._end_s, self._time_is_up)

    def _name(self) -> str:
        origin = self.terms.origin
        if self.terms.name or origin is None:
            return self.terms.name
        return origin.seen(self.queue.name.text).address

    def _is_refused(self) -> None:
        is_over = self._is_late or self._drains()
        if is_over and not self.in_flight and not self.is_gone:
            self._answer(None)

    def _answer(self, delivery: Delivery | None) -> None:
        self.close()
        self.future.set_result(delivery)


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

    async def subscribe(self, name: QueueName, terms: Terms, taker: Taker) -> Consumer:
        """Adds a consumer to the queue. Claims may begin before this returns. Raises QueueNotFound,
        QueueExpired, TooManyWaiters, TooManySelections, Unavailable.
        """
        queue = await self._queues.queue(name)
        queue.check_life()
        consumer = Consumer(queue, terms, taker)
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
        self, name: QueueName, terms: Terms = ANY_MESSAGE, wait_s: float = 0
    ) -> Delivery | None:
        """Claims the queue's next message; waits for it up to `wait_s` seconds. None when no
        message is ready by then. Raises TooManyWaiters and Unavailable; QueueNotFound and
        QueueExpired also while it waits. When the caller is cancelled, a claimed message is
        released. Durable on return: yes.
        """
        queue = await self._queues.queue(name)
        fetch: Fetch | Poll
        if wait_s <= 0 and queue.active is None:
            of = (terms.priority, terms.visibility_s, terms.selection, terms.packs)
            fetch = Fetch(queue, *of)
            fetch.begin()
        else:
            fetch = self.begin_poll(queue, wait_s, terms)
        try:
            return await fetch.future
        except asyncio.CancelledError:
            fetch.abandon()
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
        if not consumer.is_gone:
            self.waiters += 1
            consumer.on_closed = self._has_left

    def _has_left(self) -> None:
        self.waiters -= 1

    def stop_waiting(self) -> None:
        """Answers all waits with None; later ones do not wait."""
        self._drains = True
        self._deadlines.end_all()
