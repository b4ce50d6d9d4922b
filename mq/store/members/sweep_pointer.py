"""How far a member's pass over what is overdue has come, so that it goes on after a restart, or
with whoever takes over. A hint: replaced as a whole, never flushed. FORMAT.md, "Members".
"""

import contextlib
import json
from dataclasses import dataclass
from typing import Final

from mq.model.errors import BadName
from mq.model.message import Stamp
from mq.model.upkeep_limits import POINTER_BYTES_MAX
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_hint
from mq.store.format.members import Of, member_path, new_member_path, parse_member_file

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Pointer:
    """A member's. `behind`: the last name of delay/ that it has looked at; `told_ms`: when it said
    so, milliseconds since the epoch.
    """

    member: str
    behind: str
    told_ms: int


def write_pointer(root: Root, member: str, behind: str) -> None:
    """Says that the member's pass goes on behind this name. Raises OSError. Durable: no."""
    layout, said = root.layout, {"version": _VERSION, "behind": behind}
    written = new_member_path(layout, member, Of.POINTER)
    path = member_path(layout, member, Of.POINTER)
    content = json.dumps(said).encode() + b"\n"
    replace_hint(root.files, written, path, content, Stamp(root.now_ms()).mtime_ns())


def forget_pointer(root: Root, member: str) -> None:
    """Its pass has ended, or another goes on with it. Raises OSError. Durable: no."""
    unlink_if_there(root.files, member_path(root.layout, member, Of.POINTER))


def read_pointers(root: Root) -> list[Pointer]:
    """All that there are; what cannot be understood is left out. Raises OSError when the folder
    cannot be listed.
    """
    found = []
    for entry in root.files.entries(root.layout.members):
        with contextlib.suppress(BadName):
            member, of = parse_member_file(entry.name)
            pointer = _read(root, member) if of is Of.POINTER else None
            if pointer is not None:
                found.append(pointer)
    return found


def _read(root: Root, member: str) -> Pointer | None:
    path = member_path(root.layout, member, Of.POINTER)
    try:
        status = root.files.status(path)
        said = json.loads(root.files.read_file(path, POINTER_BYTES_MAX))
        if status is None or said["version"] != _VERSION or not isinstance(said["behind"], str):
            return None
    except OSError as error:
        if is_gone(error):
            return None
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Pointer(member, said["behind"], Stamp.from_mtime_ns(status.st_mtime_ns).due_ms)
