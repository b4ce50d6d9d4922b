"""Unlinks the messages that stored ledgers of an enabled archive name, and no others.

Each call continues where the last one stopped. A ledger is unlinked after all its messages: so no
power cut brings back a message that is not known to be stored.
"""

import stat
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from mq.model.errors import ArchiveUnreadable, BadName
from mq.store.archive.ledger import OpenLedger, ledgers, stored_ledgers
from mq.store.core.root import Root, rmdir_if_empty, unlink_if_there
from mq.store.disk.files import is_gone
from mq.store.format.archive import (
    LedgerName,
    Removal,
    folder_of,
    ledger_path,
    parse_removed,
    removed_with_folder_ms,
)
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.walk import LOOK_SHARE
from mq.store.keys.links import free_key
from mq.store.operations.reap import REAPED_PER_PASS_MAX, has_keys

# Limits: names that one pass looks up, and the pause before a ledger with remaining names is tried
# again.
REAPED_LOOKS_PER_PASS_MAX: Final = 10 * REAPED_PER_PASS_MAX
REAPED_AGAIN_S: Final = 5.0

_KEYED = ",k="


@dataclass(slots=True)
class _Round:
    """The progress of one pass over a ledger. `left`: some names remain. `next_ms`: when the first
    kept message may be unlinked.
    """

    offset: int = 0
    left: bool = False
    next_ms: int | None = None
    cost_s: float = 0.0
    is_over: bool = False

    def again(self, now_ms: int) -> None:
        """Begins anew once kept messages may go, and not before the pause after a pass."""
        if self.next_ms is not None:
            self.next_ms = max(self.next_ms, now_ms + round(self.cost_s / LOOK_SHARE * 1000))
        self.offset, self.left, self.cost_s = 0, False, 0.0

    def keep(self, goes_ms: int) -> None:
        self.left = True
        self.next_ms = goes_ms if self.next_ms is None else min(self.next_ms, goes_ms)


class StoredReaping:
    """One reaper's knowledge of a root's stored ledgers. `keep_ms`: the minimum age of an unlinked
    message since its removal.
    """

    def __init__(self, root: Root, keep_ms: int) -> None:
        self.files = self.folders = 0
        """The numbers of names that the last call unlinked, and of folders of deleted queues and
        leases.
        """
        self.failure: OSError | None = None
        self.unreadable: ArchiveUnreadable | None = None
        """An unreadable ledger: messages that only it names stay."""
        self.next_ms: int | None = None
        self.is_cut = False
        """Whether the last call ended early."""
        self._root = root
        self._keep_ms = keep_ms
        self._rounds: dict[LedgerName, _Round] = {}
        self._left = 0
        self._looked = 0

    def run(self, now_ms: int, limit: int) -> None:
        """Unlinks up to `limit` names. Raises OSError if archive/ cannot be listed; other failures
        are in `failure`, and are tried again.
        """
        self.files = self.folders = self._looked = 0
        self.failure = self.unreadable = self.next_ms = None
        self._left = limit
        are_keyed = has_keys(self._root)
        known = ledgers(self._root)
        newest = max((name.seq for name in known), default=0)
        names = stored_ledgers(known)
        self._rounds = {name: self._rounds.get(name, _Round()) for name in names}
        for name, going in self._rounds.items():
            if self._is_enough():
                break
            try:
                self._ledger(name, going, now_ms, are_keyed, is_newest=name.seq == newest)
            except ArchiveUnreadable as error:
                self.unreadable = error
            except OSError as error:
                if not is_gone(error):
                    self.failure = self.failure or error
        self.is_cut = self._is_enough()

    def _ledger(
        self, name: LedgerName, going: _Round, now_ms: int, are_keyed: bool, is_newest: bool
    ) -> None:
        if going.is_over and is_newest:
            return
        if not going.offset and going.next_ms is not None and going.next_ms > now_ms:
            self._note(going.next_ms)
            return
        with OpenLedger(self._root, name) as ledger:
            if not going.offset:
                going.next_ms = None
            began_s = self._root.clock.steady_s()
            self._names(ledger, going, now_ms, are_keyed)
            going.cost_s += self._root.clock.steady_s() - began_s
            if self._is_enough():
                return
            if going.left:
                going.again(now_ms)
                self._note(going.next_ms)
                return
            going.is_over = True
            # The newest ledger determines the next batch's number.
            if not is_newest:
                unlink_if_there(self._root.files, ledger_path(self._root.layout, name))

    def _names(self, ledger: OpenLedger, going: _Round, now_ms: int, are_keyed: bool) -> None:
        """Continues the pass to its end, or until this call has done enough."""
        while not self._is_enough():
            names, offset = ledger.block(going.offset)
            if not names:
                return
            done = 0
            for spot, group in groupby(names, key=folder_of):
                for name in group:
                    if self._is_enough():
                        rest = sum(len(each) + 1 for each in names[done:])
                        going.offset = offset - rest
                        return
                    done += 1
                    try:
                        self._name(name, ledger.written_ms, going, now_ms, are_keyed)
                    except OSError as error:
                        self.failure = self.failure or error
                        going.keep(now_ms + round(REAPED_AGAIN_S * 1000))
                self._leave(spot, now_ms)
            going.offset = offset

    def _name(
        self, name: str, written_ms: int, going: _Round, now_ms: int, are_keyed: bool
    ) -> None:
        self._looked += 1
        path = f"{self._root.layout.remove}/{name}"
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return
        folder_ms = removed_with_folder_ms(name)
        # The clock may have been ahead: the folder came there before the ledger was written.
        came_ms = (
            status.st_ctime_ns // 1_000_000 if folder_ms is None else min(folder_ms, written_ms)
        )
        if came_ms + self._keep_ms > now_ms:
            going.keep(came_ms + self._keep_ms)
            return
        if are_keyed and _KEYED in name:
            self._free_key(name)
        unlink_if_there(self._root.files, path)
        self.files += 1
        self._left -= 1

    def _free_key(self, name: str) -> None:
        try:
            removed = parse_removed(name)
        except BadName:
            return
        if removed.removal is not Removal.QUEUE:  # The keys of a deleted queue went with it.
            free_key(self._root, removed.queue, removed.id)

    def _leave(self, spot: str, now_ms: int) -> None:
        """Removes a folder below remove/ if it is empty, and then empty ones above it. A bucket
        stays while processes may still write to it.
        """
        while spot:
            top, _, rest = spot.partition("/")
            bucket = parse_bucket(top)
            if bucket is not None and bucket.may_be_written(now_ms):
                return
            try:
                if not rmdir_if_empty(self._root.files, f"{self._root.layout.remove}/{spot}"):
                    return
            except OSError as error:
                self.failure = self.failure or error
                return
            if not rest and bucket is None:
                self.folders += 1
            spot = folder_of(spot)

    def _is_enough(self) -> bool:
        return self._left <= 0 or self._looked >= REAPED_LOOKS_PER_PASS_MAX

    def _note(self, next_ms: int | None) -> None:
        if next_ms is not None:
            self.next_ms = next_ms if self.next_ms is None else min(self.next_ms, next_ms)
