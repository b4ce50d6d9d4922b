"""Calls that change a file system, as a log holds them: on inodes, in one order, marks between."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
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

# Ids and digests, and the folders that are named by parts of them.
_NAMED = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{12,64}\b"
    r"|\b[0-9a-f]{8}(?:\.[0-9a-f]{2})?\b|(?<=name=')[0-9a-f]{2}(?=')"
)
_TIME = re.compile(r"\b\d{10,}\b|\d{4}-\d\d-\d\dT[0-9:.]+Z")


def places_alike(log: Log, other: Log) -> int:
    """Up to which place two logs say the same, but for ids and times."""
    both = zip(_told(log), _told(other), strict=False)
    differ = (place for place, (one, two) in enumerate(both) if one != two)
    return next(differ, min(len(log), len(other)))


def _told(log: Log) -> Iterator[str]:
    """Each entry, with the number of its first appearance for an id or a digest."""
    named: dict[str, str] = {}
    for entry in log:
        facts = entry.facts if isinstance(entry, Mark) else _facts(entry)
        text = " ".join(f"{name}={value!r}" for name, value in facts.items() if name != "at_ms")
        text = _TIME.sub("T", text)
        text = _NAMED.sub(lambda found: named.setdefault(found[0], f"<{len(named)}>"), text)
        yield f"{type(entry).__name__} {text}"


def _facts(call: Call) -> dict[str, object]:
    return {each.name: getattr(call, each.name) for each in fields(call) if each.name != "mtime_ns"}
