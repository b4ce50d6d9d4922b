"""Limits that the processes of one mq share: how many messages of a queue are in flight
(`in_flight_max`), and how many are delivered a second (`deliveries_per_s_max`).

Each message in flight has an entry under a hash of its id: a permit, which combines the due time
with the number of the delivering process. The limit counts entries, not messages, so three rules
hold. A permit is taken before the claim, under the lock under which the limit is checked, so that
racing processes never exceed the limit; a lost claim gives it back. An entry ends by itself at its
due time, as the delivery does: a process that dies leaks no permit. And a process that lost a claim
ends only an entry with its own permit: in a race for one message the last permit stands until the
winner writes its own, which no loser may free.

Another mq of the root may settle a message that this one delivered. So at the limit a process
compares the entries with the disk now and then, and ends those that it misses twice.

The entries lie in memory that all processes write, under a lock that the kernel frees when its
holder dies. A process alone has its own memory.
"""

import contextlib
import hashlib
import itertools
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mq.model.names import QueueName
from mq.model.settings import IN_FLIGHT_MAX, QueueSettings

# Queues with limits whose entries are shared. For further queues each process counts alone.
LIMITED_QUEUES_MAX: Final = 64
# A burst is the deliveries of this many seconds, at least one.
BURST_S: Final = 0.1
# How often, at most, a queue at its limit compares its entries with the disk.
CHECK_EVERY_S: Final = 2.0

# Twice as many places as entries; the hash gives an entry a few possible places.
_ENTRIES: Final = 2 * IN_FLIGHT_MAX
_PLACES: Final = 64
_WORD: Final = 8
_KEY, _COUNT, _EARLIEST, _NEXT_US, _IS_COUNTED, _FIRST = range(6)
_ENTRY: Final = 2
_AREA: Final = _FIRST + _ENTRIES * _ENTRY
_LOCK_TRIES: Final = 100
_TRIES_IN_A_ROW: Final = 10
# A permit is a due time and, in its last bits, the number of a process.
_PROCESS_BITS: Final = 8


def permits_bytes() -> int:
    """The bytes of memory that processes share. The kernel allocates none until a queue
    has limits.
    """
    return (1 + LIMITED_QUEUES_MAX * _AREA) * _WORD


@dataclass(frozen=True, slots=True)
class SharedPermits:
    """Memory of `permits_bytes`, at first zero, and the descriptor by which processes lock it."""

    memory: "memoryview[int]"
    descriptor: int
    index: int = 0
    """The process's number among all."""


class Permits:
    """One process's view of the limits of all queues. Use it on the event loop's thread."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        steady_s: Callable[[], float],
        shared: SharedPermits | None = None,
    ) -> None:
        self._now_ms = now_ms
        self._index = 0 if shared is None else shared.index
        self._steady_s = steady_s
        self._descriptor = None if shared is None else shared.descriptor
        self._is_locked = False
        words = None if shared is None else shared.memory.cast("Q")
        self._used = memoryview(bytearray(_WORD)).cast("Q") if words is None else words[:1]
        self._shared = [] if words is None else [
            words[at : at + _AREA] for at in range(1, len(words), _AREA)
        ]  # fmt: skip
        self._alone: dict[int, memoryview[int]] = {}

    @property
    def are_used(self) -> bool:
        """Whether any queue has limits, or had."""
        return bool(self._used[0])

    def of(self, queue: QueueName, settings: QueueSettings) -> "QueuePermits | None":
        """The limits of a queue; None if it has none."""
        return QueuePermits(self, queue, settings) if settings.needs_permits else None

    def permit(self, queue: QueueName, name: str) -> int:
        """The permit of the message of this id; 0 if it has none."""
        area = self.find(hashed(queue.text)) if self.are_used else None
        at = None if area is None else _find(area, hashed(name))
        return 0 if area is None or at is None else area[at + 1]

    def ended(self, queue: QueueName, name: str, permit: int | None = None) -> None:
        """The delivery of the message ended. With a `permit`, only an entry with that
        permit ends.
        """
        area = self.find(hashed(queue.text))
        if area is not None and area[_COUNT]:
            self.end(area, hashed(name), permit)

    def end(self, area: "memoryview[int]", key: int, permit: int | None) -> None:
        """Ends an entry, if it has the `permit`; None: whatever it has."""
        if (at := _find(area, key)) is None:
            return
        with self.locked() as has_locked:
            if area[at] != key or permit not in (None, area[at + 1]):
                return  # Another process has ended it, or the next delivery has begun.
            area[at] = area[at + 1] = 0
            if not has_locked:
                area[_EARLIEST] = 0  # So that the next check counts again.
            elif area[_COUNT]:
                area[_COUNT] -= 1

    def entries(self, queue: QueueName) -> dict[int, int]:
        """The permits of the queue's messages in flight, by the hashes of their ids."""
        area = self.find(hashed(queue.text)) if self.are_used else None
        return {} if area is None else _entries(area)

    def end_all(self, queue: QueueName, entries: Mapping[int, int]) -> None:
        """Ends these entries: their messages went with a purge, or with their queue."""
        area = self.find(hashed(queue.text)) if entries else None
        if area is not None:
            for key, permit in entries.items():
                self.end(area, key, permit)

    def moved(self, queue: QueueName, name: str, due_ms: int) -> None:
        """The message's visibility timeout now ends at `due_ms`."""
        area = self.find(hashed(queue.text))
        if area is not None and (at := _find(area, hashed(name))) is not None:
            area[at + 1] = self.permit_until(due_ms)
            area[_EARLIEST] = min(area[_EARLIEST], area[at + 1])

    def permit_until(self, due_ms: int) -> int:
        """This process's permit for a message that is due at `due_ms`."""
        return due_ms << _PROCESS_BITS | self._index

    def has_passed(self, permit: int) -> bool:
        """Whether the time of a permit is over."""
        return permit >> _PROCESS_BITS <= self._now_ms()

    def now_s(self) -> float:
        """A time that all processes of a machine see alike."""
        return self._steady_s()

    def now_us(self) -> int:
        return round(self._steady_s() * 1_000_000)

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Whether no other process changes anything meanwhile; not where one was stopped at it."""
        if self._descriptor is None or self._is_locked:
            yield True
            return
        has_locked = False
        for tried in range(_LOCK_TRIES):
            with contextlib.suppress(BlockingIOError, PermissionError):
                os.lockf(self._descriptor, os.F_TLOCK, 1)
                has_locked = self._is_locked = True
                break
            if tried % _TRIES_IN_A_ROW == _TRIES_IN_A_ROW - 1:
                os.sched_yield()  # To the process that has it, which is soon done.
        try:
            yield has_locked
        finally:
            if has_locked:
                self._is_locked = False
                os.lockf(self._descriptor, os.F_ULOCK, 1)

    def find(self, key: int) -> "memoryview[int] | None":
        """A queue's numbers, where it has some."""
        shared = next((area for area in self._shared if area[_KEY] == key), None)
        return self._alone.get(key) if shared is None else shared

    def make(self, key: int) -> "memoryview[int]":
        """A queue's numbers; new ones where it has none."""
        with self.locked() as has_locked:
            if (known := self.find(key)) is not None:
                return known
            self._used[0] = 1
            free = (area for area in self._shared if not area[_KEY])
            # Where all are taken, that of a queue of which nothing is in flight.
            for area in itertools.chain(free, self._shared) if has_locked else ():
                if not area[_KEY] or (area[_NEXT_US] <= self.now_us() and not self.sweep(area)):
                    area[_COUNT] = area[_EARLIEST] = area[_NEXT_US] = area[_IS_COUNTED] = 0
                    area[_KEY] = key
                    return area
        alone = self._alone[key] = memoryview(bytearray(_AREA * _WORD)).cast("Q")
        alone[_KEY] = key
        return alone

    def sweep(self, area: "memoryview[int]") -> int:
        """Drops entries that are over; how many are left."""
        over, left = self.permit_until(self._now_ms()) | (1 << _PROCESS_BITS) - 1, []
        for number, permit in enumerate(area[_FIRST + 1 :: _ENTRY].tolist()):
            if permit > over:
                left.append(permit)
            elif permit:
                at = _FIRST + number * _ENTRY
                area[at] = area[at + 1] = 0
        area[_EARLIEST] = min(left, default=0)
        area[_COUNT] = len(left)
        return len(left)


class QueuePermits:
    def __init__(self, limits: Permits, queue: QueueName, settings: QueueSettings) -> None:
        self._limits = limits
        self._queue = queue
        self._key = hashed(queue.text)
        self._area = limits.make(self._key)
        self._is_counted = False
        self._most = settings.in_flight_max
        rate = settings.deliveries_per_s_max
        self._step_us = max(1, round(1_000_000 / rate)) if rate else 0
        self._burst_us = max(self._step_us, round(BURST_S * 1_000_000))
        self._missed: dict[int, int] = {}
        """The entries that the last check did not find in flight."""
        self._check_again_s = float("-inf")

    @property
    def is_to_count(self) -> bool:
        """Whether the messages in flight have not been counted yet. Until then none is
        delivered.
        """
        return bool(self._most) and not self._mine()[_IS_COUNTED]

    def count(self, found: Iterable[tuple[str, int]]) -> None:
        """Counts the messages that were in flight at the start, each by its id until it is due,
        unless another process has counted them.
        """
        with self._limits.locked() as has_locked:
            area = self._mine()
            for name, due_ms in () if area[_IS_COUNTED] else found:
                if _find(area, hashed(name)) is None:
                    _enter(area, hashed(name), self._limits.permit_until(due_ms))
            if not has_locked:
                area[_EARLIEST] = 0  # So that the next check counts again.
            area[_IS_COUNTED] = self._is_counted = True

    def begin_check(self) -> dict[int, int]:
        """The entries to compare with the disk, at the limit now and then: a check begins, which
        `end_check` ends. None of them: no check is due.
        """
        if not self._most or self._limits.now_s() < self._check_again_s:
            return {}
        area = self._mine()
        entries = _entries(area) if area[_COUNT] >= self._most else {}
        if entries:
            self._check_again_s = float("inf")
        return entries

    def end_check(self, entries: Mapping[int, int], found: Container[int], again_s: float) -> bool:
        """A check of these entries found the messages of these hashes in flight; the next one may
        begin at `again_s`. Ends the entries that the check before missed too. Whether there were
        any.
        """
        self._check_again_s = again_s
        missed = {key: permit for key, permit in entries.items() if key not in found}
        over, self._missed = missed.items() & self._missed.items(), missed
        area = self._mine()
        for key, permit in over:
            self._limits.end(area, key, permit)
        return bool(over)

    def room(self) -> int:
        """How many messages may be delivered now. Other processes may take them first."""
        area, limits, room = self._mine(), self._limits, IN_FLIGHT_MAX
        if self._most:
            if not area[_IS_COUNTED]:
                return 0
            if area[_COUNT] >= self._most and limits.has_passed(area[_EARLIEST]):
                with limits.locked() as has_locked:
                    if has_locked:
                        limits.sweep(area)
            room = self._most - area[_COUNT]
        if self._step_us:
            now_us = limits.now_us()
            left_us = now_us + self._burst_us - max(area[_NEXT_US], now_us)
            room = min(room, left_us // self._step_us)
        return max(0, room)

    def begin(self, name: str, due_ms: int) -> int:
        """Takes a permit to deliver the message of this id, due at `due_ms`. 0 at the limits.
        Negative where another process has an entry for the message, since it delivers it or is
        about to.
        """
        area, permit = self._mine(), self._limits.permit_until(due_ms)
        with self._limits.locked() as has_locked:
            if not has_locked or not self.room():
                return 0
            if self._most and (at := _find(area, hashed(name))) is not None:
                is_over = self._limits.has_passed(area[at + 1])
                area[at + 1] = permit
                area[_EARLIEST] = min(area[_EARLIEST], permit)
                permit = permit if is_over else -permit
            elif self._most and not _enter(area, hashed(name), permit):
                return 0
            if self._step_us:
                area[_NEXT_US] = max(area[_NEXT_US], self._limits.now_us()) + self._step_us
            return permit

    def _mine(self) -> "memoryview[int]":
        """The queue's memory. If another queue has taken its place, no message of this one was in
        flight.
        """
        if self._area[_KEY] != self._key:
            self._area = self._limits.make(self._key)
            self._area[_IS_COUNTED] |= self._is_counted
        self._is_counted = bool(self._area[_IS_COUNTED])
        return self._area

    def won(self, name: str, permit: int) -> None:
        """The claim succeeded: the message has this permit. Its entry may be gone, as a check may
        come before a long claim ends.
        """
        if not self._most:
            return
        area, key, permit = self._mine(), hashed(name), abs(permit)
        if (at := _find(area, key)) is not None:
            area[at + 1] = permit
            return
        with self._limits.locked() as has_locked:
            _enter(area, key, permit)
            if not has_locked:
                area[_EARLIEST] = 0  # So that the next check counts again.

    def lost(self, name: str, permit: int) -> None:
        """The claim failed: gives the permit back."""
        if permit > 0:
            self._limits.ended(self._queue, name, permit)
        if self._step_us:
            with self._limits.locked() as has_locked:
                if has_locked:
                    self._area[_NEXT_US] -= min(self._step_us, self._area[_NEXT_US])


def _enter(area: "memoryview[int]", key: int, permit: int) -> bool:
    """Adds an entry. False if there is no place for it."""
    at = next((each for each in _places(key) if not area[each + 1]), None)
    if at is None:
        return False
    # An earliest permit of 0 stays: the entries are to be counted again.
    area[_EARLIEST] = min(area[_EARLIEST], permit) if area[_COUNT] else permit
    area[_COUNT] += 1
    area[at], area[at + 1] = key, permit
    return True


def _entries(area: "memoryview[int]") -> dict[int, int]:
    keys, permits = area[_FIRST::_ENTRY].tolist(), area[_FIRST + 1 :: _ENTRY].tolist()
    return {key: permit for key, permit in zip(keys, permits, strict=True) if key}


def _find(area: "memoryview[int]", key: int) -> int | None:
    return next((at for at in _places(key) if area[at] == key), None)


def _places(key: int) -> Iterator[int]:
    for place in range(key, key + _PLACES):
        yield _FIRST + place % _ENTRIES * _ENTRY


def hashed(text: str) -> int:
    """The key of a queue, or of a message's entry, by its name or id."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:_WORD]) or 1
