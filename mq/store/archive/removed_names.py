"""The names in remove/ in a fixed order: paths below it, as in ledgers of an archive.

The order is that of `format.archive.place_of`: folder by folder, by name. So two listings, or a
listing and a ledger, can be compared in one pass over both. An archive's lag is what lies in
remove/ and is in no stored ledger.
"""

import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from mq.model.errors import BadName
from mq.model.names import PACKED, MessageId, QueueName
from mq.store.archive.ledger import ledgers, names_of, stored_ledgers
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.archive import parse_removed, place_of, removed_with_folder_ms
from mq.store.format.layout import is_deleted_folder, split_entry
from mq.store.format.walk import Folder, Holds, walk

# Limits: names of one folder that are sorted in memory, and names of a block.
SORTED_NAMES_MAX: Final = 200_000
REMOVED_NAMES_BLOCK: Final = 1_000

_QUEUES_KNOWN_MAX: Final = 100_000


def removed_names(root: Root) -> Iterator[list[str]]:
    """The paths below remove/ of all messages, in order, in blocks. Each message that is there from
    begin to end comes once; one that comes meanwhile may. Holds at most SORTED_NAMES_MAX names of a
    folder in memory.

    Skips names that are not messages. Raises OSError if a folder cannot be listed; skips a folder
    below remove/ that disappears meanwhile.
    """
    return in_blocks(_Listing(root.files, root.layout.remove).names())


def in_blocks(names: Iterator[str]) -> Iterator[list[str]]:
    """Splits names into blocks."""
    while block := list(islice(names, REMOVED_NAMES_BLOCK)):
        yield block


def without(blocks: Iterator[list[str]], others: Iterator[str]) -> Iterator[list[str]]:
    """The names of `blocks` that are not in `others`; both are sorted."""
    other = next(others, None)
    place = "" if other is None else place_of(other)
    for block in blocks:
        if other is None:
            yield block
            continue
        kept = []
        for name in block:
            here = place_of(name)
            while other is not None and place < here:
                other = next(others, None)
                place = "" if other is None else place_of(other)
            if other is None or place != here:
                kept.append(name)
        if kept:
            yield kept


@dataclass(slots=True)
class _Listing:
    """One listing, and a cache of parsed queue names."""

    files: Files
    top: str
    queues: dict[str, bool] = field(default_factory=dict)

    def names(self) -> Iterator[str]:
        top = Folder(self.top, Holds.REMOVED)
        known, is_message = top, self._is_entry
        for folder, entry in walk(self.files, top, entries=self._in_order):
            if folder is not known:
                # In a deleted queue's folder, names do not contain the queue.
                is_of_one = is_deleted_folder(folder.spot.partition("/")[0])
                known, is_message = folder, _is_id if is_of_one else self._is_entry
            if is_message(entry):
                yield folder.spot + entry.name

    def _is_entry(self, entry: "os.DirEntry[str]") -> bool:
        """Whether it is a message's file with its queue's name in front."""
        queue, message_id = split_entry(entry.name)
        known = self.queues.get(queue)
        if known is None:
            if len(self.queues) >= _QUEUES_KNOWN_MAX:
                self.queues.clear()
            known = self.queues[queue] = _is_queue(queue)
        return known and MessageId.is_written(message_id) and entry.is_file(follow_symlinks=False)

    def _in_order(self, path: str) -> "Iterator[os.DirEntry[str]]":
        """The entries by name. If a folder has more entries than may be held, the smallest come
        first, and the folder is listed again for the rest.
        """
        behind = ""
        while True:
            found = self.files.entries(path)
            rest = (each for each in found if each.name > behind and each.name.isascii())
            held = list(islice(rest, SORTED_NAMES_MAX))
            if len(held) < SORTED_NAMES_MAX:
                held.sort(key=_name)
            else:
                held = heapq.nsmallest(SORTED_NAMES_MAX, chain(held, rest), key=_name)
            yield from held
            if len(held) < SORTED_NAMES_MAX:
                return
            behind = held[-1].name


def _name(entry: "os.DirEntry[str]") -> str:
    return entry.name


def _is_id(entry: "os.DirEntry[str]") -> bool:
    return MessageId.is_written(entry.name) and entry.is_file(follow_symlinks=False)


def _is_queue(text: str) -> bool:
    try:
        QueueName.parse(text)
    except BadName:
        return False
    return True


class LagLook:
    """One scan of remove/, in steps. `messages` and `oldest_ms` (its removal, milliseconds since
    the epoch; None: there is none) are the results so far. Uses constant memory. Messages that are
    stored meanwhile may count.
    """

    def __init__(self, root: Root) -> None:
        self.messages = 0
        self.oldest_ms: int | None = None
        self._root = root
        self._blocks = _unstored(root)

    def advance(self, names: int) -> bool:
        """Looks at `names` more names, or a few more; False at the end. Raises OSError, which ends
        the scan.
        """
        while names > 0:
            block = next(self._blocks, None)
            if block is None:
                return False
            names -= len(block)
            for name in block:
                self._count(name)
        return True

    def _count(self, name: str) -> None:
        status = self._root.files.status(f"{self._root.layout.remove}/{name}")
        if status is None:
            return
        folder_ms = removed_with_folder_ms(name)
        came_ms = status.st_ctime_ns // 1_000_000 if folder_ms is None else folder_ms
        self.messages += parse_removed(name).id.items or 1 if PACKED in name else 1
        self.oldest_ms = came_ms if self.oldest_ms is None else min(self.oldest_ms, came_ms)


def _unstored(root: Root) -> Iterator[list[str]]:
    names = stored_ledgers(ledgers(root))
    with names_of(root, names, what_can_be_read=True) as have:
        yield from without(removed_names(root), have)
