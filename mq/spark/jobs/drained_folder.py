"""The folder of a drain: what it says of itself, what is written to it, and what is committed.

    {name}                          a file of messages; under its name only once it is committed
    _mq/drain.json                  whose folder this is: its id, the root, the format
    _mq/batches/{number}.json       the commit of a batch: its lease, its files
    _mq/batches/{number}.done       the same, and the lease is acknowledged
    _mq/batches/{number}.lapsed     the same, and the lease lapsed: its messages may come again
    _mq/writing/{attempt}/          what is being written; what no commit names goes
    _mq/lock                        locked by the one process that drains to here

Readers of folders (Spark, pyarrow, pandas) pass by what begins with `_`. Commits are replaced as
mq's own files are: flushed, renamed, and their folder flushed.
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
from mq.spark.jobs.row_files import FORMATS, Format
from mq.store.disk.files import Files, is_gone
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.replacing import replace_file

_VERSION: Final = 1
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
    """A folder that cannot be drained to, or loaded from."""

    folder: str
    why: str

    def __str__(self) -> str:
        return f"{self.folder} {self.why}"


@dataclass(frozen=True, slots=True)
class About:
    """What a folder says of itself. `state`: of the messages that were copied; "" of a drain."""

    id: str
    root: str
    format: Format
    compression: str
    state: str = ""

    def written(self) -> bytes:
        """The file that says so."""
        fields = {
            "version": _VERSION, "id": self.id, "root": self.root, "format": self.format,
            "compression": self.compression, "copy_of": self.state or None,
        }  # fmt: skip
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def parse(cls, folder: str, text: bytes) -> Self:
        """Raises FolderRefused."""
        fields = _object(folder, _ABOUT, text)
        try:
            return cls(
                str(fields["id"]),
                str(fields["root"]),
                FORMATS[FORMATS.index(fields["format"])],
                str(fields["compression"]),
                str(fields["copy_of"] or ""),
            )
        except (KeyError, ValueError) as error:
            why = f"has an {_OWN}/{_ABOUT} that says nothing: {error}"
            raise FolderRefused(folder, why) from None


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a batch: `name` once it is committed, `staged` while it is written, below _mq."""

    name: str
    staged: str
    messages: int
    size_bytes: int
    sha256: str


class Standing(Enum):
    """What has become of a committed batch's lease; the value is how the commit's name ends."""

    OPEN = "json"
    DONE = "done"
    LAPSED = "lapsed"


@dataclass(frozen=True, slots=True)
class Commit:
    """A batch that is committed. `lease`: its name; "" of a copy. `by_queue` counts its messages;
    `damaged` of them are files that are shorter than their own header block.
    """

    number: int
    lease: str
    parts: tuple[Part, ...]
    by_queue: Mapping[str, int]
    damaged: int = 0
    standing: Standing = Standing.OPEN

    @property
    def messages(self) -> int:
        """How many are in its files."""
        return sum(part.messages for part in self.parts)

    def written(self) -> bytes:
        """The file that says so."""
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
        """What the commit of this name says. Raises FolderRefused."""
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
    """One folder of a drain, for the process that has it locked, or for who reads it."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = os.fspath(path)
        self._files = files
        self._flusher = FsyncFlusher(files, 1)

    @property
    def own(self) -> str:
        """Where it keeps what is not messages."""
        return f"{self.path}/{_OWN}"

    def about(self) -> About | None:
        """What it says of itself; None: it is no drain's. Raises FolderRefused, OSError."""
        text = self._read(f"{self.own}/{_ABOUT}")
        return None if text is None else About.parse(self.path, text)

    def commits(self) -> list[Commit]:
        """All that are committed, by their numbers. Raises FolderRefused, OSError."""
        found = {}
        for name in sorted(self._names(f"{self.own}/{_BATCHES}")):
            if _COMMIT.fullmatch(name) is None:
                continue
            text = self._read(f"{self.own}/{_BATCHES}/{name}")
            if text is not None:
                commit = Commit.parse(self.path, name, text)
                found[commit.number] = commit
        return [found[number] for number in sorted(found)]

    def is_committed(self, number: int) -> bool:
        """Whether the commit of a batch can be seen, flushed or not."""
        return any(
            self._files.status(self._commit_path(number, standing)) is not None
            for standing in Standing
        )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """This process alone drains to the folder, which is made where it is missing. Raises
        FolderRefused, OSError. Durable: yes, the folders.
        """
        self._make(self.path)
        if not self._names(self.own) and any(name != _OWN for name in self._names(self.path)):
            raise FolderRefused(self.path, "is not empty, and no drain's: say another folder")
        for path in (self.own, f"{self.own}/{_BATCHES}", f"{self.own}/{_WRITING}"):
            self._make(path)
        descriptor = self._files.open_kept(f"{self.own}/{_LOCK}")
        try:
            if not self._files.lock(descriptor):
                raise FolderRefused(self.path, "is being drained to by another process")
            yield
        finally:
            self._files.close(descriptor)

    def claim(self, wanted: About) -> About:
        """What the folder is, which becomes what is wanted where it is new: its id is its own.
        Raises FolderRefused when it is another's. Durable on return: yes.
        """
        found = self.about()
        if found is None:
            self._replace(f"{self.own}/{_ABOUT}", wanted.written())
            return wanted
        for what in ("root", "format", "compression", "state"):
            there, asked = getattr(found, what), getattr(wanted, what)
            if there != asked:
                said = f"is of {what} {there or 'drained'}, not {asked or 'drained'}"
                raise FolderRefused(self.path, f"{said}: say another folder")
        return found

    def begin_writing(self) -> str:
        """A new folder for what is written now, below this one's own. Raises OSError."""
        attempt = f"{_WRITING}/{uuid4().hex}"
        self._files.mkdir(f"{self.own}/{attempt}")
        return attempt

    def commit(self, commit: Commit, attempt: str) -> None:
        """The commit point of a batch, whose files are on stable media by their content: then
        they stand under their names. Raises OSError. Durable on return: yes.
        """
        for folder in (attempt, _WRITING):
            self._files.sync_folder(f"{self.own}/{folder}")
        self._replace(self._commit_path(commit.number), commit.written())
        self.put_in_place(commit)

    def put_in_place(self, commit: Commit) -> None:
        """Renames a batch's files to their names, where that is still to be done; of one whose
        lease is open all are there then. Raises FolderRefused, OSError. Durable on return: yes.
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
        """Writes an earlier process's commit anew, since nobody knows whether its flush failed.
        Raises OSError. Durable on return: yes.
        """
        self._replace(self._commit_path(commit.number), commit.written())

    def settle(self, commit: Commit, standing: Standing) -> Commit:
        """Says what became of the lease of a batch. Raises OSError. Durable on return: yes."""
        self._files.rename(
            self._commit_path(commit.number, commit.standing),
            self._commit_path(commit.number, standing),
        )
        self._files.sync_folder(f"{self.own}/{_BATCHES}")
        return replace(commit, standing=standing)

    def sweep(self, commits: Sequence[Commit] = ()) -> None:
        """Takes away what was written and is named by no commit. Raises OSError. Durable: no."""
        named = {part.staged for commit in commits for part in commit.parts}
        for attempt in self._names(f"{self.own}/{_WRITING}"):
            folder = f"{_WRITING}/{attempt}"
            for name in self._names(f"{self.own}/{folder}"):
                if f"{folder}/{name}" not in named:
                    with contextlib.suppress(FileNotFoundError):
                        self._files.unlink(f"{self.own}/{folder}/{name}")
            # A task that still runs somewhere may have put another there: the next one's to take.
            with contextlib.suppress(OSError):
                self._files.rmdir(f"{self.own}/{folder}")
        for name in self._names(f"{self.own}/{_BATCHES}"):
            if name.endswith(_NEW):
                self._files.unlink(f"{self.own}/{_BATCHES}/{name}")

    def close(self) -> None:
        """Ends what it flushes with."""
        self._flusher.close()

    def _commit_path(self, number: int, standing: Standing = Standing.OPEN) -> str:
        return f"{self.own}/{_BATCHES}/{number:06d}.{standing.value}"

    def _replace(self, path: str, content: bytes) -> None:
        written = f"{path}.{os.getpid()}{_NEW}"
        run_alone(replace_file(self._files, written, path, content), self._flusher)

    def _make(self, path: str) -> None:
        """A folder, and those above it. Durable on return: yes."""
        parent = os.path.dirname(path)
        if self._files.status(parent) is None:
            self._make(parent)
        with contextlib.suppress(FileExistsError):
            self._files.mkdir(path)
        if not os.path.isdir(path):
            raise FolderRefused(path, "is no folder")
        with contextlib.suppress(PermissionError):  # Of one above that is none of ours to read.
            self._files.sync_folder(parent)

    def _names(self, path: str) -> list[str]:
        try:
            return [entry.name for entry in self._files.entries(path)]
        except OSError as error:
            if not is_gone(error):
                raise
            return []

    def _read(self, path: str) -> bytes | None:
        try:
            return self._files.read_file(path, _FILE_BYTES_MAX)
        except OSError as error:
            if not is_gone(error):
                raise
            return None


def _object(folder: str, name: str, text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FolderRefused(folder, f"has an unreadable {name}: {error}") from None
    if not isinstance(fields, dict) or fields.get("version") != _VERSION:
        raise FolderRefused(folder, f"has a {name} of another version")
    return fields
