"""Removes purged messages, and those of deleted queues, in the background."""

import asyncio
from typing import Final

from mq.broker.queue import Queue
from mq.broker.turns import Turns
from mq.model.errors import MqError
from mq.model.log import logger
from mq.model.names import QueueName, UuidSource
from mq.store.core.root import Root
from mq.store.core.unserved import mark_of
from mq.store.disk.commit import Committer
from mq.store.operations.purge import PURGE_MARK_AHEAD_S, purge, take_purged, take_purged_buckets
from mq.store.operations.queues import retire_delayed

# The share of the time that removing purged messages may take.
PURGE_SHARE: Final = 0.25

_log = logger("mq.purger")


class Purger:
    """Purges a broker's queues; `uuids`: the source of its messages' ids."""

    def __init__(self, root: Root, committer: Committer, uuids: UuidSource) -> None:
        self._root = root
        self._committer = committer
        self._uuids = uuids
        # Each with whether another purge has come since its last look began.
        self._taking: dict[QueueName, bool] = {}
        self._stops = False

    def stop(self) -> None:
        """Ends the background work soon; mq-mover continues it."""
        self._stops = True

    def met(self, before_ms: int) -> None:
        """Moves this process's ids past a mark, so that its next publishes come after it. A mark
        that is far ahead of the clock, of a process whose clock was wrong, is ignored.
        """
        if before_ms - self._root.now_ms() <= PURGE_MARK_AHEAD_S * 1000:
            self._uuids.go_past(before_ms)

    async def mark(self, queue: Queue) -> int:
        """Stops the delivery of all messages that were published so far. Returns the time up to
        which they are purged, in milliseconds since the epoch. Raises QueueNotFound, Unavailable,
        Busy. Durable on return: yes.
        """
        known = await self._committer.call(mark_of, self._root, queue.name)
        if known is not None:
            # The mark of a process whose clock is ahead covers later publishes as well.
            self.met(known.ms + 1)
        before_ms = self._uuids.end_moment()
        marked_ms = await self._committer.commit_alone(purge(self._root, queue.name, before_ms))
        self.met(marked_ms)
        queue.was_purged()
        return marked_ms

    async def settle(self) -> None:
        """Waits until every process of the root knows an earlier mark, so that none delivers a
        message that it covers.
        """
        await asyncio.sleep(self._root.facts.settle_s)

    async def take_away(self, name: QueueName) -> None:
        """Moves purged messages to remove/ until the first error; mq-mover moves the others."""
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
                # Requests that come meanwhile do not wait for this.
                await asyncio.sleep(cost_s / PURGE_SHARE - cost_s)
        except MqError as error:
            _log.warning(
                "could not remove purged messages yet; they are not delivered",
                extra={"fields": {"queue": name.text, "error": repr(error)}},
            )
        finally:
            self._taking.pop(name, None)

    def _take_some(self, name: QueueName) -> bool:
        """Removes some purged messages. False when there are no more. Blocking."""
        if take_purged_buckets(self._root, name):
            return True
        return take_purged(self._root, name).moved > 0


async def retire(root: Root, committer: Committer, turns: Turns, name: QueueName) -> None:
    """Moves the messages that a deleted queue left in delay/ and in leases to remove/. After a
    failure, mq-mover and the next PUT do it again. Never raises.
    """
    try:
        await turns.take(lambda: committer.call(retire_delayed, root, name))
    except Exception as error:
        _log.warning(
            "could not remove a deleted queue's messages from delay/ yet",
            extra={"fields": {"queue": name.text, "error": repr(error)}},
        )
