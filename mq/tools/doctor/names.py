"""Names: how they move, how long they may be, and whether case matters."""

import errno
import functools
import itertools
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from mq.model.limits import FILE_NAME_BYTES_MAX
from mq.store.core.root import unlink_if_there
from mq.store.disk.files import is_gone
from mq.tools.doctor.findings import Finding, Level
from mq.tools.doctor.ground import STATES, Ground
from mq.tools.doctor.partners import Side

# How long a file is replaced repeatedly while another process looks for it.
_REPLACED_S: Final = 0.05

# The special characters of a message's name: a separator, a field, a list.
_SIGNS: Final = "orders:0192,k=a+b,p=1.json"


@dataclass(frozen=True, slots=True)
class Renames:
    """The results of renames of files and folders in the doctor's folder."""

    keeps_inode: bool
    replaces: bool
    looks: int
    missed: int
    moves_folders: bool


def renames(ground: Ground, side: Side) -> Renames:
    """Renames to a new name, over another file while `side` looks for it, and a folder with a file
    in it. Raises OSError.
    """
    files = ground.files
    inode = _made(ground, "moved", b"one")
    files.rename(ground.path("moved"), ground.path("moved-on"))
    found = files.status(ground.path("moved-on"))
    keeps = found is not None and found.st_ino == inode
    keeps = keeps and files.status(ground.path("moved")) is None
    _made(ground, "replaced", b"old")
    side.partner.tell("missed", path=side.path("replaced"), for_s=_REPLACED_S)
    end_s = ground.clock.steady_s() + _REPLACED_S
    while ground.clock.steady_s() < end_s:
        _made(ground, "beside", b"new")
        files.rename(ground.path("beside"), ground.path("replaced"))
    looked = side.partner.answer()
    replaces = files.read_file(ground.path("replaced"), 3) == b"new"
    replaces = replaces and files.status(ground.path("beside")) is None
    files.mkdir(ground.path("folder"))
    _made(ground, "folder/inner", b"inner")
    files.rename(ground.path("folder"), ground.path("folder-on"))
    moves = files.read_file(ground.path("folder-on/inner"), 5) == b"inner"
    return Renames(keeps, replaces, looked["looks"], looked["missed"], moves)


def judge_renames(found: Renames) -> Finding:
    """A rename must be atomic, keep the inode, and move whole folders: every transition is one."""
    bad = [
        says
        for holds, says in (
            (found.keeps_inode, "a rename changed a file's inode, by which mq knows it again"),
            (found.replaces, "a rename over a file did not replace it"),
            (not found.missed, f"a file was missed {found.missed} times while it was replaced"),
            (found.moves_folders, "a folder was not renamed with its content"),
        )
        if not holds
    ]
    facts = {"looks": found.looks, "missed": found.missed, "keeps_inode": found.keeps_inode}
    if bad:
        return Finding("rename", Level.WRONG, "; ".join(bad), "another file system", facts)
    return Finding("rename", Level.OK, f"atomic: never missed in {found.looks} looks", "", facts)


@dataclass(frozen=True, slots=True)
class Journey:
    """A file's way through the root's four folders. `failed`: the move that failed, from and to,
    and its errno; `missing`: which of the four do not exist; `linked`: folders of the root that are
    symbolic links or not folders; `elsewhere`: folders on another file system.
    """

    missing: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    failed: tuple[str, str, int] | None = None


def journey(ground: Ground) -> Journey:
    """Moves a dotfile through the folders that messages move through, then removes it. Raises
    OSError.
    """
    files = ground.files
    found = {folder: files.status(folder) for folder in ground.root.folders()}
    there = {folder: status for folder, status in found.items() if status is not None}
    four = [ground.root.folder(state) for state in STATES]
    device = there[four[0]].st_dev if four[0] in there else None
    what_is_wrong = Journey(
        _named(folder for folder in four if folder not in there),
        _named(folder for folder, each in there.items() if not stat.S_ISDIR(each.st_mode)),
        _named(folder for folder, each in there.items() if device not in (None, each.st_dev)),
    )
    if what_is_wrong != Journey():
        return what_is_wrong
    paths = [ground.in_root(state) for state in STATES]
    files.close(files.create(paths[0]))
    try:
        for source, target in itertools.pairwise(paths):
            try:
                files.rename(source, target)
            except OSError as error:
                ends = [os.path.basename(os.path.dirname(path)) for path in (source, target)]
                return Journey(failed=(ends[0], ends[1], error.errno or 0))
    finally:
        for path in paths:
            unlink_if_there(files, path)
    return Journey()


def _named(folders: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.path.basename(folder) for folder in folders)


def judge_journey(found: Journey) -> Finding:
    """Messages move through all four by rename; mq does not start where they cannot."""
    probe, one = "folders of the root", "one file system for the whole root"
    if found.linked:
        says = f"no folders, and symbolic links are not followed: {', '.join(found.linked)}"
        return Finding(probe, Level.WRONG, says, "put folders there")
    if found.elsewhere:
        says = f"on another file system than the rest: {', '.join(found.elsewhere)}"
        return Finding(probe, Level.WRONG, says, one)
    if len(found.missing) == len(STATES):
        return Finding(probe, Level.OK, "not made yet; the first start does, and tries them")
    if found.missing:
        says = f"not there: {', '.join(found.missing)}"
        return Finding(probe, Level.WARN, says, "is one unmounted? A start makes it, empty")
    if found.failed is not None:
        source, target, code = found.failed
        says = f"no rename from {source} to {target}: {os.strerror(code)}"
        do = one if code == errno.EXDEV else "see who may write there"
        return Finding(probe, Level.WRONG, says, do)
    return Finding(probe, Level.OK, "a file went through all four by rename")


@dataclass(frozen=True, slots=True)
class Names:
    """Which names the file system accepts, and how it treats them."""

    longest_bytes: int
    tells_cases_apart: bool
    takes_signs: bool
    keeps_links: bool
    new_links: int
    gone_links: int
    reads_unlinked: bool
    makes_once: bool


def names(ground: Ground) -> Names:
    """Tests names like those of messages, queues and keys. Raises OSError."""
    files = ground.files
    longest = FILE_NAME_BYTES_MAX
    while longest > 8 and not _works(functools.partial(_made, ground, "n" * longest)):
        longest -= 8
    _made(ground, "Case")
    _made(ground, "twice")
    before, after, reads = _unlinked(ground, "twice")
    once = _works(lambda: _made(ground, "once")) and not _works(lambda: _made(ground, "once"))
    return Names(
        longest,
        files.status(ground.path("case")) is None,
        _works(lambda: _made(ground, _SIGNS)),
        _works(lambda: files.link(ground.path("link"), _SIGNS))
        and files.linked(ground.path("link")) == _SIGNS,
        before,
        after,
        reads,
        once,
    )


def _unlinked(ground: Ground, name: str) -> tuple[int, int, bool]:
    """An open file's number of names, before and after its name is removed, and whether it can
    still be read.
    """
    files = ground.files
    descriptor = files.open_claimed(ground.path(name))
    try:
        before = files.descriptor_status(descriptor).st_nlink
        files.unlink(ground.path(name))
        try:
            reads = files.read(descriptor, 4, 0) == b"here"
            return before, files.descriptor_status(descriptor).st_nlink, reads
        except OSError as error:
            if not is_gone(error):
                raise
            return before, 0, False
    finally:
        files.close(descriptor)


def judge_names(found: Names) -> Finding:
    """mq needs names of 255 bytes, case-sensitive and created once; keys are symbolic links."""
    bad = [
        says
        for holds, says in (
            (
                found.longest_bytes >= FILE_NAME_BYTES_MAX,
                f"names of {found.longest_bytes} bytes at most; mq's are up to "
                f"{FILE_NAME_BYTES_MAX}",
            ),
            (found.tells_cases_apart, "Case and case are one name: so would queues be"),
            (found.takes_signs, "no names with : , = or +, which messages' names have"),
            (found.keeps_links, "no symbolic links, which keys are"),
            (found.new_links == 1, f"a file has {found.new_links} names as soon as it is made"),
            (found.makes_once, "O_EXCL makes a file that is there"),
        )
        if not holds
    ]
    facts = {
        "name_bytes_max": found.longest_bytes,
        "case_sensitive": found.tells_cases_apart,
        "symbolic_links": found.keeps_links,
        "links_after_unlink": found.gone_links,
    }
    if bad:
        return Finding("names", Level.WRONG, "; ".join(bad), "another file system", facts)
    says = f"{found.longest_bytes} bytes, told apart by case, made once; symbolic links are kept"
    if not found.reads_unlinked:
        says += "; an open file cannot be read once its name is gone: a slow fetch may break off"
        return Finding("names", Level.WARN, says, "", facts)
    if found.gone_links:
        says += "; an open file keeps another name when its own goes"
        return Finding("names", Level.NOTE, says, "", facts)
    return Finding("names", Level.OK, says, "", facts)


def _made(ground: Ground, name: str, content: bytes = b"here") -> int:
    descriptor = ground.files.create(ground.path(name))
    try:
        ground.files.write(descriptor, content)
        return ground.files.descriptor_status(descriptor).st_ino
    finally:
        ground.files.close(descriptor)


def _works(act: Callable[[], object]) -> bool:
    """Whether the file system can do it. Raises a full disk's error, which says nothing
    about that.
    """
    try:
        act()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return False
    return True
