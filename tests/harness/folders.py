"""A root's files as a test sees them: by state, as `ls` would."""

import os
from pathlib import Path

STATES = ("new", "queues", "delay", "remove")


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
                for path in queue.iterdir()
            ]
        else:
            names = [path.name for path in folder.iterdir() if path.is_file()]
        found[state] = sorted(name for name in names if not name.startswith("."))
    return found


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
