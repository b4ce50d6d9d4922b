"""Looking into a queue's folder for what is ready, and taking away the buckets found empty."""

import asyncio
import logging
from collections.abc import Iterable

from mq.broker.backlog import Backlog
from mq.model.errors import SettingsUnreadable, Unavailable
from mq.model.limits import LOOKS_PER_SHARD
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.operations.buckets import drop_buckets
from mq.store.scan.order import STRICT, FolderMark, Listing, Order, list_ready

_log = logging.getLogger("mq.queue")


class Looks:
    """The looks of one process into one queue. Lives on the event loop's thread."""

    def __init__(
        self,
        name: QueueName,
        root: Root,
        committer: Committer,
        peers: int,
        peer_index: int,
    ) -> None:
        self.clearing: asyncio.Task[None] | None = None
        """Empty buckets are being taken away."""
        self._name = name
        self._root = root
        self._committer = committer
        self._peers = peers
        self._peer_index = peer_index
        self._looks = 0

    async def look(self, backlog: Backlog, taken: Iterable[str] = ()) -> None:
        """Tells the backlog what is ready, without these ids. Raises QueueNotFound, Unavailable;
        the backlog knows then what it knew.
        """
        began_s = self._root.clock.steady_s()
        mark = backlog.mark
        backlog.look_began(taken)
        try:
            listing = await self._listing(mark, backlog.capacity)
        except BaseException:
            backlog.look_failed()
            raise
        backlog.look_ended(listing, began_s, self._root.clock.steady_s())
        if listing is not None and listing.empty and self.clearing is None:
            self.clearing = asyncio.create_task(self._clear(listing.empty))
            self.clearing.add_done_callback(self._was_cleared)

    def close(self) -> None:
        """Nobody looks any more."""

    def forget(self) -> None:
        """What was not served may be."""

    async def _listing(self, mark: FolderMark | None, limit: int) -> Listing | None:
        """The first of what is ready; None: the folder is as the mark says."""
        return await self._committer.call(self._list, mark, limit)

    def _list(self, mark: FolderMark | None, limit: int) -> Listing | None:
        return list_ready(self._root, self._name, limit, mark, self._order())

    def _order(self) -> Order:
        """Strict without peers; else from this process's own shard on, where the queue has shards,
        and now and then from another one's, which nobody else may begin at.
        """
        if self._peers == 0:
            return STRICT
        try:
            shards = self._root.places.shape(self._name).shards
        except SettingsUnreadable:
            return STRICT
        turn, more = divmod(self._looks, LOOKS_PER_SHARD)
        self._looks += 1
        start = self._peer_index + (0 if more else turn)
        return Order(shards, start % shards)

    async def _clear(self, buckets: tuple[str, ...]) -> None:
        """Takes empty buckets away, in the background."""
        try:
            await self._committer.commit_alone(drop_buckets(self._root, buckets))
        except Unavailable as error:
            _log.info(
                "empty buckets stay for now",
                extra={"fields": {"queue": self._name.text, "error": repr(error)}},
            )

    def _was_cleared(self, clearing: "asyncio.Task[None]") -> None:
        self.clearing = None
