"""What a worker has in hand and has not begun, whose turn it is, and how much more it asks for.
Pure.

Each queue is asked for its share of the places that are free, and for what may wait beside: so that
one that is full finds the next message here, and one that is empty keeps no place from the others.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Supply(Generic[T]):
    """Messages of several queues, which take turns as long as they have some."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._waiting: dict[str, deque[T]] = {queue: deque() for queue in queues}
        self._turns: deque[str] = deque(queues)

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._waiting.values())

    def put(self, queue: str, messages: Iterable[T]) -> None:
        """These came, in this order."""
        self._waiting[queue].extend(messages)

    def take(self) -> T | None:
        """The next one: of the queue whose turn is longest ago, of those that have any."""
        for _ in range(len(self._turns)):
            queue = self._turns[0]
            self._turns.rotate(-1)
            if self._waiting[queue]:
                return self._waiting[queue].popleft()
        return None

    def take_all(self) -> list[T]:
        """All that is left."""
        found = [message for waiting in self._waiting.values() for message in waiting]
        for waiting in self._waiting.values():
            waiting.clear()
        return found

    def wanted(self, queue: str, free: int, prefetch: int) -> int:
        """How many messages the queue is asked for now, where so many places are `free` and so many
        messages may wait: none while more than half of these do, so that they come several at a
        time.
        """
        waiting = len(self._waiting[queue])
        share = -(-free // len(self._waiting))
        if share == 0 and 2 * waiting > prefetch:
            return 0
        return max(share + prefetch - waiting, 0)
