"""aiohttp's parser: which one runs, what goes the direct way from it, and why it gives up."""

from collections.abc import Callable
from typing import Any, Final

from aiohttp import StreamReader
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage

from mq.model.limits import FIELD_BYTES_MAX

PARSER: Final = "C" if HttpRequestParser.__module__ == "aiohttp._http_parser" else "Python"
"""Which of aiohttp's parsers runs: that in Python is slower."""


def has_too_large_headers(error: BaseException | None) -> bool:
    """Whether the parser gave up for a header that is too long, or for their number."""
    if isinstance(error, LineTooLong):
        return FIELD_BYTES_MAX in error.args
    return isinstance(error, BadHttpMessage) and error.message.startswith("Too many headers")


class Sieve:
    """aiohttp's parser, from which plain requests go the direct way as they come."""

    def __init__(self, parser: Any, begin: Callable[[RawRequestMessage, StreamReader], bool]):
        self._parser = parser
        self._begin = begin

    def feed_data(self, data: bytes) -> Any:
        """What aiohttp is left with: messages, whether the last upgrades, and its tail."""
        found = self._parser.feed_data(data)
        messages, upgraded, tail = found
        if len(messages) != 1 or upgraded or not self._begin(*messages[0]):
            return found
        self._parser.message_consumed()
        return (), False, tail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)
