"""Keeps histories within their bounds by removing the oldest files.

A file is removed when its last line is older than the queue's `history_kept_s`, or when the queue's
files exceed `history_bytes_max` together.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

from mq.model.names import QueueName
from mq.store.core.facts import Facts
from mq.store.disk.files import Files, is_gone
from mq.store.format.history import (
    Day,
    day_folder,
    history_folder,
    is_date,
    is_history_file,
    queue_folder,
)
from mq.store.format.layout import Layout
from mq.store.format.walk import entries_if_there


class Kept(NamedTuple):
    """The bounds of a queue's history: age and size."""

    seconds: float
    bytes_max: int


def kept_of(facts: Facts, queue: QueueName) -> Kept | None:
    """The bounds of the queue's history, by default if the queue is gone; None: unknown. May block
    for a read of the settings.
    """
    settings = facts.sure_settings(queue)
    if settings is None:
        return None
    return Kept(settings.history_kept_s, settings.history_bytes_max)


class _File(NamedTuple):
    date: str
    mtime_ns: int
    path: str
    size: int


def recorded_queues(layout: Layout, files: Files) -> list[str]:
    """The names of folders that may be queues' histories, also of deleted queues. Raises
    OSError.
    """
    return [
        entry.name
        for entry in entries_if_there(files, history_folder(layout))
        if entry.is_dir(follow_symlinks=False)
    ]


def history_files(
    layout: Layout, files: Files, queue: str
) -> "Iterator[tuple[str, os.DirEntry[str]]]":
    """The files of a queue's history with their days, without foreign names. Raises OSError."""
    for date in sorted(days(layout, files, queue)):
        for entry in entries_if_there(files, day_folder(layout, Day(queue, date))):
            if is_history_file(entry.name) and entry.is_file(follow_symlinks=False):
                yield date, entry


def days(layout: Layout, files: Files, queue: str) -> list[str]:
    """The days of a queue's history. Raises OSError."""
    files.refuse_links(history_folder(layout))
    return [
        entry.name
        for entry in entries_if_there(files, queue_folder(layout, queue))
        if is_date(entry.name) and entry.is_dir(follow_symlinks=False)
    ]


def sweep_history(layout: Layout, files: Files, queue: str, kept: Kept, now_ms: int) -> int:
    """Removes files of a queue's history beyond its bounds, and empty folders. Returns the number
    of files. Blocking. Raises OSError. Durable on return: no; what comes back is swept again.
    """
    found = sorted(_sized(layout, files, queue))
    size = sum(each.size for each in found)
    old_ns = (now_ms - round(kept.seconds * 1000)) * 1_000_000
    swept = 0
    for each in found:
        if each.mtime_ns >= old_ns and size <= kept.bytes_max:
            continue
        try:
            files.unlink(each.path)
        except OSError as error:
            if not is_gone(error):
                raise
        size -= each.size
        swept += 1
    _sweep_folders(layout, files, queue, {each.date for each in found})
    return swept


def _sized(layout: Layout, files: Files, queue: str) -> Iterator[_File]:
    for date, entry in history_files(layout, files, queue):
        with contextlib.suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            yield _File(date, status.st_mtime_ns, entry.path, status.st_size)


def _sweep_folders(layout: Layout, files: Files, queue: str, had_files: set[str]) -> None:
    """Removes empty folders; a process that is about to write there makes them again."""
    for date in days(layout, files, queue):
        # A folder that had files a moment ago may be today's.
        if date not in had_files:
            _remove_empty(files, day_folder(layout, Day(queue, date)))
    _remove_empty(files, queue_folder(layout, queue))


def _remove_empty(files: Files, folder: str) -> None:
    with contextlib.suppress(OSError):
        files.rmdir(folder)
