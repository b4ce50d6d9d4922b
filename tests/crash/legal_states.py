"""What a file system may hold after a power cut, by the calls that were made on it until then.

Pure. `Disk` follows a log (`calls.py`); between two calls it says which `Choice`s a power cut has,
and which `Tree` each way to choose leaves. `Model` has four readings of what an fsync covers.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from crash.calls import (
    TOP,
    Call,
    Link,
    Make,
    Remove,
    Rename,
    Stamp,
    Sync,
    Truncate,
    Write,
)  # fmt: skip
from crash.changes import Change, Choice, Content, Data, Entry, File, Mtime, Tree
from crash.images import Mark


class Model(Enum):
    """How a file system reads fsync: ext4 and xfs the first way, btrfs the third, POSIX last."""

    JOURNAL = "an fsync keeps all names and mtimes up to its own's last change; the others in order"
    ATOMIC = "a name is kept by an fsync of its folder, whole renames, each file's in their order"
    HALVES = "a rename's new name may be kept without the old one's end, but not that alone"
    APART = "a name is kept by an fsync of its folder, and an old name's end by one of its own"


@dataclass
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    flushed: bytes = b""
    is_dirty: bool = False
    mtime_ns: int = 0
    """The one that is on stable media."""
    target: str | None = None
    mtimes: list[Mtime] = field(default_factory=list)
    """Those set since."""
    torn: dict[Data, bytes] = field(default_factory=dict)


class Disk:
    """The calls so far, as a power cut sees them."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._at = 0
        self._folders: dict[int, dict[str, int]] = {TOP: {}}
        self._names: dict[tuple[int, str], int] = {}
        self._pending: list[Entry] = []
        self._files: dict[int, _Inode] = {}
        self._changed: dict[int, int] = {}
        """Where each inode changed last: its names, its entries, its bytes or its mtime."""

    def apply(self, call: Call | Mark) -> None:
        """One call more, which was made and has returned."""
        self._at += 1
        match call:
            case Make() | Link() | Remove() | Rename():
                self._name(call)
            case Write(inode, offset, data, mtime_ns):
                self._write(inode, offset, data, mtime_ns)
            case Truncate(inode, size, mtime_ns):
                kept = self._files[inode].data[:size]
                self._files[inode].data = kept + bytes(size - len(kept))
                self._write(inode, size, b"", mtime_ns)
            case Stamp(inode, mtime_ns):
                self._changed[inode] = self._at
                if inode in self._files:
                    self._files[inode].mtimes.append(Mtime(self._at, inode, mtime_ns))
            case Sync(inode):
                self._sync(inode)
            case Mark():
                pass

    def choices(self) -> list[Choice]:
        """What a power cut would decide now."""
        files = [file for inode, file in sorted(self._files.items())]
        contents = [
            Choice(tuple((Content(inode, data),) for data in Data))
            for inode, file in sorted(self._files.items())
            if file.is_dirty
        ]
        if self._model is Model.JOURNAL:
            changes: list[Entry | Mtime] = [*self._pending]
            changes += itertools.chain(*(file.mtimes for file in files))
            return [*([_prefixes(changes)] if changes else []), *contents]
        mtimes = [
            Choice(((), *((mtime,) for mtime in file.mtimes))) for file in files if file.mtimes
        ]
        return [*self._choices_of_names(), *mtimes, *contents]

    def tree(self, changes: Sequence[Change]) -> Tree:
        """What is there when, of all that is pending, these changes survive."""
        folders = {inode: dict(names) for inode, names in self._folders.items()}
        mtimes: dict[int, int] = {}
        contents: dict[int, Data] = {}
        for change in sorted(changes, key=lambda each: getattr(each, "at", 0)):
            match change:
                case Entry(_, _, folder, name, None):
                    folders[folder].pop(name, None)
                case Entry(_, _, folder, name, int(inode)):
                    folders[folder][name] = inode
                case Mtime(_, inode, mtime_ns):
                    mtimes[inode] = mtime_ns
                case Content(inode, data):
                    contents[inode] = data
        found: Tree = {}
        self._walk(TOP, "", folders, mtimes, contents, found)
        return found

    def _name(self, call: Make | Link | Remove | Rename) -> None:
        match call:
            case Make(folder, name, inode, is_folder, mtime_ns, target):
                if is_folder:
                    self._folders[inode] = {}
                else:
                    self._files[inode] = _Inode(mtime_ns=mtime_ns, target=target)
                self._begin_name(folder, name, inode)
            case Link(folder, name, inode):
                self._begin_name(folder, name, inode)
            case Remove(folder, name):
                self._end_name(folder, name)
            case Rename(source, source_name, to, target_name, inode):
                self._begin_name(to, target_name, inode)
                self._end_name(source, source_name)

    def _begin_name(self, folder: int, name: str, inode: int) -> None:
        self._changed[folder] = self._changed[inode] = self._at
        self._names[folder, name] = inode
        self._pending.append(Entry(self._at, inode, folder, name, inode))

    def _end_name(self, folder: int, name: str) -> None:
        inode = self._names.pop((folder, name))
        self._changed[folder] = self._changed[inode] = self._at
        self._pending.append(Entry(self._at, inode, folder, name, None))

    def _write(self, inode: int, offset: int, data: bytes, mtime_ns: int) -> None:
        file = self._files[inode]
        self._changed[inode] = self._at
        file.data.extend(bytes(max(0, offset - len(file.data))))
        file.data[offset : offset + len(data)] = data
        file.is_dirty = True
        file.torn = {}
        file.mtimes.append(Mtime(self._at, inode, mtime_ns))

    def _sync(self, inode: int) -> None:
        if file := self._files.get(inode):
            file.flushed, file.is_dirty, file.torn = bytes(file.data), False, {}
            self._settle(lambda change: isinstance(change, Mtime) and change.inode == inode)
        if self._model is Model.JOURNAL:
            until = self._changed.get(inode, 0)
            self._settle(lambda change: getattr(change, "at", 0) <= until)
        elif inode in self._folders:
            self._sync_folder(inode)

    def _sync_folder(self, folder: int) -> None:
        here = [entry for entry in self._pending if entry.folder == folder]
        if self._model is Model.ATOMIC:
            until = {entry.about: entry.at for entry in here}
            self._settle(
                lambda change: (
                    isinstance(change, Entry) and change.at <= until.get(change.about, -1)
                )
            )
            return
        # The fsync of a rename's source keeps all of it, in HALVES.
        halves = self._model is Model.HALVES
        ended = {entry.at for entry in here if entry.inode is None and halves}
        self._settle(
            lambda change: (
                isinstance(change, Entry) and (change.folder == folder or change.at in ended)
            )
        )

    def _settle(self, is_settled: Callable[[Change], bool]) -> None:
        for file in self._files.values():
            settled = [mtime for mtime in file.mtimes if is_settled(mtime)]
            if settled:
                file.mtime_ns = settled[-1].mtime_ns
                file.mtimes = [mtime for mtime in file.mtimes if not is_settled(mtime)]
        settled_names: dict[tuple[int, str], int] = {}
        for entry in filter(is_settled, self._pending):
            settled_names[entry.folder, entry.name] = entry.at
            if entry.inode is None:
                self._folders[entry.folder].pop(entry.name, None)
            else:
                self._folders[entry.folder][entry.name] = entry.inode
        # An older meaning of a name does not come after a newer one.
        self._pending = [
            entry
            for entry in self._pending
            if entry.at > settled_names.get((entry.folder, entry.name), -1)
        ]

    def _choices_of_names(self) -> Iterator[Choice]:
        if self._model is Model.ATOMIC:
            for about in dict.fromkeys(entry.about for entry in self._pending):
                yield _prefixes([entry for entry in self._pending if entry.about == about])
            return
        for call in _by_call(self._pending):
            # An old name ends where the new one is not only by an fsync of its folder.
            yield Choice(((), call[:1], call) if len(call) == 2 else ((), call))

    def _walk(
        self,
        top: int,
        path: str,
        folders: dict[int, dict[str, int]],
        mtimes: dict[int, int],
        contents: dict[int, Data],
        found: Tree,
    ) -> None:
        for name, inode in folders[top].items():
            below = f"{path}/{name}"
            if inode in folders:
                found[below] = None
                self._walk(inode, below, folders, mtimes, contents, found)
            else:
                file = self._files[inode]
                data = _left(file, contents.get(inode, Data.FLUSHED))
                mtime_ns = mtimes.get(inode, file.mtime_ns)
                found[below] = File(inode, data, mtime_ns, file.target)


def _by_call(changes: Sequence[Entry | Mtime]) -> list[tuple[Change, ...]]:
    ordered = sorted(changes, key=lambda change: change.at)
    return [tuple(each) for _, each in itertools.groupby(ordered, key=lambda change: change.at)]


def _prefixes(changes: Sequence[Entry | Mtime]) -> Choice:
    """The first calls, however many."""
    calls = _by_call(changes)
    return Choice(tuple(tuple(itertools.chain(*calls[:n])) for n in range(len(calls) + 1)))


def _left(file: _Inode, data: Data) -> bytes:
    """The same object each time, so that a large body is hashed once."""
    if not file.is_dirty or data is Data.FLUSHED:
        return file.flushed
    if data not in file.torn:
        size = len(file.data)
        file.torn[data] = {
            Data.ALL: bytes(file.data),
            Data.TORN: bytes(file.data[: (len(file.flushed) + size) // 2]),
            Data.ZEROS: file.flushed[:size] + bytes(max(0, size - len(file.flushed))),
        }[data]
    return file.torn[data]
