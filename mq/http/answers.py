"""Answers: whole, streamed and pending ones, and errors as answers and in the log."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from mq import __version__
from mq.access.errors import Forbidden, Unauthenticated
from mq.model.errors import MqError, Unavailable
from mq.model.log import logger
from mq.protocol.problems import (
    INTERNAL,
    MEDIA_TYPE,
    Problem,
    facts_of,
    problem_for,
    problem_headers,
    problem_members,
)
from mq.store.core.presence import Presence

SERVER: Final = f"mq/{__version__}"

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}
_LINE: Final = "%s: %s\r\n".__mod__
# Statuses without a body.
_WITHOUT_LENGTH: Final = {101, 204, 304}

_NO_FACTS: Final[Mapping[str, object]] = {}

_log = logger("mq.http")

_LOGGED: Final = (Unavailable, Unauthenticated, Forbidden)


class Answer(NamedTuple):
    """An answer whose body is held; `closes`: the connection ends with it. `reservation` counts its
    body in memory until it is sent.
    """

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    closes: bool = False
    reservation: object | None = None

    def encoded(self) -> bytes:
        """The bytes of an answer to a malformed request: the connection ends."""
        return head_of(self.status, self.headers, len(self.body), closes=True) + self.body


class Source(Protocol):
    """A body that is sent while it is read. `close` is called once, however sending ends."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The bytes. Raises Unavailable when they cannot be read."""

    async def close(self) -> None:
        """Releases the source's resources."""


class Streamed(NamedTuple):
    """An answer with a streamed body of `size` bytes; None: not known."""

    status: int
    headers: Mapping[str, str]
    source: Source
    size: int | None


class Pending(NamedTuple):
    """An answer that `answer` makes of the future's result. If the client goes first, `abandon` is
    called and the future is not cancelled.
    """

    future: "asyncio.Future[Any]"
    answer: Callable[[Any], Answer | Streamed]
    abandon: Callable[[], None] | None = None


Result: TypeAlias = Answer | Streamed | Pending | Coroutine[Any, Any, Any] | None
"""What a handler returns. A coroutine runs in a task and returns another Result; None: the
connection was a WebSocket and has ended.
"""


def head_of(
    status: int,
    headers: Mapping[str, str],
    size: int | None,
    is_http_1_1: bool = True,
    closes: bool = False,
) -> bytes:
    """An answer's status line and headers; `size` is the body's, None if it is not known. `closes`:
    the connection ends with the answer.
    """
    head = _STATUS_LINES[status] + "".join(map(_LINE, headers.items())) + _origin()
    if size is None:
        if is_http_1_1:
            head += "Transfer-Encoding: chunked\r\n"
    elif status not in _WITHOUT_LENGTH and "Content-Length" not in headers:
        head += f"Content-Length: {size}\r\n"
    if not is_http_1_1:
        head = head.replace("HTTP/1.1", "HTTP/1.0", 1)
        if not closes:
            head += "Connection: keep-alive\r\n"
    elif closes:
        head += "Connection: close\r\n"
    return (head + "\r\n").encode()


_dated: tuple[int, str] = (-1, "")


def _origin() -> str:
    """The headers Server and Date, formatted once a second."""
    global _dated  # noqa: PLW0603
    now_s = int(asyncio.get_running_loop().time())
    if now_s != _dated[0]:
        _dated = now_s, f"Server: {SERVER}\r\nDate: {formatdate(usegmt=True)}\r\n"
    return _dated[1]


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


def problem_answer(problem: Problem, facts: Mapping[str, object] = _NO_FACTS) -> Answer:
    """The answer that is a problem, with these facts."""
    content, headers = problem_members(problem, facts), problem_headers(problem, facts)
    return json_answer(content, problem.status, headers, MEDIA_TYPE, problem.closes)


def error_answer(error: MqError) -> Answer:
    """The answer to an error. Only the fields of its class reach a client: in the problem's detail,
    its headers, and as members for programs.
    """
    return problem_answer(problem_for(error), facts_of(error))


class ErrorResponses:
    """Answers errors. Logs the cause of each 503, 401 and 403."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence

    def answer(self, error: BaseException, method: str, path: str) -> Answer:
        """The answer to a request that ended with the error."""
        error = self._presence.explained(error)
        if isinstance(error, MqError):
            if isinstance(error, _LOGGED):
                _log_refusal(error, method, path)
            return error_answer(error)
        fields = {"method": method, "path": path}
        _log.error("a request failed", exc_info=error, extra={"fields": fields})
        return problem_answer(INTERNAL)

    def item(self, error: BaseException, method: str, path: str) -> dict[str, object]:
        """The problem of one item of an answer: like `answer`, as members."""
        error = self._presence.explained(error)
        if not isinstance(error, MqError):
            self.answer(error, method, path)
            return problem_members(INTERNAL, {})
        if isinstance(error, _LOGGED):
            _log_refusal(error, method, path)
        return problem_members(problem_for(error), facts_of(error))


def _log_refusal(error: MqError, method: str, path: str) -> None:
    said = "unavailable" if isinstance(error, Unavailable) else "refused"
    slug = problem_for(error).slug
    fields = {"problem": slug, "method": method, "path": path, "error": str(error)}
    _log.warning(said, extra={"fields": fields})
