"""Reading a queue's next bodies before anybody asks for them, where that pays.

A claim has the message's file open anyway: what it saves is one read, and reading ahead costs an
open, a look and a close more. So it is done where the storage is so slow that fetches wait for it,
which is measured, again from time to time.
"""

from collections.abc import Sequence

from mq.broker.backlog import Backlog
from mq.broker.bodies import Bodies
from mq.model.limits import (
    BODY_OVERHEAD_BYTES,
    READ_AHEAD_BYTES_MAX,
    READ_AHEAD_MESSAGES_MAX,
    READ_AHEAD_PAYS_S,
    READ_AHEAD_TRY_EVERY_S,
)
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.scan.ahead import read_ahead
from mq.store.scan.order import Candidate


class Ahead:
    """What is read ahead of a queue, a few bodies at a time. Lives on the event loop's thread."""

    def __init__(self, name: QueueName, root: Root, committer: Committer, bodies: Bodies) -> None:
        self._name = name
        self._root = root
        self._committer = committer
        self._bodies = bodies
        self._reads = False
        self._next_s = float("-inf")

    def wanted(self, backlog: Backlog) -> Sequence[Candidate]:
        """The candidates that are to be read now, by `read`; none when that does not pay, when
        others are being read, and when the queue has in memory what it may.
        """
        if self._reads or self._root.clock.steady_s() < self._next_s:
            return ()
        if self._bodies.ahead() <= BODY_OVERHEAD_BYTES:
            return ()
        return [
            each for each in backlog.first(READ_AHEAD_MESSAGES_MAX)
            if not self._bodies.is_kept(each.name)
        ]  # fmt: skip

    async def read(self, wanted: Sequence[Candidate], backlog: Backlog) -> None:
        """Reads them, and keeps those that are candidates still."""
        bytes_max = min(self._bodies.ahead(), READ_AHEAD_BYTES_MAX)
        hand = self._bodies.room(bytes_max)
        if hand is None:
            return
        self._reads = True
        try:
            found, took_s = await self._committer.call(
                read_ahead, self._root, self._name, wanted, bytes_max
            )
        finally:
            self._reads = False
        if took_s < READ_AHEAD_PAYS_S * len(wanted):
            self._next_s = self._root.clock.steady_s() + READ_AHEAD_TRY_EVERY_S
        del hand  # From here on they count one by one.
        for name, held in found:
            if backlog.holds(name):
                self._bodies.loaded(name, held)
