"""Unlinking what was removed: files, and deleted queues' folders with what lies in them.

Nothing is flushed: what a crash brings back is in remove/ still, and is reaped again.
"""

import contextlib
import errno
import os
from dataclasses import dataclass
from typing import Final

from mq.errors import BadName
from mq.names import MessageId
from mq.store.files import Files
from mq.store.layout import is_deleted_folder, parse_entry

_NOT_EMPTY: Final = (errno.ENOTEMPTY, errno.EEXIST)


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one pass did: files and folders unlinked, foreign names met (deleted queues' folders
    that hold some among them) and one of them, and when the first file that is kept may go
    (milliseconds since the epoch; None: none is kept).
    """

    files: int = 0
    folders: int = 0
    foreign: int = 0
    foreign_name: str = ""
    next_ms: int | None = None


def reap(files: Files, source: str, now_ms: int, keep_s: float) -> Reaped:
    """Unlinks what came to `source` (by ctime) at least `keep_s` seconds ago; blocking.

    Names that are no message's and no deleted queue's are left alone. Raises OSError when the
    folder cannot be listed, and, after all others went, when one could not be seen or unlinked.
    """
    unlinked = folders = foreign = 0
    foreign_name = ""
    failure: OSError | None = None
    next_ms: int | None = None
    for entry in files.entries(source):
        try:
            if not _is_ours(entry):
                if not entry.name.startswith("."):
                    foreign, foreign_name = foreign + 1, entry.name
                continue
            status = files.status(entry.path)
            if status is None:
                continue
            goes_ms = status.st_ctime_ns // 1_000_000 + round(keep_s * 1000)
            if goes_ms > now_ms:
                next_ms = goes_ms if next_ms is None else min(next_ms, goes_ms)
            elif entry.is_dir(follow_symlinks=False):
                unlinked += _empty(files, entry.path)
                went = _rmdir(files, entry.path)
                folders += went
                if not went:
                    foreign, foreign_name = foreign + 1, entry.name
            else:
                unlinked += _unlink(files, entry.path)
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return Reaped(unlinked, folders, foreign, foreign_name, next_ms)


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


def _empty(files: Files, folder: str) -> int:
    unlinked = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in files.entries(folder):
            if not entry.is_file(follow_symlinks=False):
                continue
            try:
                MessageId.parse(entry.name)
            except BadName:
                continue
            unlinked += _unlink(files, entry.path)
    return unlinked


def _unlink(files: Files, path: str) -> int:
    try:
        files.unlink(path)
    except FileNotFoundError:
        return 0
    return 1


def _rmdir(files: Files, path: str) -> bool:
    try:
        files.rmdir(path)
    except FileNotFoundError:
        return True  # Another reaper was here.
    except OSError as error:
        if error.errno in _NOT_EMPTY:
            return False  # A foreign file is in it.
        raise
    return True
