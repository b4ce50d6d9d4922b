"""Opening a root: what start-up makes, tries and refuses; and the features that hang on the core's
hooks.
"""

import errno
import itertools
import os
import stat
from pathlib import Path
from typing import Final, TypedDict, Unpack

from mq.model.clock import Clock, ClockSteps
from mq.model.errors import AcrossFileSystems, StartupError
from mq.model.lifecycle import State
from mq.model.limits import FOLDER_FILES_MAX
from mq.model.log import logger
from mq.model.message import Stamp
from mq.model.names import QueueName
from mq.store.bulk.journal import journals
from mq.store.bulk.roll_forward import retire_staged
from mq.store.core.clocks import check_clock
from mq.store.core.facts import Facts
from mq.store.core.places import Places
from mq.store.core.presence import Identity, Presence
from mq.store.core.room import Room
from mq.store.core.root import Hooks, Root, unlink_if_there
from mq.store.core.totals import Tally
from mq.store.core.trust import check_trust, refuse, risks
from mq.store.disk.files import Files, is_gone
from mq.store.disk.mounts import FileSystem, file_system_of
from mq.store.disk.space import Space
from mq.store.format.archive import archive_folder
from mq.store.format.entries import index_folders
from mq.store.format.history import history_folder
from mq.store.format.layout import FORMAT_LINE, OLD_FORMAT_LINES, Layout
from mq.store.format.pipeline import staging
from mq.store.history.recording import Recorded, Recorder
from mq.store.leases.names import OpenLeases
from mq.store.packs.rolling import is_any_parted, retire_parted
from mq.store.scan.census import Holding
from mq.store.schedules.file import has_gone_on
from mq.store.schedules.schedules import forget_schedules, sweep_schedules

_log = logger("mq.root")


def _retire(root: Root, deleted: frozenset[QueueName]) -> int:
    return retire_staged(root, deleted) + retire_parted(root, deleted)


_HOOKS: Final = Hooks(
    forget=forget_schedules,
    sweep=sweep_schedules,
    retire=_retire,
    is_more_to_come=lambda root: bool(journals(root)) or is_any_parted(root),
    is_firing_over=has_gone_on,
)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_LINE_BYTES_MAX: Final = 100
# In the order of a life: the probe file passes through all four.
_PROBED: Final = (State.NEW, State.READY, State.DELAYED, State.REMOVED)
_PROBE_STAMP: Final = Stamp(due_ms=1_700_000_000_123, receives=456, reason=7)


class RootOptions(TypedDict, total=False):
    """`reserve_bytes` of the disk stay free; `folder_max` files lie flat in a folder before more go
    to buckets; `kind`: of which program it is, for histories; `known`: the root that it must be.
    """

    reserve_bytes: int | None
    folder_max: int
    kind: str
    known: Identity | None


def _file_system(layout: Layout, files: Files) -> FileSystem:
    """That of the root. From here on, flushes are as it needs them."""
    found = file_system_of(layout.root)
    files.flushes_whole = found.is_whole
    return found


def root_of(layout: Layout, files: Files, clock: Clock, **options: Unpack[RootOptions]) -> Root:
    """A root as it is: nothing is made or tried."""
    space = Space(files, clock, layout.root, options.get("reserve_bytes"))
    over_network = _file_system(layout, files).over_network
    facts = Facts(layout, files, clock, over_network)
    leases, folder_max = (
        OpenLeases(layout, files, clock),
        options.get("folder_max", FOLDER_FILES_MAX),
    )
    places = Places(layout, files, clock, facts, leases, folder_max)
    steps = ClockSteps(clock)
    recorded = Recorded(layout, files, clock, space, facts, steps)
    tally = Tally(clock)
    history = Recorder(recorded, options.get("kind", "mq"), tally)
    room = Room(clock, Holding(lambda: root).count)
    root = Root(
        layout,
        files,
        clock,
        space,
        places,
        facts,
        history,
        tally,
        room,
        steps,
        over_network,
        Presence(layout, files, options.get("known")),
        _HOOKS,
    )
    return root


def open_root(
    path: str, files: Files, clock: Clock, makes: bool = True, **options: Unpack[RootOptions]
) -> Root:
    """Makes the missing folders of a root and tries it; blocking. Unless it `makes` one, the root
    itself is there.

    Raises StartupError when the root is of another format, its folders lie on different file
    systems, or it keeps no exact mtimes; OSError when it cannot be written.
    Durable on return: yes, the root, its folders, and those that lead to it.
    """
    layout = Layout.of(path)
    _refuse_link(layout, files)
    _file_system(layout, files)
    made = _missing(layout.root) if makes else []
    for missing in made:
        _make_folder(files, missing)
    for folder in layout.folders():
        _make_folder(files, folder)
    for folder in _made_later(layout):
        if files.is_link(folder):
            raise _no_folder(folder)
    check_format(layout, files)
    _sync_ancestors(layout.root, files, made)
    files.sync_folder(layout.root)
    for folder in layout.folders():
        files.sync_folder(folder)
    probe_renames(layout, files)
    # Its mount may have gone meanwhile.
    check_is_there(layout, files, options.get("known"))
    options["known"] = options.get("known") or Identity.of(layout, files)
    return root_of(layout, files, clock, **options)


def open_trusted_root(
    path: str, files: Files, clock: Clock, makes: bool, **options: Unpack[RootOptions]
) -> Root:
    """Opens a root as `open_root` does. Refuses one that another user may change, or whose parent
    folder is missing. `makes`: one that is not there is made, and logged; only the mq that an
    operator has started does that, since a mount may be away. Raises StartupError, OSError.
    """
    layout = Layout.of(path)
    above = os.path.dirname(layout.root)
    # A root that is no folder has no format either: opening it says so.
    was_there = os.path.lexists(layout.format)
    if not makes:
        _refuse_link(layout, files)
        check_is_there(layout, files, options.get("known"))
    elif not _is_folder(files, above):
        raise StartupError(
            f"cannot make the root {layout.root}: there is no folder {above}; correct --root "
            f"(MQ_ROOT), or mkdir -p {above}"
        )
    check_trust(path, files, layout.folders())
    check_clock(layout, files, clock)
    root = open_root(path, files, clock, makes, **options)
    # Another user may have made it just before this one did.
    refuse(risks(path, files, os.geteuid(), layout.folders()))
    if not was_there:
        _log.info("made a new root", extra={"fields": {"root": layout.root}})
    return root


def _refuse_link(layout: Layout, files: Files) -> None:
    """A process that points it elsewhere while mq runs would take every message away."""
    try:
        is_link = files.is_link(layout.root)
    except NotADirectoryError:
        return  # It is below a file, and is not there.
    if is_link:
        leads_to = os.path.realpath(layout.root)
        raise StartupError(
            f"the root {layout.root} is a symbolic link, which could lead elsewhere while mq runs; "
            f"set --root (MQ_ROOT) to the folder itself, {leads_to}"
        )


def attaching(root: Root) -> tuple[str, ...]:
    """The flags by which a child of a daemon knows the root that its parent has opened."""
    return () if root.presence.known is None else ("--attach", str(root.presence.known))


def known_root(text: str | None) -> Identity | None:
    """Reads the value of --attach. Raises StartupError."""
    try:
        return None if text is None else Identity.parse(text)
    except ValueError:
        raise StartupError(f"--attach {text} is not what a daemon gives its children") from None


def check_is_there(layout: Layout, files: Files, known: Identity | None) -> None:
    """Raises StartupError where there is no root, or where one is known and another is there; the
    root's mount may be away. Raises OSError.
    """
    try:
        is_one = files.status(layout.format) is not None
    except NotADirectoryError:
        is_one = False
    if not is_one:
        raise StartupError(
            f"there is no root at {layout.root}; mount its file system, correct --root, or start "
            "mq on it first, which makes one"
        )
    if known is None:
        return
    found = Identity.of(layout, files)
    if found is None or not known.is_of(found, file_system_of(layout.root).has_inodes):
        raise StartupError(
            f"another root is at {layout.root} than the one that mq started with; mount that one's "
            "file system, or start mq again"
        )


def attach_root(path: str, files: Files, clock: Clock) -> Root:
    """A root that daemons have made, for a process that works beside them: nothing is made, tried
    or flushed. Raises StartupError when there is none, or one of another format.
    """
    layout = Layout.of(path)
    for folder in (layout.root, *layout.folders()):
        if not os.path.isdir(folder):
            raise StartupError(
                f"{layout.root} is not an mq root, or one of an older mq: there is no {folder}; "
                "use the folder of mq's --root, and start this mq on it once"
            )
    try:
        descriptor = files.open_read(layout.format)
    except OSError as error:
        raise StartupError(
            f"{layout.root} is not an mq root: {error}; use the folder of mq's --root"
        ) from error
    try:
        _check_line(layout, files.read(descriptor, _LINE_BYTES_MAX, 0).decode("ascii", "replace"))
    finally:
        files.close(descriptor)
    return root_of(layout, files, clock, kind="spark")


def open_for_audit(path: str | Path, files: Files, clock: Clock, kind: str) -> Root:
    """The root at what the path leads to; whose a link is says nothing. `kind`: of which program.
    Raises StartupError when it is none, is of another format, or may not be read.
    """
    root = root_of(Layout.of(os.path.realpath(path)), files, clock, kind=kind)
    check_is_root(root)
    return root


def check_is_root(root: Root) -> None:
    """Raises StartupError when it is no root of this format, or may not be read."""
    _check_line(root.layout, format_of(root))


def format_of(root: Root) -> str:
    """The line of the root's format. Raises StartupError when it is no root, or may not be read."""
    top = root.layout.root
    try:
        if not os.path.isdir(top):
            raise StartupError(
                f"{top} is not an mq root: there is no such folder; use the folder of mq's --root"
            )
        status = root.files.status(root.layout.format)
        if status is None:
            raise StartupError(
                f"{top} is not an mq root: there is no {root.layout.format}; use the folder of "
                "mq's --root"
            )
        if not stat.S_ISREG(status.st_mode):
            raise StartupError(
                f"{top} is not an mq root: {root.layout.format} is not a file; use the folder "
                "of mq's --root"
            )
        line = root.files.read_file(root.layout.format, _LINE_BYTES_MAX).decode("ascii", "replace")
        next(root.files.entries(top), None)
    except OSError as error:
        raise StartupError(f"{top} cannot be read: {os.strerror(error.errno or 0)}") from error
    return line


_MAY_NOT: Final = "run as the user that owns it, or change its owner (chown)"
_TO_DO: Final = {
    errno.EACCES: _MAY_NOT,
    errno.EPERM: _MAY_NOT,
    errno.EROFS: "mount its file system for writing",
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "free space, or raise the quota",
    errno.ENOTDIR: "correct --root (MQ_ROOT)",
    errno.ENAMETOOLONG: "correct --root (MQ_ROOT)",
}


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
            f"the file system of {layout.root} does not keep an mtime's microseconds, in which mq "
            "counts deliveries (as an ext4 with inodes of 128 bytes); use a root on another one"
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


def cannot_open(path: str, error: OSError) -> StartupError:
    """What a daemon reports where the root, or a folder that it works on, cannot be opened."""
    at = error.filename if error.filename is not None else path
    why = os.strerror(error.errno) if error.errno else str(error)
    do = _TO_DO.get(error.errno or 0, "run mqctl doctor on the folder")
    where = "" if str(at) == path else f": {at}"
    return StartupError(f"cannot open {path}: {why}{where}; {do}")


def _is_folder(files: Files, path: str) -> bool:
    """Whether a folder is there, or a link to one. Raises OSError where that cannot be seen."""
    try:
        status = files.status(os.path.realpath(path))
    except NotADirectoryError:
        return False
    return status is not None and stat.S_ISDIR(status.st_mode)


def _made_later(layout: Layout) -> tuple[str, ...]:
    later = history_folder(layout), archive_folder(layout), staging(layout)
    return (*layout.made_later(), *later, *index_folders(layout))


def _missing(path: str) -> list[str]:
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def _sync_ancestors(root: str, files: Files, made: list[str]) -> None:
    """Flushes the folders that lead to the root on its file system: what made them, `mkdir -p` or a
    daemon that was killed at its first start, may not have flushed them. Those that this user may
    not open are left out, but for the parents of the folders `made` just now.
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
        raise _no_folder(folder)


def _no_folder(path: str) -> StartupError:
    return StartupError(
        f"{path} is not a folder: a file, or a symbolic link, which mq does not follow; move it "
        "away, and start again"
    )


def check_format(layout: Layout, files: Files) -> None:
    """Raises StartupError when the root is of a format that this mq does not know.

    A line that a crash left half written is written again: nothing in the root was answered yet.
    """
    descriptor = files.open_kept(layout.format)
    try:
        found = files.read(descriptor, _LINE_BYTES_MAX, 0).decode("ascii", "replace")
        if _is_unfinished(found):
            files.write(descriptor, FORMAT_LINE.encode("ascii"))
            files.sync(descriptor)
        else:
            _check_line(layout, found)
    finally:
        files.close(descriptor)


def _check_line(layout: Layout, found: str) -> None:
    if found in OLD_FORMAT_LINES:
        raise StartupError(
            f"{layout.root} has the format {found.strip()!r}, of an older mq; stop every daemon "
            f"that uses it, and run: mqctl upgrade {layout.root}"
        )
    if found != FORMAT_LINE:
        raise StartupError(
            f"{layout.format} has the format {found.strip()!r}, and this mq knows "
            f"{FORMAT_LINE.strip()!r}; use the mq that made the root, or another root"
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
