"""Looking into a queue's folder for what is of a selection."""

import asyncio
from dataclasses import dataclass, field

from mq.broker.looks import Looks
from mq.model.limits import SELECT_HOPS_AT_ONCE
from mq.model.names import QueueName
from mq.model.selection import Selection
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.scan.barren import Allowances, Barren
from mq.store.scan.order import FolderMark, Listing, is_unchanged
from mq.store.scan.selecting import SelectedLook


@dataclass(frozen=True, slots=True)
class Shared:
    """What the looks for all selections of a process share: what they may remember, and how many of
    their hops go on at once.
    """

    allowances: Allowances = field(default_factory=Allowances)
    hops: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SELECT_HOPS_AT_ONCE))


class SelectedLooks(Looks):
    """The looks of one process for one selection's messages. Lives on the event loop's thread."""

    def __init__(
        self,
        name: QueueName,
        root: Root,
        committer: Committer,
        peers: int,
        peer_index: int,
        selection: Selection,
        shared: Shared,
    ) -> None:
        super().__init__(name, root, committer, peers, peer_index)
        self._selection = selection
        self._barren = Barren(shared.allowances)
        self._hops = shared.hops
        self._is_looking = False
        self._is_closed = False
        self._is_to_forget = False

    def close(self) -> None:
        """Nothing is remembered any more."""
        self._is_closed = True
        if not self._is_looking:
            self._barren.forget()

    def forget(self) -> None:
        """Where nothing was of the selection, something may be."""
        if self._is_looking:
            self._is_to_forget = True
        else:
            self._barren.forget()

    async def _listing(self, mark: FolderMark | None, limit: int) -> Listing | None:
        """In as many hops as it takes: nothing is found only where nothing is."""
        self._is_looking = True
        try:
            if mark is not None and await self._committer.call(is_unchanged, self._root, mark):
                return None
            look = await self._committer.call(self._begin, limit)
            while True:
                async with self._hops:
                    listing = await self._committer.call(look.go_on)
                if listing is not None:
                    return listing
        finally:
            self._is_looking = False
            if self._is_closed or self._is_to_forget:
                self._is_to_forget = False
                self._barren.forget()

    def _begin(self, limit: int) -> SelectedLook:
        return SelectedLook(
            self._root,
            self._name,
            limit,
            self._selection,
            self._barren,
            self._order(),
        )
