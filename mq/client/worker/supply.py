"""Fetched messages that wait for a handler, and how many are handled at a time."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from mq.client.worker.handlers import Handler
from mq.client.worker.leases import Delivery
from mq.model.limits import CONSUMERS_MAX

K = TypeVar("K")
T = TypeVar("T")


class Supply(Generic[K, T]):
    """Fetched messages whose handlers have not begun, of several queues that take turns; `kind_of`
    a message: its handler.

    Each queue is asked for its share of the free places, and for `prefetch` more. So a full queue
    has its next message here, and an empty queue takes no place from the others.
    """

    def __init__(self, queues: Sequence[str], kind_of: Callable[[T], K]) -> None:
        self._kind_of = kind_of
        self._waiting: dict[str, dict[K, deque[tuple[int, T]]]] = {queue: {} for queue in queues}
        self._turns: deque[str] = deque(queues)
        self._came = 0

    def __len__(self) -> int:
        return sum(self.count(queue) for queue in self._waiting)

    def count(self, queue: str) -> int:
        """How many messages of the queue wait."""
        return sum(len(line) for line in self._waiting[queue].values())

    def first(self, queue: str, kind: K) -> T | None:
        """The queue's first message of the handler that waits."""
        line = self._waiting.get(queue, {}).get(kind)
        return line[0][1] if line else None

    def add(self, queue: str) -> None:
        self._waiting[queue] = {}
        self._turns.append(queue)

    def remove(self, queue: str) -> list[T]:
        """Takes all messages of a queue, and removes it."""
        self._turns.remove(queue)
        return _in_order(self._waiting.pop(queue))

    def put(self, queue: str, messages: Iterable[T]) -> None:
        """Adds messages, in this order."""
        for message in messages:
            self._came += 1
            line = self._waiting[queue].setdefault(self._kind_of(message), deque())
            line.append((self._came, message))

    def take(self, size_of: Callable[[str, K, int], int] = lambda *_: 1) -> list[T]:
        """Takes the messages of the next call: the oldest ones of the queue, among those with any,
        whose turn is longest ago. `size_of` a queue, a handler and the number of its messages that
        wait: how many go into one call now; 0: none.
        """
        for _ in range(len(self._turns)):
            queue = self._turns[0]
            self._turns.rotate(-1)
            lines = self._waiting[queue]
            for kind in sorted(lines, key=lambda each: lines[each][0][0]):
                line = lines[kind]
                if size := size_of(queue, kind, len(line)):
                    found = [line.popleft()[1] for _ in range(size)]
                    if not line:
                        del lines[kind]
                    return found
        return []

    def drop(self, messages: Sequence[T]) -> None:
        """Removes those of these messages that still wait."""
        gone = set(messages)
        for queue, lines in self._waiting.items():
            left = {
                kind: deque(each for each in line if each[1] not in gone)
                for kind, line in lines.items()
            }
            self._waiting[queue] = {kind: line for kind, line in left.items() if line}

    def take_all(self) -> list[T]:
        found = [message for lines in self._waiting.values() for message in _in_order(lines)]
        for lines in self._waiting.values():
            lines.clear()
        return found

    def wanted(self, queue: str, free: int, prefetch: int, size: int = 1) -> int:
        """How many messages to fetch of a queue, with `free` places for calls of up to `size`
        messages, where `prefetch` messages may wait. None while more than half of them do, so that
        one fetch brings several.
        """
        waiting = self.count(queue)
        share = -(-free // len(self._waiting)) * size
        if share == 0 and 2 * waiting > prefetch:
            return 0
        return max(share + prefetch - waiting, 0)


def _in_order(lines: dict[K, deque[tuple[int, T]]]) -> list[T]:
    return [message for _, message in sorted((e for line in lines.values() for e in line), key=_at)]


def _at(entry: tuple[int, object]) -> int:
    return entry[0]


class Ripening:
    """Which handlers of batches may be called with fewer than `max` messages, since the first of
    these has waited long enough; `look_again` is called when one may.
    """

    def __init__(
        self, supply: Supply[Handler | None, Delivery], look_again: Callable[[], None]
    ) -> None:
        self._supply = supply
        self._look_again = look_again
        self._timers: dict[tuple[str, Handler], asyncio.TimerHandle] = {}
        self.ripe: set[tuple[str, Handler]] = set()
        """The queues and handlers."""

    def changed(self, queue: str, handler: Handler) -> None:
        """Messages of the queue and the handler came, or were taken."""
        line = (queue, handler)
        if (timer := self._timers.pop(line, None)) is not None:
            timer.cancel()
        self.ripe.discard(line)
        if (first := self._supply.first(queue, handler)) is None:
            return
        loop = asyncio.get_running_loop()
        ripe_s = first.came_s + handler.options.wait
        if ripe_s <= loop.time():
            self.ripe.add(line)
        else:
            self._timers[line] = loop.call_at(ripe_s, self._ripens, line)

    def _ripens(self, line: tuple[str, Handler]) -> None:
        del self._timers[line]
        self.ripe.add(line)
        self._look_again()


@dataclass(frozen=True, slots=True)
class Scale:
    """How many messages a worker handles at a time: its option (`own`), the sum of its queues'
    settings (`said`, 0: none), and by how much it was scaled since (`difference`). Raises
    ValueError.
    """

    own: int
    said: int = 0
    difference: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.own <= CONSUMERS_MAX:
            raise ValueError(
                f"consumers must be a whole number from 1 to {CONSUMERS_MAX}, not {self.own!r}"
            )

    @property
    def total(self) -> int:
        """The number, 1 to 100."""
        return _bounded(self._base + self.difference)

    def scaled(self, by: int) -> "Scale":
        """Scaled by `by`. Only the effective change counts: a part beyond a bound is forgotten."""
        return replace(self, difference=_bounded(self.total + by) - self._base)

    def following(self, settings: Iterable[int]) -> "Scale":
        """With the settings of all its queues; 0: none."""
        return replace(self, said=sum(settings))

    @property
    def _base(self) -> int:
        return _bounded(self.said or self.own)


def _bounded(count: int) -> int:
    return min(max(count, 1), CONSUMERS_MAX)
