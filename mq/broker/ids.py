"""How many ids all backlogs of a process may know together."""

from collections import OrderedDict
from typing import Protocol

from mq.model.limits import BACKLOG_IDS_MAX, BACKLOG_IDS_MIN, BACKLOG_IDS_TOTAL_MAX


class Forgetful(Protocol):
    """A backlog, that forgets what it knows when it is told so."""

    def forget(self) -> None:
        """Nothing is known from here on: the next fetch looks."""
        ...


class Ids:
    """Shares them among the backlogs that know any: each may know as many as any other, and when
    all together know too many, the one that has been used least recently forgets all it knows.
    """

    def __init__(self, total_max: int = BACKLOG_IDS_TOTAL_MAX) -> None:
        self.total = 0
        self.capacity = BACKLOG_IDS_MAX
        """How many ids one backlog may know now."""
        self._total_max = total_max
        self._known: OrderedDict[Forgetful, int] = OrderedDict()

    def told(self, backlog: Forgetful, count: int) -> None:
        """A backlog in use knows so many now."""
        self.total += count - self._known.pop(backlog, 0)
        if count:
            self._known[backlog] = count
        while self.total > self._total_max and len(self._known) > 1:
            idle, known = self._known.popitem(last=False)
            self.total -= known
            idle.forget()
        share = self._total_max // max(1, len(self._known))
        self.capacity = max(BACKLOG_IDS_MIN, min(BACKLOG_IDS_MAX, share))
