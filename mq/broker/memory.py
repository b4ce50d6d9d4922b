"""The memory budget of a process: the bodies in flight, and the cached bodies for the next fetches.

Thread-safe, and never waits: a body that finds no room is not kept, and is streamed in small parts.
"""

import heapq
import threading
from collections import OrderedDict, deque
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from operator import attrgetter
from typing import Final

from mq.model.limits import KIB, MIB
from mq.model.message import Held

# Bytes that bodies in flight may use whatever the budget. Small bodies have a share of their own.
MEMORY_IN_HAND_BYTES_MIN: Final = 16 * MIB
MEMORY_SMALL_BYTES_MAX: Final = 16 * KIB
MEMORY_SMALL_SHARE: Final = 0.25
# The cost of a body beside its bytes.
BODY_OVERHEAD_BYTES: Final = 512
MEMORY_QUEUES_SHOWN_MAX: Final = 100


class Holder(Enum):
    PUBLISHING = auto()
    """It is on its way to the disk."""
    KEPT = auto()
    """This process published it, and a fetch may take it next."""
    DELIVERING = auto()
    """It is on its way to a consumer."""


class Tally:
    """The bytes and the number of a holder's bodies."""

    __slots__ = ("bodies", "bytes", "holder")

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.bytes = self.bodies = 0


class Reservation:
    """The bytes of one body. They count until the last reference to this object is gone, however
    the request ends: an answer, a time-out, a client that hangs up, a cancelled consumer.
    """

    __slots__ = ("_freed", "cost", "tally")

    def __init__(self, tally: Tally, cost: int, freed: "deque[tuple[Tally, int]]") -> None:
        self.tally = tally
        self.cost = cost
        self._freed = freed

    def __del__(self) -> None:
        # In any thread, and perhaps while that thread has the memory's lock.
        self._freed.append((self.tally, self.cost))


class QueueBodies:
    """The bodies of one queue that are in memory. Those that are `publishing` are for the event
    loop's thread alone.
    """

    __slots__ = ("bytes", "kept", "name", "publishing")

    def __init__(self, name: str) -> None:
        self.name = name
        self.kept: dict[str, tuple[Held, Reservation]] = {}
        """By id, the first published first."""
        self.bytes = 0
        """The cost of the cached bodies."""
        self.publishing: dict[str, Held] = {}
        """Bodies for waiting consumers, during the publish: inotify reports its rename before that
        is flushed, so a claim may come before the publish has ended.
        """


@dataclass(frozen=True, slots=True)
class HolderFigures:
    bytes: int
    bodies: int


@dataclass(frozen=True, slots=True)
class QueueFigures:
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The contents of the cache. So far `hits` claims found their body and `misses` did not,
    `evicted` bodies made room for others, and `refused` ones found no room.
    """

    budget_bytes: int
    held_bytes: int
    holders: Mapping[Holder, HolderFigures]
    hits: int
    misses: int
    evicted: int
    refused: int
    queues: int
    largest: list[QueueFigures]


class Memory:
    """The memory budget for bodies, and the bodies in it.

    Bodies in flight come first: cached bodies give way to them. In-flight bodies may use
    MEMORY_IN_HAND_BYTES_MIN whatever the budget, and a share of their limit is for small bodies. Of
    cached bodies, the queue whose last claim is the oldest gives way first, and within a queue the
    body that was published last, since its turn is the furthest away.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._in_flight_max = max(budget_bytes, MEMORY_IN_HAND_BYTES_MIN)
        self._large_max = round(self._in_flight_max * (1 - MEMORY_SMALL_SHARE))
        self._sure_max = min(budget_bytes, self._large_max)
        """Up to this, held bytes leave room for any body."""
        self._lock = threading.Lock()
        self._freed: deque[tuple[Tally, int]] = deque()
        self._tallies = {each: Tally(each) for each in Holder}
        self._publishing = self._tallies[Holder.PUBLISHING]
        self._kept = self._tallies[Holder.KEPT]
        self._delivering = self._tallies[Holder.DELIVERING]
        self._held = 0
        self._queues: OrderedDict[QueueBodies, None] = OrderedDict()
        """Those of which something is kept, the one with the oldest last claim first."""
        self._hits = self._misses = self._evicted = self._refused = 0

    # Bodies in flight

    def hold(self, size: int) -> Reservation | None:
        """Counts a body of `size` bytes that is about to be read for a consumer. None: there is no
        room, and the body must be streamed.
        """
        return self._reserve(self._delivering, size + BODY_OVERHEAD_BYTES)

    def receive(self, size: int = 0) -> Reservation | None:
        """Counts `size` bytes of a publish. None: there is no room."""
        return self._reserve(self._publishing, size + BODY_OVERHEAD_BYTES)

    def grow(self, reservation: Reservation, size: int) -> bool:
        """Counts `size` more bytes of a publish. False: there is no room, and nothing
        was counted.
        """
        with self._lock:
            if not self._has_room(reservation.cost + size, size):
                return False
            reservation.cost += size
            reservation.tally.bytes += size
            self._held += size
            return True

    def _reserve(self, tally: Tally, cost: int) -> Reservation | None:
        with self._lock:
            is_sure = self._held + cost <= self._sure_max and not self._freed
            if not is_sure and not self._has_room(cost, cost):
                return None
            tally.bytes += cost
            tally.bodies += 1
            self._held += cost
            return Reservation(tally, cost, self._freed)

    def _has_room(self, size: int, more: int) -> bool:
        """Makes room for `more` bytes of a body that then costs `size`."""
        if self._freed:
            self._collect()
        is_small = size <= MEMORY_SMALL_BYTES_MAX + BODY_OVERHEAD_BYTES
        in_flight = self._held - self._kept.bytes + more
        if in_flight > (self._in_flight_max if is_small else self._large_max):
            self._refused += 1
            return False
        if self._held + more > self.budget_bytes:
            self._evict(self._held + more - self.budget_bytes)
        return True

    def _collect(self) -> None:
        """Subtracts the bodies that were dropped."""
        freed = self._freed
        while freed:
            tally, cost = freed.popleft()
            tally.bytes -= cost
            tally.bodies -= 1
            self._held -= cost

    # Cached bodies

    def keep(self, bodies: QueueBodies, name: str, held: Held, reservation: Reservation) -> None:
        """Caches a published body, which is counted already, if there is room."""
        with self._lock:
            if self._freed:
                self._collect()
            lacking = self._held - self.budget_bytes
            if lacking > 0 and not self._evict(lacking, bodies):
                return
            _move(reservation, self._kept)
            bodies.kept[name] = held, reservation
            bodies.bytes += reservation.cost
            self._queues[bodies] = None

    def take(self, bodies: QueueBodies, name: str) -> Held | None:
        """The cached body of a message that is about to be claimed, which counts as in flight from
        here on; None if it is not cached.
        """
        held = bodies.publishing.get(name)
        if held is None and bodies.kept:
            with self._lock:
                if bodies in self._queues:
                    self._queues.move_to_end(bodies)
                held = self._remove(bodies, name)
        if held is None:
            self._misses += 1
        else:
            self._hits += 1
        return held

    def retain(self, bodies: QueueBodies, wanted: Container[str] = ()) -> None:
        """Drops the queue's cached bodies, except the `wanted` ones."""
        with self._lock:
            for name in [each for each in bodies.kept if each not in wanted]:
                self._remove(bodies, name)

    def _remove(self, bodies: QueueBodies, name: str) -> Held | None:
        """Drops a body from the cache. It counts as in flight while there are references to it."""
        kept = bodies.kept.pop(name, None)
        if kept is None:
            return None
        held, reservation = kept
        bodies.bytes -= reservation.cost
        _move(reservation, self._delivering)
        if not bodies.kept:
            del self._queues[bodies]
        return held

    def _evict(self, lacking: int, before: QueueBodies | None = None) -> bool:
        """Drops cached bodies until `lacking` bytes are free, but none of the queue `before` and
        those behind it. Whether that succeeded.
        """
        while lacking > 0 and self._queues:
            bodies = next(iter(self._queues))
            if bodies is before:
                break
            name = next(reversed(bodies.kept))
            lacking -= bodies.kept[name][1].cost
            self._remove(bodies, name)
            self._evicted += 1
        self._collect()
        return lacking <= 0

    def figures(self) -> Figures:
        with self._lock:
            self._collect()
            holders = {
                each: HolderFigures(of.bytes, of.bodies) for each, of in self._tallies.items()
            }
            rows = [QueueFigures(each.name, each.bytes) for each in self._queues]
            return Figures(
                self.budget_bytes,
                self._held,
                holders,
                self._hits,
                self._misses,
                self._evicted,
                self._refused,
                len(self._queues),
                heapq.nlargest(MEMORY_QUEUES_SHOWN_MAX, rows, key=attrgetter("bytes")),
            )


def _move(reservation: Reservation, to: Tally) -> None:
    of, cost = reservation.tally, reservation.cost
    reservation.tally = to
    of.bytes -= cost
    of.bodies -= 1
    to.bytes += cost
    to.bodies += 1
