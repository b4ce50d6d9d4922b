"""Fetching, at once or after a wait. Pure: what waits is told when it may have an answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mq.client.fake.asked import Reply
from mq.client.fake.queue import Queue
from mq.client.fake.settling import give_back
from mq.client.fake.world import World
from mq.model.errors import MqError, TooManySelections
from mq.model.limits import BATCH_BYTES_MAX, SELECTIONS_PER_QUEUE_MAX
from mq.model.message import Delivery
from mq.model.selection import Selection


@dataclass(frozen=True, slots=True)
class Terms:
    """What a fetch asks for. `count`: how many messages at most."""

    visibility_s: float | None
    wait_s: float
    selection: Selection | None
    count: int = 1


def fetch(world: World, queue: Queue, terms: Terms) -> list[Delivery]:
    """Claims what is there now, in the order of the queue. Raises QueueExpired,
    TooManySelections.
    """
    queue.check_life(world.now_ms())
    check_selection(queue, terms.selection)
    # Whoever waits goes first: what is left is for who asks.
    world.serve(queue)
    return _claim(world, queue, terms, [])


def check_selection(queue: Queue, selection: Selection | None) -> None:
    """Raises TooManySelections where there is no room for another one."""
    used = queue.takers.selections()
    if selection is None or selection in used or len(used) < SELECTIONS_PER_QUEUE_MAX:
        return
    raise TooManySelections(SELECTIONS_PER_QUEUE_MAX)


def _claim(world: World, queue: Queue, terms: Terms, found: list[Delivery]) -> list[Delivery]:
    size = sum(each.size for each in found)
    for message in world.served(queue):
        if len(found) >= terms.count or size >= BATCH_BYTES_MAX:
            break
        chosen = terms.selection
        if chosen is None or chosen.matches(message.id, message.headers):
            found.append(world.claim(queue, message, terms.visibility_s))
            size += found[-1].size
    return found


class Poll:
    """A fetch that waits: it takes one message, and those that are there with it."""

    priority = 0

    def __init__(
        self,
        world: World,
        queue: Queue,
        terms: Terms,
        answer: Callable[[Sequence[Delivery]], Reply],
    ) -> None:
        self.selection = terms.selection
        self.visibility_s = terms.visibility_s
        self.wait_s = terms.wait_s
        self.end_ms = world.now_ms() + round(terms.wait_s * 1000)
        self._world = world
        self._queue = queue
        self._terms = terms
        self._answer = answer
        self._delivery: Delivery | None = None
        self._error: MqError | None = None
        self._is_open = True
        queue.takers.join(self)

    @property
    def wants(self) -> bool:
        """Whether it takes a message now."""
        return self._is_open and self._delivery is None

    def take(self, delivery: Delivery) -> None:
        """A message was claimed for it."""
        self._delivery = delivery

    def failed(self, error: MqError) -> None:
        """The queue is gone, or has expired."""
        self._error = error

    def reply(self, is_late: bool) -> Reply | None:
        """Its answer, once there is one. Raises QueueNotFound, QueueExpired."""
        if self._delivery is not None:
            self._end()
            found = _claim(self._world, self._queue, self._terms, [self._delivery])
            return self._answer(found)
        if self._error is not None:
            self._end()
            raise self._error
        if is_late:
            self._end()
            return self._answer(())
        return None

    def leave(self) -> None:
        """Whoever asked is gone: what was claimed for it is released."""
        if self._is_open:
            self._end()
            if self._delivery is not None:
                give_back(self._world, self._delivery, unhandled=False)

    def _end(self) -> None:
        self._is_open = False
        self._queue.takers.leave(self)
