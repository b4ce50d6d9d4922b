"""The files in which members tell what they are and do: writing one's own, and reading all.

Hints for eyes: replaced as a whole, never flushed. FORMAT.md, "Members".
"""

import contextlib
import json
import logging
import os
import socket
from collections.abc import Iterator

from mq.model.errors import BadName
from mq.model.members import Doing, Member
from mq.model.upkeep_limits import MEMBERS_SHOWN_MAX, TOLD_BYTES_MAX, TOLD_EVERY_S, TOLD_SOONEST_S
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_hint
from mq.store.format.members import Of, member_path, new_member_path, parse_member_file

_log = logging.getLogger("mq.members")


class MemberFile:
    """One member's own. For one thread; blocking."""

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
        """Whether `tell` would look at what it is given."""
        return self._root.clock.steady_s() >= self._again_s

    def next_due_s(self) -> float:
        """Seconds until it would."""
        return max(0.0, self._again_s - self._root.clock.steady_s())

    def tell(self, doing: Doing) -> None:
        """Says what the member does, where that is due: what is new every few seconds, and every
        ten that it is there. What cannot be written is logged, and tried again. Durable: no.
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
                    "what this member does cannot be told", extra={"fields": {"error": repr(error)}}
                )
            self._is_failing = True
            return
        self._is_failing = False
        self._told, self._latest_s = doing, now_s + TOLD_EVERY_S

    def leave(self) -> None:
        """The member ends, and tells nothing any more. Durable: no."""
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
    """All members that have told of themselves, by name, also those that are gone; what cannot be
    understood is left out. Raises OSError when the folder cannot be listed.
    """
    named = sorted(_told_names(root))[:MEMBERS_SHOWN_MAX]
    return [member for name in named if (member := read_member(root, name)) is not None]


def read_member(root: Root, name: str) -> Member | None:
    """What a member told last; None: nothing that can be understood."""
    try:
        text = root.files.read_file(member_path(root.layout, name, Of.TOLD), TOLD_BYTES_MAX)
        member = Member.parse(text)
    except (OSError, ValueError) as error:
        if not (isinstance(error, OSError) and is_gone(error)):
            _log.debug("a member's file", extra={"fields": {"member": name, "error": repr(error)}})
        return None
    return member if member.name == name else None


def _told_names(root: Root) -> Iterator[str]:
    for entry in root.files.entries(root.layout.members):
        with contextlib.suppress(BadName):
            member, of = parse_member_file(entry.name)
            if of is Of.TOLD:
                yield member
