"""Shared by the jobs' folders: locks, small files, paths. No Spark here."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mq.model.errors import MqError
from mq.store.core.root import unlink_if_there
from mq.store.disk.files import Files, is_gone
from mq.store.format.walk import entries_if_there

_PATTERN: Final = frozenset("{}[]*?\\")


@dataclass(eq=False)
class PathIsPattern(MqError):
    """Spark would take the path for a pattern of paths."""

    path: str

    def __str__(self) -> str:
        return f"{self.path}: Spark takes paths with any of {{}}[]*?\\ for patterns; rename it"


def check_path(path: str) -> None:
    """Raises PathIsPattern for a path that Spark would take for a pattern."""
    if not _PATTERN.isdisjoint(path):
        raise PathIsPattern(path)


def url(path: str) -> str:
    """An absolute path for Spark, in the machine's file system whatever Spark's default is. Not
    escaped, since Hadoop unescapes nothing.
    """
    return f"file://{path}"


def lie_in_one_another(path: Path | str, other: Path | str) -> bool:
    """Whether one folder is the other, or lies in it; follows links."""
    real = os.path.realpath(path), os.path.realpath(other)
    return os.path.commonpath(real) in real


@contextmanager
def locked(files: Files, path: str, refusal: MqError) -> Iterator[None]:
    """Locks a file for this process alone, for a block of code. Raises `refusal` if another process
    has it locked; OSError.
    """
    descriptor = files.open_kept(path)
    try:
        if not files.lock(descriptor):
            raise refusal
        yield
    finally:
        files.close(descriptor)


def read_if_there(files: Files, path: str, bytes_max: int) -> bytes | None:
    """A small file's content; None if it is missing. Raises OSError."""
    try:
        return files.read_file(path, bytes_max)
    except OSError as error:
        if not is_gone(error):
            raise
        return None


def remove_folder(files: Files, path: str) -> None:
    """Removes a folder with its contents, but nothing that is added meanwhile. Raises OSError.
    Durable on return: no.
    """
    for entry in list(entries_if_there(files, path)):
        if entry.is_dir(follow_symlinks=False):
            remove_folder(files, entry.path)
        else:
            unlink_if_there(files, entry.path)
    with contextlib.suppress(OSError):
        files.rmdir(path)
