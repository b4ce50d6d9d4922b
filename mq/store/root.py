"""An opened root: what every operation needs, and what start-up does before the first one."""

import errno
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path

from mq.clock import Clock
from mq.errors import AcrossFileSystems, StartupError
from mq.lifecycle import State
from mq.message import Stamp
from mq.names import QueueName
from mq.store.files import Files
from mq.store.layout import FORMAT_LINE, Layout
from mq.store.space import Space

# In the order of a life: the probe file passes through all four.
_PROBED = (State.NEW, State.READY, State.DELAYED, State.REMOVED)
_PROBE_STAMP = Stamp(due_ms=1_700_000_000_123, receives=456, reason=7)


@dataclass(frozen=True, slots=True)
class Root:
    """The seams and paths of one root, handed to every operation."""

    layout: Layout
    files: Files
    clock: Clock
    space: Space
    used_queues: dict[QueueName, int] = field(default_factory=dict)
    """The inodes of queues' folders whose entries this process has flushed."""

    def now_ms(self) -> int:
        """Wall time as the root's file system tells it, milliseconds since the epoch."""
        return self.clock.now_ms()


def open_root(path: str, files: Files, clock: Clock, reserve_bytes: int | None = None) -> Root:
    """Makes what is missing of a root and tries it; blocking.

    Raises StartupError when the root is of another format, its folders lie on different file
    systems, or it keeps no exact mtimes; OSError when it cannot be written.
    Durable on return: yes, the root, its parent and its folders.
    """
    layout = Layout.of(path)
    for missing in _missing(layout.root):
        _make_folder(files, missing)
        files.sync_folder(os.path.dirname(missing))
    for folder in layout.folders():
        _make_folder(files, folder)
    _check_format(layout, files)
    files.sync_folder(os.path.dirname(layout.root))
    files.sync_folder(layout.root)
    for folder in layout.folders():
        files.sync_folder(folder)
    probe_renames(layout, files)
    return Root(layout, files, clock, Space(files, clock, layout.root, reserve_bytes))


def probe_renames(layout: Layout, files: Files) -> None:
    """Takes one file through every folder by rename, as messages go, then away.

    Raises AcrossFileSystems naming the two folders, StartupError when the file system rounds
    mtimes (receives would be lost), OSError when a folder cannot be written.
    """
    first = layout.probe(_PROBED[0])
    _unlink_leftovers(layout, files)
    descriptor = files.open_kept(first)
    try:
        files.stamp(descriptor, _PROBE_STAMP.mtime_ns())
        kept = Stamp.from_mtime_ns(files.descriptor_status(descriptor).st_mtime_ns)
        files.sync(descriptor)
    finally:
        files.close(descriptor)
    if (kept.due_ms, kept.receives) != (_PROBE_STAMP.due_ms, _PROBE_STAMP.receives):
        _unlink_if_there(files, first)
        raise StartupError(
            f"{layout.root} is on a file system that does not keep an mtime's microseconds, "
            "where mq counts deliveries (an ext4 of 128-byte inodes, for instance)"
        )
    for source, target in itertools.pairwise(_PROBED):
        try:
            files.rename(layout.probe(source), layout.probe(target))
        except FileNotFoundError:
            return  # Another daemon that starts now has taken the probe along.
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _unlink_if_there(files, layout.probe(source))
            raise AcrossFileSystems(
                Path(layout.folder(source)), Path(layout.folder(target))
            ) from error
    _unlink_leftovers(layout, files)


def probe_write(root: Root) -> None:
    """Writes, fsyncs and removes a file, and fsyncs its folder: can the root persist now?

    Raises OSError when it cannot.
    """
    path = root.layout.probe(State.NEW)
    descriptor = root.files.open_kept(path)
    try:
        root.files.write(descriptor, b"probe\n")
        root.files.sync(descriptor)
    finally:
        root.files.close(descriptor)
    root.files.sync_folder(root.layout.folder(State.NEW))
    _unlink_if_there(root.files, path)


def measure_clock_offset_ms(root: Root) -> int:
    """How far the file system's time is ahead of this machine's, milliseconds.

    Touches a probe and reads its mtime back; half the round trip is the error's bound.
    """
    path = root.layout.probe(State.DELAYED)
    before_ms = root.now_ms()
    descriptor = root.files.open_kept(path)
    try:
        root.files.write(descriptor, b"clock\n")
        root.files.sync(descriptor)
        server_ms = root.files.descriptor_status(descriptor).st_mtime_ns // 1_000_000
    finally:
        root.files.close(descriptor)
        _unlink_if_there(root.files, path)
    return server_ms - (before_ms + root.now_ms()) // 2


def _missing(path: str) -> list[str]:
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def _make_folder(files: Files, folder: str) -> None:
    there = files.status(folder)
    if there is None:
        try:
            files.mkdir(folder)
        except FileExistsError:
            return  # Another daemon that starts now has made it.
    elif os.path.islink(folder) or not os.path.isdir(folder):
        raise StartupError(f"{folder} is no folder; symbolic links are not followed")


def _check_format(layout: Layout, files: Files) -> None:
    descriptor = files.open_kept(layout.format)
    try:
        found = files.read(descriptor, 100, 0).decode("ascii", "replace")
        if not found:
            files.write(descriptor, FORMAT_LINE.encode("ascii"))
            files.sync(descriptor)
        elif found != FORMAT_LINE:
            raise StartupError(
                f"{layout.format} says {found.strip()!r}; this mq knows {FORMAT_LINE.strip()!r}"
            )
    finally:
        files.close(descriptor)


def _unlink_leftovers(layout: Layout, files: Files) -> None:
    for state in _PROBED:
        _unlink_if_there(files, layout.probe(state))


def _unlink_if_there(files: Files, path: str) -> None:
    try:
        files.unlink(path)
    except FileNotFoundError:
        return
