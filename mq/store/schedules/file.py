"""A schedule's file: its current version, reading it, and writing its replacement."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mq.model.errors import BadName, ScheduleUnreadable
from mq.model.limits import BODY_HELD_BYTES_MAX, HEADER_BLOCK_BYTES_MAX, PUBLISHED_MS_MAX
from mq.model.message import Stamp
from mq.model.names import QueueName, ScheduleName
from mq.model.schedule import Armed
from mq.store.core.message_file import stamp_due
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.layout import LinkPlace, entry_prefix
from mq.store.format.schedules import new_schedule_path, parse_firing, parse_schedule, schedule_path
from mq.store.format.walk import named
from mq.store.schedules.line import SCHEDULE_LINE_BYTES_MAX, parse_schedule_file

_NS_PER_MS: Final = 1_000_000
ENDED_NS: Final = 0
"""The mtime of a schedule that has ended."""
BEGINNING_BYTES: Final = SCHEDULE_LINE_BYTES_MAX + HEADER_BLOCK_BYTES_MAX
_FILE_BYTES_MAX: Final = BEGINNING_BYTES + BODY_HELD_BYTES_MAX
# The errors of opening a symbolic link, a socket, or a file that this user may not read.
_NO_FILE_ERRORS: Final = (errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Version:
    """A schedule's current file and its due time: both differ once the schedule was fired or
    changed.
    """

    inode: int
    mtime_ns: int

    @property
    def due_ms(self) -> int | None:
        """The next firing, in milliseconds since the epoch; None: none."""
        return self.mtime_ns // _NS_PER_MS if self.mtime_ns >= _NS_PER_MS else None


@dataclass(frozen=True, slots=True)
class Kept:
    """A schedule's file: its content and its version."""

    version: Version
    content: bytes
    size: int
    """The size of the whole file in bytes."""

    def armed(self) -> Armed:
        """Parses the content. Raises ScheduleUnreadable."""
        if (self.version.due_ms or 0) > PUBLISHED_MS_MAX:
            raise ScheduleUnreadable("its next firing is behind the year 9999")
        return parse_schedule_file(self.content, self.version.due_ms)


def read_kept(
    root: Root, queue: QueueName, name: ScheduleName, bytes_max: int = _FILE_BYTES_MAX
) -> Kept | None:
    """Reads a schedule's file, or its beginning; None: there is none. Raises ScheduleUnreadable,
    OSError.
    """
    opened = _open(root, queue, name)
    if opened is None:
        return None
    try:
        status = root.files.descriptor_status(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _FILE_BYTES_MAX:
            raise ScheduleUnreadable("no regular file, or a large one")
        content = root.files.read(opened, bytes_max, 0)
        return Kept(version_of(status), content, status.st_size)
    finally:
        root.files.close(opened)


def is_still(root: Root, queue: QueueName, name: ScheduleName, version: Version) -> bool:
    """Whether the schedule is still this version, with the same due time."""
    return version_now(root, queue, name) == version


def has_gone_on(root: Root, queue: QueueName, firing: LinkPlace) -> bool:
    """Whether the schedule of a firing's link has another due time now, or is gone."""
    try:
        name, due_ms = parse_firing(firing)
    except BadName:
        return True
    now = version_now(root, queue, name)
    return now is None or now.due_ms != due_ms


def write_beside(
    root: Root, queue: QueueName, name: ScheduleName, content: bytes, next_ms: int | None
) -> tuple[str, int]:
    """Writes the next state of a schedule beside it. Returns the new file's path and descriptor.
    Raises DueTooFar, OSError. Durable on return: no.
    """
    written = new_schedule_path(root.layout, queue, name)
    descriptor = root.files.create(written)
    try:
        root.files.write(descriptor, content)
        if next_ms is None:
            root.files.stamp(descriptor, ENDED_NS)
        else:
            stamp_due(root, descriptor, Stamp(next_ms))
    except BaseException:
        root.files.close(descriptor)
        discard_written(root, written)
        raise
    return written, descriptor


def rename_over(
    root: Root, queue: QueueName, name: ScheduleName, written: str, made: os.stat_result
) -> None:
    """Replaces the schedule by the file that was written beside it. The caller holds the lock.
    Durable on return: no.
    """
    path = schedule_path(root.layout, queue, name)
    try:
        root.files.rename(written, path)
    except OSError as error:
        there = root.files.status(path) if is_gone(error) else None
        # NFS may have done it and lost the answer.
        if there is None or not os.path.samestat(there, made):
            raise


def version_now(root: Root, queue: QueueName, name: ScheduleName) -> Version | None:
    """The schedule's current version; None: there is none. Opens the file if it can, since a
    network mount's cache of names may be old.
    """
    opened = None
    with contextlib.suppress(ScheduleUnreadable):
        opened = _open(root, queue, name)
    if opened is None:
        status = root.files.status(schedule_path(root.layout, queue, name))
        return None if status is None else version_of(status)
    try:
        return version_of(root.files.descriptor_status(opened))
    finally:
        root.files.close(opened)


def version_of(status: os.stat_result) -> Version:
    """The version in the status of a schedule's file."""
    return Version(status.st_ino, status.st_mtime_ns)


def _open(root: Root, queue: QueueName, name: ScheduleName) -> int | None:
    try:
        return root.files.open_read(schedule_path(root.layout, queue, name))
    except OSError as error:
        if is_gone(error):
            return None
        if error.errno in _NO_FILE_ERRORS:
            raise ScheduleUnreadable(str(error)) from error
        raise


def names_of(root: Root, queue: QueueName) -> Iterator[ScheduleName]:
    """The names of the queue's schedules, in no order."""
    return (name for _, (_, name) in named(_entries_of(root, queue), parse_schedule))


def count_of(root: Root, queue: QueueName) -> int:
    """The number of the queue's schedules, including foreign names with its prefix."""
    return sum(1 for _ in _entries_of(root, queue))


def _entries_of(root: Root, queue: QueueName) -> "Iterator[os.DirEntry[str]]":
    prefix = entry_prefix(queue)
    entries = root.files.entries(root.layout.schedules)
    return (entry for entry in entries if entry.name.startswith(prefix))


def discard_written(root: Root, written: str) -> None:
    """Removes a file that was written beside the schedule and is not used."""
    with contextlib.suppress(OSError):
        root.files.unlink(written)
