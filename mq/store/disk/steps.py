"""A durable operation is a generator: it acts, yields what must be on stable media, and continues.

def deliver(...) -> Steps[MessageId]:
    files.rename(staged, ready)
    yield Flush(folders=(queue_folder, new))     # returns once both are on stable media
    return message_id

Each operation reads as its table in PROTOCOL.md. Operations that arrive together run together, and
their flushes at one step are one flush (`mq/store/disk/group.py`). A failed flush is raised inside
the operation, at the yield, as the OSError; for its files, as FilesFailed, which has the error of
each.
"""

from collections.abc import Generator, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class Flush(NamedTuple):
    """A set of things to flush: the descriptors of open files whose bytes wait, and folders whose
    names have changed, of a rename the target first.

    `covered`: how many of the last folders have only lost names that are in the folders before: the
    operation has renamed, and the folder before those is what it changed last. `stamps`: open files
    of which the operation has changed only names and mtimes, the last one last of all. `lists`: the
    operation is about to list folders, and goes on elsewhere if others would wait for it.
    """

    files: tuple[int, ...] = ()
    folders: tuple[str, ...] = ()
    covered: int = 0
    stamps: tuple[int, ...] = ()
    lists: bool = False

    @property
    def has_last(self) -> bool:
        """Whether the operation has changed all this itself, and it says what it changed last.
        Otherwise it depends on changes of others as well.
        """
        return self.covered > 0 or bool(not self.folders and (self.files or self.stamps))


LISTS: Final = Flush(lists=True)


class FilesFailed(OSError):
    """Some of a flush's files could not be flushed. Has each one's error, by its descriptor, and is
    itself the first of them.
    """

    def __init__(self, errors: Mapping[int, OSError]) -> None:
        first = next(iter(errors.values()))
        super().__init__(first.errno, first.strerror)
        self.errors = errors


Steps: TypeAlias = Generator[Flush, None, T]
