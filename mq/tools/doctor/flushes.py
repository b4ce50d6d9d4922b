"""Flushes: of files, of folders, of the whole file system, and their durations."""

import errno
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mq.store.disk.files import Files
from mq.store.disk.mounts import FileSystem, tells_syncfs_errors
from mq.tools.doctor.findings import Finding, Level
from mq.tools.doctor.ground import Ground

# The number of timed flushes, and the bytes of each; slower ones are reported.
_FLUSHES_TIMED: Final = 20
_FLUSHED_BYTES: Final = 1024
_FLUSH_SLOW_S: Final = 0.05
# No disk is faster than this: such a flush has written nothing.
_FLUSH_INCREDIBLE_S: Final = 0.000_005


@dataclass(frozen=True, slots=True)
class Flushes:
    """The seconds of each flush; `folder_missing`: the file system cannot flush folders."""

    file_s: Sequence[float]
    folder_s: Sequence[float]
    folder_missing: bool


def flushes(ground: Ground) -> Flushes:
    """Creates files, and flushes each and its folder, as a publish does. Raises OSError."""
    # A new object, since Files remembers that a folder's fsync failed.
    files = Files()
    file_s, folder_s = [], []
    for number in range(_FLUSHES_TIMED + 1):
        descriptor = files.create(ground.path(f"flush-{number}"))
        try:
            files.write(descriptor, b"\n" * _FLUSHED_BYTES)
            began_s = ground.clock.steady_s()
            files.sync(descriptor)
        finally:
            files.close(descriptor)
        between_s = ground.clock.steady_s()
        files.sync_folder(ground.folder)
        file_s.append(between_s - began_s)
        folder_s.append(ground.clock.steady_s() - between_s)
    # The first flush also waits for the writes of others.
    return Flushes(file_s[1:], folder_s[1:], files.folder_fsync_missing)


def judge_file_flushes(found: Flushes, file_system: FileSystem) -> Finding:
    """The median duration of a file's fsync; a figure, not a promise."""
    median_s = statistics.median(found.file_s)
    facts = {
        "median_s": median_s,
        "max_s": max(found.file_s),
        "folder_median_s": statistics.median(found.folder_s),
        "times": len(found.file_s),
    }
    says = f"it takes {_ms(median_s)} (median of {len(found.file_s)}), "
    says += f"of a folder {_ms(statistics.median(found.folder_s))}"
    if median_s > _FLUSH_SLOW_S:
        return Finding(
            "fsync of files",
            Level.WARN,
            f"{says}: few requests can be answered a second, but many at a time",
            "a disk with a cache that outlives the power",
            facts,
        )
    if median_s < _FLUSH_INCREDIBLE_S and not file_system.in_memory:
        return Finding(
            "fsync of files",
            Level.WARN,
            f"{says}: no disk writes so fast, so it may do nothing",
            "see what the mount, or its server, does on fsync",
            facts,
        )
    return Finding("fsync of files", Level.OK, says, "", facts)


def judge_folder_flushes(found: Flushes) -> Finding:
    """Without fsync for folders mq logs that and continues: a power cut may lose a name."""
    if found.folder_missing:
        return Finding(
            "fsync of folders",
            Level.WARN,
            f"refused ({errno.errorcode[errno.EINVAL]} or {errno.errorcode[errno.ENOTSUP]}), which "
            "mq tolerates: when a name is on the disk is the file system's own word",
            "ext4, xfs or btrfs, for what must outlive the power",
            {"supported": False},
        )
    return Finding("fsync of folders", Level.OK, "done", "", {"supported": True})


def judge_syncfs(file_system: FileSystem, is_own: bool) -> Finding:
    """Which flush `--commit=auto` uses: one syncfs for many files, if it reports errors and the
    file system is the root's own.
    """
    tells = tells_syncfs_errors(file_system)
    facts = {
        "tells_errors": tells,
        "own_file_system": is_own,
        "commit": "syncfs" if tells and is_own else "fsync",
    }
    if tells and is_own:
        return Finding("syncfs", Level.OK, "tells of errors; --commit=auto takes it", "", facts)
    if tells:
        says = "tells of errors, but would flush what others write here; --commit=auto takes fsync"
        do = "for many publishers: a file system of the root's own"
        return Finding("syncfs", Level.NOTE, says, do, facts)
    says = "does not tell of errors here; --commit=auto takes fsync"
    return Finding("syncfs", Level.NOTE, says, "", facts)


def _ms(time_s: float) -> str:
    return f"{time_s * 1000:.3g} ms"
