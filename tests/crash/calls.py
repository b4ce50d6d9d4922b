"""Calls that change a file system, as a log holds them: on inodes, in one order, marks between."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from crash.images import Mark

TOP = 1
"""The inode of the folder on top."""


@dataclass(frozen=True, slots=True)
class Make:
    """A new file, folder or symbolic link under a name; a link is all there, or not at all."""

    folder: int
    name: str
    inode: int
    is_folder: bool
    mtime_ns: int
    target: str | None = None
    """What a symbolic link says."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written to a file, which change its mtime too."""

    inode: int
    offset: int
    data: bytes
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """A file's new size."""

    inode: int
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """An mtime that was set."""

    inode: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Rename:
    """A name moved; what had the target's name has it no more."""

    source: int
    source_name: str
    target: int
    target_name: str
    inode: int


@dataclass(frozen=True, slots=True)
class Link:
    """One name more for a file."""

    folder: int
    name: str
    inode: int


@dataclass(frozen=True, slots=True)
class Remove:
    """A file's or folder's name taken away."""

    folder: int
    name: str


@dataclass(frozen=True, slots=True)
class Sync:
    """An fsync of a file or folder."""

    inode: int


Call: TypeAlias = Make | Write | Truncate | Stamp | Rename | Link | Remove | Sync
Log: TypeAlias = Sequence[Call | Mark]
