"""The names in members/, where processes that share upkeep report to each other.

FORMAT.md, "Members". Only the root's id is flushed: everything else is a hint, and is written
again.
"""

import re
from enum import Enum
from typing import Final

from mq.model.errors import BadName
from mq.store.format.layout import Layout, new_name

MEMBER_NAME_CHARS_MAX: Final = 100

_LEADER: Final = "leader"
_LOCK: Final = ".lock"
_ROOT_ID: Final = "root-id"
_REFRESH: Final = "refresh"
_MEMBER: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MEMBER_NAME_CHARS_MAX - 1}}}")


class Of(Enum):
    """The kinds of a member's files; the value is the suffix."""

    LEASE = ".lease"
    """Its mtime is the time at which the member was last alive."""
    TOLD = ".json"
    """The member's report."""
    POINTER = ".sweep"
    """The progress of its sweep of overdue messages."""


def parse_member(text: str) -> str:
    """Parses a member's name. Raises BadName."""
    if _MEMBER.fullmatch(text) is None:
        most = MEMBER_NAME_CHARS_MAX - 1
        raise BadName("member", f"a letter or digit, then up to {most} of letters, digits, _ . -")
    return text


def member_path(layout: Layout, member: str, of: Of) -> str:
    """A member's file of this kind."""
    return f"{layout.members}/{member}{of.value}"


def new_member_path(layout: Layout, member: str, of: Of) -> str:
    """Where this process writes it. A dotfile: it means nothing until it is renamed."""
    return f"{layout.members}/{new_name(member + of.value)}"


def parse_member_file(name: str) -> tuple[str, Of]:
    """The member of a file of members/, and the kind of the file. Raises BadName."""
    for of in Of:
        if name.endswith(of.value):
            return parse_member(name.removesuffix(of.value)), of
    raise BadName("member's file", "{member} and .lease, .json or .sweep")


def leader_path(layout: Layout) -> str:
    """The leader's file, with the queues of each member."""
    return f"{layout.members}/{_LEADER}"


def new_leader_path(layout: Layout) -> str:
    """Where this process writes it; a dotfile, as above."""
    return f"{layout.members}/{new_name(_LEADER)}"


def members_lock(layout: Layout) -> str:
    """The lock file for writing the leader's file."""
    return f"{layout.members}/{_LOCK}"


def root_id_path(layout: Layout) -> str:
    """The symbolic link with the root's own name, which tells roots apart."""
    return f"{layout.members}/{_ROOT_ID}"


def refresh_path(layout: Layout) -> str:
    """The file whose mtime changes when all processes of the root have to look at all queues."""
    return f"{layout.members}/{_REFRESH}"
