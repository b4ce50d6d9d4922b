"""The folder of a drain: its description, its commits, and the files in progress.

    {name}                          a file of messages; has this name only once it is committed
    _mq/drain.json                  the drain: its id, the root, the format
    _mq/batches/{number}.json       the commit of a batch: its lease, its files
    _mq/batches/{number}.done       the same, and the lease is acknowledged
    _mq/batches/{number}.lapsed     the same, and the lease lapsed: its messages may come again
    _mq/writing/{attempt}/          files in progress; removed unless a commit names them
    _mq/lock                        locked by the one process that drains to this folder
    _delta_log/                     of a Delta table in this folder (tables.py)

Readers of folders (Spark, pyarrow, pandas) ignore names that begin with `_`. Commits are replaced
like mq's own files: flushed, renamed, and their folder flushed.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

from mq.model.errors import MqError
from mq.spark.jobs.folders import locked, read_if_there
from mq.spark.jobs.row_files import FORMATS, Format
from mq.store.core.root import unlink_if_there
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.replacing import replace_file
from mq.store.format.walk import entries_if_there

_VERSION: Final = 1
_TABLE_VERSION: Final = 2
"""Of the description of a table's folder: an older mq would drain there without adding to it."""
_OWN: Final = "_mq"
_ABOUT: Final = "drain.json"
_LOCK: Final = "lock"
_BATCHES: Final = "batches"
_WRITING: Final = "writing"
_NEW: Final = ".new"
_COMMIT: Final = re.compile(r"([0-9]{6,})\.(json|done|lapsed)")
_FILE_BYTES_MAX: Final = 64 << 20


@dataclass(eq=False)
class FolderRefused(MqError):
    """The folder cannot be drained to, or loaded from."""

    folder: str
    why: str

    def __str__(self) -> str:
        return f"{self.folder} {self.why}"


@dataclass(frozen=True, slots=True)
class About:
    """A folder's description. `state`: of the copied messages; "" for a drain. `table`: the table
    that has its files (see tables.table_of), "" for none.
    """

    id: str
    root: str
    format: Format
    compression: str
    state: str = ""
    table: str = ""

    @property
    def prefix(self) -> str:
        """What the names of its files begin with: a table's folder may have files of others."""
        return f"mq-{self.id[:12]}-" if self.table else ""

    def written(self) -> bytes:
        fields = {
            "version": _TABLE_VERSION if self.table else _VERSION, "id": self.id,
            "root": self.root, "format": self.format, "compression": self.compression,
            "copy_of": self.state or None,
        }  # fmt: skip
        if self.table:
            fields["table"] = self.table
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def parse(cls, folder: str, text: bytes) -> Self:
        """Raises FolderRefused."""
        fields = _object(folder, _ABOUT, text, (_VERSION, _TABLE_VERSION))
        try:
            return cls(
                str(fields["id"]),
                str(fields["root"]),
                FORMATS[FORMATS.index(fields["format"])],
                str(fields["compression"]),
                str(fields["copy_of"] or ""),
                str(fields.get("table") or ""),
            )
        except (KeyError, ValueError) as error:
            why = f"has an {_OWN}/{_ABOUT} that says nothing: {error}"
            raise FolderRefused(folder, why) from None


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a batch: `name` once it is committed; `staged` while it is written, below _mq."""

    name: str
    staged: str
    messages: int
    size_bytes: int
    sha256: str


class Standing(Enum):
    """The state of a committed batch's lease; the value is the suffix of the commit's name."""

    OPEN = "json"
    DONE = "done"
    LAPSED = "lapsed"


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed batch. `lease`: its name; "" for a copy. `by_queue` counts its messages;
    `damaged` of them are files shorter than their own header block.
    """

    number: int
    lease: str
    parts: tuple[Part, ...]
    by_queue: Mapping[str, int]
    damaged: int = 0
    standing: Standing = Standing.OPEN

    @property
    def messages(self) -> int:
        return sum(part.messages for part in self.parts)

    def written(self) -> bytes:
        fields = {
            "version": _VERSION,
            "batch": self.number,
            "lease": self.lease or None,
            "messages": self.messages,
            "damaged": self.damaged,
            "messages_by_queue": dict(sorted(self.by_queue.items())),
            "files": [
                {
                    "name": part.name, "messages": part.messages, "bytes": part.size_bytes,
                    "sha256": part.sha256, "staged": part.staged,
                }
                for part in self.parts
            ],
        }  # fmt: skip
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def parse(cls, folder: str, name: str, text: bytes) -> Self:
        """Parses the commit of this name. Raises FolderRefused."""
        fields = _object(folder, name, text)
        match = _COMMIT.fullmatch(name)
        try:
            parts = tuple(
                Part(
                    str(each["name"]),
                    str(each["staged"]),
                    int(each["messages"]),
                    int(each["bytes"]),
                    str(each["sha256"]),
                )
                for each in fields["files"]
            )
            queues = {str(name): int(count) for name, count in fields["messages_by_queue"].items()}
            damaged = int(fields["damaged"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FolderRefused(folder, f"has a commit {name} that says nothing: {error}") from None
        if match is None or any("/" in part.name for part in parts):
            raise FolderRefused(folder, f"has a commit {name} that is none of a drain's")
        lease = str(fields.get("lease") or "")
        return cls(int(match[1]), lease, parts, queues, damaged, Standing(match[2]))


class DrainedFolder:
    """A drain's folder, for the process that has locked it, or for a reader. `own`: the name of the
    folder in it that has the commits.
    """

    def __init__(self, path: Path, files: Files, own: str = _OWN) -> None:
        self.path = os.fspath(path)
        self.own = f"{self.path}/{own}"
        self._files = files
        self._flusher = FsyncFlusher(files, 1)

    def about(self) -> About | None:
        """The folder's description; None: it is not a drain's. Raises FolderRefused, OSError."""
        text = read_if_there(self._files, f"{self.own}/{_ABOUT}", _FILE_BYTES_MAX)
        return None if text is None else About.parse(self.path, text)

    def commits(self) -> list[Commit]:
        """All commits, by number. Raises FolderRefused, OSError."""
        found = {}
        for name in sorted(self._names(f"{self.own}/{_BATCHES}")):
            if _COMMIT.fullmatch(name) is None:
                continue
            path = f"{self.own}/{_BATCHES}/{name}"
            text = read_if_there(self._files, path, _FILE_BYTES_MAX)
            if text is not None:
                commit = Commit.parse(self.path, name, text)
                found[commit.number] = commit
        return [found[number] for number in sorted(found)]

    def is_committed(self, number: int) -> bool:
        """Whether a batch's commit is visible, flushed or not."""
        return any(
            self._files.status(self._commit_path(number, standing)) is not None
            for standing in Standing
        )

    @contextlib.contextmanager
    def locked(self, beside: tuple[str, ...] = ()) -> Iterator[None]:
        """Locks the folder for this process; creates it if it is missing. A folder that is no
        drain's is empty, or has an entry whose name begins with one of `beside`. Raises
        FolderRefused, OSError. Durable: yes, the folders.
        """
        self._make(self.path)
        self.refuse_others(beside)
        for path in (self.own, f"{self.own}/{_BATCHES}", f"{self.own}/{_WRITING}"):
            self._make(path)
        refusal = FolderRefused(self.path, "is being drained to by another process")
        with locked(self._files, f"{self.own}/{_LOCK}", refusal):
            yield

    def refuse_others(self, beside: tuple[str, ...] = ()) -> None:
        """Raises FolderRefused for a folder that `locked` refuses for its contents; OSError."""
        others = [] if self._names(self.own) else self._names(self.path)
        if not any(name.startswith(beside) for name in others) and any(
            name != os.path.basename(self.own) for name in others
        ):
            raise FolderRefused(self.path, "is not empty, and no drain's: say another folder")

    def claim(self, wanted: About) -> About:
        """Returns the folder's description; a new folder gets `wanted`. Raises FolderRefused if it
        belongs to another drain. Durable on return: yes.
        """
        found = self.known(wanted)
        if found is None:
            self._replace(f"{self.own}/{_ABOUT}", wanted.written())
        return found or wanted

    def known(self, wanted: About) -> About | None:
        """The folder's description, if it has one. Raises FolderRefused if that is of another drain
        than `wanted`; OSError.
        """
        found = self.about()
        if found is None:
            return None
        for what, none in (
            ("table", "none"), ("root", ""), ("format", ""), ("compression", ""),
            ("state", "drained"),
        ):  # fmt: skip
            there, asked = getattr(found, what), getattr(wanted, what)
            if there != asked:
                said = f"is of {what} {there or none}, not {asked or none}"
                raise FolderRefused(self.path, f"{said}: say another folder")
        return found

    def begin_writing(self) -> str:
        """Creates a folder for files in progress; returns its name. Raises OSError."""
        attempt = f"{_WRITING}/{uuid4().hex}"
        self._files.mkdir(f"{self.own}/{attempt}")
        return attempt

    def commit(self, commit: Commit, attempt: str) -> None:
        """Commits a batch, whose files' contents are on stable media, then gives the files their
        names. Raises OSError. Durable on return: yes.
        """
        for folder in (attempt, _WRITING):
            self._files.sync_folder(f"{self.own}/{folder}")
        self._replace(self._commit_path(commit.number), commit.written())
        self.put_in_place(commit)

    def put_in_place(self, commit: Commit) -> None:
        """Renames a batch's files to their names, unless that was done. All files of a batch with
        an open lease must exist then. Raises FolderRefused, OSError. Durable on return: yes.
        """
        for part in commit.parts:
            target, source = f"{self.path}/{part.name}", f"{self.own}/{part.staged}"
            if self._files.status(source) is not None:
                self._files.rename(source, target)
            elif commit.standing is Standing.OPEN:
                status = self._files.status(target)
                if status is None or status.st_size != part.size_bytes:
                    why = f"has not the file {part.name} of batch {commit.number} any more"
                    raise FolderRefused(self.path, f"{why}, whose lease is not acknowledged")
        self._files.sync_folder(self.path)

    def renew_commit(self, commit: Commit) -> None:
        """Writes an earlier process's commit again, since its flush may have failed. Raises
        OSError. Durable on return: yes.
        """
        self._replace(self._commit_path(commit.number), commit.written())

    def settle(self, commit: Commit, standing: Standing) -> Commit:
        """Records the state of a batch's lease. Raises OSError. Durable on return: yes."""
        self._files.rename(
            self._commit_path(commit.number, commit.standing),
            self._commit_path(commit.number, standing),
        )
        self._files.sync_folder(f"{self.own}/{_BATCHES}")
        return replace(commit, standing=standing)

    def forget(self, before: int) -> None:
        """Removes the commits before this number, which are settled. Raises OSError. Durable on
        return: no.
        """
        for name in self._names(f"{self.own}/{_BATCHES}"):
            match = _COMMIT.fullmatch(name)
            if match is not None and int(match[1]) < before:
                unlink_if_there(self._files, f"{self.own}/{_BATCHES}/{name}")

    def sweep(self, commits: Sequence[Commit] = ()) -> None:
        """Removes files in progress that no commit names. Raises OSError. Durable on return: no."""
        named = {part.staged for commit in commits for part in commit.parts}
        for attempt in self._names(f"{self.own}/{_WRITING}"):
            folder = f"{_WRITING}/{attempt}"
            for name in self._names(f"{self.own}/{folder}"):
                if f"{folder}/{name}" not in named:
                    unlink_if_there(self._files, f"{self.own}/{folder}/{name}")
            # A task that still runs may have added a file: the next sweep removes it.
            with contextlib.suppress(OSError):
                self._files.rmdir(f"{self.own}/{folder}")
        for name in self._names(f"{self.own}/{_BATCHES}"):
            if name.endswith(_NEW):
                self._files.unlink(f"{self.own}/{_BATCHES}/{name}")

    def close(self) -> None:
        self._flusher.close()

    def _commit_path(self, number: int, standing: Standing = Standing.OPEN) -> str:
        return f"{self.own}/{_BATCHES}/{number:06d}.{standing.value}"

    def _replace(self, path: str, content: bytes) -> None:
        written = f"{path}.{os.getpid()}{_NEW}"
        run_alone(replace_file(self._files, written, path, content), self._flusher)

    def _make(self, path: str) -> None:
        """Creates a folder and its missing parents. Durable on return: yes."""
        parent = os.path.dirname(path)
        if self._files.status(parent) is None:
            self._make(parent)
        with contextlib.suppress(FileExistsError):
            self._files.mkdir(path)
        if not os.path.isdir(path):
            raise FolderRefused(path, "is not a folder")
        with contextlib.suppress(PermissionError):  # This user may not open a folder further up.
            self._files.sync_folder(parent)

    def _names(self, path: str) -> list[str]:
        return [entry.name for entry in entries_if_there(self._files, path)]


def _object(
    folder: str, name: str, text: bytes, versions: tuple[int, ...] = (_VERSION,)
) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FolderRefused(folder, f"has an unreadable {name}: {error}") from None
    if not isinstance(fields, dict) or fields.get("version") not in versions:
        raise FolderRefused(folder, f"has a {name} of another version")
    return fields
