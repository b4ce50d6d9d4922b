"""What lies in remove/, name by name in one order: paths below it, as ledgers of an archive have.

The order is that of `format.archive.place_of`: folder by folder, by their names, so that what two
listings have, or a listing and a ledger, can be told apart while both are read once.
"""

import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from mq.model.bulk_limits import REMOVED_NAMES_BLOCK, SORTED_NAMES_MAX
from mq.model.errors import BadName
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.archive import place_of
from mq.store.format.layout import is_deleted_folder, split_entry
from mq.store.format.pipeline import is_acknowledged
from mq.store.format.walk import entries_if_there, is_bucket, is_deep_folder

_QUEUES_KNOWN_MAX: Final = 100_000


def removed_names(root: Root, held_max: int = SORTED_NAMES_MAX) -> Iterator[list[str]]:
    """The paths below remove/ of all messages there, in order, some at a time; each message that
    was there when this began and still is comes once, what comes meanwhile may. At most `held_max`
    names of a folder are held.

    Names that are no message's are left out. Raises OSError when a folder cannot be listed; one
    below remove/ that goes meanwhile is passed over.
    """
    return in_blocks(_Listing(root.files, root.layout.remove, held_max).names())


def in_blocks(names: Iterator[str]) -> Iterator[list[str]]:
    """The same names, some at a time."""
    while block := list(islice(names, REMOVED_NAMES_BLOCK)):
        yield block


def without(blocks: Iterator[list[str]], others: Iterator[str]) -> Iterator[list[str]]:
    """The names of `blocks` that are not among `others`; both are in order."""
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
    """One listing, and the queues whose names it has met."""

    files: Files
    top: str
    held_max: int
    queues: dict[str, bool] = field(default_factory=dict)

    def names(self) -> Iterator[str]:
        for entry in self._in_order(self.top, self.files.entries(self.top)):
            name = entry.name
            if not entry.is_dir(follow_symlinks=False):
                if self._is_entry(entry):
                    yield name
            elif is_bucket(entry):
                yield from self._bucket(name, entry.path, of_entries=True)
            elif is_acknowledged(name):
                yield from self._flat(name, entry.path, of_entries=True)
            elif is_deleted_folder(name):
                yield from self._deleted(name, entry.path)

    def _deleted(self, below: str, path: str) -> Iterator[str]:
        for entry in self._in_order(path):
            if is_bucket(entry):
                inner = f"{below}/{entry.name}"
                yield from self._bucket(inner, entry.path, of_entries=False)
            elif _is_id(entry):
                yield f"{below}/{entry.name}"

    def _bucket(self, below: str, path: str, of_entries: bool) -> Iterator[str]:
        for entry in self._in_order(path):
            if is_deep_folder(entry):
                inner = f"{below}/{entry.name}"
                yield from self._flat(inner, entry.path, of_entries)
            elif self._is_entry(entry) if of_entries else _is_id(entry):
                yield f"{below}/{entry.name}"

    def _flat(self, below: str, path: str, of_entries: bool) -> Iterator[str]:
        for entry in self._in_order(path):
            if self._is_entry(entry) if of_entries else _is_id(entry):
                yield f"{below}/{entry.name}"

    def _is_entry(self, entry: "os.DirEntry[str]") -> bool:
        """Whether it is a message's file that is named after its queue too."""
        queue, message_id = split_entry(entry.name)
        known = self.queues.get(queue)
        if known is None:
            if len(self.queues) >= _QUEUES_KNOWN_MAX:
                self.queues.clear()
            known = self.queues[queue] = _is_queue(queue)
        return known and MessageId.is_written(message_id) and entry.is_file(follow_symlinks=False)

    def _in_order(
        self, path: str, entries: "Iterator[os.DirEntry[str]] | None" = None
    ) -> "Iterator[os.DirEntry[str]]":
        """The entries by their names. Of a folder that has more than may be held the least come
        first, and it is listed again for those behind them.
        """
        behind = ""
        while True:
            found = entries_if_there(self.files, path) if entries is None else entries
            entries = None
            rest = (each for each in found if each.name > behind and each.name.isascii())
            held = list(islice(rest, self.held_max))
            if len(held) < self.held_max:
                held.sort(key=_name)
            else:
                held = heapq.nsmallest(self.held_max, chain(held, rest), key=_name)
            yield from held
            if len(held) < self.held_max:
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
