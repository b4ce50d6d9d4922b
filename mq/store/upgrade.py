"""Converts a root of an older format, while no daemon uses it.

`mq 1` and `mq 2` had the links of keys beside the queues (`keys/{queue}/`, and so on); now they lie
in the queue's folder, and go with it. Each step may come again after a crash. The format's line
says meanwhile that the root is neither, so that no mq starts on it.
"""

import stat
from typing import Final, NamedTuple

from mq.model.errors import StartupError
from mq.store.core.root import Root, rename_folder, rmdir_if_empty, sweep_unfinished
from mq.store.core.turns import is_taken
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import (
    FORMAT_LINE,
    OLD_FORMAT_LINES,
    UPGRADING_LINE,
    Keys,
    is_deleted,
    is_unfinished,
)
from mq.store.format.trends import trends_turn
from mq.store.format.walk import entries_if_there, queue_folders
from mq.store.keys.links import unlink_links
from mq.store.members.files import read_members
from mq.store.opening import format_of

# A member that has told of itself so recently may still be at work.
AT_WORK_S: Final = 30

# The folders of links in the older formats, and of those of deleted queues in remove/.
_TOPS: Final = {
    "keys": Keys.LOOKUP,
    "idempotency": Keys.IDEMPOTENCY,
    "firings": Keys.FIRING,
    "groups": Keys.GROUP,
}
_DELETED_SUFFIXES: Final = (".k", ".i", ".f", ".g")

_STOP_FIRST: Final = "stop every daemon that uses the root, or use --force once none does"


class Upgraded(NamedTuple):
    """The format that the root had; how many folders of links went into their queue's folder, and
    how many were removed, because their queue was deleted; and the folders that foreign files keep.
    """

    before: str
    moved: int = 0
    removed: int = 0
    kept: tuple[str, ...] = ()


class _Plan(NamedTuple):
    """The folders of links to rename, each with its new path, and those to remove."""

    renames: list[tuple[str, str]]
    removals: list[str]
    tops: list[str]


def upgrade(root: Root, flusher: Flusher, *, is_unused: bool = False) -> Upgraded | None:
    """Converts the root; None: it has this mq's format. Blocking. `is_unused`: no daemon uses it,
    though one was at work a moment ago.

    Raises StartupError for no root, a format that this mq does not know, a daemon at work, or a
    file in the way: nothing is changed then. Unavailable, OSError: the next call continues. Durable
    on return: yes.
    """
    line, layout = format_of(root), root.layout
    if line == FORMAT_LINE:
        run_alone(_flushed(layout.root), flusher)
        return None
    if line not in OLD_FORMAT_LINES:
        raise StartupError(
            f"{layout.format} has the format {line.strip()!r}, which this mq does not know"
        )
    if not is_unused:
        _refuse_daemons(root)
    plan = _plan(root)
    sweep_unfinished(root, layout.root, _is_format, kept_s=None)
    _write_line(root, flusher, UPGRADING_LINE)
    for source, target in plan.renames:
        rename_folder(root.files, source, target)
    for folder in plan.removals:
        unlink_links(root.files, folder)
    removed = [root.files.status(folder) is None for folder in plan.removals]
    kept = tuple(top for top in plan.tops if not rmdir_if_empty(root.files, top))
    _flush_all(root)
    _write_line(root, flusher, FORMAT_LINE)
    return Upgraded(line.strip(), len(plan.renames), sum(removed), kept)


def _plan(root: Root) -> _Plan:
    """Raises StartupError for a file in the way, or in place of a folder."""
    layout, files, plan = root.layout, root.files, _Plan([], [], [])
    for name, kind in _TOPS.items():
        top = f"{layout.root}/{name}"
        if not _is_folder(root, top):
            continue
        plan.tops.append(top)
        for queue, entry in list(queue_folders(files, top)):
            target = layout.keys_of(kind, queue)
            if not _is_folder(root, layout.queue(queue)):
                plan.removals.append(entry.path)
            elif files.status(target) is not None:
                raise StartupError(f"{target} is there already; move it away")
            else:
                plan.renames.append((entry.path, target))
    for entry in list(entries_if_there(files, layout.remove)):
        is_old = any(is_deleted(entry.name, suffix) for suffix in _DELETED_SUFFIXES)
        if is_old and entry.is_dir(follow_symlinks=False):
            plan.removals.append(entry.path)
    return plan


def _is_folder(root: Root, path: str) -> bool:
    """False: nothing is there. Raises StartupError for anything else."""
    status = root.files.status(path)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise StartupError(f"{path} is not a folder; move it away")
    return status is not None


def _refuse_daemons(root: Root) -> None:
    """Raises StartupError where an mq-mover, or an mq that records the load, was at work."""
    if is_taken(root, trends_turn(root.layout)):
        raise StartupError(f"an mq is at work on {root.layout.root}; {_STOP_FIRST}")
    members = read_members(root) if _is_folder(root, root.layout.members) else []
    for member in members:
        if not root.has_aged(member.told_ms, AT_WORK_S):
            raise StartupError(
                f"{member.name} on {member.host} was at work a moment ago; {_STOP_FIRST}"
            )


def _is_format(name: str) -> bool:
    return is_unfinished(name) and name.startswith(".format.")


def _flushed(folder: str) -> Steps[None]:
    yield Flush(folders=(folder,))


def _write_line(root: Root, flusher: Flusher, line: str) -> None:
    layout = root.layout
    content = line.encode("ascii")
    run_alone(replace_file(root.files, layout.new_format, layout.format, content), flusher)


def _flush_all(root: Root) -> None:
    descriptor = root.files.open_folder(root.layout.root)
    try:
        root.files.sync_file_system(descriptor)
    finally:
        root.files.close(descriptor)
