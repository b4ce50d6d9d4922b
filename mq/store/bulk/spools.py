"""Listings that are too long to be held, as files in new/.spark/.listings/: written once, by
whoever makes a plan, and read in ranges by the processes that carry it out, on any machine.

Nothing says when the last of them has read: a listing goes when it is a day old. Nothing is
flushed: after a crash nobody reads it.
"""

import contextlib
import stat
from typing import Self

from mq.model.bulk_limits import LISTING_KEPT_S
from mq.model.names import UuidSource
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.files import Files
from mq.store.format.pipeline import listings, staging
from mq.store.format.walk import entries_if_there


class Spool:
    """One listing while it is written; of one that is left by an exception nothing stays."""

    def __init__(self, root: Root) -> None:
        """Raises OSError when it cannot be made."""
        self._files = root.files
        made = staging(root.layout), listings(root.layout)
        root.files.refuse_links(*made)
        for folder in made:
            with contextlib.suppress(FileExistsError):
                root.files.mkdir(folder)
        self.path = f"{listings(root.layout)}/{UuidSource(root.clock).next()}"
        self._descriptor = root.files.create(self.path)

    def append(self, blob: bytes) -> None:
        """Writes behind what was written. Raises OSError. Durable: no."""
        self._files.write(self._descriptor, blob)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._files.close(self._descriptor)
        if kind is not None:
            unlink_if_there(self._files, self.path)


def read_spool(files: Files, path: str, offset: int, size: int) -> bytes:
    """A range of a listing. Raises OSError: FileNotFoundError when it was taken away."""
    descriptor = files.open_read(path)
    try:
        return files.read(descriptor, size, offset)
    finally:
        files.close(descriptor)


def sweep_spools(root: Root, kept_s: float = LISTING_KEPT_S) -> int:
    """Takes listings away that nothing was written to for so long; how many. Raises OSError.
    Durable: no; one that a crash brings back goes at the next sweep.
    """
    swept = 0
    for entry in entries_if_there(root.files, listings(root.layout)):
        status = root.files.status(entry.path)
        if status is None or not stat.S_ISREG(status.st_mode):
            continue
        if root.aged_ms(kept_s) - status.st_mtime_ns // 1_000_000 >= kept_s * 1000:
            unlink_if_there(root.files, entry.path)
            swept += 1
    return swept
