"""The messages in flight of queues with `in_flight_max`, as the disk has them: at their first use,
and now and then at the limit, since another mq of the root may settle what this one delivered.
"""

from collections.abc import Container, Mapping
from typing import Final

from mq.broker.permits import CHECK_EVERY_S, QueuePermits, hashed
from mq.broker.queue import Queue
from mq.model.errors import Unavailable
from mq.model.log import logger
from mq.model.names import QueueName
from mq.model.settings import IN_FLIGHT_MAX
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.format.walk import LOOK_SHARE
from mq.store.scan.delayed_names import delayed_ids, in_flight

# However long one took, as that of a process that was stopped, or of a mount that hung.
CHECK_PAUSE_S_MAX: Final = 300.0

_log = logger("mq.queue")


class Counter:
    """Use it on the event loop's thread."""

    def __init__(self, root: Root, committer: Committer) -> None:
        self._root = root
        self._committer = committer

    async def count(self, queue: Queue) -> None:
        """Counts the messages in flight of a queue whose `in_flight_max` this mq uses for the first
        time.
        """
        limit = queue.permits
        if limit is None or not limit.is_to_count:
            return
        shown_s = queue.settings.visibility_s
        found: list[tuple[str, int]] = []
        try:
            of = (self._root, queue.name, shown_s, IN_FLIGHT_MAX)
            found = await self._committer.call(in_flight, *of)
        except Unavailable as error:
            fields = {"queue": queue.name.text, "error": repr(error)}
            _log.warning(
                "could not count the messages that consumers have; the limit begins at 0",
                extra={"fields": fields},
            )
        limit.count(found)
        queue.goes_on()

    async def check(self, queue: Queue, limit: QueuePermits, entries: Mapping[int, int]) -> None:
        """Makes the check that `QueuePermits.begin_check` has begun: ends the entries of messages
        that are not in flight any more. Raises Unavailable.
        """
        steady_s, found = self._root.clock.steady_s, set(entries)
        began_s = steady_s()
        try:
            found = await self._committer.call(_there, self._root, queue.name, entries.keys())
        finally:
            found.update(hashed(name) for each in queue.claimers for name in each.claimed())
            share_s = min((steady_s() - began_s) / LOOK_SHARE, CHECK_PAUSE_S_MAX)
            pause_s = max(CHECK_EVERY_S, share_s)
            has_ended = limit.end_check(entries, found, steady_s() + pause_s)
        if has_ended:
            queue.goes_on()


def _there(root: Root, queue: QueueName, wanted: Container[int]) -> set[int]:
    """Those of the `wanted` hashes of ids that are in delay/. Blocking: lists it."""
    return {key for key in map(hashed, delayed_ids(root, queue)) if key in wanted}
