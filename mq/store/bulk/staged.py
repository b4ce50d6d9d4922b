"""Lists and removes what attempts of a bulk publish have staged."""

import itertools
import os
from typing import NamedTuple

from mq.store.core.root import Root, rmdir_if_empty
from mq.store.disk.files import is_gone
from mq.store.format.pipeline import Attempt, attempt_folder, job_folder
from mq.store.format.walk import entries_if_there


def remove_job(root: Root, job: str, keep: frozenset[str] = frozenset()) -> None:
    """Removes the job's folder with its attempts. Attempts in `keep` are removed only if they are
    empty. Files that are still being written stay. Raises OSError. Durable on return: no; what
    comes back is never delivered.
    """
    folder = job_folder(root.layout, job)
    for entry in entries_if_there(root.files, folder):
        if not entry.is_dir(follow_symlinks=False):
            continue
        if entry.name in keep:
            rmdir_if_empty(root.files, entry.path)
        else:
            remove_folder(root, entry.path)
    for entry in entries_if_there(root.files, folder):
        if not entry.is_dir(follow_symlinks=False):
            _unlink(root, entry.path)  # Its lock, and its attempts' claims.
    rmdir_if_empty(root.files, folder)


def remove_folder(root: Root, folder: str) -> None:
    """Removes an attempt's folder with its staged messages. Raises OSError."""
    for entry in entries_if_there(root.files, folder):
        if entry.is_dir(follow_symlinks=False):
            remove_folder(root, entry.path)
        else:
            _unlink(root, entry.path)
    rmdir_if_empty(root.files, folder)


def _unlink(root: Root, path: str) -> None:
    try:
        root.files.unlink(path)
    except OSError as error:
        if not is_gone(error):
            raise


class StagedEntries(NamedTuple):
    """The contents of an attempt's folder, sorted by name: messages and folds."""

    files: "list[os.DirEntry[str]]"
    folders: "list[os.DirEntry[str]]"

    def count(self, root: Root) -> int:
        """The number of messages. Raises OSError."""
        inner = (root.files.entries(folder.path) for folder in self.folders)
        return len(self.files) + sum(1 for _ in itertools.chain.from_iterable(inner))


def staged_entries(root: Root, job: str, attempt: Attempt) -> StagedEntries:
    """Lists what an attempt has staged; nothing if its folder is certainly gone. Raises OSError."""
    folder = attempt_folder(root.layout, job, attempt)
    found = StagedEntries([], [])
    try:
        for entry in root.files.entries(folder):
            if entry.name[:1] != ".":
                is_folder = entry.is_dir(follow_symlinks=False)
                (found.folders if is_folder else found.files).append(entry)
    except OSError as error:
        # A folder that a network mount's cache hides is not gone.
        if not is_gone(error) or root.files.status(folder) is not None:
            raise
        return StagedEntries([], [])
    for each in found:
        each.sort(key=lambda entry: entry.name)
    return found


def staged_names(root: Root, job: str, attempt: Attempt) -> "list[os.DirEntry[str]]":
    """The messages in an attempt's own folder, sorted by name. Raises OSError."""
    return staged_entries(root, job, attempt).files
