"""Unlinking what was removed: files, and deleted queues' folders with what lies in them.

No unlink is flushed: what a crash brings back is in remove/ still, and is reaped again. A key that
is freed says that its message was removed for good: that is flushed before.
"""

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mq.errors import BadName, SettingsUnreadable
from mq.limits import REAPED_PER_PASS_MAX
from mq.names import MessageId, QueueName
from mq.store.bucket_names import Bucket, parse_bucket
from mq.store.files import Files, is_gone
from mq.store.holders import free_key, kept_flush
from mq.store.keys import is_link
from mq.store.layout import (
    Keys,
    are_deleted_keys,
    is_beside_links,
    is_deleted_folder,
    is_of_keys,
    parse_entry,
)
from mq.store.pipeline_layout import acknowledged_ms, is_acknowledged
from mq.store.root import Root
from mq.store.walk import entries_if_there, is_bucket, is_deep_folder

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

    Names that are no message's, no deleted queue's and no bucket's are left alone. Raises OSError
    when the folder cannot be listed, and, after all others went, when one could not be seen or
    unlinked.
    """
    passing = _Pass(files, now_ms, round(keep_s * 1000), limit, root)
    passing.over(files.entries(source), None)
    passing.end()
    if passing.failure is not None:
        raise passing.failure
    return passing.reaped()


class _Pass:
    """One pass, folder by folder."""

    def __init__(
        self, files: Files, now_ms: int, keep_ms: int, limit: int, root: Root | None
    ) -> None:
        self.failure: OSError | None = None
        self._root = root if root is not None and _has_keys(root) else None
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
        for entry in entries:
            if self._is_enough():
                return
            try:
                self._one(entry, bucket)
            except OSError as error:
                self.failure = self.failure or error

    def _one(self, entry: "os.DirEntry[str]", bucket: Bucket | None) -> None:
        if bucket is None and is_bucket(entry):
            self._bucket(entry, parse_bucket(entry.name))
        elif bucket is not None and is_deep_folder(entry):
            self._bucket(entry, bucket)
        elif not _is_ours(entry):
            if not entry.name.startswith("."):
                self._foreign, self._foreign_name = self._foreign + 1, entry.name
        elif (status := self._files.status(entry.path)) is not None:
            goes_ms = _came_ms(entry.name, status) + self._keep_ms
            if goes_ms > self._now_ms:
                self._next_ms = goes_ms if self._next_ms is None else min(self._next_ms, goes_ms)
            elif is_acknowledged(entry.name):
                self._lease(entry)
            elif entry.is_dir(follow_symlinks=False):
                empty = self._empty_keys if are_deleted_keys(entry.name) else self._empty
                self._deleted_queue(entry, empty)
            else:
                self._message(entry)

    def _lease(self, folder: "os.DirEntry[str]") -> None:
        """An acknowledged one: its messages, and, once none is left, itself."""
        keyed = len(self._keyed)
        for entry in entries_if_there(self._files, folder.path):
            if self._is_enough():
                return
            if is_message(entry):
                self._message(entry)
        if len(self._keyed) > keyed:
            self._buckets += 1  # Those go at the pass's end, and the folder at the next one.
        else:
            self._deleted_queue(folder, lambda path: None)

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
        self.over(entries_if_there(self._files, entry.path), bucket)
        if bucket is not None and not bucket.may_be_written(self._now_ms):
            _rmdir(self._files, entry.path)

    def _deleted_queue(self, entry: "os.DirEntry[str]", empty: Callable[[str], None]) -> None:
        empty(entry.path)
        if self._is_enough():
            return
        if _rmdir(self._files, entry.path):
            self._folders += 1
        else:
            self._foreign, self._foreign_name = self._foreign + 1, entry.name

    def _empty(self, folder: str, depth: int = 0) -> None:
        """Unlinks the messages in a deleted queue's folder, its buckets, and those below them."""
        for entry in entries_if_there(self._files, folder):
            if self._is_enough():
                return
            if (depth == 0 and is_bucket(entry)) or (depth == 1 and is_deep_folder(entry)):
                self._empty(entry.path, depth + 1)
                _rmdir(self._files, entry.path)
            elif MessageId.is_written(entry.name) and entry.is_file(follow_symlinks=False):
                self._unlink(entry.path)

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
            _rmdir(self._files, of_hash.path)

    def _is_enough(self) -> bool:
        return self._unlinked + len(self._keyed) >= self._limit

    def _unlink(self, path: str) -> None:
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            return
        self._unlinked += 1


def _has_keys(root: Root) -> bool:
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


def _came_ms(name: str, status: os.stat_result) -> int:
    """When it came to remove/, milliseconds since the epoch: by its ctime. A lease's folder has
    another one when something goes from it; its name says when it came, by its consumer's clock.
    """
    ctime_ms = status.st_ctime_ns // 1_000_000
    came_ms = acknowledged_ms(name)
    return ctime_ms if came_ms is None else min(ctime_ms, came_ms)


def _rmdir(files: Files, path: str) -> bool:
    try:
        files.rmdir(path)
    except OSError as error:
        if is_gone(error):
            return True  # Another reaper was here.
        if error.errno in _NOT_EMPTY:
            return False  # A foreign file is in it.
        raise
    return True
