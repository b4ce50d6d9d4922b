"""Scans a queue's folder for ready messages, and removes buckets that it finds empty."""

import asyncio
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from mq.broker.groups import HEADS_PER_LOOK, Groups
from mq.broker.ready import ReadyList, Share
from mq.model.errors import SettingsUnreadable, Unavailable
from mq.model.log import logger
from mq.model.names import QueueName
from mq.model.selection import Selection
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.keys.keyed import still_heads
from mq.store.operations.buckets import drop_buckets
from mq.store.scan.barren import Allowances, Barren
from mq.store.scan.order import (
    STRICT,
    FolderMark,
    GroupFolders,
    Listing,
    Order,
    is_unchanged,
    list_ready,
)
from mq.store.scan.selecting import SelectedLook

# Such scans that a process runs at a time, so that the event loop gets its share.
SELECT_HOPS_AT_ONCE: Final = 2
# One scan in this many begins at another process's shard, so that no shard waits for ever.
LOOKS_PER_SHARD: Final = 4

_log = logger("mq.queue")


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """Limits that the scans for all selections of a process share: how much they remember of
    folders without a match, and how many of their hops run at a time.
    """

    allowances: Allowances = field(default_factory=Allowances)
    hops: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SELECT_HOPS_AT_ONCE))


class Scanner:
    """Scans one queue. Use it on the event loop's thread."""

    def __init__(
        self, name: QueueName, root: Root, committer: Committer, share: Share, groups: Groups
    ) -> None:
        self.clearing: asyncio.Task[None] | None = None
        """Removes empty buckets."""
        self._name = name
        self._root = root
        self._committer = committer
        self._share = share
        self._groups = groups
        self._group_folders = GroupFolders()
        self._scans = 0

    async def scan(
        self, ready: ReadyList, taken: Collection[str] = (), is_whole: bool = True
    ) -> None:
        """Lists the ready messages, without the ids `taken`. Unless it `is_whole`, the scan checks
        only the heads of groups when all known messages wait for heads in flight and a listing
        would take too much of the time. Raises QueueNotFound, Unavailable; the list stays as it is.
        """
        began_s = self._root.clock.steady_s()
        mark, waiting = ready.mark, ready.waiting_groups()
        is_short = bool(waiting) and not is_whole and not ready.may_scan(began_s)
        ready.scan_began(taken, self._root.now_ms())
        try:
            heads = await self._heads(taken)
            if is_short and waiting <= heads.keys():
                ready.scan_failed()
                return
            listing = await self._listing(mark, ready.capacity, heads)
        except BaseException:
            ready.scan_failed()
            raise
        ready.scan_ended(listing, began_s, self._root.clock.steady_s())
        if listing is not None and listing.empty and self.clearing is None:
            self.clearing = asyncio.create_task(self._clear(listing.empty))
            self.clearing.add_done_callback(self._cleared)

    def close(self) -> None:
        """The queue or the selection has ended."""

    def forget(self) -> None:
        """Messages that were skipped before may be deliverable now."""

    async def _heads(self, taken: Collection[str]) -> Mapping[str, str]:
        """The heads of the queue's groups, without those that are being claimed (`taken`). Some are
        checked again: a missing head was settled, by any process.
        """
        held = self._groups.held()
        if not held:
            return held
        known = {group: head for group, head in held.items() if head and head not in taken}
        looked = dict(itertools.islice(known.items(), HEADS_PER_LOOK))
        still = await self._committer.call(still_heads, self._root, self._name, looked)
        for group in looked.keys() - still.keys():
            if self._groups.let_go(group, looked[group]):
                del held[group]
        self._groups.looked(still)
        return held

    async def _listing(
        self, mark: FolderMark | None, limit: int, heads: Mapping[str, str]
    ) -> Listing | None:
        """Lists the first ready messages; None: the folder has not changed since the mark."""
        return await self._committer.call(self._list, mark, limit, heads)

    def _list(
        self, mark: FolderMark | None, limit: int, heads: Mapping[str, str]
    ) -> Listing | None:
        return list_ready(
            self._root, self._name, limit, mark, self._order(), heads, self._group_folders
        )

    def _order(self) -> Order:
        """The strict order without peers. Otherwise, in a queue with shards, the order from this
        process's own shard on, and now and then from another shard, which perhaps no process starts
        at.
        """
        if self._share.peers == 0:
            return STRICT
        try:
            shards = self._root.facts.shape(self._name).shards
        except SettingsUnreadable:
            return STRICT
        turn, more = divmod(self._scans, LOOKS_PER_SHARD)
        self._scans += 1
        start = self._share.own + (0 if more else turn)
        return Order(shards, start % shards)

    async def _clear(self, buckets: tuple[str, ...]) -> None:
        try:
            await self._committer.call(drop_buckets, self._root, buckets)
        except Unavailable as error:
            _log.info(
                "could not remove empty buckets yet",
                extra={"fields": {"queue": self._name.text, "error": repr(error)}},
            )

    def _cleared(self, clearing: "asyncio.Task[None]") -> None:
        self.clearing = None


class SelectedScanner(Scanner):
    """Scans one queue for the messages of one selection."""

    def __init__(
        self,
        name: QueueName,
        root: Root,
        committer: Committer,
        share: Share,
        groups: Groups,
        selection: Selection,
        limits: ScanLimits,
    ) -> None:
        super().__init__(name, root, committer, share, groups)
        self._selection = selection
        self._barren = Barren(limits.allowances)
        self._hops = limits.hops
        self._is_scanning = False
        self._is_closed = False
        self._is_to_forget = False

    def close(self) -> None:
        """Nothing is remembered any more."""
        self._is_closed = True
        if not self._is_scanning:
            self._barren.forget()

    def forget(self) -> None:
        """Folders without a match may have one now."""
        if self._is_scanning:
            self._is_to_forget = True
        else:
            self._barren.forget()

    async def _listing(
        self, mark: FolderMark | None, limit: int, heads: Mapping[str, str]
    ) -> Listing | None:
        """Takes as many hops as it needs: it finds nothing only if nothing is there."""
        self._is_scanning = True
        try:
            if mark is not None and await self._committer.call(is_unchanged, self._root, mark):
                return None
            scan = await self._committer.call(self._begin, limit, heads)
            while True:
                async with self._hops:
                    listing = await self._committer.call(scan.go_on)
                if listing is not None:
                    return listing
        finally:
            self._is_scanning = False
            if self._is_closed or self._is_to_forget:
                self._is_to_forget = False
                self._barren.forget()

    def _begin(self, limit: int, heads: Mapping[str, str]) -> SelectedLook:
        return SelectedLook(
            self._root, self._name, limit, self._selection, self._barren, self._order(), heads=heads
        )
