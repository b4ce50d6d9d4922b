"""Spools: listings too long for memory, as files in new/.spark/.listings/. The process that makes a
plan writes them once; the processes that carry it out, on any machine, read ranges.

The end of the last read is unknown, so a listing is removed when it is a day old. Nothing is
flushed: after a crash no process reads it.
"""

import contextlib
import stat
from typing import Final, Self

from mq.model.names import UuidSource
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.files import Files
from mq.store.format.pipeline import listings, staging
from mq.store.format.walk import entries_if_there

LISTING_KEPT_S: Final = 24 * 3600


class Spool:
    """A listing that is being written; after an exception it is removed."""

    def __init__(self, root: Root) -> None:
        """Raises OSError if it cannot be made."""
        self._files = root.files
        made = staging(root.layout), listings(root.layout)
        root.files.refuse_links(*made)
        for folder in made:
            with contextlib.suppress(FileExistsError):
                root.files.mkdir(folder)
        self.path = f"{listings(root.layout)}/{UuidSource(root.clock).next()}"
        self._descriptor = root.files.create(self.path)

    def append(self, blob: bytes) -> None:
        """Appends. Raises OSError. Durable on return: no."""
        self._files.write(self._descriptor, blob)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._files.close(self._descriptor)
        if kind is not None:
            unlink_if_there(self._files, self.path)


def read_spool(files: Files, path: str, offset: int, size: int) -> bytes:
    """Reads a range of a listing. Raises OSError: FileNotFoundError if it was removed."""
    descriptor = files.open_read(path)
    try:
        return files.read(descriptor, size, offset)
    finally:
        files.close(descriptor)


def sweep_spools(root: Root) -> int:
    """Removes listings without writes for LISTING_KEPT_S seconds. Returns their number. Raises
    OSError. Durable on return: no; a listing that a crash brings back goes at the next sweep.
    """
    swept = 0
    for entry in entries_if_there(root.files, listings(root.layout)):
        status = root.files.status(entry.path)
        if status is None or not stat.S_ISREG(status.st_mode):
            continue
        if root.has_aged(status.st_mtime_ns // 1_000_000, LISTING_KEPT_S):
            unlink_if_there(root.files, entry.path)
            swept += 1
    return swept
