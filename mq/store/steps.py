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
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Flush:
    """What an operation waits for: open files' descriptors; then the entries of these folders in
    the ones they lie in, the outer first, where this process has not flushed them before, whoever
    made them; then folders' paths in this order (of a rename's two, the destination first); then
    those `beside` them that are there, each of them a row of folders, the outer first.
    """

    files: tuple[int, ...] = ()
    folders: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    beside: tuple[tuple[str, ...], ...] = ()


Steps: TypeAlias = Generator[Flush, None, T]
