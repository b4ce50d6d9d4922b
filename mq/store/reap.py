"""Unlinking what was removed: files, and deleted queues' folders with what lies in them.

Nothing is flushed: what a crash brings back is in remove/ still, and is reaped again.
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mq.errors import BadName
from mq.limits import REAPED_PER_PASS_MAX
from mq.names import MessageId
from mq.store.files import Files, is_gone
from mq.store.layout import Bucket, is_deleted_folder, parse_bucket, parse_entry
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
    files: Files, source: str, now_ms: int, keep_s: float, limit: int = REAPED_PER_PASS_MAX
) -> Reaped:
    """Unlinks what came to `source` (by ctime) at least `keep_s` seconds ago, some `limit` names
    of it; blocking, in memory that does not grow with what lies there.

    Names that are no message's, no deleted queue's and no bucket's are left alone. Raises OSError
    when the folder cannot be listed, and, after all others went, when one could not be seen or
    unlinked.
    """
    passing = _Pass(files, now_ms, round(keep_s * 1000), limit)
    passing.over(files.entries(source), None)
    if passing.failure is not None:
        raise passing.failure
    return passing.reaped()


class _Pass:
    """One pass, folder by folder."""

    def __init__(self, files: Files, now_ms: int, keep_ms: int, limit: int) -> None:
        self.failure: OSError | None = None
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
            goes_ms = status.st_ctime_ns // 1_000_000 + self._keep_ms
            if goes_ms > self._now_ms:
                self._next_ms = goes_ms if self._next_ms is None else min(self._next_ms, goes_ms)
            elif entry.is_dir(follow_symlinks=False):
                self._deleted_queue(entry)
            else:
                self._unlink(entry.path)

    def _bucket(self, entry: "os.DirEntry[str]", bucket: Bucket | None) -> None:
        self._buckets += 1
        self.over(entries_if_there(self._files, entry.path), bucket)
        if bucket is not None and not bucket.may_be_written(self._now_ms):
            _rmdir(self._files, entry.path)

    def _deleted_queue(self, entry: "os.DirEntry[str]") -> None:
        self._empty(entry.path)
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

    def _is_enough(self) -> bool:
        return self._unlinked >= self._limit

    def _unlink(self, path: str) -> None:
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            return
        self._unlinked += 1


def _is_ours(entry: "os.DirEntry[str]") -> bool:
    if entry.is_dir(follow_symlinks=False):
        return is_deleted_folder(entry.name)
    if not entry.is_file(follow_symlinks=False):
        return False
    try:
        parse_entry(entry.name)
    except BadName:
        return False
    return True


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
