"""A durable operation as a generator: it acts, says what must be on stable media, goes on.

    def deliver(...) -> Steps[MessageId]:
        files.rename(staged, ready)
        yield Flush(folders=(queue_folder, new))     # returns once both are on stable media
        return message_id

Each reads as its line in the protocol's table (FORMAT.md). Operations that arrive together are
driven together, and what they ask to flush at the same step is flushed together
(`mq/store/disk/group.py`). A flush that fails is raised where the operation stands, as the OSError;
of its files', as FilesFailed, which says of which.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class Flush(NamedTuple):
    """What an operation waits for: open files' descriptors; then the entries of these folders in
    the ones they lie in, the outer first, where this process has not flushed them before, whoever
    made them; then folders' paths in this order (of a rename's two, the destination first); then
    those `beside` them that are there, each of them a row of folders, the outer first.

    `covered`: how many of the last folders, and with any all that lie beside, have only lost what
    is in those before: where the file system's journal keeps each rename whole, and all of them in
    their order, the flush of those covers them.
    """

    files: tuple[int, ...] = ()
    folders: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    beside: tuple[tuple[str, ...], ...] = ()
    covered: int = 0


class FilesFailed(OSError):
    """Some of a flush's files could not be flushed: each one's error, by its descriptor. It is
    itself the first of these errors.
    """

    def __init__(self, errors: Mapping[int, OSError]) -> None:
        first = next(iter(errors.values()))
        super().__init__(first.errno, first.strerror)
        self.errors = errors


Steps: TypeAlias = Generator[Flush, None, T]
