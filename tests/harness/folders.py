"""A root's files as a test sees them: by state, as `ls` would."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from mq.model.clock import SystemClock
from mq.store.disk.files import Files, is_gone
from mq.store.format.layout import KEYS_FOLDERS
from mq.store.opening import open_root

STATES = ("new", "queues", "delay", "remove")


def make_root(top: Path) -> Path:
    """A root that no daemon is at."""
    open_root(str(top), Files(), SystemClock())
    return top


def published_by_hand(root: Path, mode: int) -> Path:
    """The file of a message that is ready in `orders` since the beginning of 2026, of this mode."""
    ready = root / "queues" / "orders"
    ready.mkdir(mode=0o700)
    message = ready / "0192f3a2-7c4e-7d2a-9b1e-0123456789ab.txt"
    message.write_text("hello\n")
    os.utime(message, ns=(1_767_225_600_123_000_000,) * 2)
    message.chmod(mode)
    return message


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
    """The files in a folder and its buckets; those of deleted queues and of keys are left out."""
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        if not is_gone(error):
            raise
        return  # A bucket that emptied meanwhile.
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)
        elif not entry.name.endswith(".d") and entry.name not in KEYS_FOLDERS:
            yield from files_below(Path(entry.path))


def forget(root: Path, queue: str) -> None:
    """Takes away all that a root has of a queue and its sideline, but for the buckets."""
    for name in (queue, f"{queue}_SIDELINE"):
        for entry in _of_queue(os.scandir(root), name):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


def _of_queue(entries: "Iterable[os.DirEntry[str]]", queue: str) -> "Iterator[os.DirEntry[str]]":
    for entry in entries:
        if entry.name.partition(":")[0] in (queue, f"{queue}.json"):
            yield entry
        elif entry.is_dir(follow_symlinks=False):
            yield from _of_queue(os.scandir(entry.path), queue)


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
