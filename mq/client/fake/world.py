"""All that a fake holds, and what time does there.

Everything below decides in this thread and waits for nothing; whoever uses it holds `lock`. What is
due happens before each request and after it, at `now_ms` of its own; what requests do, at the time
of the clock.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator

from mq.client.fake.clock import FakeClock
from mq.client.fake.limits import MESSAGES_MAX, REMOVED_MAX, TIMERS_RUNG_MAX
from mq.client.fake.message import Message
from mq.client.fake.queue import Queue
from mq.client.fake.timers import Timers
from mq.model.errors import NoMemory, QueueExpired, QueueNotFound
from mq.model.expiry import has_expired, lifetime_ms
from mq.model.history import Event, Line, parse_line
from mq.model.lifecycle import State
from mq.model.message import Delivery, Stamp
from mq.model.names import QueueName, UuidSource
from mq.model.settings import QueueSettings
from mq.model.upkeep_limits import MESSAGE_EXPIRY_EVERY_S

_PROCESS = "fake"


class World:
    """The queues, and the time as of which something happens to them."""

    def __init__(self, clock: FakeClock, defaults: QueueSettings) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        self.defaults = defaults
        self.queues: dict[str, Queue] = {}
        self.timers = Timers()
        self.uuids = UuidSource(self)
        self.known: dict[str, dict[str, object]] = {}
        """The queues and their settings as of the last refresh."""
        self._as_of_ms = clock.now_ms()
        self._removed: deque[Message] = deque()
        self._living = 0
        self._became_ready: set[str] = set()
        self._redeliver: Callable[[Message], None] = _nothing
        self._expire: Callable[[Message], None] = _nothing

    def on_due(
        self, redeliver: Callable[[Message], None], expire: Callable[[Message], None]
    ) -> None:
        """Who decides about a delayed message that is due, and a ready one that has expired."""
        self._redeliver, self._expire = redeliver, expire

    # Time

    def now_ms(self) -> int:
        """As of when something happens, milliseconds since the epoch."""
        return self._as_of_ms

    def steady_s(self) -> float:
        """The same in seconds."""
        return self._as_of_ms / 1000

    def catch_up(self) -> None:
        """Has all happen that is due, each at its time, and then has those who wait be served.
        Raises ValueError where it is too much: the rest happens the next time.
        """
        now_ms = max(self._as_of_ms, self.clock.now_ms())
        for _ in range(TIMERS_RUNG_MAX):
            if (timer := self.timers.due(now_ms)) is None:
                break
            self._as_of_ms = max(self._as_of_ms, timer.ms)
            timer.act()
        else:
            raise ValueError(f"more than {TIMERS_RUNG_MAX} things are due: advance by less")
        self._as_of_ms = now_ms
        self._serve()

    def next_s(self) -> float | None:
        """For how long nothing happens by itself; None: nothing ever does."""
        next_ms = self.timers.next_ms()
        return None if next_ms is None else self.clock.seconds_to(next_ms)

    # Queues

    def queue(self, name: QueueName) -> Queue:
        """Raises QueueNotFound."""
        found = self.queues.get(name.text)
        if found is None:
            raise QueueNotFound(name.text)
        return found

    def forget(self, queue: Queue) -> None:
        """A queue is gone, with all its messages."""
        del self.queues[queue.name.text]
        queue.is_gone = True
        self._living -= sum(1 for _ in queue.alive())
        queue.takers.fail_all(QueueNotFound(queue.name.text))

    # Messages

    def admit(self) -> None:
        """Whether there is room for another message. Raises NoMemory."""
        if self._living >= MESSAGES_MAX:
            raise NoMemory

    def arrive(self, queue: Queue, message: Message) -> None:
        """A new message comes to a queue."""
        self._living += 1
        self.settle(queue, message)

    def settle(self, queue: Queue, message: Message) -> None:
        """A message comes to a queue, in the state that it says."""
        queue.add(message)
        self._look_ahead(queue, message)

    def move(self, queue: Queue, message: Message, state: State, stamp: Stamp) -> None:
        """A message goes from one state to another, or is stamped anew in the one that it has."""
        queue.move(message, state)
        message.stamp = stamp
        if state is State.REMOVED:
            self._bury(message)
        else:
            self._look_ahead(queue, message)

    def _look_ahead(self, queue: Queue, message: Message) -> None:
        """What time will do to it."""
        if message.state is State.READY:
            self._became_ready.add(queue.name.text)
            self.watch_age(queue, message)
        else:
            due_ms = message.stamp.due_ms
            self.timers.set(
                due_ms,
                lambda: queue.has(message, State.DELAYED) and message.stamp.due_ms == due_ms,
                lambda: self._redeliver(message),
            )

    def watch_age(self, queue: Queue, message: Message) -> None:
        """A ready message is to be looked at when it has lived as long as it may."""
        ttl_s = queue.settings.message_ttl_s
        if ttl_s > 0 and message.state is State.READY:
            ends_ms = message.id.published_ms + lifetime_ms(ttl_s)
            if ends_ms < self.now_ms():
                # What came here, or was given less time, too late goes at the next turn of who
                # looks for it.
                ends_ms = self.now_ms() + round(MESSAGE_EXPIRY_EVERY_S * 1000)
            self.timers.set(
                ends_ms,
                lambda: queue.has(message, State.READY),
                lambda: self._expire(message),
            )

    def _bury(self, message: Message) -> None:
        self._living -= 1
        self._removed.append(message)
        if len(self._removed) > REMOVED_MAX:
            reaped = self._removed.popleft()
            if (queue := self.queues.get(reaped.queue.text)) is not None:
                queue.take_out(reaped)

    def claim(self, queue: Queue, message: Message, asked_s: float | None) -> Delivery:
        """A ready message becomes its fetcher's, for so long; None: as it or its queue says."""
        shown_s = asked_s or message.id.visibility_s or queue.settings.visibility_s
        stamp = message.stamp.received(self.now_ms() + round(shown_s * 1000))
        self.move(queue, message, State.DELAYED, stamp)
        queue.totals.fetched += 1
        queue.totals.redelivered += stamp.receives > 1
        self.record(queue, message, Event.FETCHED, stamp.due_ms)
        return message.delivery()

    def serve(self, queue: Queue) -> None:
        """Those who wait for messages of the queue get what is ready now."""
        if queue.settings.expires_at is not None:
            try:
                queue.check_life(self.now_ms())
            except QueueExpired as error:
                queue.takers.fail_all(error)
                return
        for message in self.served(queue) if queue.takers.is_anybody_hungry else ():
            taker = queue.takers.next_for(message)
            if taker is not None:
                taker.take(self.claim(queue, message, taker.visibility_s))

    def served(self, queue: Queue) -> Iterator[Message]:
        """The ready messages that may be given out, in the order of delivery."""
        ttl_s, now_ms = queue.settings.message_ttl_s, self.now_ms()
        return (
            each for each in queue.ready if not has_expired(each.id.published_ms, ttl_s, now_ms)
        )

    def _serve(self) -> None:
        names, self._became_ready = self._became_ready, set()
        for name in sorted(names):
            if (queue := self.queues.get(name)) is not None:
                self.serve(queue)

    def record(
        self,
        queue: Queue,
        message: Message,
        event: Event,
        due_ms: int | None = None,
        reason: str = "",
    ) -> None:
        """What became of a message, where the queue's history is kept."""
        if not queue.settings.history:
            return
        text = message.id.text
        line = Line(self.now_ms(), event, text, message.stamp.receives, due_ms, reason=reason)
        said = parse_line(line.written(_PROCESS), text)
        if said is not None:
            queue.pasts.add(text, said)


def _nothing(message: Message) -> None:
    """Nobody decides."""
