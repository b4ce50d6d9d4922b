"""The mover's memory: names and due times of a folder's files, soonest first. Pure.

Times are milliseconds since the epoch. A name's due time may change; the heap keeps stale entries,
which are skipped.
"""

import heapq
from collections.abc import Callable
from typing import Final

TIMERS_MAX: Final = 100_000


class Timers:
    """Keeps the `capacity` soonest names (twice as many for a moment); a later scan finds the
    rest. `messages`: the number of messages that a name is of.
    """

    def __init__(
        self, capacity: int = TIMERS_MAX, messages: Callable[[str], int] = lambda _: 1
    ) -> None:
        self.capacity = capacity
        self.messages = 0
        """The number of messages that the known names are of."""
        self._messages = messages
        self.is_cut = False
        """Whether names were left out."""
        self.cut_ms: int | None = None
        """The earliest due time of the names that were left out; None: none was."""
        self._due_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due_ms)

    def due_ms(self, name: str) -> int | None:
        """The name's due time; None: unknown."""
        return self._due_ms.get(name)

    def put(self, name: str, due_ms: int) -> None:
        if (known_ms := self._due_ms.get(name)) != due_ms:
            if known_ms is None:
                self.messages += self._messages(name)
            self._due_ms[name] = due_ms
            heapq.heappush(self._heap, (due_ms, name))
            if len(self._heap) > 2 * self.capacity:
                self._cut()

    def take_due(self, now_ms: int, limit: int) -> list[str]:
        """Removes and returns up to `limit` due names, soonest first."""
        taken: list[str] = []
        while len(taken) < limit and self._heap and self._heap[0][0] <= now_ms:
            due_ms, name = heapq.heappop(self._heap)
            if self._due_ms.get(name) == due_ms:
                del self._due_ms[name]
                self.messages -= self._messages(name)
                taken.append(name)
        return taken

    def next_ms(self) -> int | None:
        """The soonest due time; None: no name is known."""
        while self._heap and self._due_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def none_before_ms(self) -> int | None:
        """The soonest due time of all names of the scan, known or left out; None: none is due."""
        bounds = [each for each in (self.next_ms(), self.cut_ms) if each is not None]
        return min(bounds, default=None)

    def _cut(self) -> None:
        """Keeps the soonest names and drops stale entries."""
        self.is_cut = self.is_cut or len(self._due_ms) > self.capacity
        soonest = heapq.nsmallest(self.capacity, self._due_ms.items(), key=lambda item: item[1])
        if self.is_cut and soonest:
            self.cut_ms = min(
                soonest[-1][1], soonest[-1][1] if self.cut_ms is None else self.cut_ms
            )
        self._due_ms = dict(soonest)
        self.messages = sum(map(self._messages, self._due_ms))
        self._heap = [(due_ms, name) for name, due_ms in soonest]
        heapq.heapify(self._heap)
