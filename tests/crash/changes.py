"""What a power cut decides about, and what it leaves: the words of `legal_states.py`."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class Data(Enum):
    """What is left of bytes that no fsync covered."""

    FLUSHED = "what was flushed"
    ALL = "all of them"
    TORN = "the first ones"
    ZEROS = "their number"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a name means from a call on: an inode, or nothing. `at` is the call's place, `about`
    the inode that it moved, made or unlinked.
    """

    at: int
    about: int
    folder: int
    name: str
    inode: int | None


@dataclass(frozen=True, slots=True)
class Mtime:
    """A file's mtime from a call on."""

    at: int
    inode: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Content:
    """What is left of a file's bytes."""

    inode: int
    data: Data


Change: TypeAlias = Entry | Mtime | Content


@dataclass(frozen=True, slots=True)
class Choice:
    """What a power cut decides on its own: one of these, the first for least, the last for most."""

    ways: tuple[tuple[Change, ...], ...]


@dataclass(frozen=True, slots=True)
class File:
    """A file in a tree; two names with one inode are one file."""

    inode: int
    data: bytes
    mtime_ns: int
    target: str | None = None
    """What it says that is a symbolic link."""


Tree: TypeAlias = dict[str, File | None]
"""Paths below the top, each after its folder's; None is a folder."""
