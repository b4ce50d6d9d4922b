"""What attempts of a bulk publish have staged: looking at it, and taking it away."""

import errno
import itertools
import os
from typing import NamedTuple

from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.pipeline import Attempt, attempt_folder, job_folder
from mq.store.format.walk import entries_if_there


def remove_job(root: Root, job: str, keep: frozenset[str] = frozenset()) -> None:
    """Takes the job's folder away with every attempt but those of these names, which are only
    taken away when they are empty. What is still being written stays. Raises OSError. Durable on
    return: no; what comes back is never delivered.
    """
    folder = job_folder(root.layout, job)
    for entry in entries_if_there(root.files, folder):
        if not entry.is_dir(follow_symlinks=False):
            continue
        if entry.name in keep:
            remove_empty(root, entry.path)
        else:
            remove_folder(root, entry.path)
    for entry in entries_if_there(root.files, folder):
        if not entry.is_dir(follow_symlinks=False):
            _unlink(root, entry.path)  # Its lock, and what its attempts have claimed.
    remove_empty(root, folder)


def remove_folder(root: Root, folder: str) -> None:
    """Takes an attempt's folder away with what it has staged. Raises OSError."""
    for entry in entries_if_there(root.files, folder):
        if entry.is_dir(follow_symlinks=False):
            remove_folder(root, entry.path)
        else:
            _unlink(root, entry.path)
    remove_empty(root, folder)


def _unlink(root: Root, path: str) -> None:
    try:
        root.files.unlink(path)
    except OSError as error:
        if not is_gone(error):
            raise


def remove_empty(root: Root, folder: str) -> None:
    """Takes a folder away where nothing lies in it. Raises OSError. Durable on return: no."""
    try:
        root.files.rmdir(folder)
    except OSError as error:
        if not is_gone(error) and error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


class StagedEntries(NamedTuple):
    """What lies in an attempt's folder, in the order of the names: messages, and folders of those
    that go to their place together.
    """

    files: "list[os.DirEntry[str]]"
    folders: "list[os.DirEntry[str]]"

    def count(self, root: Root) -> int:
        """How many messages these are. Raises OSError."""
        inner = (root.files.entries(folder.path) for folder in self.folders)
        return len(self.files) + sum(1 for _ in itertools.chain.from_iterable(inner))


def staged_entries(root: Root, job: str, attempt: Attempt) -> StagedEntries:
    """What an attempt has staged; nothing where its folder is gone for sure. Raises OSError."""
    folder = attempt_folder(root.layout, job, attempt)
    found = StagedEntries([], [])
    try:
        for entry in root.files.entries(folder):
            if entry.name[:1] != ".":
                is_folder = entry.is_dir(follow_symlinks=False)
                (found.folders if is_folder else found.files).append(entry)
    except OSError as error:
        # What a network mount's cache hides is not gone.
        if not is_gone(error) or root.files.status(folder) is not None:
            raise
        return StagedEntries([], [])
    for each in found:
        each.sort(key=lambda entry: entry.name)
    return found


def staged_names(root: Root, job: str, attempt: Attempt) -> "list[os.DirEntry[str]]":
    """The messages in an attempt's own folder, in the order of the names. Raises OSError."""
    return staged_entries(root, job, attempt).files
