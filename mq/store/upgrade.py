"""Converts a root of an older format, while no daemon uses it.

`mq 1` and `mq 2` had the links of keys beside the queues (`keys/{queue}/`, and so on); now they lie
in the queue's folder, and go with it. Each step may come again after a crash. The format's line
says meanwhile that the root is neither, so that no mq starts on it.
"""

from typing import Final, NamedTuple

from mq.model.errors import StartupError
from mq.store.core.root import (
    Root,
    rename_folder,
    rmdir_if_empty,
    sweep_unfinished,
    unlink_if_there,
)
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.replacing import replace_file
from mq.store.format.layout import (
    FORMAT_LINE,
    OLD_FORMAT_LINES,
    UPGRADING_LINE,
    Keys,
    is_beside_links,
    is_deleted,
    is_of_keys,
)
from mq.store.format.walk import entries_if_there, queue_folders
from mq.store.keys.links import is_link
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


class Upgraded(NamedTuple):
    """The format that the root had, and how many folders of links went into their queue's folder
    and were removed, because their queue was deleted.
    """

    before: str
    moved: int = 0
    removed: int = 0


def upgrade(root: Root, flusher: Flusher, *, is_unused: bool = False) -> Upgraded | None:
    """Converts the root; None: it has this mq's format. Blocking. `is_unused`: no daemon uses it,
    though one told of itself a moment ago.

    Raises StartupError for no root, a format that this mq does not know, or a daemon at work;
    Unavailable, OSError: the next call continues. Durable on return: yes.
    """
    line = format_of(root)
    if line == FORMAT_LINE:
        return None
    if line not in OLD_FORMAT_LINES:
        raise StartupError(
            f"{root.layout.format} has the format {line.strip()!r}, which this mq does not know"
        )
    if not is_unused:
        _refuse_members(root)
    sweep_unfinished(root, root.layout.root, kept_s=None)
    _write_line(root, flusher, UPGRADING_LINE)
    moved = removed = 0
    for name, kind in _TOPS.items():
        top = f"{root.layout.root}/{name}"
        for queue, entry in list(queue_folders(root.files, top)):
            if root.files.status(root.layout.queue(queue)) is None:
                removed += _remove_links(root, entry.path)
            else:
                rename_folder(root.files, entry.path, root.layout.keys_of(kind, queue))
                moved += 1
        rmdir_if_empty(root.files, top)
    for entry in list(root.files.entries(root.layout.remove)):
        if any(is_deleted(entry.name, suffix) for suffix in _DELETED_SUFFIXES):
            removed += _remove_links(root, entry.path)
    _flush_all(root)
    _write_line(root, flusher, FORMAT_LINE)
    return Upgraded(line.strip(), moved, removed)


def _refuse_members(root: Root) -> None:
    for member in read_members(root):
        if not root.has_aged(member.told_ms, AT_WORK_S):
            raise StartupError(
                f"{member.name} on {member.host} was at work a moment ago; stop every daemon that "
                "uses the root, or use --force once none does"
            )


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


def _remove_links(root: Root, folder: str) -> bool:
    """Removes a deleted queue's links; whether their folder went, which foreign files keep."""
    for of_hash in entries_if_there(root.files, folder):
        if is_of_keys(of_hash.name) and of_hash.is_dir(follow_symlinks=False):
            for entry in entries_if_there(root.files, of_hash.path):
                if is_beside_links(entry.name) or is_link(entry):
                    unlink_if_there(root.files, entry.path)
            rmdir_if_empty(root.files, of_hash.path)
    return rmdir_if_empty(root.files, folder)
