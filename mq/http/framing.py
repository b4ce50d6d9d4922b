"""Where requests, chunks and frames begin and end in what a client sends, before aiohttp parses it.

What servers may read differently is refused here, whichever of aiohttp's parsers runs. What is
handed on is one request at a time, whole heads alone, and a bounded number of chunks or frames a
turn. Pure, but for the clock that is given.
"""

import re
from collections.abc import Callable
from typing import Final

from mq.http.consume.wire import CloseCode
from mq.model.limits import (
    CHUNK_LINE_BYTES_MAX,
    FRAMED_PER_TURN_MAX,
    HEAD_BYTES_MAX,
    TRAILER_BYTES_MAX,
)
from mq.protocol.consume.limits import CONTROL_FRAMES_MAX, CONTROL_FRAMES_PER_S

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_TARGET: Final = rb"[\x21-\x7e\x80-\xff]"
_REQUEST_LINE: Final = re.compile(
    rb"(" + _TOKEN + rb"{1,32}) " + _TARGET + rb"+ HTTP/1\.([01])\r\n"
)
_LINE_BEGUN: Final = re.compile(
    _TOKEN + rb"{0,32}(?: (?:" + _TARGET + rb"*(?: H?T?T?P?/?1?\.?[01]?\r?)?)?)?"
)
_EMPTY_LINES: Final = re.compile(rb"(?:\r\n)+")
_CHUNK_BEGIN: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\r\n\0]*)?\r\n")
_FIELD: Final = re.compile(_TOKEN + rb"+:[^\r\n\0]*\r\n")
_CRLF: Final = b"\r\n"
# The part of a request's line that says whether it is one.
_BEGUN_BYTES: Final = 64
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length:"
_CODING: Final = b"\r\ntransfer-encoding:"
_LENGTH_DIGITS_MAX: Final = 18
_CONTROL: Final = 0x08
_FIN: Final = 0x80
_MASKED: Final = 0x80
_SHORT: Final = 0x7F
_HEAD_BYTES_MIN: Final = 2
_MASK_BYTES: Final = 4
# What the length of a payload takes beyond the first two bytes.
_LENGTH_BYTES: Final = {126: 2, 127: 8}


class Malformed(Exception):
    """What came is no request that all servers read alike."""


class HeadTooLong(Exception):
    """A head of more than HEAD_BYTES_MAX."""


class BodyBroken(Exception):
    """A body whose chunks are none."""


class FramesRefused(Exception):
    """Frames that end a WebSocket."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


# What the next byte is of.
_HEAD: Final = 0
_BODY: Final = 1
_CHUNK_LINE: Final = 2
_CHUNK: Final = 3
_CHUNK_END: Final = 4
_TRAILER: Final = 5
_FRAMES: Final = 6


class Framing:
    """What one client has sent and nothing has parsed yet."""

    __slots__ = (
        "_at",
        "_control",
        "_control_s",
        "_data",
        "_left",
        "_now_s",
        "_trailer",
        "is_tired",
    )

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._at = _HEAD
        self._data = b""
        self._left = 0
        self._trailer = 0
        self._control = 0.0
        self._control_s = 0.0
        self.is_tired = False
        """Whether more could be taken at once, and is left for another turn."""

    @property
    def size(self) -> int:
        """How many bytes wait here."""
        return len(self._data)

    @property
    def is_at_head(self) -> bool:
        """Whether what comes next is a request's head."""
        return self._at == _HEAD

    @property
    def has_begun_head(self) -> bool:
        """Whether there is some of a head. Empty lines are none."""
        return self._at == _HEAD and bool(self._data.strip(_CRLF))

    def add(self, data: bytes) -> None:
        """This came."""
        self._data = self._data + data if self._data else data

    def drop(self) -> None:
        """Forgets what waits."""
        self._data, self.is_tired = b"", False

    def begin_frames(self) -> None:
        """From here on a WebSocket's frames come."""
        self._at = _FRAMES
        self._control, self._control_s = 0.0, self._now_s()

    def take(self) -> bytes:
        """What may be parsed now, empty where more has to come: a head, with what there is of its
        body, or more of a body or of frames. Raises Malformed, HeadTooLong, BodyBroken,
        FramesRefused, each once what is sound before it was taken.
        """
        self.is_tired, end = False, 0
        if self._at == _HEAD and not (end := self._head()):
            return b""
        if self._at == _BODY:
            end = self._skip(end)
            if not self._left:
                self._at = _HEAD
        elif self._at == _FRAMES:
            end = self._frames()
        elif self._at != _HEAD:
            end = self._chunks(end)
        taken = self._data
        if end == len(taken):
            self._data = b""
        else:
            taken, self._data = taken[:end], taken[end:]
        return taken

    def _skip(self, at: int) -> int:
        """Passes over what there is of `_left` bytes."""
        size = min(self._left, len(self._data) - at)
        self._left -= size
        return at + size

    # Heads

    def _head(self) -> int:
        """Where a whole head ends, 0 where none does yet. What else is wrong with it, aiohttp says:
        it ends the connection then.
        """
        if self._data.startswith(_CRLF) and (empty := _EMPTY_LINES.match(self._data)):
            self._data = self._data[empty.end() :]
        data = self._data
        end = data.find(_HEAD_END) + len(_HEAD_END)
        if end < len(_HEAD_END):
            self._check_begun()
            return 0
        if end > HEAD_BYTES_MAX:
            raise HeadTooLong
        line = _REQUEST_LINE.match(data)
        if line is None or line[1] == b"CONNECT":
            raise Malformed
        head = data[:end].lower()
        if _CODING in head:
            if line[2] != b"1" or _LENGTH in head or _value(head, _CODING) != b"chunked":
                raise Malformed
            self._at, self._trailer = _CHUNK_LINE, 0
        elif _LENGTH in head:
            length = _value(head, _LENGTH)
            if not length.isdigit() or len(length) > _LENGTH_DIGITS_MAX:
                raise Malformed
            self._left = int(length)
            if self._left:
                self._at = _BODY
        return end

    def _check_begun(self) -> None:
        """Of a head that is not whole yet, refuses what no end makes good."""
        data = self._data
        if len(data) > HEAD_BYTES_MAX:
            raise HeadTooLong
        ends = data.count(_CRLF)
        if data.count(b"\n") != ends or data.removesuffix(b"\r").count(b"\r") != ends:
            raise Malformed
        if data == b"\r":
            return  # Of an empty line.
        line, ending, _ = data[:_BEGUN_BYTES].partition(_CRLF)
        found = _REQUEST_LINE.fullmatch(line + ending) if ending else _LINE_BEGUN.fullmatch(line)
        if found is None:
            raise Malformed

    # Chunks

    def _chunks(self, begin: int) -> int:
        at = begin
        for _ in range(FRAMED_PER_TURN_MAX):
            try:
                end = self._chunk_part(at)
            except BodyBroken as error:
                return self._before(at, error)
            if end == at or self._at == _HEAD:
                return end
            at = end
        self.is_tired = at < len(self._data)
        return at

    def _chunk_part(self, at: int) -> int:
        """Where the next line or piece of a chunked body ends; `at`: it has not come."""
        data = self._data
        if self._at == _CHUNK_LINE:
            return self._chunk_line(at)
        if self._at == _CHUNK:
            end = self._skip(at)
            if not self._left:
                self._at = _CHUNK_END
            return end
        if self._at == _CHUNK_END:
            ending = data[at : at + len(_CRLF)]
            if not _CRLF.startswith(ending):
                raise BodyBroken
            if ending != _CRLF:
                return at
            self._at = _CHUNK_LINE
            return at + len(_CRLF)
        return self._trailer_line(at)

    def _chunk_line(self, at: int) -> int:
        data = self._data
        end = self._line_end(at, CHUNK_LINE_BYTES_MAX)
        if end == at:
            return at
        line = _CHUNK_BEGIN.fullmatch(data, at, end)
        if line is None:
            raise BodyBroken
        self._left = int(line[1], 16)
        after = end + self._left + len(_CRLF)
        if self._left and data[after - len(_CRLF) : after] == _CRLF:
            self._left = 0
            return after  # Mostly it is here as a whole.
        self._at = _CHUNK if self._left else _TRAILER
        return end

    def _trailer_line(self, at: int) -> int:
        data = self._data
        end = self._line_end(at, TRAILER_BYTES_MAX - self._trailer)
        if data[at:end] == _CRLF:
            self._at = _HEAD
        elif end > at and _FIELD.fullmatch(data, at, end) is None:
            raise BodyBroken
        self._trailer += end - at
        return end

    def _line_end(self, at: int, bytes_max: int) -> int:
        """Where the line ends that begins at `at`; `at`: that has not come."""
        end = self._data.find(b"\n", at, at + bytes_max) + 1
        if not end and len(self._data) - at >= bytes_max:
            raise BodyBroken
        return end or at

    def _before(self, at: int, error: Exception) -> int:
        """What is sound goes before the error is raised."""
        if not at:
            raise error
        self.is_tired = True
        return at

    # Frames

    def _frames(self) -> int:
        data, at = self._data, 0
        for _ in range(FRAMED_PER_TURN_MAX):
            at = self._skip(at)
            if self._left or len(data) - at < _HEAD_BYTES_MIN:
                return at
            first, second = data[at], data[at + 1]
            more = _LENGTH_BYTES.get(second & _SHORT, 0)
            begin = at + _HEAD_BYTES_MIN
            end = begin + more + _MASK_BYTES
            try:
                if not second & _MASKED:
                    raise FramesRefused(CloseCode.PROTOCOL, "a client masks its frames")
                if len(data) < end:
                    return at
                if first & _CONTROL or not (second & _SHORT or first & _FIN):
                    self._count_control()
            except FramesRefused as error:
                return self._before(at, error)
            said = data[begin : begin + more]
            self._left = int.from_bytes(said, "big") if more else second & _SHORT
            at = end
        self.is_tired = at < len(data)
        return at

    def _count_control(self) -> None:
        """Refuses what says nothing and comes too often."""
        now_s = self._now_s()
        faded = (now_s - self._control_s) * CONTROL_FRAMES_PER_S
        self._control, self._control_s = max(0.0, self._control - faded) + 1, now_s
        if self._control > CONTROL_FRAMES_MAX:
            raise FramesRefused(CloseCode.POLICY, "too many control frames")


def _value(head: bytes, name: bytes) -> bytes:
    begin = head.index(name) + len(name)
    return head[begin : head.index(_CRLF, begin)].strip(b" \t")
