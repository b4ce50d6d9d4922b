"""Ledgers of an archive: files of names, one a line, in the order of `format.archive.place_of`.

The first line, of fixed length, has the number of names and the size of the file. A ledger gets its
name once it is on stable media, and never changes.
"""

import contextlib
import heapq
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

from mq.model.errors import ArchiveUnreadable
from mq.model.limits import KIB
from mq.store.core.root import Root
from mq.store.disk.files import Files, is_gone
from mq.store.format.archive import LedgerKind, LedgerName, archive_folder, ledger_path, place_of
from mq.store.format.walk import entries_if_there, named

LEDGER_READ_BYTES: Final = 256 * KIB

_VERSION: Final = 1
_HEAD_BYTES: Final = 128
_LINES: Final = re.compile(rb"(?:[!-~]+\n)*")


@dataclass(frozen=True, slots=True)
class LedgerHead:
    """A ledger's first line: its batches, its number of names, and its size in bytes."""

    first: int
    seq: int
    messages: int
    size: int

    def written(self) -> bytes:
        said = {
            "version": _VERSION,
            "first": self.first,
            "seq": self.seq,
            "messages": self.messages,
            "bytes": self.size,
        }
        return json.dumps(said).encode("ascii").ljust(_HEAD_BYTES - 1) + b"\n"

    @classmethod
    def parse(cls, path: str, line: bytes) -> Self:
        """Parses a first line. Raises ArchiveUnreadable with `path`."""
        try:
            said = json.loads(line.decode("ascii"))
            version = said["version"]
            head = cls(*(said[name] for name in ("first", "seq", "messages", "bytes")))
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveUnreadable(path, f"its first line: {error!r}") from None
        if version != _VERSION or head.written() != line:
            raise ArchiveUnreadable(path, "its first line is not as this mq writes it")
        return head


@dataclass(frozen=True, slots=True)
class NameRange:
    """A range of a ledger's bytes: the names whose lines begin in it. It can be pickled and read by
    any process that has the root at the same path.
    """

    path: str
    offset: int
    size: int

    def names(self, files: Files) -> Iterator[str]:
        """The names in order, in constant memory. Raises FileNotFoundError if the ledger is gone or
        was renamed; OSError.
        """
        descriptor = files.open_read(self.path)
        try:
            yield from _lines(files, descriptor, self.offset, self.offset + self.size)
        finally:
            files.close(descriptor)


@dataclass(frozen=True, slots=True)
class ArchiveBatch:
    """A batch of removed messages: its number, its ledger, its number of messages, and the ledger's
    size in bytes.
    """

    seq: int
    path: str
    messages: int
    size: int

    def ranges(self, count: int) -> list[NameRange]:
        """The ledger as at most `count` ranges of about equal length."""
        size = self.size - _HEAD_BYTES
        each = max(1, -(-size // max(1, count)))
        return [
            NameRange(self.path, _HEAD_BYTES + at, min(each, size - at))
            for at in range(0, size, each)
        ]

    def names(self, files: Files) -> Iterator[str]:
        """All names in order. Raises as a range does."""
        return NameRange(self.path, _HEAD_BYTES, self.size - _HEAD_BYTES).names(files)


class LedgerWriter:
    """Writes a ledger in a `with` block; after an exception it unlinks the file. Raises OSError."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self.messages = 0
        self._files = files
        self._size = _HEAD_BYTES
        with contextlib.suppress(FileNotFoundError):
            files.unlink(path)  # A failed earlier try of this process.
        self.descriptor = files.create(path)
        files.write(self.descriptor, b"\n".rjust(_HEAD_BYTES))

    def append(self, names: Sequence[str]) -> None:
        """Writes names that sort after the earlier ones. Durable on return: no."""
        if names:
            blob = ("\n".join(names) + "\n").encode("ascii")
            self._files.write(self.descriptor, blob)
            self._size += len(blob)
            self.messages += len(names)

    def finish(self, first: int, seq: int) -> LedgerHead:
        """Writes the first line. Durable on return: no; flush `descriptor`."""
        head = LedgerHead(first, seq, self.messages, self._size)
        descriptor = self._files.open_kept(self.path)
        try:
            self._files.write(descriptor, head.written())
        finally:
            self._files.close(descriptor)
        return head

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._files.close(self.descriptor)
        if kind is not None:
            with contextlib.suppress(OSError):
                self._files.unlink(self.path)


class OpenLedger:
    """An open ledger. It stays readable when its name is removed."""

    def __init__(self, root: Root, name: LedgerName) -> None:
        """Raises FileNotFoundError, OSError; ArchiveUnreadable if the ledger is torn or
        another's.
        """
        self.name = name
        self.path = ledger_path(root.layout, name)
        self._files = root.files
        self._descriptor = root.files.open_read(self.path)
        try:
            self.head = self._head()
        except BaseException:
            self.close()
            raise

    def _head(self) -> LedgerHead:
        head = LedgerHead.parse(self.path, self._files.read(self._descriptor, _HEAD_BYTES, 0))
        status = self._files.descriptor_status(self._descriptor)
        if (head.first, head.seq) != (self.name.first, self.name.seq):
            raise ArchiveUnreadable(self.path, "its first line says another batch")
        if status.st_size != head.size:
            raise ArchiveUnreadable(
                self.path, f"it has {status.st_size} bytes, and says {head.size}"
            )
        self.written_ms = status.st_mtime_ns // 1_000_000
        """When it was written: all its messages had been removed by then."""
        return head

    def names(self) -> Iterator[str]:
        """All names in order. Raises ArchiveUnreadable if they are out of order, or more or fewer
        than the first line says: a file system may have lost later lines.
        """
        count, before = 0, ""
        try:
            for name in _lines(self._files, self._descriptor, _HEAD_BYTES, self.head.size):
                place = place_of(name)
                if place <= before or not name.isprintable():
                    raise ArchiveUnreadable(self.path, "its names are in no order")
                count, before = count + 1, place
                yield name
        except UnicodeDecodeError as error:
            raise ArchiveUnreadable(self.path, str(error)) from None
        if count != self.head.messages:
            said = f"it has {count} names, and says {self.head.messages}"
            raise ArchiveUnreadable(self.path, said)

    def block(self, offset: int) -> tuple[list[str], int]:
        """Some names from `offset` on (0, or an offset from an earlier call), and the offset behind
        them; no names at the end. Raises ArchiveUnreadable if a line is not a name below remove/.
        """
        at = max(offset, _HEAD_BYTES)
        data = self._files.read(self._descriptor, LEDGER_READ_BYTES, at)
        end = data.rfind(b"\n") + 1
        lines = data[:end]
        if (data and not lines) or _LINES.fullmatch(lines) is None or b"../" in lines:
            raise ArchiveUnreadable(self.path, f"there are no names from byte {at} on")
        return lines.decode("ascii").splitlines(), at + end

    def close(self) -> None:
        self._files.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ledgers(root: Root) -> list[LedgerName]:
    """The existing ledgers by number; other names are ignored. Raises OSError."""
    entries = entries_if_there(root.files, archive_folder(root.layout))
    found = (name for _, name in named(entries, LedgerName.parse))
    return sorted(found, key=lambda each: (each.seq, each.first))


def stored_ledgers(names: Sequence[LedgerName]) -> list[LedgerName]:
    """The stored ledgers, without those that a merged one contains."""
    stored = [name for name in names if name.kind is LedgerKind.STORED]
    return [name for name in stored if not any(other.covers(name) for other in stored)]


@contextlib.contextmanager
def names_of(
    root: Root, names: Sequence[LedgerName], what_can_be_read: bool = False
) -> Iterator[Iterator[str]]:
    """The names of all these ledgers in order, for the `with` block. Skips a ledger that is gone,
    since its messages are gone too; with `what_can_be_read` also the unreadable rest of one. Raises
    ArchiveUnreadable, OSError.
    """
    with contextlib.ExitStack() as opened:
        streams = []
        for name in names:
            try:
                ledger = opened.enter_context(OpenLedger(root, name))
                streams.append(_readable(ledger) if what_can_be_read else ledger.names())
            except ArchiveUnreadable:
                if not what_can_be_read:
                    raise
            except OSError as error:
                if not is_gone(error):
                    raise
        if len(streams) == 1:
            yield streams[0]
        else:
            yield heapq.merge(*streams, key=place_of)


def _readable(ledger: OpenLedger) -> Iterator[str]:
    """The ledger's names up to the first unreadable line."""
    with contextlib.suppress(ArchiveUnreadable):
        yield from ledger.names()


def _lines(files: Files, descriptor: int, start: int, end: int) -> Iterator[str]:
    """The lines that begin from `start` on and before `end`. `start` is at least the length of the
    first line.
    """
    at, rest = start - 1, b""
    is_first = True
    while at < end or rest:
        data = files.read(descriptor, LEDGER_READ_BYTES, at)
        if not data:
            return
        if is_first:
            begins = data.find(b"\n") + 1
            if not begins or start - 1 + begins >= end:
                return
            data, at, is_first = data[begins:], at + begins, False
        whole = (rest + data).split(b"\n")
        line_at = at - len(rest)
        at += len(data)
        rest = whole.pop()
        if at - len(rest) <= end:
            for line in whole:
                yield line.decode("ascii")
            if at - len(rest) >= end:
                return
            continue
        for line in whole:
            if line_at >= end:
                return
            yield line.decode("ascii")
            line_at += len(line) + 1
