"""Whether a root is the user's that mq runs as, and of no other: what a careful daemon asks before
it keeps anything there.

Another user who owns the root, or may rename what leads to it, can read, change and take away every
message. A root that does not exist yet is judged by the folders above it.
"""

import logging
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mq.model.clock import Clock
from mq.model.errors import StartupError
from mq.model.limits import FOLDER_FILES_MAX
from mq.store.core.clocks import check_clock
from mq.store.core.root import Root, open_root
from mq.store.disk.files import Files
from mq.store.disk.mounts import file_system_of
from mq.store.format.layout import Layout

_log = logging.getLogger("mq.root")

_SUPERUSER: Final = 0


@dataclass(frozen=True, slots=True)
class Risk:
    """What another user could do; `do` ends it. A daemon does not start where it `is_grave`."""

    says: str
    do: str
    is_grave: bool


def open_trusted_root(
    path: str,
    files: Files,
    clock: Clock,
    reserve_bytes: int | None = None,
    folder_max: int = FOLDER_FILES_MAX,
    kind: str = "mq",
    new_root_level: int = logging.WARNING,
) -> Root:
    """Opens a root as `open_root` does. Refuses one that another user may change or whose parent
    folder is missing. Logs a new root, for mq-mover and mq-reaper as a warning. Raises
    StartupError, OSError.
    """
    layout = Layout.of(path)
    above = os.path.dirname(layout.root)
    if not _is_folder(files, above):
        raise StartupError(
            f"{layout.root}: there is no folder {above} to make the root in; correct --root "
            f"(MQ_ROOT), or mkdir -p {above}"
        )
    # A root that is no folder has no format either: opening it says so.
    was_there = os.path.lexists(layout.format)
    check_trust(path, files, layout.folders())
    check_clock(layout, files, clock)
    root = open_root(path, files, clock, reserve_bytes, folder_max, kind)
    # Another user may have made it just before this one did.
    refuse(risks(path, files, os.geteuid(), layout.folders()))
    if not was_there:
        _log.log(new_root_level, "made a new root", extra={"fields": {"root": layout.root}})
    return root


def check_trust(path: str, files: Files, folders: Iterable[str] = ()) -> None:
    """Raises StartupError where another user may change the root, and warns where that is less
    sure. `folders`: those of the root, as far as they exist. Blocking.
    """
    found = risks(path, files, os.geteuid(), folders)
    refuse(found)
    for risk in found:
        _log.warning(risk.says, extra={"fields": {"do": risk.do}})


def refuse(found: Iterable[Risk]) -> None:
    """Raises StartupError where a risk is grave."""
    for risk in found:
        if risk.is_grave:
            raise StartupError(f"{risk.says}: {risk.do}")


def risks(path: str, files: Files, user: int, folders: Iterable[str] = ()) -> list[Risk]:
    """What other users could do to a root of this user; only the superuser is trusted as well.
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
        says = f"{folder} belongs to user {owner}, and this is user {user}"
        yield Risk(says, "run as its owner, or use a root of your own", is_local)
    if mode & stat.S_IWOTH:
        says = f"{folder} has mode {mode:04o}: every user may change it"
        # The volume of a container may be made so by the one who runs it.
        is_given = is_top and owner == _SUPERUSER != user
        yield Risk(says, f"chmod 700 {folder}", not is_given)
    elif mode & stat.S_IWGRP and status.st_gid != os.getegid():
        says = f"{folder} has mode {mode:04o}: group {status.st_gid} may change it"
        yield Risk(says, f"chmod 700 {folder}", False)


def _of_ways(top: str, files: Files, user: int) -> Iterator[Risk]:
    """Of the folders that lead to the root, by the path as it is written and as it resolves."""
    above = os.path.dirname(top)
    for folder in dict.fromkeys((*_prefixes(above), *_prefixes(os.path.realpath(above)))):
        status = _status(files, folder)
        if status is None:
            continue
        is_ours = status.st_uid in (user, _SUPERUSER)
        if stat.S_ISLNK(status.st_mode):
            if not is_ours:
                says = f"{folder} is a symbolic link of user {status.st_uid}"
                yield Risk(says, f"name the folder itself, {os.path.realpath(folder)}", True)
        elif status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            says = f"every user may rename what is in {folder}, the way to {top}"
            yield Risk(says, f"chmod o-w {folder}, or use a root elsewhere", True)
        elif not is_ours:
            says = f"user {status.st_uid} may rename what is in {folder}, the way to {top}"
            yield Risk(says, "use a root below folders of this user or the superuser", False)


def _is_folder(files: Files, path: str) -> bool:
    """Whether a folder is there, or a link to one. Raises OSError where that cannot be seen."""
    try:
        status = files.status(os.path.realpath(path))
    except NotADirectoryError:
        return False
    return status is not None and stat.S_ISDIR(status.st_mode)


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
        return None  # Opening the root says what is wrong with it.
