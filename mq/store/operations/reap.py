"""Unlinks removed messages: files, and deleted queues' folders with their files.

Unlinks are not flushed: what a crash brings back is still in remove/, and is reaped again. A key is
freed before its message's file goes.

While an archive is enabled no message is unlinked here: `archive.reaping` does that. Names are
listed, then the archive's mark is checked, then they are unlinked. Enabling an archive lists
remove/ after writing the mark, so a message that is unlinked without being archived was removed
before.

On a network mount a message may come to a deleted queue's folder after the deletion: mq asks the
server before it moves a message there (`standing.queue_exists`), but other programs may rename
through a mount that still shows the folder. Such a message goes back to the queue.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from mq.model.errors import BadName, MqError
from mq.model.lifecycle import State
from mq.model.log import logger
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root, rmdir_if_empty, unlink_if_there
from mq.store.core.standing import queue_exists
from mq.store.disk.files import Files
from mq.store.format.archive import is_marked
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.layout import (
    KEYS_FOLDERS,
    Keys,
    Layout,
    are_deleted_entries,
    is_deleted_folder,
    parse_deleted_folder,
    parse_entry,
)
from mq.store.format.pipeline import acknowledged_ms, is_acknowledged
from mq.store.format.walk import Folder, entries_if_there
from mq.store.keys.links import free_key, unlink_links

# A message with an id up to this long after the deletion's begin may have gone with its queue.
LATE_AFTER_MS: Final = 1_000
# The limit of names that one pass removes, so that the reaper stops soon when asked to.
REAPED_PER_PASS_MAX: Final = 20_000
# The number of names listed between two checks for an archive.
REAPED_NAMES_PER_LOOK: Final = 500

_log = logger("mq.late")


@dataclass(frozen=True, slots=True)
class Reaped:
    """The results of one pass: the numbers of unlinked files, unlinked folders, and foreign names
    (also folders of deleted queues that hold some) with an example, and when the first kept file
    may be unlinked (milliseconds since the epoch; None: none is kept). `more`: another pass may
    find files without a change of the folder, since this one was cut or there are buckets.
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
    """Unlinks files that came to `source` (by ctime) at least `keep_s` seconds ago, about `limit`
    names. Blocking; uses constant memory. If `source` is the remove/ of a `root` with keys, frees
    the messages' keys.

    Leaves alone names that are not of a message, a deleted queue or a bucket, and all messages
    while an archive is enabled in the root of `source`. Raises OSError if the folder cannot be
    listed and, after everything else was unlinked, if a file could not be read or unlinked.
    """
    layout = Layout.of(Path(source).parent) if root is None else root.layout
    passing = _Pass(files, layout, now_ms, round(keep_s * 1000), limit, root)
    passing.over(Folder(source), files.entries(source))
    if passing.failure is not None:
        raise passing.failure
    return passing.reaped()


class _Pass:
    def __init__(
        self, files: Files, layout: Layout, now_ms: int, keep_ms: int, limit: int, root: Root | None
    ) -> None:
        self.failure: OSError | None = None
        self._layout = layout
        self._is_archived = False
        self._root = root if root is not None and has_keys(root) else None
        # Only on a network mount can a rename by a queue's name reach the folder that had it
        # before.
        self._returns = root if root is not None and root.over_network else None
        self._files = files
        self._now_ms = now_ms
        self._keep_ms = keep_ms
        self._limit = limit
        self._unlinked = self._folders = self._foreign = self._buckets = 0
        self._foreign_name = ""
        self._has_failures = files.is_there(layout.failures)
        self._next_ms: int | None = None

    def reaped(self) -> Reaped:
        return Reaped(
            self._unlinked,
            self._folders,
            self._foreign,
            self._foreign_name,
            self._next_ms,
            self._is_enough() or self._buckets > 0,
        )

    def over(self, folder: Folder, entries: "Iterator[os.DirEntry[str]]") -> None:
        """Reaps remove/, one of its buckets, or a folder below one."""
        for entry in self._listed(entries):
            if self._is_enough():
                return
            try:
                self._one(folder, entry)
            except OSError as error:
                self.failure = self.failure or error

    def _listed(self, entries: "Iterator[os.DirEntry[str]]") -> "Iterator[os.DirEntry[str]]":
        """Entries in chunks; checks the archive's mark after listing each chunk."""
        while some := list(islice(entries, REAPED_NAMES_PER_LOOK)):
            self._look_at_mark()
            yield from some

    def _look_at_mark(self) -> None:
        self._is_archived = self._is_archived or is_marked(self._files, self._layout)

    def _one(self, folder: Folder, entry: "os.DirEntry[str]") -> None:
        if (inner := folder.inner(entry)) is not None:
            self._bucket(inner)
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
        if are_deleted_entries(entry.name):
            self._empty_entries(entry.path)
            self._gone(entry.path)
        elif self._is_archived:
            if not self._holds_messages(Folder(entry.path)):
                self._empty_keys(entry.path)
                self._gone(entry.path)
        elif is_acknowledged(entry.name):
            self._lease(entry.path)
        else:
            self._empty(Folder(entry.path), entry.name)
            self._empty_keys(entry.path)
            self._emptied(entry.path)

    def _lease(self, folder: str) -> None:
        """Unlinks the messages of an acknowledged lease and, once none is left, its folder."""
        for entry in self._listed(entries_if_there(self._files, folder)):
            if self._is_enough() or self._is_archived:
                return
            if is_message(entry):
                self._message(entry)
        self._emptied(folder)

    def _message(self, entry: "os.DirEntry[str]") -> None:
        queue, message_id = parse_entry(entry.name)
        if self._root is not None and message_id.key is not None:
            # Before its file goes: the removal, which was earlier, is durable with that.
            free_key(self._root, queue, message_id)
        self._unlink(entry.path)
        self._forget(message_id)

    def _bucket(self, folder: Folder) -> None:
        self._buckets += 1
        bucket = parse_bucket(folder.spot.partition("/")[0])
        is_old = bucket is not None and not bucket.may_be_written(self._now_ms)
        if not self._is_archived:
            self.over(folder, entries_if_there(self._files, folder.path))
            if is_old:
                rmdir_if_empty(self._files, folder.path)
        elif is_old and not self._holds_messages(folder):
            self._rmdir(folder.path)

    def _holds_messages(self, folder: Folder) -> bool:
        """Whether the folder holds a message. Removes empty folders in it on the way."""
        for entry in entries_if_there(self._files, folder.path):
            if (inner := folder.inner(entry)) is not None:
                if self._holds_messages(inner):
                    return True
                rmdir_if_empty(self._files, inner.path)
            elif is_message(entry) or _is_id(entry):
                return True
        return False

    def _emptied(self, path: str) -> None:
        """Removes an emptied folder; not if an archive was enabled meanwhile, which may still need
        some messages.
        """
        if not self._is_archived:
            self._gone(path)

    def _gone(self, path: str) -> None:
        """Removes an emptied folder."""
        if not self._is_enough() and self._rmdir(path):
            self._folders += 1

    def _rmdir(self, path: str) -> bool:
        went = rmdir_if_empty(self._files, path)
        if not went:
            self._foreign, self._foreign_name = self._foreign + 1, os.path.basename(path)
        return went

    def _empty(self, folder: Folder, deleted: str) -> None:
        """Unlinks the messages in a deleted queue's folder, named `deleted`, in its buckets and in
        the folders below these, except for messages that came after the deletion.
        """
        for entry in self._listed(entries_if_there(self._files, folder.path)):
            if self._is_enough() or self._is_archived:
                return
            if (inner := folder.inner(entry)) is not None:
                self._empty(inner, deleted)
                rmdir_if_empty(self._files, inner.path)
            elif _is_id(entry) and not self._goes_back(entry, deleted):
                self._unlink(entry.path)

    def _goes_back(self, entry: "os.DirEntry[str]", deleted: str) -> bool:
        if self._returns is None:
            return False
        queue, of = parse_deleted_folder(deleted)
        message_id = MessageId.parse(entry.name)
        return give_back_late(self._returns, queue, of.published_ms, message_id, entry.path)

    def _empty_keys(self, folder: str) -> None:
        """Unlinks the keys in a deleted queue's folder."""
        for kind in KEYS_FOLDERS:
            left = self._limit - self._unlinked
            self._unlinked += unlink_links(self._files, f"{folder}/{kind}", left)

    def _empty_entries(self, folder: str) -> None:
        """Unlinks a deleted queue's entries and their folders."""
        for entry in entries_if_there(self._files, folder):
            if self._is_enough():
                return
            if entry.is_symlink():
                self._unlink(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                self._empty_entries(entry.path)
                rmdir_if_empty(self._files, entry.path)

    def _is_enough(self) -> bool:
        return self._unlinked >= self._limit

    def _forget(self, message_id: MessageId) -> None:
        """Unlinks the failures of a message that is gone."""
        if self._has_failures:
            unlink_if_there(self._files, self._layout.failure(message_id)[1])

    def _unlink(self, path: str) -> None:
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            return
        self._unlinked += 1


def has_keys(root: Root) -> bool:
    """Whether messages of the root have keys to free. Raises OSError."""
    return root.files.status(root.layout.queues) is not None


def _is_ours(entry: "os.DirEntry[str]") -> bool:
    if entry.is_dir(follow_symlinks=False):
        name = entry.name
        return is_deleted_folder(name) or are_deleted_entries(name) or is_acknowledged(name)
    return is_message(entry)


def is_message(entry: "os.DirEntry[str]") -> bool:
    """Whether the entry is a message's file with its queue's name in front."""
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
    """When the entry came to remove/, in milliseconds since the epoch, by its ctime. The ctime of a
    lease's folder changes with its contents, so its name counts, by its consumer's clock.
    """
    ctime_ms = status.st_ctime_ns // 1_000_000
    came_ms = acknowledged_ms(name)
    return ctime_ms if came_ms is None else min(ctime_ms, came_ms)


def give_back_late(
    root: Root, queue: QueueName, deleted_ms: int, message_id: MessageId, path: str
) -> bool:
    """Moves a message from a deleted queue's folder to the current queue of that name. False if it
    stays: it was published before or during the deletion, another message has its key, or there is
    no such queue. Raises OSError. Durable on return: yes.
    """
    layout, files = root.layout, root.files
    if message_id.published_ms <= deleted_ms + LATE_AFTER_MS:
        return False
    status = files.status(path)
    if status is None or status.st_ctime_ns // 1_000_000 <= deleted_ms:
        return False
    key = message_id.key
    if key is not None and files.linked(layout.link(Keys.LOOKUP, queue, key).path) != (
        message_id.text
    ):
        return False
    target = layout.path(State.READY, queue, message_id)
    try:
        if not queue_exists(root, queue) or files.status(target) is not None:
            return False
    except MqError:  # There is no folder of queues beside this one.
        return False
    files.rename(path, target)
    files.sync_folder(layout.queue(queue))
    fields = {"queue": queue.text, "id": message_id.text}
    _log.warning("a message that came to a deleted queue went back", extra={"fields": fields})
    return True
