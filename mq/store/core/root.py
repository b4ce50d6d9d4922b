"""An opened root: what every operation needs, and what start-up does before the first one."""

import errno
import itertools
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mq.model.clock import Clock, ClockSteps
from mq.model.errors import AcrossFileSystems, StartupError
from mq.model.lifecycle import State
from mq.model.limits import FOLDER_FILES_MAX
from mq.model.message import Stamp
from mq.store.core.known_settings import KnownSettings
from mq.store.core.places import Places
from mq.store.disk.files import Files, is_gone
from mq.store.disk.mounts import file_system_of
from mq.store.disk.space import Space
from mq.store.format.archive import archive_folder
from mq.store.format.history import history_folder
from mq.store.format.layout import FORMAT_LINE, Layout
from mq.store.format.pipeline import staging
from mq.store.history.recording import Recorder

_log = logging.getLogger("mq.root")

_FULL = (errno.ENOSPC, errno.EDQUOT)

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
    places: Places
    settings: KnownSettings
    history: Recorder
    steps: ClockSteps
    over_network: bool
    """Whether other machines may change it, and this one's cache then shows what was."""

    @classmethod
    def of(
        cls,
        layout: Layout,
        files: Files,
        clock: Clock,
        reserve_bytes: int | None = None,
        folder_max: int = FOLDER_FILES_MAX,
        kind: str = "mq",
    ) -> Self:
        """A root as it is: nothing is made or tried. `kind`: of which program, for histories."""
        space = Space(files, clock, layout.root, reserve_bytes)
        places = Places(layout, files, clock, folder_max)
        settings = KnownSettings(layout, files, clock)
        steps = ClockSteps(clock)
        history = Recorder(layout, files, clock, space, kind, settings, steps)
        over_network = file_system_of(layout.root).over_network
        return cls(layout, files, clock, space, places, settings, history, steps, over_network)

    def now_ms(self) -> int:
        """Wall time as the root's file system tells it, milliseconds since the epoch."""
        return self.clock.now_ms()

    def aged_ms(self, seconds: float) -> int:
        """The same, for what ends for good at an age of so many seconds: see ClockSteps."""
        return self.steps.aged_ms(seconds)


def open_root(
    path: str,
    files: Files,
    clock: Clock,
    reserve_bytes: int | None = None,
    folder_max: int = FOLDER_FILES_MAX,
    kind: str = "mq",
) -> Root:
    """Makes what is missing of a root and tries it; blocking. `folder_max` files lie flat in a
    folder before more go to buckets; `kind` as with `Root.of`.

    Raises StartupError when the root is of another format, its folders lie on different file
    systems, or it keeps no exact mtimes; OSError when it cannot be written.
    Durable on return: yes, the root, its folders, and those that lead to it.
    """
    layout = Layout.of(path)
    if files.is_link(layout.root):
        # Whoever points it elsewhere meanwhile would take every message away.
        leads_to = os.path.realpath(layout.root)
        raise StartupError(f"{layout.root} is a symbolic link; say the folder itself, {leads_to}")
    made = _missing(layout.root)
    for missing in made:
        _make_folder(files, missing)
    for folder in layout.folders():
        _make_folder(files, folder)
    for folder in _made_later(layout):
        if files.is_link(folder):
            raise StartupError(f"{folder} is no folder; symbolic links are not followed")
    check_format(layout, files)
    _sync_ancestors(layout.root, files, made)
    files.sync_folder(layout.root)
    for folder in layout.folders():
        files.sync_folder(folder)
    probe_renames(layout, files)
    return Root.of(layout, files, clock, reserve_bytes, folder_max, kind)


def attach_root(path: str, files: Files, clock: Clock) -> Root:
    """A root that daemons have made, for a process that works beside them: nothing is made, tried
    or flushed. Raises StartupError when there is none, or one of another format.
    """
    layout = Layout.of(path)
    for folder in (layout.root, *layout.folders()):
        if not os.path.isdir(folder):
            raise StartupError(f"{layout.root} is no mq root (of this version): no {folder}")
    try:
        descriptor = files.open_read(layout.format)
    except OSError as error:
        raise StartupError(f"{layout.root} is no mq root: {error}") from error
    try:
        _check_line(layout, files.read(descriptor, 100, 0).decode("ascii", "replace"))
    finally:
        files.close(descriptor)
    return Root.of(layout, files, clock, kind="spark")


def probe_renames(layout: Layout, files: Files) -> None:
    """Takes one file through every folder by rename, as messages go, then away.

    Raises AcrossFileSystems naming the two folders, StartupError when the file system rounds
    mtimes (receives would be lost), OSError when a folder cannot be written. On a full disk
    nothing is tried, so that fetch and delete can free it.
    """
    _check_devices(layout, files)
    first = layout.probe(_PROBED[0])
    try:
        descriptor = files.open_kept(first)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _log.warning("full: start-up could not try the folders", extra={"fields": {"error": error}})
        return
    try:
        files.stamp(descriptor, _PROBE_STAMP.mtime_ns())
        files.sync(descriptor)
        kept = Stamp.from_mtime_ns(files.descriptor_status(descriptor).st_mtime_ns)
    finally:
        files.close(descriptor)
    if (kept.due_ms, kept.receives) != (_PROBE_STAMP.due_ms, _PROBE_STAMP.receives):
        unlink_if_there(files, first)
        raise StartupError(
            f"{layout.root} is on a file system that does not keep an mtime's microseconds, "
            "where mq counts deliveries (an ext4 of 128-byte inodes, for instance)"
        )
    for source, target in itertools.pairwise(_PROBED):
        try:
            files.rename(layout.probe(source), layout.probe(target))
        except OSError as error:
            if is_gone(error) and files.status(layout.probe(target)) is not None:
                continue  # NFS did it, and lost the answer.
            unlink_if_there(files, layout.probe(source))
            if error.errno == errno.EXDEV:
                raise _across(layout, source, target) from error
            if error.errno not in _FULL:
                raise
            return
    unlink_if_there(files, layout.probe(_PROBED[-1]))


def probe_write(root: Root) -> None:
    """Writes, fsyncs and removes a file, and fsyncs its folder: can the root persist now?

    Raises OSError when it cannot, or when one of its folders is gone.
    """
    for folder in root.layout.folders():
        if root.files.status(folder) is None:
            raise FileNotFoundError(errno.ENOENT, "the folder is gone", folder)
    path = root.layout.probe(State.NEW)
    descriptor = root.files.open_kept(path)
    try:
        root.files.write(descriptor, b"probe\n")
        root.files.sync(descriptor)
    finally:
        root.files.close(descriptor)
    root.files.sync_folder(root.layout.folder(State.NEW))
    unlink_if_there(root.files, path)


def _made_later(layout: Layout) -> tuple[str, ...]:
    later = history_folder(layout), archive_folder(layout), staging(layout)
    return (*layout.made_later(), *later)


def _missing(path: str) -> list[str]:
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def _sync_ancestors(root: str, files: Files, made: list[str]) -> None:
    """Flushes the folders that lead to the root on its file system: whoever made them, `mkdir -p`
    or a daemon that was killed at its first start, has perhaps not. Those that this user may not
    open are left out, but for the parents of what was `made` just now.
    """
    path = os.path.realpath(root)
    needed = {os.path.dirname(os.path.realpath(folder)) for folder in made}
    device = os.stat(path).st_dev
    while (parent := os.path.dirname(path)) != path and os.stat(parent).st_dev == device:
        try:
            files.sync_folder(parent)
        except PermissionError:
            if parent in needed:
                raise
        path = parent


def _make_folder(files: Files, folder: str) -> None:
    there = files.status(folder)
    if there is None:
        try:
            files.mkdir(folder)
        except FileExistsError:
            return  # Another daemon that starts now has made it.
    elif os.path.islink(folder) or not os.path.isdir(folder):
        raise StartupError(f"{folder} is no folder; symbolic links are not followed")


def check_format(layout: Layout, files: Files) -> None:
    """Raises StartupError when the root is of a format that this mq does not know.

    A line that a crash left half written is written again: nothing in the root was answered yet.
    """
    descriptor = files.open_kept(layout.format)
    try:
        found = files.read(descriptor, 100, 0).decode("ascii", "replace")
        if _is_unfinished(found):
            files.write(descriptor, FORMAT_LINE.encode("ascii"))
            files.sync(descriptor)
        else:
            _check_line(layout, found)
    finally:
        files.close(descriptor)


def _check_line(layout: Layout, found: str) -> None:
    if found != FORMAT_LINE:
        raise StartupError(
            f"{layout.format} says {found.strip()!r}; this mq knows {FORMAT_LINE.strip()!r}"
        )


def _is_unfinished(line: str) -> bool:
    """Whether it is the format's line before its flush: its begin, or zeros of its length."""
    return len(line.rstrip("\0")) < len(FORMAT_LINE) >= len(line) and FORMAT_LINE.startswith(
        line.rstrip("\0")
    )


def _check_devices(layout: Layout, files: Files) -> None:
    for source, target in itertools.pairwise(_PROBED):
        ends = [files.status(layout.folder(state)) for state in (source, target)]
        if len({end.st_dev for end in ends if end is not None}) > 1:
            raise _across(layout, source, target)


def _across(layout: Layout, source: State, target: State) -> AcrossFileSystems:
    return AcrossFileSystems(Path(layout.folder(source)), Path(layout.folder(target)))


def unlink_if_there(files: Files, path: str) -> None:
    """Takes the name away; that it is gone is all right."""
    try:
        files.unlink(path)
    except FileNotFoundError:
        return
