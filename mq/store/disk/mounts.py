"""The file system that a root is on, and the flush policy that it allows.

Reads /proc/self/mountinfo on Linux. Elsewhere the file system is unknown, and nothing is assumed.
"""

import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import StartupError
from mq.model.settings import CommitMode, Durability
from mq.store.disk.files import Files
from mq.store.disk.flush import (
    Flusher,
    FolderFlusher,
    FsyncFlusher,
    NamesAtOnce,
    NoFlusher,
    OrderedFolders,
    SyncfsFlusher,
    is_kernel_with_syncfs_errors,
)

_SYNCFS_KINDS: Final = frozenset({"ext4", "xfs", "btrfs"})
_MEMORY_KINDS: Final = frozenset({"tmpfs", "ramfs"})
_DEVICES: Final = "/sys/dev/block"
_JOURNALS: Final = "/proc/fs/jbd2"
_FAST_COMMITS: Final = "/proc/fs/ext4/{}/fc_info"
_NFS_KINDS: Final = frozenset({"nfs", "nfs4"})
_NETWORK_KINDS: Final = _NFS_KINDS | {
    *("cifs", "smb3", "ceph", "fuse.ceph-fuse", "fuse.juicefs", "9p", "fuse.sshfs")
}


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A root's file system: its kind (`ext4`, `nfs4`, `unknown`), its mount point, its device as
    major:minor, and its options, the mount's before the file system's.
    """

    kind: str
    mount_point: str
    device: str = ""
    options: tuple[str, ...] = field(default=(), compare=False)

    @property
    def in_memory(self) -> bool:
        """Whether nothing on it outlives the power."""
        return self.kind in _MEMORY_KINDS

    @property
    def has_inodes(self) -> bool:
        """Whether a file keeps its number; FUSE may give it another at each look-up."""
        return not self.kind.startswith("fuse")

    @property
    def is_of_a_container(self) -> bool:
        """Whether it is a container's own layer, over those of its image, and goes with it."""
        return self.kind == "overlay"

    @property
    def over_network(self) -> bool:
        """Whether a server with a clock of its own sets its times."""
        return self.kind in _NETWORK_KINDS

    @property
    def has_own_times(self) -> bool:
        """Whether this machine's clock, and nothing else, sets its times, and every reader sees
        them as they are: where that is not known, it is not so.
        """
        return self.kind in _SYNCFS_KINDS or self.in_memory

    @property
    def keeps_order(self) -> bool:
        """Whether a journal makes names and mtimes durable in the order in which they changed, each
        rename whole: xfs, and ext4 with a journal, but for fast commits.
        """
        if "nobarrier" in self.options:
            return False
        return self.kind == "xfs" or (
            self.kind == "ext4" and has_journal(self.device) and not commits_fast(self.device)
        )

    @property
    def keeps_names_at_once(self) -> bool:
        """Whether a change of a name or an mtime is on stable media once its call returns: NFS."""
        return self.kind in _NFS_KINDS

    @property
    def is_whole(self) -> bool:
        """Whether a commit is one moment of the whole file system, and an fsync breaks that: btrfs
        has a log of its own for each fsync. With kernels that tell syncfs of errors.
        """
        return self.kind == "btrfs" and tells_syncfs_errors(self)

    @property
    def keeps_changes(self) -> bool:
        """Whether a power cut is known to keep no change without those before it."""
        return self.keeps_order or self.is_whole or self.over_network


def has_journal(device: str) -> bool:
    """Whether the device, major:minor, has a journal as far as Linux shows; an ext4 may
    be without.
    """
    try:
        name = _name_of(device)
        return any(journal.startswith(f"{name}-") for journal in os.listdir(_JOURNALS))
    except OSError:
        return False


def _name_of(device: str) -> str:
    """The kernel's name of a device, major:minor."""
    return os.path.basename(os.path.realpath(f"{_DEVICES}/{device}"))


def commits_fast(device: str) -> bool:
    """Whether the ext4 has fast commits (`fast_commit`), which keep no order: Linux counts each,
    and each file that cannot have one, from the first fsync on.
    """
    try:
        with open(_FAST_COMMITS.format(_name_of(device)), encoding="ascii") as lines:
            return any(map(int, re.findall(r"^(\d+) (?:commits|ineligible)$", lines.read(), re.M)))
    except FileNotFoundError:
        return False  # A kernel without them.
    except OSError:
        return True


PROMISE_IF_ORDERED: Final = "media, if it keeps the order of changes"
"""The promise on a file system of which that is not known."""


def file_system_of(path: str, mountinfo: str = "/proc/self/mountinfo") -> FileSystem:
    """The file system under the path, by the longest mount point above it, last mounted first."""
    real = os.path.realpath(path)
    best = FileSystem("unknown", "")
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                left, _, right = line.partition(" - ")
                _, _, device, _, escaped, own, *_ = left.split(" ")
                point = _unescape(escaped)
                if _is_below(real, point) and len(point) >= len(best.mount_point):
                    kind, _, rest = right.rstrip("\n").partition(" ")
                    both = (*own.split(","), *rest.rpartition(" ")[2].split(","))
                    best = FileSystem(kind, point, device, tuple(dict.fromkeys(both)))
    except OSError:
        return best
    return best


def choose_flusher(
    root: str,
    files: Files,
    threads: int,
    commit: CommitMode = "auto",
    durability: Durability = "media",
    force: bool = False,
    on_folder_failure: Callable[[], None] = lambda: None,
) -> Flusher:
    """The flush policy for a root; `threads`: how many fsyncs run in parallel. Raises StartupError
    for a policy that would break the promise.
    """
    file_system = file_system_of(root)
    if durability == "none":
        if not file_system.in_memory and not force:
            raise StartupError(
                f"--durability=none is for a root in memory (tmpfs), and {root} is on "
                f"{file_system.kind}, where a crash would lose messages for nothing; leave it out, "
                "or use --force"
            )
        return NoFlusher()
    if commit == "auto":
        own = file_system.mount_point == os.path.realpath(root)
        commit = "syncfs" if own and tells_syncfs_errors(file_system) else "fsync"
    files.flushes_whole = file_system.is_whole
    if _shows_order(root, file_system, files):
        folders: FolderFlusher = OrderedFolders(files, on_folder_failure, root)
    elif file_system.keeps_names_at_once:
        folders = NamesAtOnce(files, on_folder_failure)
    else:
        folders = FolderFlusher(files, on_folder_failure)
    if commit == "syncfs" or file_system.is_whole:
        return SyncfsFlusher(files, root, folders)
    return FsyncFlusher(files, threads, folders)


def _shows_order(root: str, file_system: FileSystem, files: Files) -> bool:
    """Whether it keeps the order of changes, which shows once something was flushed."""
    if file_system.kind == "ext4":
        try:
            files.flush_nameless(root)
        except OSError:
            return False
    return file_system.keeps_order


def tells_syncfs_errors(file_system: FileSystem) -> bool:
    """Whether a syncfs there says what became of everything that was written before it."""
    return file_system.kind in _SYNCFS_KINDS and is_kernel_with_syncfs_errors(platform.release())


def promise(flusher: Flusher, file_system: FileSystem, files: Files) -> str:
    """The durability that the root really has, in a word for /-/readyz."""
    if flusher.name == NoFlusher.name:
        return "none"
    if file_system.in_memory:
        return "memory"
    if files.folder_fsync_missing:
        return "media, but for folders"
    return "media" if file_system.keeps_changes else PROMISE_IF_ORDERED


def _is_below(path: str, mount_point: str) -> bool:
    return path == mount_point or path.startswith(mount_point.rstrip("/") + "/")


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)
