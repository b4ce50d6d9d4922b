"""A root's files as a test sees them: by state, as `ls` would."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.model.clock import SystemClock
from mq.store.core.root import open_root
from mq.store.disk.files import Files

STATES = ("new", "queues", "delay", "remove")


def make_root(top: Path) -> Path:
    """A root that no daemon is at."""
    open_root(str(top), Files(), SystemClock())
    return top


def message_files(root: Path) -> dict[str, list[str]]:
    """The names of message files, `{queue}:{id}` also for ready ones, by folder, sorted.

    Dotfiles are left out, and so is what lies in deleted queues' folders.
    """
    found: dict[str, list[str]] = {}
    for state in STATES:
        folder = root / state
        if state == "queues":
            names = [
                f"{queue.name}:{path.name}"
                for queue in folder.iterdir()
                if queue.is_dir()
                for path in files_below(queue)
            ]
        else:
            names = [path.name for path in files_below(folder)]
        found[state] = sorted(name for name in names if not name.startswith("."))
    return found


def leased_files(root: Path) -> list[str]:
    """The names of leased messages' files, `{queue}:{id}`, sorted."""
    folders = (path for path in (root / "leases").iterdir() if path.is_dir())
    return sorted(path.name for folder in folders for path in folder.iterdir())


def files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder and its buckets; those of deleted queues, keys too, are left out."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return  # A bucket that emptied meanwhile.
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)
        elif not entry.name.endswith((".d", ".k", ".i", ".f")):
            yield from files_below(Path(entry.path))


def make_folders_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Daemons that are started from here on put nearly all into buckets, and below those."""
    for variable in ("MQ_FOLDER_MAX", "MQ_MOVER_FOLDER_MAX"):
        monkeypatch.setenv(variable, "3")


def mtime_ns(path: Path) -> int:
    return path.stat().st_mtime_ns


def make_old(folder: Path) -> None:
    """So that a daemon believes the folder's mtime, and does not list it needlessly."""
    os.utime(folder, ns=(0, folder.stat().st_mtime_ns - 60 * 10**9))


def nothing_anywhere() -> dict[str, list[str]]:
    """What `message_files` gives of a root without messages."""
    return {state: [] for state in STATES}


def tree(top: Path) -> dict[str, str]:
    """Every path below, and what it is: to compare before and after."""
    return {
        str(path.relative_to(top)): "folder" if path.is_dir() else f"file of {path.stat().st_size}"
        for path in sorted(top.rglob("*"))
    }
