"""Checks of the links of keys, of idempotency keys and of firings, and of index entries."""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial

from mq.model.errors import BadName, SettingsUnreadable
from mq.model.limits import FORGOTTEN_AFTER_S, SWEEP_EVERY_S
from mq.model.names import Key, MessageId, QueueName
from mq.store.audit.findings import Breach, Look, Violation
from mq.store.audit.looks import NOTHING, SWEEPS_LATE, Looker, QueueFolder
from mq.store.disk.files import FILE_MODE, FOLDER_MODE
from mq.store.format.entries import DEPTHS, Entry, Index, index_folder
from mq.store.format.layout import Keys, LinkPlace, is_beside_links, is_of_keys
from mq.store.keys.entries import is_stale
from mq.store.keys.orphans import KeyFolder, is_orphan, kept_s


class KeyLooker(Looker):
    """Checks the folders of links and of entries."""

    def _keys(self, queue: QueueName) -> Iterator[Look]:
        for kind in Keys:
            folder = self._layout.keys_of(kind, queue)
            yield partial(self._in_the_way, folder, stat.S_IFDIR, queue)
            yield partial(self._kept, folder, FOLDER_MODE, queue)
            if self._is_folder(folder):
                yield from self._of_hashes(kind, queue, folder)

    def _of_hashes(self, kind: Keys, queue: QueueName, folder: str) -> Iterator[Look]:
        for found in self._entries(folder):
            if not isinstance(found, os.DirEntry):
                yield found
            elif not is_of_keys(found.name):
                self._foreign(found.name)
            elif not found.is_dir(follow_symlinks=False):
                yield partial(self._in_the_way, found.path, stat.S_IFDIR, queue)
            else:
                yield partial(self._kept, found.path, FOLDER_MODE, queue)
                yield from self._links(KeyFolder(kind, queue, found.path))

    def _links(self, folder: KeyFolder) -> Iterator[Look]:
        for found in self._listed(folder.path):
            if not isinstance(found, os.DirEntry):
                yield found
            elif is_beside_links(found.name):
                if found.is_file(follow_symlinks=False):
                    yield partial(self._kept, found.path, FILE_MODE, folder.queue)
            elif found.name.startswith("."):
                self.amounts.hidden += 1
            elif (key := _key(found.name)) is not None:
                place = self._layout.link(folder.kind, folder.queue, key)
                yield partial(self._link, folder, place, found.path)
            elif found.is_symlink():
                yield partial(self._symlink, found.path)
            else:
                self._foreign(found.name)

    def _link(self, folder: KeyFolder, place: LinkPlace, path: str) -> Sequence[Violation]:
        status = self._root.files.status(path)
        if status is None:
            return NOTHING
        if not stat.S_ISLNK(status.st_mode):
            return self._in_the_way(path, stat.S_IFLNK, folder.queue)
        if path != place.path:
            # No lookup finds the key there.
            return (Violation(Breach.SYMLINK, path, "not its key's folder", folder.queue),)
        target = self._root.files.linked(path)
        lain_s = (self._root.now_ms() - status.st_mtime_ns // 1_000_000) / 1000
        sweeps_s = SWEEPS_LATE * SWEEP_EVERY_S + self._overdue_ms / 1000
        if target is None or self._is_unheard_of(folder.queue):
            return NOTHING
        with contextlib.suppress(SettingsUnreadable):
            swept_s = kept_s(self._root, folder) + sweeps_s
            if lain_s > swept_s and is_orphan(self._root, folder, place, target):
                return (Violation(Breach.ORPHAN, path, f"for {lain_s:g} s", folder.queue),)
        return NOTHING

    def _entries_of(self, index: Index) -> Iterator[Look]:
        for found in self._of_queues(index_folder(self._layout, index)):
            if not isinstance(found, QueueFolder):
                yield found
                continue
            for folder in self._groups(found.path, found.queue, DEPTHS[index]):
                if not isinstance(folder, str):
                    yield folder
                    continue
                yield from self._in_group(index, found.queue, folder)

    def _groups(self, top: str, queue: QueueName, depth: int) -> "Iterator[Look | str]":
        for found in self._entries(top):
            if not isinstance(found, os.DirEntry):
                yield found
            elif not found.is_dir(follow_symlinks=False):
                self._foreign(found.name)
            else:
                yield partial(self._kept, found.path, FOLDER_MODE, queue)
                if depth == 1:
                    yield found.path
                else:
                    yield from self._groups(found.path, queue, depth - 1)

    def _in_group(self, index: Index, queue: QueueName, folder: str) -> Iterator[Look]:
        for found in self._listed(folder):
            if not isinstance(found, os.DirEntry):
                yield found
            elif not found.is_symlink():
                self._foreign(found.name)
            elif (message_id := _id(found.name)) is not None:
                yield partial(self._entry, Entry(index, queue, message_id, folder, found.path))
            else:
                yield partial(self._symlink, found.path)

    def _entry(self, entry: Entry) -> Sequence[Violation]:
        status = self._root.files.status(entry.path)
        if status is None:
            return NOTHING
        lain_s = (self._root.now_ms() - status.st_mtime_ns // 1_000_000) / 1000
        swept_s = FORGOTTEN_AFTER_S + SWEEPS_LATE * SWEEP_EVERY_S + self._overdue_ms / 1000
        with contextlib.suppress(SettingsUnreadable):
            if lain_s > swept_s and is_stale(self._root, entry):
                return (Violation(Breach.ORPHAN, entry.path, f"for {lain_s:g} s", entry.queue),)
        return NOTHING


def _id(name: str) -> MessageId | None:
    try:
        return MessageId.parse(name)
    except BadName:
        return None


def _key(name: str) -> Key | None:
    try:
        return Key.parse_written(name)
    except BadName:
        return None
