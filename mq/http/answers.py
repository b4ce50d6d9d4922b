"""Whole answers: status, headers and body, as aiohttp's response or as the bytes themselves.

Both ways of answering (`app` and `connection`) send the same bytes for the same answer.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time

from mq import __version__

SERVER: Final = f"mq/{__version__}"

HAND: Final = web.ResponseKey("hand", object)
"""Under this name a response has what counts what it holds."""

_SERVER_LINE: Final = f"Server: {SERVER}\r\n"
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose body is held; `closes`: the connection ends with it. `hand` counts what it
    holds of a message, until it is sent.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    closes: bool = False
    hand: object | None = None

    def response(self) -> web.Response:
        """For aiohttp to send."""
        response = web.Response(status=self.status, headers=self.headers, body=self.body or None)
        response.headers["Server"] = SERVER
        if self.hand is not None:
            response[HAND] = self.hand
        if self.closes:
            response.force_close()
        return response

    def encoded(self) -> bytes:
        """The bytes for the socket, head and body, as aiohttp would send them."""
        return self.encoded_head() + self.body

    def encoded_head(self) -> bytes:
        """Those before the body: a large one is not to be held twice."""
        head = _STATUS_LINES[self.status]
        for name, value in self.headers.items():
            head += f"{name}: {value}\r\n"
        head += _SERVER_LINE
        if self.status != HTTPStatus.NO_CONTENT:
            head += f"Content-Length: {len(self.body)}\r\n"
        ending = "\r\nConnection: close\r\n\r\n" if self.closes else "\r\n\r\n"
        head += f"Date: {rfc822_formatted_time()}{ending}"
        return head.encode()


def json_answer(
    content: Mapping[str, object],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    media_type: str = "application/json",
    closes: bool = False,
) -> Answer:
    """One line of JSON, for people and programs."""
    body = json.dumps(content).encode() + b"\n"
    return Answer(status, {**(headers or {}), "Content-Type": media_type}, body, closes)
