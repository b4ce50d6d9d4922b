"""A durable operation as a generator: it acts, says what must be on stable media, goes on.

    def deliver(...) -> Steps[MessageId]:
        files.rename(staged, ready)
        yield Flush(folders=(queue_folder, new))     # returns once both are on stable media
        return message_id

Each reads as its line in the protocol's table (FORMAT.md). Operations that arrive together are
driven together, and what they ask to flush at the same step is flushed together
(`mq/store/group.py`). A flush that fails is raised where the operation stands, as the OSError.
"""

from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class Flush(NamedTuple):
    """What an operation waits for: open files' descriptors, then folders' paths in this order
    (of a rename's two, the destination first), then those folders' own entries in theirs that
    this process has not flushed before, whoever made them.

    `first_covers`: the folders are one rename's, or of renames one after the other that ended in
    the first; where the file system's journal keeps each rename whole and all in their order, its
    flush covers the others.
    """

    files: tuple[int, ...] = ()
    folders: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    first_covers: bool = False


Steps: TypeAlias = Generator[Flush, None, T]
