"""The folders of a root that hold thousands of names: of messages and of keys. Each can be checked
by itself, by any process; everything else is checked here.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from mq.model.lifecycle import State
from mq.model.names import QueueName
from mq.store.audit.auditor import Auditor
from mq.store.audit.findings import Look
from mq.store.disk.files import FOLDER_MODE
from mq.store.format.bucket_names import DEEP_DIGITS, parse_bucket
from mq.store.format.layout import Keys, are_deleted_entries, is_deleted_folder
from mq.store.format.pipeline import is_acknowledged
from mq.store.format.walk import Holds, holds_at
from mq.store.keys.orphans import KeyFolder

# A bucket folder of this size has folders below it that are worth a task each.
_SPLIT_BYTES: Final = 64 * 1024
_LINKS_OF_EMPTY: Final = 2


@dataclass(frozen=True, slots=True)
class NameFolder:
    """A folder of messages in a `state`, or of `keys` if `state` is None. `queue`: the queue of all
    names in it; None: each name has its own. `bucket`: its bucket, as in places. `size`: the
    folder's own bytes, a measure of its number of names. `is_split`: the folders below it are
    separate NameFolders.
    """

    path: str
    state: State | None
    queue: QueueName | None
    bucket: str = ""
    size: int = 0
    is_split: bool = False
    keys: Keys | None = None

    @property
    def is_top(self) -> bool:
        """Whether it may have buckets."""
        return not self.bucket and self.state not in (None, State.NEW)

    @property
    def holds(self) -> Holds:
        """The kinds of message folders below it."""
        if self.bucket:
            return holds_at(self.bucket)
        return Holds.BUCKETS if self.is_top else Holds.NOTHING

    @property
    def is_of_deleted(self) -> bool:
        """Whether it is in the folder of a deleted queue or a purged bucket."""
        return self.state is State.REMOVED and self.queue is not None


class FolderAuditor(Auditor):
    """Checks everything outside such folders, and finds them: `folders` is complete once all checks
    were generated.
    """

    _found: list[NameFolder] | None = None

    @property
    def folders(self) -> list[NameFolder]:
        """The folders found so far, in no order."""
        if self._found is None:
            self._found = []
        return self._found

    def _shared(self, state: State) -> Iterator[Look]:
        top = self._layout.folder(state)
        self._add(NameFolder(top, state, None))
        if state is State.NEW:
            return
        for entry in self._below_top(top):
            name = entry.name
            if parse_bucket(name) is not None:
                yield from self._bucket(entry, state, None)
            elif state is State.REMOVED and is_folder_of_removed(name):
                yield from self._folder_in(state, "", entry)

    def _lease(self, state: State, folder: str) -> Iterator[Look]:
        self._add(NameFolder(folder, state, None, f"{os.path.basename(folder)}/"))
        return iter(())

    def _queue(self, folder: str, state: State, queue: QueueName) -> Iterator[Look]:
        self._add(NameFolder(folder, state, queue))
        for entry in self._below_top(folder):
            if parse_bucket(entry.name) is not None:
                yield from self._bucket(entry, state, queue)
        if state is State.READY:
            yield from self._keys(queue)

    def _bucket(
        self, entry: "os.DirEntry[str]", state: State, queue: QueueName | None
    ) -> Iterator[Look]:
        bucket = f"{entry.name}/"
        yield partial(self._kept, entry.path, FOLDER_MODE)
        status = self._root.files.status(entry.path)
        is_large = status is not None and (
            status.st_size >= _SPLIT_BYTES or status.st_nlink > _LINKS_OF_EMPTY
        )
        self._add(NameFolder(entry.path, state, queue, bucket, is_split=is_large))
        if not is_large:
            return
        for number in range(16**DEEP_DIGITS):
            deep = f"{number:0{DEEP_DIGITS}x}"
            path = f"{entry.path}/{deep}"
            # Probed, not listed: a listing would contain all names of the bucket.
            if self._root.files.is_there(path) and self._is_folder(path):
                yield partial(self._kept, path, FOLDER_MODE)
                self._add(NameFolder(path, state, queue, f"{bucket}{deep}/"))

    def _links(self, folder: KeyFolder) -> Iterator[Look]:
        self._add(NameFolder(folder.path, None, folder.queue, keys=folder.kind))
        return iter(())

    def _below_top(self, top: str) -> "Iterator[os.DirEntry[str]]":
        """The folders in a folder; if it cannot be listed, the check of its names reports that."""
        for found in self._listed(top):
            if isinstance(found, os.DirEntry) and found.is_dir(follow_symlinks=False):
                yield found

    def _add(self, folder: NameFolder) -> None:
        status = self._root.files.status(folder.path)
        size = 0 if status is None else status.st_size
        self.folders.append(replace(folder, size=size))


def is_folder_of_removed(name: str) -> bool:
    """Whether a folder of this name in remove/ is of a deleted queue, of its entries, or of an
    acknowledged lease.
    """
    return is_deleted_folder(name) or are_deleted_entries(name) or is_acknowledged(name)
