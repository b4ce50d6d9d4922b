"""What a mount's type and options mean for mq. Pure.

The kernel does not list options that have their default.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from mq.store.disk.mounts import FileSystem
from mq.tools.doctor.findings import Finding, Level, worst

Breaks = Literal["", "durability", "machines"]

NFS_GOOD: Final = "vers=4.1,hard,lookupcache=positive,acdirmin=1,acdirmax=1"

_NFS: Final = frozenset({"nfs", "nfs4"})
_SHARED_BY_MACHINES: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "gfs2", "ocfs2", "lustre", "gpfs"}
)
# How long the kernel's NFS client caches a folder by default, in seconds.
_ACDIR_DEFAULT_S: Final = {"acdirmin": 30, "acdirmax": 60}
_TRIED: Final = frozenset({"ext4", "xfs", "btrfs"})
_UNTRIED: Final = "a kind that mq is not tried on; the findings below count"


@dataclass(frozen=True, slots=True)
class Word:
    """A remark on a mount; `breaks`: the promise that mq cannot keep there."""

    level: Level
    says: str
    do: str = ""
    breaks: Breaks = ""


def is_shared(file_system: FileSystem) -> bool:
    """Whether several machines may share a mount of this type."""
    return file_system.kind in _SHARED_BY_MACHINES or file_system.kind.startswith("fuse")


def locks_are_local(file_system: FileSystem) -> bool:
    """Whether locks are known to work only between processes of one machine, although several
    machines may share the storage; also if nothing is known.
    """
    if file_system.has_own_times or file_system.kind == "overlay":
        return False
    options = _parsed(file_system.options)
    if file_system.kind in _NFS:
        return "nolock" in options or options.get("local_lock", "none") not in ("none", "posix")
    return True


def judge_mount(file_system: FileSystem) -> tuple[Finding, frozenset[Breaks]]:
    """The finding for a mount, and the promises that its options break."""
    words = tuple(_words(file_system, _parsed(file_system.options)))
    said = "; ".join(word.says for word in words) or "as mq wants them"
    finding = Finding(
        "mount",
        worst(word.level for word in words),
        f"{file_system.kind}: {said}",
        "; ".join(word.do for word in words if word.do),
        {
            "kind": file_system.kind,
            "mount_point": file_system.mount_point,
            "options": file_system.options,
        },
    )
    return finding, frozenset(word.breaks for word in words if word.breaks)


def _parsed(options: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, _, value in (option.partition("=") for option in options)}


def _words(file_system: FileSystem, options: Mapping[str, str]) -> Iterator[Word]:
    yield from _any(options)
    kind = file_system.kind
    if kind in _NFS:
        yield from _nfs(options)
    elif kind in ("cifs", "smb3"):
        yield from _cifs(options)
    elif file_system.in_memory:
        yield Word(Level.WARN, "in memory: nothing outlives the power", "--durability=none")
    elif file_system.is_of_a_container:
        yield from _overlay(options)
    elif kind == "9p" and options.get("cache", "none") in ("loose", "fscache"):
        yield Word(
            Level.WRONG,
            f"cache={options['cache']}: others' changes are not seen",
            "cache=none",
            "machines",
        )
    elif kind == "unknown":
        yield Word(Level.WARN, "nothing is known of it: no /proc/self/mountinfo")
    elif kind not in _TRIED:
        yield Word(Level.NOTE, _UNTRIED)


def _any(options: Mapping[str, str]) -> Iterator[Word]:
    if "ro" in options:
        yield Word(Level.WRONG, "mounted read-only", "mount -o remount,rw")
    if "nobarrier" in options or options.get("barrier") == "0":
        yield Word(
            Level.WRONG,
            "without barriers, so that an fsync leaves the disk's own cache alone",
            "mount without nobarrier (barrier=0)",
            "durability",
        )
    if "sync" in options or "dirsync" in options:
        yield Word(Level.WARN, "mounted sync: mq flushes what it must by itself", "without sync")


def _nfs(options: Mapping[str, str]) -> Iterator[Word]:
    version = options.get("vers", "")
    if not version.startswith(("4.1", "4.2")):
        yield Word(
            Level.WRONG,
            f"vers={version or '?'} repeats what it lost the reply of; mq wants sessions",
            "vers=4.1 or 4.2",
            "machines",
        )
    if "soft" in options or "softerr" in options:
        yield Word(
            Level.WRONG, "soft: what takes long fails, and may have been done", "hard", "durability"
        )
    if "nolock" in options or options.get("local_lock", "none") in ("all", "flock"):
        yield Word(
            Level.WRONG, "locks are this machine's alone", "local_lock=none, no nolock", "machines"
        )
    if "nocto" in options:
        yield Word(Level.WRONG, "nocto: what an open shows may be old", "without nocto", "machines")
    if "noac" in options:
        yield Word(Level.WARN, "noac: each look asks the server", "acdirmin=1,acdirmax=1 instead")
        return
    lookups = options.get("lookupcache", "all")
    if lookups not in ("positive", "pos", "none"):
        yield Word(
            Level.WARN,
            f"lookupcache={lookups}: a name that was not there is not looked for again",
            "lookupcache=positive",
        )
    slow = [
        f"{name}={value}"
        for name, default in _ACDIR_DEFAULT_S.items()
        if (value := _number(options.get(name), default)) > 1
    ]
    if slow:
        yield Word(
            Level.WARN,
            f"{', '.join(slow)}: others' messages are seen that many seconds late",
            "acdirmin=1,acdirmax=1",
        )


def _cifs(options: Mapping[str, str]) -> Iterator[Word]:
    if "nobrl" in options:
        yield Word(Level.WRONG, "nobrl: no lock reaches the server", "without nobrl", "machines")
    yield Word(Level.NOTE, _UNTRIED)


def _overlay(options: Mapping[str, str]) -> Iterator[Word]:
    if "volatile" in options or options.get("fsync") == "volatile":
        yield Word(
            Level.WRONG, "volatile: an fsync does nothing", "a volume of its own", "durability"
        )
    yield Word(
        Level.WARN, "a container's own layer: it goes with the container", "a volume of its own"
    )


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdigit() else default
