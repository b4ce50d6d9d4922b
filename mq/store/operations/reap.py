"""Unlinking what was removed: files, and deleted queues' folders with what lies in them.

No unlink is flushed: what a crash brings back is in remove/ still, and is reaped again. A key that
is freed says that its message was removed for good: that is flushed before.

While an archive is enabled no message goes here: `reap_stored` has those that may. Names are
listed, then the archive's mark is looked at, then they are unlinked: whoever enables an archive
lists remove/ after that, so what goes without was removed before.
"""

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from mq.model.errors import BadName, SettingsUnreadable
from mq.model.limits import REAPED_NAMES_PER_LOOK, REAPED_PER_PASS_MAX
from mq.model.names import MessageId, QueueName
from mq.store.archive.archiving import is_marked
from mq.store.core.root import Root
from mq.store.disk.files import Files, is_gone
from mq.store.format.bucket_names import Bucket, parse_bucket
from mq.store.format.layout import (
    Keys,
    Layout,
    are_deleted_keys,
    is_beside_links,
    is_deleted_folder,
    is_of_keys,
    parse_deleted_folder,
    parse_entry,
)
from mq.store.format.pipeline import acknowledged_ms, is_acknowledged
from mq.store.format.walk import entries_if_there, is_bucket, is_deep_folder
from mq.store.keys.holders import free_key, kept_flush
from mq.store.keys.links import is_link
from mq.store.operations.late import give_back_late

_NOT_EMPTY: Final = (errno.ENOTEMPTY, errno.EEXIST)


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one pass did: files and folders unlinked, foreign names met (deleted queues' folders
    that hold some among them) and one of them, and when the first file that is kept may go
    (milliseconds since the epoch; None: none is kept). `more` when another pass may find some
    though the folder itself has not changed: this one was cut, or there are buckets.
    """

    files: int = 0
    folders: int = 0
    foreign: int = 0
    foreign_name: str = ""
    next_ms: int | None = None
    more: bool = False


def reap(
    files: Files,
    source: str,
    now_ms: int,
    keep_s: float,
    limit: int = REAPED_PER_PASS_MAX,
    root: Root | None = None,
) -> Reaped:
    """Unlinks what came to `source` (by ctime) at least `keep_s` seconds ago, some `limit` names
    of it; blocking, in memory that does not grow with what lies there. Where `source` is the
    remove/ of a `root` that has keys, it frees those of the messages that go.

    Names that are no message's, no deleted queue's and no bucket's are left alone, and messages
    while an archive is enabled in the root that `source` lies in. Raises OSError when the folder
    cannot be listed, and, after all others went, when one could not be seen or unlinked.
    """
    layout = Layout.of(Path(source).parent) if root is None else root.layout
    passing = _Pass(files, layout, now_ms, round(keep_s * 1000), limit, root)
    passing.over(files.entries(source), None)
    passing.end()
    if passing.failure is not None:
        raise passing.failure
    return passing.reaped()


class _Pass:
    """One pass, folder by folder."""

    def __init__(
        self,
        files: Files,
        layout: Layout,
        now_ms: int,
        keep_ms: int,
        limit: int,
        root: Root | None,
    ) -> None:
        self.failure: OSError | None = None
        self._layout = layout
        self._is_archived = False
        self._root = root if root is not None and has_keys(root) else None
        # Elsewhere no rename by a queue's name goes to the folder that had it before.
        self._returns = root if root is not None and root.over_network else None
        self._keyed: list[tuple[str, QueueName, MessageId]] = []
        self._files = files
        self._now_ms = now_ms
        self._keep_ms = keep_ms
        self._limit = limit
        self._unlinked = self._folders = self._foreign = self._buckets = 0
        self._foreign_name = ""
        self._next_ms: int | None = None

    def reaped(self) -> Reaped:
        """What was done."""
        return Reaped(
            self._unlinked,
            self._folders,
            self._foreign,
            self._foreign_name,
            self._next_ms,
            self._is_enough() or self._buckets > 0,
        )

    def over(self, entries: "Iterator[os.DirEntry[str]]", bucket: Bucket | None) -> None:
        """remove/, or one of its buckets, or what lies below one."""
        for entry in self._listed(entries):
            if self._is_enough():
                return
            try:
                self._one(entry, bucket)
            except OSError as error:
                self.failure = self.failure or error

    def _listed(self, entries: "Iterator[os.DirEntry[str]]") -> "Iterator[os.DirEntry[str]]":
        """Entries, listed some at a time, and the archive's mark looked at after that."""
        while some := list(islice(entries, REAPED_NAMES_PER_LOOK)):
            self._look_at_mark()
            yield from some

    def _look_at_mark(self) -> None:
        self._is_archived = self._is_archived or is_marked(self._files, self._layout)

    def _one(self, entry: "os.DirEntry[str]", bucket: Bucket | None) -> None:
        if bucket is None and is_bucket(entry):
            self._bucket(entry, parse_bucket(entry.name))
        elif bucket is not None and is_deep_folder(entry):
            self._bucket(entry, bucket)
        elif not _is_ours(entry):
            if not entry.name.startswith("."):
                self._foreign, self._foreign_name = self._foreign + 1, entry.name
        elif self._is_archived and not entry.is_dir(follow_symlinks=False):
            return
        elif (status := self._files.status(entry.path)) is not None:
            goes_ms = _came_ms(entry.name, status) + self._keep_ms
            if goes_ms > self._now_ms:
                self._next_ms = goes_ms if self._next_ms is None else min(self._next_ms, goes_ms)
            elif entry.is_dir(follow_symlinks=False):
                self._folder(entry)
            else:
                self._message(entry)

    def _folder(self, entry: "os.DirEntry[str]") -> None:
        if are_deleted_keys(entry.name):
            self._empty_keys(entry.path)
            self._gone(entry)
        elif self._is_archived:
            if not self._holds_messages(entry.path):
                self._gone(entry)
        elif is_acknowledged(entry.name):
            self._lease(entry)
        else:
            self._empty(entry.path, entry.name)
            self._emptied(entry)

    def _lease(self, folder: "os.DirEntry[str]") -> None:
        """An acknowledged one: its messages, and, once none is left, itself."""
        keyed = len(self._keyed)
        for entry in self._listed(entries_if_there(self._files, folder.path)):
            if self._is_enough() or self._is_archived:
                return
            if is_message(entry):
                self._message(entry)
        if len(self._keyed) > keyed:
            self._buckets += 1  # Those go at the pass's end, and the folder at the next one.
        else:
            self._emptied(folder)

    def _message(self, entry: "os.DirEntry[str]") -> None:
        queue, message_id = parse_entry(entry.name)
        if self._root is None or message_id.key is None:
            self._unlink(entry.path)
        else:
            self._keyed.append((entry.path, queue, message_id))

    def end(self) -> None:
        """Unlinks the messages that have keys, which are freed before."""
        if self._root is None or not self._keyed:
            return
        try:
            freed = self._sync_removals(self._root)
        except OSError as error:
            self.failure = self.failure or error
            return
        for queue, message_id in freed:
            free_key(self._root, queue, message_id)
        for path, _, _ in self._keyed:
            try:
                self._unlink(path)
            except OSError as error:
                self.failure = self.failure or error

    def _sync_removals(self, root: Root) -> list[tuple[QueueName, MessageId]]:
        """Flushes that they were removed, by whoever: if one came back whose key is free, two could
        have it. Gives those of which that is known.
        """
        freed = []
        folders: dict[str, None] = {}
        for _, queue, message_id in self._keyed:
            with contextlib.suppress(SettingsUnreadable):  # Its key's next message frees it.
                flush = kept_flush(root, queue, message_id)
                folders |= dict.fromkeys((*flush.folders, *itertools.chain(*flush.beside)))
                freed.append((queue, message_id))
        for folder in folders:
            try:
                self._files.sync_folder(folder)
            except OSError as error:
                if not is_gone(error):
                    raise
        return freed

    def _bucket(self, entry: "os.DirEntry[str]", bucket: Bucket | None) -> None:
        self._buckets += 1
        is_old = bucket is not None and not bucket.may_be_written(self._now_ms)
        if not self._is_archived:
            self.over(entries_if_there(self._files, entry.path), bucket)
            if is_old:
                rmdir_if_empty(self._files, entry.path)
        elif is_old and not self._holds_messages(entry.path):
            self._rmdir(entry)

    def _holds_messages(self, path: str) -> bool:
        """Whether one lies in the folder; emptied folders in it go. One is enough to know."""
        for entry in entries_if_there(self._files, path):
            if is_bucket(entry) or is_deep_folder(entry):
                if self._holds_messages(entry.path):
                    return True
                rmdir_if_empty(self._files, entry.path)
            elif is_message(entry) or _is_id(entry):
                return True
        return False

    def _emptied(self, entry: "os.DirEntry[str]") -> None:
        """One that had messages. Where an archive was enabled meanwhile, some may be left to it."""
        if not self._is_archived:
            self._gone(entry)

    def _gone(self, entry: "os.DirEntry[str]") -> None:
        """A folder that was emptied goes."""
        if not self._is_enough() and self._rmdir(entry):
            self._folders += 1

    def _rmdir(self, entry: "os.DirEntry[str]") -> bool:
        went = rmdir_if_empty(self._files, entry.path)
        if not went:
            self._foreign, self._foreign_name = self._foreign + 1, entry.name
        return went

    def _empty(self, folder: str, deleted: str, depth: int = 0) -> None:
        """Unlinks the messages in a deleted queue's folder, which has the name `deleted`, in its
        buckets, and in those below them; but for those that came after the deletion.
        """
        for entry in self._listed(entries_if_there(self._files, folder)):
            if self._is_enough() or self._is_archived:
                return
            if (depth == 0 and is_bucket(entry)) or (depth == 1 and is_deep_folder(entry)):
                self._empty(entry.path, deleted, depth + 1)
                rmdir_if_empty(self._files, entry.path)
            elif _is_id(entry) and not self._goes_back(entry, deleted):
                self._unlink(entry.path)

    def _goes_back(self, entry: "os.DirEntry[str]", deleted: str) -> bool:
        if self._returns is None:
            return False
        queue, of = parse_deleted_folder(deleted)
        message_id = MessageId.parse(entry.name)
        return give_back_late(self._returns, queue, of.published_ms, message_id, entry.path)

    def _empty_keys(self, folder: str) -> None:
        """Unlinks a deleted queue's keys."""
        for of_hash in entries_if_there(self._files, folder):
            if not is_of_keys(of_hash.name) or not of_hash.is_dir(follow_symlinks=False):
                continue
            for entry in entries_if_there(self._files, of_hash.path):
                if self._is_enough():
                    return
                if is_beside_links(entry.name) or is_link(entry):
                    self._unlink(entry.path)
            rmdir_if_empty(self._files, of_hash.path)

    def _is_enough(self) -> bool:
        return self._unlinked + len(self._keyed) >= self._limit

    def _unlink(self, path: str) -> None:
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            return
        self._unlinked += 1


def has_keys(root: Root) -> bool:
    """Whether messages of the root have keys that are to be freed. Raises OSError."""
    return root.files.status(root.layout.keys(Keys.LOOKUP)) is not None


def _is_ours(entry: "os.DirEntry[str]") -> bool:
    if entry.is_dir(follow_symlinks=False):
        name = entry.name
        return is_deleted_folder(name) or are_deleted_keys(name) or is_acknowledged(name)
    return is_message(entry)


def is_message(entry: "os.DirEntry[str]") -> bool:
    """Whether it is a message's file, where they are named after their queues too."""
    if not entry.is_file(follow_symlinks=False):
        return False
    try:
        parse_entry(entry.name)
    except BadName:
        return False
    return True


def _is_id(entry: "os.DirEntry[str]") -> bool:
    return MessageId.is_written(entry.name) and entry.is_file(follow_symlinks=False)


def _came_ms(name: str, status: os.stat_result) -> int:
    """When it came to remove/, milliseconds since the epoch: by its ctime. A lease's folder has
    another one when something goes from it; its name says when it came, by its consumer's clock.
    """
    ctime_ms = status.st_ctime_ns // 1_000_000
    came_ms = acknowledged_ms(name)
    return ctime_ms if came_ms is None else min(ctime_ms, came_ms)


def rmdir_if_empty(files: Files, path: str) -> bool:
    """Takes a folder away; False: something is in it. Raises OSError. Durable on return: no."""
    try:
        files.rmdir(path)
    except OSError as error:
        if is_gone(error):
            return True  # Another reaper was here.
        if error.errno in _NOT_EMPTY:
            return False  # A foreign file is in it.
        raise
    return True
