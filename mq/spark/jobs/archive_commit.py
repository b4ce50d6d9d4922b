"""Commits of an archive: what was staged becomes part of it, all or nothing.

A commit is a file that says which files of staging go where, and, where files are swapped, which
others they take the place of. It is on stable media before the first rename. From then on the files
that it names are the archive's, wherever they lie; who comes next rolls it forward. A batch's
commit stays until the root knows that the batch is stored.
"""

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from mq.model.bulk_limits import ARCHIVE_COMMIT_BYTES_MAX
from mq.model.errors import MqError
from mq.spark.jobs.archive_folder import (
    ArchiveFolder,
    is_folder_of_archive,
    read_json,
    write_json,
)
from mq.store.core.root import unlink_if_there
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.walk import entries_if_there

_VERSION: Final = 1
_NAME: Final = re.compile(r"[0-9a-z-]{1,120}\.(parquet|body)")
_STAGED: Final = re.compile(r"[0-9a-z-]{1,80}")


@dataclass(eq=False)
class ArchiveDamaged(MqError):
    """What an archive says of itself that cannot be."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Filed:
    """A file of a commit: its name, in staging and in the archive, and the folder it goes to."""

    folder: str
    name: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit does. `batch`: whose files they are; None: files are swapped. `replaced`: the
    files that go.
    """

    name: str
    staged: str
    files: tuple[Filed, ...]
    replaced: tuple[Filed, ...] = ()
    batch: int | None = None

    def fields(self) -> dict[str, Any]:
        """As the file has it."""
        return {
            "version": _VERSION,
            "staged": self.staged,
            "batch": self.batch,
            "files": [[file.folder, file.name] for file in self.files],
            "replaced": [[file.folder, file.name] for file in self.replaced],
        }

    @classmethod
    def parse(cls, name: str, path: str, fields: dict[str, Any]) -> Self:
        """What the commit of this name says. Raises ArchiveDamaged for what this mq would not have
        written: nothing outside of the archive is ever touched.
        """
        try:
            staged, batch = fields["staged"], fields["batch"]
            files, replaced = (
                tuple(Filed(str(folder), str(file)) for folder, file in fields[kind])
                for kind in ("files", "replaced")
            )
            are_lists = all(isinstance(fields[kind], list) for kind in ("files", "replaced"))
            is_known = fields["version"] == _VERSION and isinstance(batch, int | None) and are_lists
        except (KeyError, TypeError, ValueError) as error:
            raise ArchiveDamaged(path, f"is no commit: {error!r}") from None
        named = isinstance(staged, str) and _STAGED.fullmatch(staged) is not None
        if not (is_known and named and all(map(_is_filed, (*files, *replaced)))):
            raise ArchiveDamaged(path, "is no commit as this mq writes it")
        return cls(name, staged, files, replaced, batch)


def _is_filed(file: Filed) -> bool:
    return _NAME.fullmatch(file.name) is not None and is_folder_of_archive(file.folder)


def batch_name(seq: int) -> str:
    """What a batch's commit is called."""
    return f"{seq}"


def read_commits(folder: ArchiveFolder) -> list[Commit]:
    """The commits that are not at their ends. Raises ArchiveDamaged, OSError."""
    found = []
    for name in folder.commits():
        path = folder.commit(name)
        fields = read_json(folder.files, path, ARCHIVE_COMMIT_BYTES_MAX)
        if fields is not None:
            found.append(Commit.parse(name, path, fields))
    return found


def begin_staging(folder: ArchiveFolder, name: str) -> Steps[str]:
    """A folder for what tasks write; its path. Durable on return: yes."""
    staged = folder.staged(name)
    with contextlib.suppress(FileExistsError):
        folder.files.mkdir(folder.staging)
    folder.files.mkdir(staged)
    yield Flush(entries=(folder.staging, staged))
    return staged


def write_commit(folder: ArchiveFolder, commit: Commit) -> Steps[None]:
    """The commit point. The files' bytes are on stable media before. Durable on return: yes."""
    size = len(json.dumps(commit.fields()))
    if size > ARCHIVE_COMMIT_BYTES_MAX:
        raise ArchiveDamaged(folder.path, f"a commit of {len(commit.files)} files is too long")
    yield Flush(folders=(folder.staged(commit.staged),))
    yield from write_json(folder, folder.commit(commit.name), commit.fields())


def roll_forward(folder: ArchiveFolder, commit: Commit) -> Steps[None]:
    """Does what a commit says; done again, nothing changes. Raises ArchiveDamaged when a file of it
    is nowhere. Durable on return: yes.
    """
    files = folder.files
    parents = sorted({file.folder for file in commit.files})
    made = _made(parents)
    for parent in made:
        with contextlib.suppress(FileExistsError):
            files.mkdir(f"{folder.path}/{parent}")
    yield Flush(entries=tuple(f"{folder.path}/{parent}" for parent in made))
    for file in commit.files:
        _place(folder, commit, file)
    # Where there was a crash, the renames may be in memory alone: flushed again.
    yield Flush(folders=tuple(f"{folder.path}/{parent}" for parent in parents))
    for file in commit.replaced:
        unlink_if_there(files, f"{folder.path}/{file.folder}/{file.name}")
    gone_from = sorted({file.folder for file in commit.replaced})
    yield Flush(folders=tuple(f"{folder.path}/{parent}" for parent in gone_from))


def end_commit(folder: ArchiveFolder, commit: Commit) -> Steps[None]:
    """Forgets a commit that was rolled forward, and what is left of its staging. Durable on return:
    yes, what it said; that it is forgotten need not be.
    """
    if commit.batch is not None and commit.batch > (newest_batch(folder) or 0):
        fields = {"version": _VERSION, "batch": commit.batch}
        yield from write_json(folder, folder.newest, fields)
    unlink_if_there(folder.files, folder.commit(commit.name))
    yield Flush(folders=(folder.control,))
    drop_staged(folder, commit.staged)


def newest_batch(folder: ArchiveFolder) -> int | None:
    """The last batch that is all there; None where none is known. Raises OSError."""
    batch = (read_json(folder.files, folder.newest) or {}).get("batch")
    return batch if isinstance(batch, int) else None


def sweep_staging(folder: ArchiveFolder, kept: Sequence[Commit]) -> None:
    """Takes away what runs have left in staging that were killed. For who owns the archive; a task
    of such a run that still writes fails. Raises OSError.
    """
    names = {commit.staged for commit in kept}
    for entry in entries_if_there(folder.files, folder.staging):
        if entry.name not in names and entry.is_dir(follow_symlinks=False):
            drop_staged(folder, entry.name)


def drop_staged(folder: ArchiveFolder, name: str) -> None:
    """Takes a folder of staging away, and what is in it. Durable: no; what a crash brings back goes
    at the next run.
    """
    _drop(folder, folder.staged(name))


def _drop(folder: ArchiveFolder, path: str) -> None:
    for entry in entries_if_there(folder.files, path):
        if entry.is_dir(follow_symlinks=False):
            _drop(folder, entry.path)
        else:
            unlink_if_there(folder.files, entry.path)
    with contextlib.suppress(OSError):
        folder.files.rmdir(path)


def _made(parents: Sequence[str]) -> list[str]:
    """The folders that lead to these, and they, the outer first."""
    made: dict[str, None] = {}
    for parent in parents:
        parts = parent.split("/")
        made |= dict.fromkeys("/".join(parts[: at + 1]) for at in range(len(parts)))
    return list(made)


def _place(folder: ArchiveFolder, commit: Commit, file: Filed) -> None:
    target = f"{folder.path}/{file.folder}/{file.name}"
    try:
        folder.files.rename(f"{folder.staged(commit.staged)}/{file.name}", target)
    except OSError as error:
        if not is_gone(error):
            raise
        if folder.files.status(target) is None:
            raise ArchiveDamaged(target, "is of a commit, and neither there nor staged") from None
