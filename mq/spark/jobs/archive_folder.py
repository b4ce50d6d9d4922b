"""An archive's own folder: its names, whose it is, and who uses it.

    DIR/_mq/archive.json         of which root it is
    DIR/_mq/.lock                locked (flock) by the one process that archives
    DIR/_mq/.readers             locked, shared, by who reads; by itself, by who swaps files
    DIR/_mq/newest.json          the newest batch that is all there
    DIR/_mq/{name}.commit        a commit that is not at its end: archive_commit.py
    DIR/_staging/{uuid}/         what tasks write; it counts once a commit says so
    DIR/_bodies/queue=Q/day=D/   bodies that no row is to have
    DIR/queue=Q/day=D/           the rows

Spark passes over what begins with `_` or `.`. No Spark here.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from mq.model.errors import BadName, MqError
from mq.model.names import QueueName
from mq.spark.jobs.archive_parts import BODIES, SUFFIX, Place
from mq.spark.jobs.archive_urls import check_path
from mq.store.disk.files import Files, is_gone
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Flush, Steps
from mq.store.format.history import is_date
from mq.store.format.walk import entries_if_there

_VERSION: Final = 1
_CONTROL: Final = "_mq"
_STAGING: Final = "_staging"
_COMMIT: Final = ".commit"
_QUEUE: Final = "queue="
_DAY: Final = "day="
_JSON_BYTES_MAX: Final = 1 << 20


@dataclass(eq=False)
class NoArchive(MqError):
    """A folder that cannot be the archive that it is to be."""

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
        """Below the archive."""
        return f"{self.folder}/{self.name}"


@dataclass(frozen=True, slots=True)
class ArchiveFolder:
    """The paths of one archive; absolute, and no links in them."""

    path: str
    files: Files

    @classmethod
    def of(cls, path: str, files: Files) -> "ArchiveFolder":
        """Nothing is made or looked at. Raises PathIsPattern."""
        real = os.path.realpath(path)
        check_path(real)
        return cls(real, files)

    @property
    def control(self) -> str:
        """What says what the archive has."""
        return f"{self.path}/{_CONTROL}"

    @property
    def mark(self) -> str:
        """The file that says of which root it is."""
        return f"{self.control}/archive.json"

    @property
    def newest(self) -> str:
        """The file that says which batch was the last."""
        return f"{self.control}/newest.json"

    @property
    def lock(self) -> str:
        """What the process that archives has locked."""
        return f"{self.control}/.lock"

    @property
    def readers(self) -> str:
        """What readers, and who swaps files, have locked."""
        return f"{self.control}/.readers"

    @property
    def staging(self) -> str:
        """The folder of what tasks write."""
        return f"{self.path}/{_STAGING}"

    def staged(self, name: str) -> str:
        """One commit's folder of that."""
        return f"{self.staging}/{name}"

    def commit(self, name: str) -> str:
        """The file of a commit."""
        return f"{self.control}/{name}{_COMMIT}"

    def commits(self) -> list[str]:
        """The names of the commits that are not at their ends. Raises OSError."""
        return sorted(
            entry.name.removesuffix(_COMMIT)
            for entry in entries_if_there(self.files, self.control)
            if entry.name.endswith(_COMMIT) and not entry.name.startswith(".")
        )

    def data_files(self) -> Iterator[DataFile]:
        """All files of rows, those of unfinished commits too. Raises OSError."""
        for queue in entries_if_there(self.files, self.path):
            if _is_folder(queue, _QUEUE):
                for day in entries_if_there(self.files, queue.path):
                    if _is_folder(day, _DAY):
                        yield from self.files_of(f"{queue.name}/{day.name}")

    def files_of(self, folder: str) -> Iterator[DataFile]:
        """Those of one folder. Raises OSError."""
        for entry in entries_if_there(self.files, f"{self.path}/{folder}"):
            if entry.name.endswith(SUFFIX) and not entry.name.startswith(("_", ".")):
                status = self.files.status(entry.path)
                if status is not None:
                    yield DataFile(folder, entry.name, status.st_size)


def is_folder_of_archive(folder: str) -> bool:
    """Whether it is where a commit may put files: nothing else is ever written to."""
    _, queue, day = ["", "", *folder.split("/")][-3:]
    try:
        QueueName.parse(queue.removeprefix(_QUEUE))
    except BadName:
        return False
    place = Place(queue.removeprefix(_QUEUE), day.removeprefix(_DAY))
    return is_date(place.day) and folder in (place.folder, f"{BODIES}/{place.folder}")


def open_archive(
    path: str, root_path: str, root_id: str, files: Files, flusher: Flusher, is_known: bool
) -> ArchiveFolder:
    """The archive of a root; made where the folder is empty or not there. `is_known`: the root says
    that it has its archive there, so nothing is made. Raises NoArchive, PathIsPattern, MqError,
    OSError. Durable on return: yes.
    """
    folder = ArchiveFolder.of(path, files)
    root = os.path.realpath(root_path)
    if os.path.commonpath((root, folder.path)) in (root, folder.path):
        raise NoArchive(folder.path, "an archive's folder and its root do not lie in one another")
    found = read_mark(folder)
    if found is None:
        if is_known:
            raise NoArchive(
                folder.path,
                "the root's archive is not there. Is it mounted? (To begin another: --disable)",
            )
        _make(folder, root_id, root, flusher)
    elif found != root_id:
        raise NoArchive(folder.path, f"is the archive of another root, {found}")
    return folder


def read_mark(folder: ArchiveFolder) -> str | None:
    """The id of the root whose archive it is; None: it is none. Raises NoArchive, OSError."""
    fields = read_json(folder.files, folder.mark)
    if fields is None:
        return None
    if fields.get("version") != _VERSION or not isinstance(fields.get("root_id"), str):
        raise NoArchive(folder.path, f"{folder.mark} is not what this mq writes there")
    found: str = fields["root_id"]
    return found


def read_json(files: Files, path: str, bytes_max: int = _JSON_BYTES_MAX) -> dict[str, Any] | None:
    """The object in a file; None: there is no file. Of what is none, it is empty. Raises
    OSError.
    """
    try:
        text = files.read_file(path, bytes_max)
    except OSError as error:
        if is_gone(error):
            return None
        raise
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(folder: ArchiveFolder, path: str, fields: dict[str, Any]) -> Steps[None]:
    """Has a file of the archive say this. Durable on return: yes."""
    written = f"{folder.control}/.{os.path.basename(path)}.{uuid4().hex}"
    content = json.dumps(fields).encode() + b"\n"
    yield from replace_file(folder.files, written, path, content)


def _make(folder: ArchiveFolder, root_id: str, root: str, flusher: Flusher) -> None:
    files = folder.files
    names = {entry.name for entry in entries_if_there(files, folder.path)}
    # What a first run leaves that was killed; and what a file system has at its top.
    if names - {_CONTROL, "lost+found"}:
        raise NoArchive(folder.path, "is not empty, and no archive: say a folder of its own")
    fields = {"version": _VERSION, "root_id": root_id, "root": root}
    run_alone(_lay_out(folder, fields), flusher)


def _lay_out(folder: ArchiveFolder, mark: dict[str, Any]) -> Steps[None]:
    for made in (folder.path, folder.control):
        with contextlib.suppress(FileExistsError):
            folder.files.mkdir(made)
    yield Flush(entries=(folder.path, folder.control))
    for lock in (folder.lock, folder.readers):
        folder.files.close(folder.files.open_kept(lock))
    yield from write_json(folder, folder.mark, mark)


@contextmanager
def own_archive_folder(folder: ArchiveFolder) -> Iterator[None]:
    """No other process archives to the folder in the block. Raises ArchiveFolderBusy, OSError."""
    descriptor = folder.files.open_kept(folder.lock)
    try:
        if not folder.files.lock(descriptor):
            raise ArchiveFolderBusy(f"{folder.path}: another process archives there")
        yield
    finally:
        folder.files.close(descriptor)


def _is_folder(entry: "os.DirEntry[str]", prefix: str) -> bool:
    return entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False)
