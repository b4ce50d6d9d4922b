"""An archive's own folder: its names, its root, and its locks.

    DIR/_mq/archive.json         the root that it belongs to, and the table that has its files
    DIR/_mq/.lock                locked (flock) by the one process that archives
    DIR/_mq/.readers             locked, shared, by readers; exclusively, by the swapper of files
    DIR/_mq/newest.json          the newest complete batch
    DIR/_mq/{name}.commit        an unfinished commit
    DIR/_staging/{uuid}/         the files of tasks; they count once a commit names them
    DIR/_bodies/queue=Q/day=D/   bodies too large for a row
    DIR/queue=Q/day=D/           the rows
    DIR/_delta_log/              of a Delta table (tables.py)

Spark ignores names that begin with `_` or `.`. No Spark here.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import uuid4

from mq.model.errors import BadName, MqError
from mq.model.limits import MIB
from mq.model.names import QueueName
from mq.spark.jobs.archive_rows import BODIES, SUFFIX, Place
from mq.spark.jobs.folders import (
    check_path,
    lie_in_one_another,
    locked,
    read_if_there,
    remove_folder,
)
from mq.store.core.root import unlink_if_there
from mq.store.disk.files import Files, is_gone
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Flush, Steps
from mq.store.format.history import is_date
from mq.store.format.walk import entries_if_there

# A commit of the archive takes some 150 bytes per file.
ARCHIVE_COMMIT_BYTES_MAX: Final = 64 * MIB

_VERSION: Final = 1
_TABLE_VERSION: Final = 2
_CONTROL: Final = "_mq"
_STAGING: Final = "_staging"
_COMMIT: Final = ".commit"
_QUEUE: Final = "queue="
_DAY: Final = "day="
_JSON_BYTES_MAX: Final = 1 << 20


@dataclass(eq=False)
class NoArchive(MqError):
    """The folder cannot be this root's archive."""

    folder: str
    reason: str

    def __str__(self) -> str:
        return f"{self.folder}: {self.reason}"


class ArchiveFolderBusy(MqError):
    """Another process archives to the folder."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of rows: below the archive, `{folder}/{name}`."""

    folder: str
    name: str
    size: int

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"


@dataclass(frozen=True, slots=True)
class ArchiveFolder:
    """The paths of one archive; absolute, and no links in them."""

    path: str
    files: Files

    @classmethod
    def of(cls, path: str, files: Files) -> "ArchiveFolder":
        """The paths below `path`. Creates and reads nothing. Raises PathIsPattern."""
        real = os.path.realpath(path)
        check_path(real)
        return cls(real, files)

    @property
    def control(self) -> str:
        """The folder of the archive's own files."""
        return f"{self.path}/{_CONTROL}"

    @property
    def mark(self) -> str:
        """The file that names the root."""
        return f"{self.control}/archive.json"

    @property
    def newest(self) -> str:
        """The file that names the last complete batch."""
        return f"{self.control}/newest.json"

    @property
    def lock(self) -> str:
        """The file that the archiving process locks."""
        return f"{self.control}/.lock"

    @property
    def readers(self) -> str:
        """The file that readers lock, shared, and the swapper of files exclusively."""
        return f"{self.control}/.readers"

    @property
    def staging(self) -> str:
        """The folder that tasks write to."""
        return f"{self.path}/{_STAGING}"

    def staged(self, name: str) -> str:
        return f"{self.staging}/{name}"

    def commit(self, name: str) -> str:
        return f"{self.control}/{name}{_COMMIT}"

    def commits(self) -> list[str]:
        """The names of the unfinished commits. Raises OSError."""
        return sorted(
            entry.name.removesuffix(_COMMIT)
            for entry in entries_if_there(self.files, self.control)
            if entry.name.endswith(_COMMIT) and not entry.name.startswith(".")
        )

    def data_files(self) -> Iterator[DataFile]:
        """All files of rows, also those of unfinished commits. Raises OSError."""
        for queue in entries_if_there(self.files, self.path):
            if _is_folder(queue, _QUEUE):
                for day in entries_if_there(self.files, queue.path):
                    if _is_folder(day, _DAY):
                        yield from self.files_of(f"{queue.name}/{day.name}")

    def files_of(self, folder: str) -> Iterator[DataFile]:
        """The files of rows in one folder. Raises OSError."""
        for entry in entries_if_there(self.files, f"{self.path}/{folder}"):
            if entry.name.endswith(SUFFIX) and not entry.name.startswith(("_", ".")):
                status = self.files.status(entry.path)
                if status is not None:
                    yield DataFile(folder, entry.name, status.st_size)


def is_folder_of_archive(folder: str) -> bool:
    """Whether a commit may put files in this folder; a commit that names another is refused."""
    _, queue, day = ["", "", *folder.split("/")][-3:]
    try:
        QueueName.parse(queue.removeprefix(_QUEUE))
    except BadName:
        return False
    place = Place(queue.removeprefix(_QUEUE), day.removeprefix(_DAY))
    return is_date(place.day) and folder in (place.folder, f"{BODIES}/{place.folder}")


@dataclass(frozen=True, slots=True)
class Mark:
    """What an archive belongs to: the root of this id, and a table (see tables.table_of), "" for
    none.
    """

    root_id: str
    table: str = ""

    def fields(self, root: str) -> dict[str, Any]:
        fields = {"version": _VERSION, "root_id": self.root_id, "root": root}
        # An older mq would archive there without adding to the table.
        return {**fields, "version": _TABLE_VERSION, "table": self.table} if self.table else fields


def open_archive(
    folder: ArchiveFolder, root_path: str, wanted: Mark, flusher: Flusher, is_known: bool
) -> None:
    """Checks that the folder is the root's archive. Creates the archive if the folder is empty or
    missing; not if `is_known`: then the root already has an archive. Raises NoArchive, MqError,
    OSError. Durable on return: yes.
    """
    if not check_archive(folder, root_path, wanted, is_known):
        run_alone(_lay_out(folder, wanted.fields(os.path.realpath(root_path))), flusher)


def check_archive(folder: ArchiveFolder, root_path: str, wanted: Mark, is_known: bool) -> bool:
    """Whether the folder is the root's archive, which it must be if it `is_known`; False: it can
    become that. Changes nothing. Raises NoArchive, OSError.
    """
    if lie_in_one_another(os.path.realpath(root_path), folder.path):
        raise NoArchive(folder.path, "an archive's folder and its root do not lie in one another")
    found = read_mark(folder)
    if found is not None:
        if found.root_id != wanted.root_id:
            raise NoArchive(folder.path, f"is the archive of another root, {found.root_id}")
        if found.table != wanted.table:
            said = f"is of table {found.table or 'none'}, not {wanted.table or 'none'}"
            raise NoArchive(folder.path, f"{said}: say the same format and table")
        return True
    if is_known:
        raise NoArchive(
            folder.path,
            "the root's archive is not there. Is it mounted? (To begin another: --disable)",
        )
    names = {entry.name for entry in entries_if_there(folder.files, folder.path)}
    # A killed first run leaves the first name; a file system has the second at its top.
    if names - {_CONTROL, "lost+found"}:
        raise NoArchive(folder.path, "is not empty, and no archive: say a folder of its own")
    return False


def read_mark(folder: ArchiveFolder) -> Mark | None:
    """What the archive belongs to; None: the folder is no archive. Raises NoArchive, OSError."""
    fields = read_json(folder.files, folder.mark)
    if fields is None:
        return None
    version, table = fields.get("version"), fields.get("table", "")
    is_known = version == (_TABLE_VERSION if table else _VERSION) and isinstance(table, str)
    if not is_known or not isinstance(fields.get("root_id"), str):
        raise NoArchive(folder.path, f"{folder.mark} is not what this mq writes there")
    return Mark(fields["root_id"], table)


def read_json(files: Files, path: str, bytes_max: int = _JSON_BYTES_MAX) -> dict[str, Any] | None:
    """The JSON object in a file; None without the file, empty if it holds no object. Raises
    OSError.
    """
    text = read_if_there(files, path, bytes_max)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(folder: ArchiveFolder, path: str, fields: dict[str, Any]) -> Steps[None]:
    """Writes a JSON object to a file of the archive. Durable on return: yes."""
    written = f"{folder.control}/.{os.path.basename(path)}.{uuid4().hex}"
    content = json.dumps(fields).encode() + b"\n"
    yield from replace_file(folder.files, written, path, content)


def _lay_out(folder: ArchiveFolder, mark: dict[str, Any]) -> Steps[None]:
    for made in (folder.path, folder.control):
        with contextlib.suppress(FileExistsError):
            folder.files.mkdir(made)
    yield Flush(folders=(os.path.dirname(folder.path), folder.path))
    for lock in (folder.lock, folder.readers):
        folder.files.close(folder.files.open_kept(lock))
    yield from write_json(folder, folder.mark, mark)


def own_archive_folder(folder: ArchiveFolder) -> AbstractContextManager[None]:
    """Keeps other processes from archiving to the folder. Raises ArchiveFolderBusy, OSError."""
    busy = ArchiveFolderBusy(f"{folder.path}: another process archives there")
    return locked(folder.files, folder.lock, busy)


def _is_folder(entry: "os.DirEntry[str]", prefix: str) -> bool:
    return entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False)


_NAME: Final = re.compile(r"[0-9a-z-]{1,120}\.(parquet|body)")
_STAGED: Final = re.compile(r"[0-9a-z-]{1,80}")


@dataclass(eq=False)
class ArchiveDamaged(MqError):
    """An archive's own files contradict each other, or a newer mq wrote them."""

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
    """The content of a commit. `batch`: the batch of its files; None: it swaps files. `replaced`:
    the files that it removes.
    """

    name: str
    staged: str
    files: tuple[Filed, ...]
    replaced: tuple[Filed, ...] = ()
    batch: int | None = None

    def fields(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "staged": self.staged,
            "batch": self.batch,
            "files": [[file.folder, file.name] for file in self.files],
            "replaced": [[file.folder, file.name] for file in self.replaced],
        }

    @classmethod
    def parse(cls, name: str, path: str, fields: dict[str, Any]) -> Self:
        """Parses the commit of this name. Raises ArchiveDamaged for content that this mq does not
        write, so that nothing outside the archive is ever touched.
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
            raise ArchiveDamaged(path, f"is not a commit: {error!r}") from None
        named = isinstance(staged, str) and _STAGED.fullmatch(staged) is not None
        if not (is_known and named and all(map(_is_filed, (*files, *replaced)))):
            raise ArchiveDamaged(path, "is not a commit that this mq writes")
        return cls(name, staged, files, replaced, batch)


def _is_filed(file: Filed) -> bool:
    return _NAME.fullmatch(file.name) is not None and is_folder_of_archive(file.folder)


def batch_name(seq: int) -> str:
    """The name of a batch's commit."""
    return f"{seq}"


def read_commits(folder: ArchiveFolder) -> list[Commit]:
    """The unfinished commits. Raises ArchiveDamaged, OSError."""
    found = []
    for name in folder.commits():
        path = folder.commit(name)
        fields = read_json(folder.files, path, ARCHIVE_COMMIT_BYTES_MAX)
        if fields is not None:
            found.append(Commit.parse(name, path, fields))
    return found


def begin_staging(folder: ArchiveFolder, name: str) -> Steps[str]:
    """Creates a folder for the tasks' files; returns its path. Durable on return: yes."""
    staged = folder.staged(name)
    with contextlib.suppress(FileExistsError):
        folder.files.mkdir(folder.staging)
    folder.files.mkdir(staged)
    yield Flush(folders=(os.path.dirname(folder.staging), folder.staging))
    return staged


def write_commit(folder: ArchiveFolder, commit: Commit) -> Steps[None]:
    """Writes a commit: the commit point. The files' bytes are on stable media before. Durable on
    return: yes.
    """
    size = len(json.dumps(commit.fields()))
    if size > ARCHIVE_COMMIT_BYTES_MAX:
        raise ArchiveDamaged(folder.path, f"a commit of {len(commit.files)} files is too long")
    yield Flush(folders=(folder.staged(commit.staged),))
    yield from write_json(folder, folder.commit(commit.name), commit.fields())


def roll_forward(folder: ArchiveFolder, commit: Commit) -> Steps[None]:
    """Carries out a commit; repeating it changes nothing. Raises ArchiveDamaged if one of its files
    is missing everywhere. Durable on return: yes.
    """
    files = folder.files
    parents = sorted({file.folder for file in commit.files})
    made = _made(parents)
    for parent in made:
        with contextlib.suppress(FileExistsError):
            files.mkdir(f"{folder.path}/{parent}")
    above = dict.fromkeys(os.path.dirname(f"{folder.path}/{parent}") for parent in made)
    yield Flush(folders=tuple(above))
    for file in commit.files:
        _place(folder, commit, file)
    # After a crash the renames may be in memory alone, so this flushes them again.
    yield Flush(folders=tuple(f"{folder.path}/{parent}" for parent in parents))
    for file in commit.replaced:
        unlink_if_there(files, f"{folder.path}/{file.folder}/{file.name}")
    gone_from = sorted({file.folder for file in commit.replaced})
    yield Flush(folders=tuple(f"{folder.path}/{parent}" for parent in gone_from))


def end_commit(folder: ArchiveFolder, commit: Commit) -> Steps[None]:
    """Removes a commit that was rolled forward, and its staging. Its effects are durable on return;
    a crash may bring back the commit.
    """
    if commit.batch is not None and commit.batch > (newest_batch(folder) or 0):
        fields = {"version": _VERSION, "batch": commit.batch}
        yield from write_json(folder, folder.newest, fields)
    unlink_if_there(folder.files, folder.commit(commit.name))
    yield Flush(folders=(folder.control,))
    drop_staged(folder, commit.staged)


def newest_batch(folder: ArchiveFolder) -> int | None:
    """The last complete batch; None if none is known. Raises OSError."""
    batch = (read_json(folder.files, folder.newest) or {}).get("batch")
    return batch if isinstance(batch, int) else None


def sweep_staging(folder: ArchiveFolder, kept: Sequence[Commit]) -> None:
    """Removes what killed runs left in staging. Call it only as the archive's owner: a task of such
    a run that still writes fails. Raises OSError.
    """
    names = {commit.staged for commit in kept}
    for entry in entries_if_there(folder.files, folder.staging):
        if entry.name not in names and entry.is_dir(follow_symlinks=False):
            drop_staged(folder, entry.name)


def drop_staged(folder: ArchiveFolder, name: str) -> None:
    """Removes a folder of staging. Durable on return: no; the next run removes it again after a
    crash.
    """
    remove_folder(folder.files, folder.staged(name))


def _made(parents: Sequence[str]) -> list[str]:
    """The folders that lead to these, and these themselves, outer ones first."""
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
