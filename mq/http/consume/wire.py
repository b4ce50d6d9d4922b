"""A server's WebSocket frames as bytes (RFC 6455, section 5.2), unmasked, uncompressed. Pure."""

import struct
from enum import IntEnum
from typing import Final

from mq.protocol.consume.limits import CLOSE_REASON_BYTES_MAX

_FIN: Final = 0x80
# Beyond these the payload's length takes two more bytes, and eight.
_SHORT_MAX: Final = 125
_MEDIUM_MAX: Final = 0xFFFF
_MEDIUM: Final = 126
_LONG: Final = 127


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    """Why the server ends a connection (RFC 6455, section 7.4.1)."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL = 1002
    UNSUPPORTED = 1003
    NO_DATA = 1007
    POLICY = 1008
    TOO_LARGE = 1009
    FAILED = 1011


def head(opcode: Opcode, size: int, is_last: bool = True) -> bytes:
    """What stands before a payload of so many bytes."""
    first = opcode | (_FIN if is_last else 0)
    if size <= _SHORT_MAX:
        return struct.pack("!BB", first, size)
    if size <= _MEDIUM_MAX:
        return struct.pack("!BBH", first, _MEDIUM, size)
    return struct.pack("!BBQ", first, _LONG, size)


def frame(opcode: Opcode, payload: bytes, is_last: bool = True) -> bytes:
    """One frame."""
    return head(opcode, len(payload), is_last) + payload


def close_frame(code: CloseCode, reason: str = "") -> bytes:
    """The last frame of a side."""
    text = reason.encode("ascii")[:CLOSE_REASON_BYTES_MAX]
    return frame(Opcode.CLOSE, struct.pack("!H", code) + text)
