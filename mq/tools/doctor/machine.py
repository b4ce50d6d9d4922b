"""The resources of this machine and user: space, descriptors, rights, and inotify."""

import os
import resource
import select
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inotify_simple import INotify, flags

from mq.store.core.trust import Risk, risks
from mq.store.disk.files import FILE_MODE, FOLDER_MODE
from mq.store.disk.mounts import FileSystem
from mq.store.disk.space import RESERVE_BYTES_MAX, RESERVE_INODES_MAX, RESERVE_SHARE
from mq.tools.doctor.findings import Fact, Finding, Level
from mq.tools.doctor.ground import STATES, Ground

_DESCRIPTORS_MIN: Final = 1024
_DESCRIPTORS_GOOD: Final = 4096
_INOTIFY_WAIT_S: Final = 2.0

_STATUS = "/proc/self/status"


@dataclass(frozen=True, slots=True)
class Room:
    """Free bytes and inodes, and mq's default reserve of each. Inodes None: the file system creates
    them as needed.
    """

    free_bytes: int
    reserve_bytes: int
    free_inodes: int | None
    reserve_inodes: int


def room(ground: Ground) -> Room:
    """Reads the free space from the file system. Raises OSError."""
    free = ground.files.free(ground.root.root)
    total = free.f_blocks * free.f_frsize
    return Room(
        free.f_bavail * free.f_frsize,
        min(RESERVE_BYTES_MAX, int(total * RESERVE_SHARE)),
        free.f_favail if free.f_files else None,
        min(RESERVE_INODES_MAX, int(free.f_files * RESERVE_SHARE)),
    )


def judge_room(found: Room) -> Finding:
    """Below the reserve mq refuses to publish."""
    facts = {
        "free_bytes": found.free_bytes,
        "reserve_bytes": found.reserve_bytes,
        "free_inodes": found.free_inodes,
        "reserve_inodes": found.reserve_inodes,
    }
    inodes = "inodes as needed" if found.free_inodes is None else f"{found.free_inodes:,} inodes"
    says = f"{found.free_bytes:,} bytes and {inodes} free"
    little = [
        what
        for what, free, reserve in (
            ("bytes", found.free_bytes, found.reserve_bytes),
            ("inodes", found.free_inodes, found.reserve_inodes),
        )
        if free is not None and free <= reserve
    ]
    if little:
        says += f": not above the reserve of {' and '.join(little)}, so publishing is refused"
        return Finding("room", Level.WRONG, says, "make room; a message is one inode", facts)
    if found.free_inodes is not None and found.free_inodes <= 2 * found.reserve_inodes:
        return Finding("room", Level.WARN, says, "a message is one inode: df -i", facts)
    if found.free_bytes <= 2 * found.reserve_bytes:
        return Finding("room", Level.WARN, f"{says}: little", "", facts)
    return Finding("room", Level.OK, says, "", facts)


def descriptors() -> tuple[int, int]:
    """This process's soft and hard limits of open files."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def judge_descriptors(soft: int, hard: int) -> Finding:
    """mq raises its own soft limit to the hard limit; each connection takes a descriptor."""
    facts = {"soft": soft, "hard": hard}
    if hard == resource.RLIM_INFINITY or hard >= _DESCRIPTORS_GOOD:
        most = "any number of" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        return Finding("descriptors", Level.OK, f"mq may have {most} files open", "", facts)
    says = f"mq may have {hard:,} files open, connections among them"
    do = f"ulimit -Hn {_DESCRIPTORS_GOOD * 16}, or LimitNOFILE="
    level = Level.WARN if hard >= _DESCRIPTORS_MIN else Level.WRONG
    return Finding("descriptors", level, says, do, facts)


@dataclass(frozen=True, slots=True)
class Rights:
    """Owners and modes of new files, and the rights to the root's folders. `denied`: folders that
    this user may not write; `owners`: the folders' owners; `risks`: what other users could do.
    """

    user: int
    umask: int
    file_mode: int
    file_owner: int
    folder_mode: int
    has_setgid: bool
    denied: Sequence[str]
    owners: Sequence[int]
    risks: Sequence[Risk] = ()


def rights(ground: Ground) -> Rights:
    """Creates a file and examines the root's folders. Raises OSError."""
    files = ground.files
    descriptor = files.create(ground.path("rights"))
    try:
        made = files.descriptor_status(descriptor)
    finally:
        files.close(descriptor)
    own = files.status(ground.folder)
    top = files.status(ground.root.root)
    folders = [ground.root.folder(state) for state in STATES]
    there = {folder: found for folder in folders if (found := files.status(folder)) is not None}
    writable = os.R_OK | os.W_OK | os.X_OK
    return Rights(
        os.geteuid(),
        _umask(),
        stat.S_IMODE(made.st_mode),
        made.st_uid,
        0 if own is None else stat.S_IMODE(own.st_mode),
        top is not None and bool(top.st_mode & stat.S_ISGID),
        tuple(
            os.path.basename(path)
            for path in there
            if not os.access(path, writable, effective_ids=True)
        ),
        tuple(sorted({found.st_uid for found in there.values()})),
        risks(ground.root.root, files, os.geteuid(), there),
    )


def _umask() -> int:
    """This process's umask, read without setting it; 0 if Linux does not show it."""
    try:
        with open(_STATUS, encoding="ascii", errors="replace") as lines:
            return next((int(line[6:], 8) for line in lines if line.startswith("Umask:")), 0)
    except OSError:
        return 0


def judge_rights(found: Rights) -> Finding:
    """All processes of mq must run as one user, since each opens every file for writing."""
    facts: dict[str, Fact] = {
        "user": found.user,
        "umask": f"{found.umask:03o}",
        "file_mode": f"{found.file_mode:04o}",
        "folder_mode": f"{found.folder_mode:04o}",
        "setgid": found.has_setgid,
        "owners": tuple(map(str, found.owners)),
    }
    if found.denied:
        says = f"user {found.user} may not write {', '.join(found.denied)}"
        return Finding("rights", Level.WRONG, says, "run as the user that mq runs as", facts)
    if found.file_mode & FILE_MODE != FILE_MODE or found.folder_mode & FOLDER_MODE != FOLDER_MODE:
        says = f"a file is made with mode {found.file_mode:04o}, umask {found.umask:03o}"
        return Finding("rights", Level.WRONG, says, "umask 077, or one that leaves 700", facts)
    for risk in sorted(found.risks, key=lambda risk: not risk.is_grave):
        level = Level.WRONG if risk.is_grave else Level.WARN
        return Finding("rights", level, risk.says, risk.do, facts)
    others = [owner for owner in found.owners if owner != found.file_owner]
    if others:
        says = f"the root's folders are of user {', '.join(map(str, others))}, files made here "
        says += f"are of user {found.file_owner}"
        do = "all processes of mq as one user, this one too"
        return Finding("rights", Level.WARN, says, do, facts)
    words = [f"as user {found.user}, umask {found.umask:03o}"]
    if found.file_owner != found.user:
        words.append(f"new files are of user {found.file_owner} (squashed, perhaps)")
    if found.file_mode != FILE_MODE:
        words.append(f"files get mode {found.file_mode:04o}, whatever is asked for")
    if found.has_setgid:
        words.append("setgid: new files have the root's group")
    level = Level.NOTE if len(words) > 1 else Level.OK
    return Finding("rights", level, "; ".join(words), "", facts)


def is_told(ground: Ground) -> bool | None:
    """Whether inotify reports a name that is moved to a folder; None if there is no inotify, or
    this user has reached its limit. Raises OSError for file operations.
    """
    files = ground.files
    files.mkdir(ground.path("watched"))
    files.close(files.create(ground.path("comes")))
    try:
        with INotify(nonblocking=True) as inotify:
            inotify.add_watch(ground.path("watched"), flags.MOVED_TO)
            files.rename(ground.path("comes"), ground.path("watched/came"))
            return bool(select.select([inotify.fileno()], [], [], _INOTIFY_WAIT_S)[0])
    except OSError:
        return None


def judge_told(told: bool | None, file_system: FileSystem) -> Finding:
    """With inotify, waiting consumers are served at once; without it, mq scans twice a second."""
    facts = {"told": told, "this_machine_only": not file_system.has_own_times}
    looks = "mq looks twice a second"
    if told is None:
        do = "fs.inotify.max_user_instances and max_user_watches (sysctl)"
        return Finding("inotify", Level.WARN, f"there is none to have: {looks}", do, facts)
    if not told:
        return Finding("inotify", Level.WARN, f"tells nothing here: {looks}", "", facts)
    if file_system.has_own_times:
        return Finding("inotify", Level.OK, "tells what other processes put there", "", facts)
    says = f"tells what this machine puts there; of others' {looks}"
    return Finding("inotify", Level.NOTE, says, "", facts)
