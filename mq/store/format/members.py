"""Names in members/: what processes that share upkeep say to each other there.

FORMAT.md, "Members", has them. Nothing there is flushed but the root's id: all else is hints, and
is said again.
"""

import re
from enum import Enum
from typing import Final

from mq.model.errors import BadName
from mq.model.upkeep_limits import MEMBER_NAME_CHARS_MAX
from mq.store.format.layout import Layout, new_name

_LEADER: Final = "leader"
_LOCK: Final = ".lock"
_ROOT_ID: Final = "root-id"
_REFRESH: Final = "refresh"
_MEMBER: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MEMBER_NAME_CHARS_MAX - 1}}}")


class Of(Enum):
    """What a file of a member's is; the value is the end of its name."""

    LEASE = ".lease"
    """Its mtime says when the member was last there."""
    TOLD = ".json"
    """What the member is and does."""
    POINTER = ".sweep"
    """How far its sweep of what is overdue has come."""


def parse_member(text: str) -> str:
    """A member's name. Raises BadName: a member cannot have it."""
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
    """The member that a file of members/ is of, and what it is. Raises BadName: it is of none."""
    for of in Of:
        if name.endswith(of.value):
            return parse_member(name.removesuffix(of.value)), of
    raise BadName("member's file", "{member} and .lease, .json or .sweep")


def leader_path(layout: Layout) -> str:
    """The file that says who leads, and which queues are whose."""
    return f"{layout.members}/{_LEADER}"


def new_leader_path(layout: Layout) -> str:
    """Where this process writes it, as above."""
    return f"{layout.members}/{new_name(_LEADER)}"


def members_lock(layout: Layout) -> str:
    """The file that whoever writes who leads has locked."""
    return f"{layout.members}/{_LOCK}"


def root_id_path(layout: Layout) -> str:
    """The symbolic link that says the root's own name, by which it is told from others."""
    return f"{layout.members}/{_ROOT_ID}"


def refresh_path(layout: Layout) -> str:
    """The file whose mtime changes when all processes of the root are to look at all queues."""
    return f"{layout.members}/{_REFRESH}"
