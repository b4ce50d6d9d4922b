"""Symbolic links, FIFOs and devices in a root where mq has files and folders of its own; and
whether mq touches anything outside.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import inotify_simple  # type: ignore[import-untyped]

from harness.messages import new_id, put_file

Damage = Callable[[Path], None]

SECRET = b"outside of the root"
# All that somebody can do with a file but to look what it is.
_TOUCHES = (
    inotify_simple.flags.OPEN
    | inotify_simple.flags.ACCESS
    | inotify_simple.flags.MODIFY
    | inotify_simple.flags.ATTRIB
    | inotify_simple.flags.CREATE
    | inotify_simple.flags.DELETE
    | inotify_simple.flags.DELETE_SELF
    | inotify_simple.flags.MOVED_FROM
    | inotify_simple.flags.MOVED_TO
    | inotify_simple.flags.MOVE_SELF
)


@dataclass
class Outside:
    """A folder beside a root, in which all looks as it would in a queue's folder, in `new/`, among
    keys and so on; and a file.
    """

    top: Path
    touched: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.top / "folder"

    @property
    def file(self) -> Path:
        return self.top / "file"

    def lay_out(self, message_id: str) -> None:
        digits = message_id.replace("-", "")
        bucket, deep = digits[:8], digits[8:10]
        deleted = f"q:{new_id().text}.d"
        below = (bucket, f"{bucket}/{deep}", deep, "q", "q/00", "2020-01-01", deleted)
        for folder in ("", *below):
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
            put_file(self.folder / folder / message_id, SECRET, 1000)
            put_file(self.folder / folder / f"q:{message_id}", SECRET, 1000)
            (self.folder / folder / "night").symlink_to(message_id)
        put_file(self.file, SECRET, 1000)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What is done outside from here on is in `touched`."""
        with inotify_simple.INotify() as inotify:
            folders = [self.folder, *(path for path in self.folder.rglob("*") if _is_folder(path))]
            names = {inotify.add_watch(path, _TOUCHES): path for path in (*folders, self.file)}
            yield
            for event in inotify.read(timeout=0):
                flags = "|".join(flag.name for flag in inotify_simple.flags.from_mask(event.mask))
                self.touched.append(f"{names[event.wd]}/{event.name} {flags}")


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


def socket_node(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def zeros(path: Path) -> None:
    """A device of which every read gives all that it asks for."""
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
