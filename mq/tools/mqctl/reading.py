"""Reading what may never come: stdin, a pipe, a terminal. A thread reads, and the event loop goes
on hearing signals; a read that nothing comes of is left behind.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import IO, Final, Protocol

from mq.model.limits import KIB
from mq.tools.mqctl.lines import Lines

PIECE_BYTES: Final = 256 * KIB
_PIECES_HELD_MAX: Final = 4


class Source(Protocol):
    """What bytes are read from."""

    def read(self) -> bytes:
        """What there is, at least one byte; none at the end. Blocks. Raises OSError."""


class Descriptor:
    """An open file, read past any buffer: what is there comes at once."""

    def __init__(self, file: "IO[bytes]") -> None:
        self._file = file

    def read(self) -> bytes:
        """See Source."""
        return os.read(self._file.fileno(), PIECE_BYTES)


class Pieces:
    """`async for piece in Pieces(source)`: at most some are read that nobody has taken."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._room = threading.Semaphore(_PIECES_HELD_MAX)
        self._queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        # Nothing can be done about a read that blocks: it ends with the process.
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
                # The loop has ended, and nobody wants it any more.
                return
            if not piece or isinstance(piece, OSError):
                return

    async def next(self) -> bytes:
        """The next piece; none at the end. Raises OSError."""
        return self._taken(await self._queue.get())

    def is_waiting(self) -> bool:
        """Whether nothing is there at this moment."""
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
    """Lines that are not blank, as text: as many as are there, at most so many. Raises LineTooLong
    and OSError behind what came before.
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
