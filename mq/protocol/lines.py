"""A body of lines, each a message: pure."""

import re
from collections.abc import Iterator
from typing import Final

from mq.protocol.query import Choice

# A line is what stands between two line feeds, and is empty where that is one carriage return.
# That is told by the pattern, so that a body of nothing but empty lines costs no turn a line.
_LINE: Final = re.compile(rb"[^\r\n][^\n]*|\r[^\n]+")
_RETURN: Final = b"\r"

SPLIT: Final = Choice("split", ("lines",), "Each line of the body is one message.")


def lines_of(body: bytes | bytearray) -> Iterator[bytes]:
    """The lines of a body, without the line feed, or the carriage return and line feed, at their
    ends; empty ones are left out, and a line feed at the end begins no line.
    """
    for match in _LINE.finditer(body):
        yield match.group().removesuffix(_RETURN)
