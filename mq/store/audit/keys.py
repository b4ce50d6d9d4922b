"""Looks at the links of keys, of idempotency keys, and of firings."""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial

from mq.model.errors import BadName, SettingsUnreadable
from mq.model.limits import SWEEP_EVERY_S
from mq.model.names import Key, QueueName
from mq.store.audit.breaches import Breach, Look, Violation
from mq.store.audit.looks import NOTHING, SWEEPS_LATE, Looker, QueueFolder
from mq.store.disk.files import FILE_MODE, FOLDER_MODE
from mq.store.format.layout import Keys, LinkPlace, is_beside_links, is_of_keys
from mq.store.keys.orphans import KeyFolder, is_orphan, kept_s


class KeyLooker(Looker):
    """Of the three folders of links."""

    def _keys(self, kind: Keys) -> Iterator[Look]:
        for found in self._of_queues(self._layout.keys(kind)):
            if not isinstance(found, QueueFolder):
                yield found
                continue
            yield partial(self._of_a_queue, found.path, found.queue)
            yield from self._of_hashes(kind, found.queue, found.path)

    def _of_a_queue(self, folder: str, queue: QueueName) -> Sequence[Violation]:
        if self._is_folder(folder) and self._is_unheard_of(queue):
            return (Violation(Breach.KEYS, folder, "", queue),)
        return NOTHING

    def _of_hashes(self, kind: Keys, queue: QueueName, of_queue: str) -> Iterator[Look]:
        for found in self._entries(of_queue):
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
            # Nobody looks for the key there.
            return (Violation(Breach.SYMLINK, path, "not its key's folder", folder.queue),)
        target = self._root.files.linked(path)
        lain_s = (self._root.now_ms() - status.st_mtime_ns // 1_000_000) / 1000
        sweeps_s = SWEEPS_LATE * SWEEP_EVERY_S + self._overdue_ms / 1000
        if target is None or self._is_unheard_of(folder.queue):
            return NOTHING  # The queue's keys are told as a whole.
        with contextlib.suppress(SettingsUnreadable):
            swept_s = kept_s(self._root, folder) + sweeps_s
            if lain_s > swept_s and is_orphan(self._root, folder, place, target):
                return (Violation(Breach.ORPHAN, path, f"for {lain_s:g} s", folder.queue),)
        return NOTHING


def _key(name: str) -> Key | None:
    try:
        return Key.parse_written(name)
    except BadName:
        return None
