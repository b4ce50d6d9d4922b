"""A stream of bytes parted into lines, each bounded. Pure; acts on nothing."""

from typing import Final

LINE_FEED: Final = b"\n"
CARRIAGE_RETURN: Final = b"\r"


class LineTooLong(Exception):
    """A line has more bytes than one may have; the message gives its number, from 1."""

    def __init__(self, number: int, bytes_max: int) -> None:
        super().__init__(f"line {number} has more than {bytes_max} bytes")


class Lines:
    """Takes pieces, gives whole lines. What it holds is at most one line and one piece.

    A line ends with a line feed, and is without it and without one carriage return before it. One
    that is empty then is none, but counts.
    """

    __slots__ = ("_bytes_max", "_held", "_number")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._number = 0

    @property
    def number(self) -> int:
        """How many lines were whole so far, empty ones too."""
        return self._number

    @property
    def held_bytes(self) -> int:
        """Of the line that has not ended."""
        return len(self._held)

    def take(self, piece: bytes) -> tuple[list[tuple[int, bytes]], LineTooLong | None]:
        """The lines that end in this piece, each with its number; and that one of them, or the one
        that is held, is too long: those before it are given all the same, and nothing comes after.
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
        """The last line, where the stream ends without a line feed."""
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
