"""Whether only the user that mq runs as can change a root. A daemon checks this before it stores
anything.

Another user who owns the root, or may rename a folder above it, can read, change and remove every
message. For a root that does not exist yet, the folders above it count.
"""

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mq.model.errors import StartupError
from mq.model.log import logger
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.mounts import file_system_of

_log = logger("mq.root")

_SUPERUSER: Final = 0


@dataclass(frozen=True, slots=True)
class Risk:
    """An action that another user could take; `do` prevents it. A daemon does not start if it
    `is_grave`.
    """

    says: str
    do: str
    is_grave: bool


def check_trust(path: str, files: Files, folders: Iterable[str] = ()) -> None:
    """Raises StartupError where another user may change the root, and warns where that is less
    certain. `folders`: the root's, as far as they exist. Blocking.
    """
    found = risks(path, files, os.geteuid(), folders)
    refuse(found)
    for risk in found:
        _log.warning(risk.says, extra={"fields": {"do": risk.do}})


def refuse(found: Iterable[Risk]) -> None:
    """Raises StartupError where a risk is grave."""
    for risk in found:
        if risk.is_grave:
            raise StartupError(f"{risk.says}; {risk.do}")


def risks(path: str, files: Files, user: int, folders: Iterable[str] = ()) -> list[Risk]:
    """What other users could do to a root of this user. Only the superuser is trusted as well.
    Blocking.
    """
    top = os.path.abspath(path)
    found = list(_of_ways(top, files, user))
    # A server may say another user's number for this one's files (all_squash, idmap).
    is_local = not file_system_of(top).over_network
    for number, folder in enumerate((top, *folders)):
        if (status := _status(files, folder)) is not None and stat.S_ISDIR(status.st_mode):
            found += _of_folder(folder, status, user, is_local, is_top=number == 0)
    return found


def _of_folder(
    folder: str, status: os.stat_result, user: int, is_local: bool, is_top: bool
) -> Iterator[Risk]:
    owner, mode = status.st_uid, stat.S_IMODE(status.st_mode)
    if owner not in (user, _SUPERUSER):
        says = f"{folder} belongs to user {owner}, and this process runs as user {user}"
        yield Risk(says, f"run it as user {owner}, or use another root", is_local)
    if mode & stat.S_IWOTH:
        says = f"{folder} has mode {mode:04o}: every user may change it"
        # The volume of a container may be made so by the one who runs it.
        is_given = is_top and owner == _SUPERUSER != user
        yield Risk(says, f"chmod 700 {folder}", not is_given)
    elif mode & stat.S_IWGRP and status.st_gid != os.getegid():
        says = f"{folder} has mode {mode:04o}: group {status.st_gid} may change it"
        yield Risk(says, f"chmod 700 {folder}", False)


def _of_ways(top: str, files: Files, user: int) -> Iterator[Risk]:
    """The risks of the folders above the root, by the path as written and as resolved."""
    above = os.path.dirname(top)
    for folder in dict.fromkeys((*_prefixes(above), *_prefixes(os.path.realpath(above)))):
        status = _status(files, folder)
        if status is None:
            continue
        is_ours = status.st_uid in (user, _SUPERUSER)
        if stat.S_ISLNK(status.st_mode):
            if not is_ours:
                says = f"{folder} is a symbolic link of user {status.st_uid}"
                leads_to = os.path.realpath(folder)
                yield Risk(says, f"use the path without it, through {leads_to}", True)
        elif status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            says = f"every user may rename files in {folder}, which leads to {top}"
            yield Risk(says, f"chmod o-w {folder}, or use a root elsewhere", True)
        elif not is_ours:
            says = f"user {status.st_uid} may rename files in {folder}, which leads to {top}"
            yield Risk(says, "use a root below folders of this user or the superuser", False)


def _prefixes(path: str) -> Iterator[str]:
    """The folders from / down to the path."""
    parts = path.split("/")[1:]
    yield "/"
    for count in range(1, len(parts) + 1):
        if parts[count - 1]:
            yield "/" + "/".join(parts[:count])


def _status(files: Files, path: str) -> os.stat_result | None:
    try:
        return files.status(path)
    except OSError:
        return None  # Opening the root reports its fault.


def owner_of(root: Root) -> int:
    """The user, by number, that most of the root's folders are of, since mq has made them. The one
    above them may be another's, as that of a volume is: it counts where they do not tell. Raises
    OSError where not even that can be looked at.
    """
    owners: Counter[int] = Counter()
    for folder in root.layout.folders():
        with contextlib.suppress(OSError):
            status = root.files.status(folder)
            if status is not None and stat.S_ISDIR(status.st_mode):
                owners[status.st_uid] += 2
    top = root.files.status(root.layout.root)
    if top is not None:
        owners[top.st_uid] += 1
    return max(owners, key=owners.__getitem__, default=-1)
