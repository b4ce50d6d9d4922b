"""Parses a terminal's input into keys. Pure."""

from typing import Final

# A key's escape sequence has this length at most.
SEQUENCE_BYTES_MAX: Final = 16

UP: Final = "up"
DOWN: Final = "down"
LEFT: Final = "left"
RIGHT: Final = "right"
PAGE_UP: Final = "page up"
PAGE_DOWN: Final = "page down"
HOME: Final = "home"
END: Final = "end"
ENTER: Final = "enter"
ESCAPE: Final = "escape"
BACKSPACE: Final = "backspace"

_SEQUENCES: Final = {
    b"[A": UP, b"OA": UP,
    b"[B": DOWN, b"OB": DOWN,
    b"[C": RIGHT, b"OC": RIGHT,
    b"[D": LEFT, b"OD": LEFT,
    b"[5~": PAGE_UP,
    b"[6~": PAGE_DOWN,
    b"[H": HOME, b"OH": HOME, b"[1~": HOME,
    b"[F": END, b"OF": END, b"[4~": END,
}  # fmt: skip
_CONTROLS: Final = {0x0A: ENTER, 0x0D: ENTER, 0x08: BACKSPACE, 0x7F: BACKSPACE}
_ESCAPE: Final = 0x1B
_FINAL_FIRST, _FINAL_LAST = 0x40, 0x7E


class Keys:
    """Parses input. A key is one of the names above, or a printable character.

    A sequence may arrive in parts. `flush`, after a pause, decides that a lone Esc is the Esc key.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_within(self) -> bool:
        """Whether a sequence or a character is incomplete."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        self._rest += data
        found = []
        while self._rest:
            taken, key = _next(self._rest)
            if not taken:
                break
            self._rest = self._rest[taken:]
            if key is not None:
                found.append(key)
        return found

    def flush(self) -> list[str]:
        """The input has paused: an incomplete sequence is an Esc."""
        rest, self._rest = self._rest, b""
        return [ESCAPE] if rest[:1] == bytes([_ESCAPE]) else []


def _next(data: bytes) -> tuple[int, str | None]:
    """The length of the first key, 0 if incomplete; and the key, None if unknown."""
    first = data[0]
    if first == _ESCAPE:
        return _sequence(data)
    if first in _CONTROLS:
        return 1, _CONTROLS[first]
    if first < 0x20:
        return 1, None
    if first < 0x80:
        return 1, chr(first)
    return _character(data)


def _sequence(data: bytes) -> tuple[int, str | None]:
    if len(data) == 1:
        return 0, None
    if data[1] not in b"[O":
        # Esc, then another key.
        return 1, ESCAPE
    for end in range(2, min(len(data), SEQUENCE_BYTES_MAX)):
        if _FINAL_FIRST <= data[end] <= _FINAL_LAST:
            return end + 1, _SEQUENCES.get(data[1 : end + 1])
    return (len(data), None) if len(data) >= SEQUENCE_BYTES_MAX else (0, None)


def _character(data: bytes) -> tuple[int, str | None]:
    """A UTF-8 character of several bytes."""
    first = data[0]
    size = 2 if first >> 5 == 0b110 else 3 if first >> 4 == 0b1110 else 4
    if first >> 6 == 0b10 or first >> 3 == 0b11111:
        return 1, None
    if len(data) < size:
        return 0, None
    try:
        text = data[:size].decode()
    except UnicodeDecodeError:
        return 1, None
    return size, text if text.isprintable() else None
