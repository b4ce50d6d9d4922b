"""The files of members: each member's report, for people, and the progress of its sweep of overdue
messages, so that the sweep continues after a restart or in another process.

All are hints: replaced as a whole, and never flushed. FORMAT.md, "Members".
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mq.model.errors import BadName
from mq.model.limits import KIB, MIB
from mq.model.log import logger
from mq.model.members import TOLD_EVERY_S, Doing, Member
from mq.model.message import Stamp
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_hint
from mq.store.format.layout import is_unfinished
from mq.store.format.members import Of, member_path, new_member_path, parse_member_file
from mq.store.format.walk import entries_if_there, named

# A member's report: the shortest and longest interval between writes, and its size.
TOLD_SOONEST_S: Final = 2.0
TOLD_BYTES_MAX: Final = MIB
MEMBERS_SHOWN_MAX: Final = 1000
# How long a report stays after its member's end, and how long an unfinished file stays.
MEMBER_TOLD_KEPT_S: Final = 24 * 3600.0
UNFINISHED_KEPT_S: Final = 3600.0

POINTER_BYTES_MAX: Final = 4 * KIB

_log = logger("mq.members")

_POINTER_VERSION: Final = 1


class MemberFile:
    """One member's report file. For one thread; blocking."""

    def __init__(self, root: Root, member: str) -> None:
        self.member = member
        self._root = root
        self._host = socket.gethostname()
        self._pid = os.getpid()
        self._started_ms = root.now_ms()
        self._told: Doing | None = None
        self._again_s = self._latest_s = float("-inf")
        self._is_failing = False

    def is_due(self) -> bool:
        """Whether `tell` would consider its argument."""
        return self._root.clock.steady_s() >= self._again_s

    def next_due_s(self) -> float:
        """Seconds until `tell` would."""
        return max(0.0, self._again_s - self._root.clock.steady_s())

    def tell(self, doing: Doing) -> None:
        """Writes the member's report if that is due: changes every few seconds, and a sign of life
        every ten. Logs failures and tries again. Durable on return: no.
        """
        now_s = self._root.clock.steady_s()
        if now_s < self._again_s:
            return
        self._again_s = now_s + TOLD_SOONEST_S
        if doing == self._told and now_s < self._latest_s:
            return
        try:
            self._write(doing)
        except OSError as error:
            if not self._is_failing:
                _log.warning(
                    "could not write this member's report; trying again",
                    extra={"fields": {"error": repr(error)}},
                )
            self._is_failing = True
            return
        self._is_failing = False
        self._told, self._latest_s = doing, now_s + TOLD_EVERY_S

    def leave(self) -> None:
        """Removes the report: the member ends. Durable on return: no."""
        with contextlib.suppress(OSError):
            path = member_path(self._root.layout, self.member, Of.TOLD)
            unlink_if_there(self._root.files, path)

    def _write(self, doing: Doing) -> None:
        member = Member(
            self.member,
            self._host,
            self._pid,
            self._started_ms,
            self._root.now_ms(),
            doing,
            len(doing.queues),
        )
        layout, content = self._root.layout, json.dumps(member.as_json()).encode() + b"\n"
        written = new_member_path(layout, self.member, Of.TOLD)
        path = member_path(layout, self.member, Of.TOLD)
        replace_hint(self._root.files, written, path, content)


def read_members(root: Root) -> list[Member]:
    """All members with a report, by name, also those that are gone; skips unreadable reports.
    Raises OSError if the folder cannot be listed.
    """
    named = sorted(_told_names(root))[:MEMBERS_SHOWN_MAX]
    return [member for name in named if (member := read_member(root, name)) is not None]


def read_member(root: Root, name: str) -> Member | None:
    """A member's last report; None: there is none, or it is unreadable."""
    try:
        text = root.files.read_file(member_path(root.layout, name, Of.TOLD), TOLD_BYTES_MAX)
        member = Member.parse(text)
    except (OSError, ValueError) as error:
        if not (isinstance(error, OSError) and is_gone(error)):
            _log.debug("a member's file", extra={"fields": {"member": name, "error": repr(error)}})
        return None
    return member if member.name == name else None


def _told_names(root: Root) -> Iterator[str]:
    entries = root.files.entries(root.layout.members)
    return (member for _, (member, of) in named(entries, parse_member_file) if of is Of.TOLD)


def sweep_members(root: Root) -> int:
    """Removes reports and progress files a day after their last write, and unfinished files after
    an hour. Returns their number. Foreign files stay. Raises OSError. Durable on return: no; what a
    crash brings back is swept again.
    """
    swept = 0
    for folder in (root.layout.members, root.layout.shovels):
        for entry in entries_if_there(root.files, folder):
            kept_s = _kept_s(root, folder, entry.name)
            if kept_s is not None and _is_older(root, entry, kept_s):
                unlink_if_there(root.files, entry.path)
                swept += 1
    return swept


def _kept_s(root: Root, folder: str, name: str) -> float | None:
    """How long a file of this name stays after its last write; None: it is not swept here."""
    if is_unfinished(name):
        return UNFINISHED_KEPT_S
    if folder == root.layout.members:
        with contextlib.suppress(BadName):
            # The leader removes leases: it sees which members renew theirs.
            return None if parse_member_file(name)[1] is Of.LEASE else MEMBER_TOLD_KEPT_S
    return None


def _is_older(root: Root, entry: "os.DirEntry[str]", seconds: float) -> bool:
    if not entry.is_file(follow_symlinks=False):
        return False
    status = root.files.status(entry.path)
    if status is None:
        return False
    told_ms = Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
    return root.has_aged(told_ms, seconds)


@dataclass(frozen=True, slots=True)
class Pointer:
    """A member's progress. `behind`: the last checked name of delay/. `told_ms`: when that was
    written, in milliseconds since the epoch.
    """

    member: str
    behind: str
    told_ms: int


def write_pointer(root: Root, member: str, behind: str) -> None:
    """Records that the member's pass continues behind this name. Raises OSError. Durable on return:
    no.
    """
    layout, said = root.layout, {"version": _POINTER_VERSION, "behind": behind}
    written = new_member_path(layout, member, Of.POINTER)
    path = member_path(layout, member, Of.POINTER)
    content = json.dumps(said).encode() + b"\n"
    replace_hint(root.files, written, path, content, Stamp(root.now_ms()).mtime_ns())


def forget_pointer(root: Root, member: str) -> None:
    """Removes the progress: the pass has ended, or another member continues it. Raises OSError.
    Durable on return: no.
    """
    unlink_if_there(root.files, member_path(root.layout, member, Of.POINTER))


def read_pointers(root: Root) -> list[Pointer]:
    """All members' progress; skips unreadable files. Raises OSError if the folder cannot be
    listed.
    """
    found = named(root.files.entries(root.layout.members), parse_member_file)
    pointers = [_read_pointer(root, member) for _, (member, of) in found if of is Of.POINTER]
    return [each for each in pointers if each is not None]


def _read_pointer(root: Root, member: str) -> Pointer | None:
    path = member_path(root.layout, member, Of.POINTER)
    try:
        status = root.files.status(path)
        said = json.loads(root.files.read_file(path, POINTER_BYTES_MAX))
        if (
            status is None
            or said["version"] != _POINTER_VERSION
            or not isinstance(said["behind"], str)
        ):
            return None
    except OSError as error:
        if is_gone(error):
            return None
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Pointer(member, said["behind"], Stamp.from_mtime_ns(status.st_mtime_ns).due_ms)
