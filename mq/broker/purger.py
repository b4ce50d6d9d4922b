"""Purging queues: the mark at once, and then, in the background, what is before it."""

import asyncio
import logging

from mq.broker.queue import Queue
from mq.model.errors import MqError
from mq.model.limits import PURGE_MARK_AHEAD_S, PURGE_SHARE
from mq.model.names import QueueName, UuidSource
from mq.store.core.purged import mark_of
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.operations.purge import purge, take_purged, take_purged_buckets

_log = logging.getLogger("mq.purger")


class Purger:
    """Purges a broker's queues; `uuids` is where it has the ids of its messages from."""

    def __init__(self, root: Root, committer: Committer, uuids: UuidSource) -> None:
        self._root = root
        self._committer = committer
        self._uuids = uuids
        # Each with whether another purge has come since its last look began.
        self._taking: dict[QueueName, bool] = {}
        self._stops = False

    def stop(self) -> None:
        """What is going on in the background ends soon; mq-mover goes on with it."""
        self._stops = True

    def heard(self, before_ms: int) -> None:
        """The ids of this process go past a mark that was met, so that what it publishes next is
        after it; but for one that is far ahead of the clock, which somebody has set wrong.
        """
        if before_ms - self._root.now_ms() <= PURGE_MARK_AHEAD_S * 1000:
            self._uuids.go_past(before_ms)

    async def mark(self, queue: Queue) -> int:
        """Has nothing be served any more of what was published until now; up to which time
        (milliseconds since the epoch) that is. Raises QueueNotFound, Unavailable, Busy.
        Durable: yes.
        """
        known = await self._committer.call(mark_of, self._root, queue.name)
        if known is not None:
            # Of a process whose clock is ahead: what was published since is behind its mark.
            self.heard(known.ms + 1)
        before_ms = self._uuids.end_moment()
        marked_ms = await self._committer.commit_alone(purge(self._root, queue.name, before_ms))
        self.heard(marked_ms)
        queue.was_purged()
        return marked_ms

    async def take_away(self, name: QueueName) -> None:
        """Moves what is purged to remove/, as far as it comes; mq-mover does the rest."""
        if name in self._taking:
            self._taking[name] = True
            return
        try:
            while not self._stops:
                self._taking[name] = False
                began_s = self._root.clock.steady_s()
                took = await self._committer.call(self._take_some, name)
                if not took and not self._taking[name]:
                    return
                cost_s = self._root.clock.steady_s() - began_s
                # Whoever asks meanwhile is not to wait for this.
                await asyncio.sleep(cost_s / PURGE_SHARE - cost_s)
        except MqError as error:
            _log.warning(
                "purged messages stay for now",
                extra={"fields": {"queue": name.text, "error": repr(error)}},
            )
        finally:
            self._taking.pop(name, None)

    def _take_some(self, name: QueueName) -> bool:
        """Whether there was any, and perhaps is more. Blocking."""
        if take_purged_buckets(self._root, name):
            return True
        return take_purged(self._root, name).moved > 0
