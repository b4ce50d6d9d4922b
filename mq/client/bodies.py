"""Bodies that a caller publishes: bytes, text, a file, or pieces from an iterable."""

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator
from typing import BinaryIO, Final, Protocol, TypeAlias, cast, runtime_checkable

from mq.model.limits import KIB

# A body goes to a connection in pieces of this size; each piece that is taken is a sign of life.
PIECE_BYTES: Final = 256 * KIB


@runtime_checkable
class Readable(Protocol):
    """A file that is open for reading bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes; none at the end."""


Body: TypeAlias = bytes | bytearray | memoryview | str | BinaryIO
"""A message's body, as a program gives it."""
GivenBody: TypeAlias = Body | AsyncIterable[bytes]
"""A body for a client of an event loop: also an async iterable."""


class StreamedBody:
    """A body that is sent piece by piece."""

    __slots__ = ("_file", "_pieces", "_start", "_was_begun", "size")

    def __init__(self, given: BinaryIO | AsyncIterable[bytes]) -> None:
        self._file: BinaryIO | None = None
        self._pieces: AsyncIterable[bytes] | None = None
        self._start: int | None = None
        self._was_begun = False
        self.size: int | None = None
        """Its size in bytes; None if unknown."""
        if isinstance(given, AsyncIterable):
            self._pieces = given
            return
        self._file = given
        if given.seekable():
            self._start = given.tell()
            self.size = given.seek(0, os.SEEK_END) - self._start
            given.seek(self._start)

    @property
    def can_begin(self) -> bool:
        """Whether it can be sent from its beginning: once, or again after rewinding a file."""
        return not self._was_begun or self._start is not None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body from its beginning. A file is read in threads, since reading may block."""
        again, self._was_begun = self._was_begun, True
        if self._pieces is not None:
            async for piece in self._pieces:
                yield piece
            return
        file = cast(BinaryIO, self._file)
        if again and self._start is not None:
            await asyncio.to_thread(file.seek, self._start)
        # No read at the end of a size that is known: mq may have answered meanwhile, and the
        # connection of a request that still sends is closed.
        read = 0
        while self.size is None or read < self.size:
            if not (piece := await asyncio.to_thread(file.read, PIECE_BYTES)):
                return
            read += len(piece)
            yield piece


def body_of(given: GivenBody) -> bytes | StreamedBody:
    """A body as a request has it. Raises TypeError for another type."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    if isinstance(given, AsyncIterable | Readable):
        return StreamedBody(given)
    raise TypeError(
        f"a body is bytes, text, a file open for reading bytes, or an async iterable, not "
        f"{type(given).__name__}; pass other values as json="
    )
