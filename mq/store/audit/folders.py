"""The folders of a root in which names lie by the thousand, messages' and keys': each may be looked
at by itself, by whichever process. What lies around them is looked at here.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from mq.model.lifecycle import State
from mq.model.limits import DEEP_DIGITS
from mq.model.names import QueueName
from mq.store.audit.auditor import Auditor
from mq.store.audit.breaches import Look
from mq.store.disk.files import FOLDER_MODE
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.layout import Keys, are_deleted_keys, is_deleted_folder
from mq.store.format.pipeline import is_acknowledged
from mq.store.keys.orphans import KeyFolder

# A bucket that is as large, by its own size, has other folders below it that are worth a task each.
_SPLIT_BYTES: Final = 64 * 1024
_LINKS_OF_EMPTY: Final = 2


@dataclass(frozen=True, slots=True)
class NameFolder:
    """A folder of messages in a `state`, or, of no state, of `keys`. `queue`: whose all names in it
    are; None: each says it. `bucket` is its own, as in places. `size`: its bytes, which tell about
    how many names it has. `is_split`: the folders in it are others of these.
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
        """Whether buckets may lie in it."""
        return not self.bucket and self.state not in (None, State.NEW)

    @property
    def is_bucket(self) -> bool:
        """Whether it is a bucket, so that what that cannot hold may lie below it."""
        return self.bucket.count("/") == 1 and parse_bucket(self.bucket[:-1]) is not None

    @property
    def is_of_deleted(self) -> bool:
        """Whether it is of a queue's folder that was taken away as a whole."""
        return self.state is State.REMOVED and self.queue is not None


class FolderAuditor(Auditor):
    """Looks at all that lies in no such folder, and finds these: `folders` has them once the looks
    are through.
    """

    _found: list[NameFolder] | None = None

    @property
    def folders(self) -> list[NameFolder]:
        """Those that were found so far, in no order."""
        if self._found is None:
            self._found = []
        return self._found

    def _shared(self, state: State) -> Iterator[Look]:
        top = self._layout.folder(state)
        self._add(top, state, None)
        if state is State.NEW:
            return
        for entry in self._below_top(top):
            name = entry.name
            if parse_bucket(name) is not None:
                yield from self._bucket(entry, state, None)
            elif state is State.REMOVED and is_folder_of_removed(name):
                yield from self._folder_in(state, "", entry)

    def _lease(self, state: State, folder: str) -> Iterator[Look]:
        self._add(folder, state, None, f"{os.path.basename(folder)}/")
        return iter(())

    def _queue(self, folder: str, state: State, queue: QueueName) -> Iterator[Look]:
        self._add(folder, state, queue)
        for entry in self._below_top(folder):
            if parse_bucket(entry.name) is not None:
                yield from self._bucket(entry, state, queue)

    def _bucket(
        self, entry: "os.DirEntry[str]", state: State, queue: QueueName | None
    ) -> Iterator[Look]:
        bucket = f"{entry.name}/"
        yield partial(self._kept, entry.path, FOLDER_MODE)
        status = self._root.files.status(entry.path)
        is_large = status is not None and (
            status.st_size >= _SPLIT_BYTES or status.st_nlink > _LINKS_OF_EMPTY
        )
        self._add(entry.path, state, queue, bucket, is_split=is_large)
        if not is_large:
            return
        for number in range(16**DEEP_DIGITS):
            deep = f"{number:0{DEEP_DIGITS}x}"
            path = f"{entry.path}/{deep}"
            # Asked for, not listed: that would be all the names in the bucket.
            if self._root.files.is_there(path) and self._is_folder(path):
                yield partial(self._kept, path, FOLDER_MODE)
                self._add(path, state, queue, f"{bucket}{deep}/")

    def _links(self, folder: KeyFolder) -> Iterator[Look]:
        self._add(folder.path, None, folder.queue, keys=folder.kind)
        return iter(())

    def _below_top(self, top: str) -> "Iterator[os.DirEntry[str]]":
        """The folders in one; where it cannot be listed, whoever looks at its names tells."""
        for found in self._listed(top):
            if isinstance(found, os.DirEntry) and found.is_dir(follow_symlinks=False):
                yield found

    def _add(
        self,
        path: str,
        state: State | None,
        queue: QueueName | None,
        bucket: str = "",
        *,
        is_split: bool = False,
        keys: Keys | None = None,
    ) -> None:
        status = self._root.files.status(path)
        size = 0 if status is None else status.st_size
        self.folders.append(NameFolder(path, state, queue, bucket, size, is_split, keys))


def is_folder_of_removed(name: str) -> bool:
    """Whether a folder of this name in remove/ is a deleted queue's, its keys', or an acknowledged
    lease's.
    """
    return is_acknowledged(name) or is_deleted_folder(name) or are_deleted_keys(name)
