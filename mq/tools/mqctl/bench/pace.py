"""When each request's turn is. Pure: the time is given."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """A request's turn, by its number from 0. `due_s`: None where it is at once."""

    number: int
    due_s: float | None


class Turns:
    """Hands turns out, to all connections, each once.

    Without a rate a turn is whenever somebody asks. With one the turns stand `1 / per_s` apart from
    `began_s` on, however late those before were answered: whoever takes a turn that was due is
    late, and its latency says so.
    """

    __slots__ = ("_began_s", "_count", "_end_s", "_per_s", "given")

    def __init__(
        self, began_s: float, count: int | None, end_s: float | None, per_s: float | None
    ) -> None:
        self._began_s = began_s
        self._count = count
        self._end_s = end_s
        self._per_s = per_s
        self.given = 0

    def take(self, now_s: float) -> Turn | None:
        """The next turn; None: there is none any more, by number or by time."""
        if self._count is not None and self.given >= self._count:
            return None
        if self._end_s is not None and now_s >= self._end_s:
            return None
        due_s = None
        if self._per_s is not None:
            due_s = self._began_s + self.given / self._per_s
            if self._end_s is not None and due_s >= self._end_s:
                return None
        turn = Turn(self.given, due_s)
        self.given += 1
        return turn

    @property
    def unsent(self) -> int:
        """At the end: turns that were due by then and that nobody came to take."""
        if self._per_s is None or self._end_s is None:
            return 0
        due = math.ceil((self._end_s - self._began_s) * self._per_s)
        if self._count is not None:
            due = min(due, self._count)
        return max(0, due - self.given)
