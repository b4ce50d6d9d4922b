"""One pass of a shovel over a sideline: what is there, in order, in batches; each message once.

Nothing lists a whole backlog: names are listed some at a time, behind the last one, as a peek does.
"""

import threading
from collections import deque
from dataclasses import dataclass

from mq.model.errors import QueueNotFound
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.model.shovel import Criteria
from mq.model.upkeep_limits import SHOVEL_IDS_AHEAD_S, SHOVEL_LISTED_MAX
from mq.store.core.purged import uuid_beginning
from mq.store.core.root import Root
from mq.store.scan.order import Candidate, OrderUntil
from mq.store.scan.paging import list_after
from mq.store.shovel.shovel import Aim


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some of the sideline's messages, in order."""

    candidates: tuple[Candidate, ...]


class Pass:
    """What lay in the sideline of a queue when the pass began. Threads share it.

    Messages that come meanwhile wait for the next pass, also those that this one took back and that
    were sidelined again: who decides about a message sees that by its time.
    """

    def __init__(
        self, root: Root, queue: QueueName, criteria: Criteria, began_ms: int | None = None
    ) -> None:
        self.aim = Aim(queue, criteria, root.now_ms() if began_ms is None else began_ms)
        self._root = root
        # Only to end in a sideline that grows faster than it is looked at.
        until_ms = self.aim.began_ms + SHOVEL_IDS_AHEAD_S * 1000
        self._order = OrderUntil(until=uuid_beginning(until_ms))
        self._lock = threading.Lock()
        self._listed: deque[Candidate] = deque()
        self._is_listed = False
        self._at: MessageId | None = None

    def batch(self, count: int) -> Batch | None:
        """The next messages, at most so many; None: there are no more. Blocking. Raises OSError;
        then the same may be asked for again.
        """
        with self._lock:
            if not self._listed:
                self._list()
            if not self._listed:
                return None
            taken = tuple(self._listed.popleft() for _ in range(min(count, len(self._listed))))
            return Batch(taken)

    def _list(self) -> None:
        """A look may end early, and find nothing that is wanted."""
        while not self._listed and not self._is_listed:
            sideline = self.aim.queue.sideline()
            try:
                found, self._is_listed = list_after(
                    self._root, State.READY, sideline, SHOVEL_LISTED_MAX, self._at, self._order
                )
            except QueueNotFound:
                self._is_listed = True
                return
            if not found:
                self._is_listed = True
                return
            self._at = found[-1].id
            self._listed.extend(found)
