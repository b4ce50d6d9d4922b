"""Names and due times of what lies in delay/, soonest first: all that the mover remembers.

Pure; times are milliseconds since the epoch. A name's due time may be set again and again; the
heap keeps stale entries, which are passed over.
"""

import heapq

from mq.model.limits import TIMERS_MAX


class Timers:
    """At most `capacity` names (twice as many for a moment), the soonest; the rest is found
    again by a later look.
    """

    def __init__(self, capacity: int = TIMERS_MAX) -> None:
        self.capacity = capacity
        self.is_cut = False
        """Whether names were left out: what lies in the folder is more than is known here."""
        self.cut_ms: int | None = None
        """What was left out is due then or later; None: nothing was."""
        self._due_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due_ms)

    def due_ms(self, name: str) -> int | None:
        """When the name is due; None: it is not known."""
        return self._due_ms.get(name)

    def put(self, name: str, due_ms: int) -> None:
        """The name is due then, whatever was said of it before."""
        if self._due_ms.get(name) != due_ms:
            self._due_ms[name] = due_ms
            heapq.heappush(self._heap, (due_ms, name))
            if len(self._heap) > 2 * self.capacity:
                self._cut()

    def take_due(self, now_ms: int, limit: int) -> list[str]:
        """Up to `limit` names that are due, soonest first; they are forgotten."""
        taken: list[str] = []
        while len(taken) < limit and self._heap and self._heap[0][0] <= now_ms:
            due_ms, name = heapq.heappop(self._heap)
            if self._due_ms.get(name) == due_ms:
                del self._due_ms[name]
                taken.append(name)
        return taken

    def next_ms(self) -> int | None:
        """When the next name is due; None: nothing is known to lie there."""
        while self._heap and self._due_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def none_before_ms(self) -> int | None:
        """Nothing of what lay there at the look, known or left out, is due before; None: nothing
        is due at all.
        """
        bounds = [each for each in (self.next_ms(), self.cut_ms) if each is not None]
        return min(bounds, default=None)

    def _cut(self) -> None:
        """Keeps the soonest, and drops what is stale in the heap."""
        self.is_cut = self.is_cut or len(self._due_ms) > self.capacity
        soonest = heapq.nsmallest(self.capacity, self._due_ms.items(), key=lambda item: item[1])
        if self.is_cut and soonest:
            self.cut_ms = min(
                soonest[-1][1], soonest[-1][1] if self.cut_ms is None else self.cut_ms
            )
        self._due_ms = dict(soonest)
        self._heap = [(due_ms, name) for name, due_ms in soonest]
        heapq.heapify(self._heap)
