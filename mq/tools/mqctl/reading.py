"""Reads stdin, pipes and terminals, and splits them into lines. A thread reads, so that the event
loop still handles signals while a read blocks.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import IO, Final, Protocol

from mq.model.limits import KIB

LINE_FEED: Final = b"\n"
CARRIAGE_RETURN: Final = b"\r"
PIECE_BYTES: Final = 256 * KIB
_PIECES_HELD_MAX: Final = 4


class LineTooLong(Exception):
    """A line is too long. The message gives its number, from 1."""

    def __init__(self, number: int, bytes_max: int) -> None:
        super().__init__(f"line {number} has more than {bytes_max} bytes")


class Lines:
    """Splits pieces into lines; holds at most one line and one piece.

    A line ends with a line feed; a carriage return before it is removed. Empty lines are skipped,
    but counted.
    """

    __slots__ = ("_bytes_max", "_held", "_number")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._number = 0

    @property
    def number(self) -> int:
        """The number of complete lines so far, empty ones too."""
        return self._number

    @property
    def held_bytes(self) -> int:
        """The bytes of the incomplete line."""
        return len(self._held)

    def take(self, piece: bytes) -> tuple[list[tuple[int, bytes]], LineTooLong | None]:
        """The lines that end in this piece, each with its number; and an error if a line is too
        long, after which nothing may follow.
        """
        *ended, rest = piece.split(LINE_FEED)
        found: list[tuple[int, bytes]] = []
        for part in ended:
            if (error := self._grow(part)) is not None:
                return found, error
            self._number += 1
            if line := self._whole():
                found.append((self._number, line))
        return found, self._grow(rest)

    def end(self) -> list[tuple[int, bytes]]:
        """The last line, if the stream ends without a line feed."""
        if not self._held:
            return []
        self._number += 1
        line = self._whole()
        return [(self._number, line)] if line else []

    def _grow(self, part: bytes) -> LineTooLong | None:
        if len(self._held) + len(part) > self._bytes_max:
            return LineTooLong(self._number + 1, self._bytes_max)
        self._held += part
        return None

    def _whole(self) -> bytes:
        line = bytes(self._held).removesuffix(CARRIAGE_RETURN)
        self._held.clear()
        return line


class Source(Protocol):
    def read(self) -> bytes:
        """Available bytes, at least one; empty at the end. Blocks. Raises OSError."""


class Descriptor:
    """An open file, read without a buffer."""

    def __init__(self, file: "IO[bytes]") -> None:
        self._file = file

    def read(self) -> bytes:
        return os.read(self._file.fileno(), PIECE_BYTES)


class Pieces:
    """`async for piece in Pieces(source)`: reads a few pieces ahead."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._room = threading.Semaphore(_PIECES_HELD_MAX)
        self._queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        # A read that blocks cannot be cancelled: the thread ends with the process.
        threading.Thread(target=self._read, name="mqctl-reading", daemon=True).start()

    def _read(self) -> None:
        while True:
            self._room.acquire()
            try:
                piece: bytes | OSError = self._source.read()
            except OSError as error:
                piece = error
            try:
                self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)
            except RuntimeError:
                # The event loop has ended.
                return
            if not piece or isinstance(piece, OSError):
                return

    async def next(self) -> bytes:
        """The next piece; empty at the end. Raises OSError."""
        return self._taken(await self._queue.get())

    def is_waiting(self) -> bool:
        """Whether no piece is available now."""
        return self._queue.empty()

    def _taken(self, piece: bytes | OSError) -> bytes:
        self._room.release()
        if isinstance(piece, OSError):
            raise piece
        return piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.next():
            yield piece


async def batches(source: Source, line_bytes_max: int, count_max: int) -> AsyncIterator[list[str]]:
    """Non-blank lines as text, all that have arrived but at most `count_max` at a time. Raises
    LineTooLong, OSError after the lines before the error.
    """
    lines, pieces, is_last = Lines(line_bytes_max), Pieces(source), False
    batch: list[str] = []
    failed: Exception | None = None
    while not is_last and failed is None:
        found: list[tuple[int, bytes]] = []
        try:
            piece = await pieces.next()
            is_last = not piece
            found, failed = lines.take(piece) if piece else (lines.end(), None)
        except OSError as error:
            failed = error
        for _, line in found:
            batch += [text] if (text := line.decode("utf-8", "replace").strip()) else []
            if len(batch) == count_max:
                yield batch
                batch = []
        if batch and (is_last or failed is not None or pieces.is_waiting()):
            yield batch
            batch = []
    if failed is not None:
        raise failed
