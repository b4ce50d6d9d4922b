"""A request as the fake reads it, and its answer. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final, Protocol, TypeAlias

from mq import __version__
from mq.client.transport import Answer, Pairs
from mq.model.errors import BodyTooLarge, MqError
from mq.model.limits import JSON_BYTES_MAX
from mq.protocol.bodies import check_json
from mq.protocol.problems import (
    INTERNAL,
    MEDIA_TYPE,
    Problem,
    facts_of,
    problem_for,
    problem_headers,
    problem_members,
)

JSON: Final = "application/json"
NO_STORE: Final = {"Cache-Control": "no-store"}
_BODILESS: Final = (204, 304)
_HEAD: Final = "HEAD"


class Values:
    """A query's parameters, or a request's headers, by name; those of headers in any case."""

    def __init__(self, pairs: Iterable[tuple[str, str]], *, is_folded: bool = False) -> None:
        self._pairs = tuple(pairs)
        self._is_folded = is_folded

    def getall(self, key: str, default: list[str]) -> list[str]:
        """All values of a name, in their order."""
        wanted = self._folded(key)
        found = [value for name, value in self._pairs if self._folded(name) == wanted]
        return found or default

    def items(self) -> Pairs:
        """All of them, in their order."""
        return self._pairs

    def names(self) -> list[str]:
        """The name of each, in their order."""
        return [name for name, _ in self._pairs]

    def _folded(self, name: str) -> str:
        return name.lower() if self._is_folded else name


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. `path` is percent-encoded."""

    method: str
    path: str
    query: Values
    headers: Values
    body: bytes = b""

    @property
    def content_type(self) -> str:
        """The media type of its body, without parameters; "" where none is said."""
        said = next(iter(self.headers.getall("Content-Type", [])), "")
        return said.partition(";")[0].strip().lower()

    def json_text(self) -> bytes:
        """Its body, which is said to be JSON. Raises MediaTypeUnknown, BodyTooLarge."""
        check_json(self.content_type)
        return self.body_of(JSON_BYTES_MAX)

    def body_of(self, bytes_max: int) -> bytes:
        """Its body. Raises BodyTooLarge."""
        if len(self.body) > bytes_max:
            raise BodyTooLarge(bytes_max)
        return self.body


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, before what every answer has."""

    status: int
    headers: Mapping[str, str] | Pairs = ()
    body: bytes = b""

    def answer(self, asked: Asked, now_ms: int) -> Answer:
        """As a transport gives it: the answer to a HEAD says of its body how long it is."""
        said = self.headers if isinstance(self.headers, tuple) else tuple(self.headers.items())
        more = [("Server", f"mq/{__version__}"), ("Date", formatdate(now_ms / 1000, usegmt=True))]
        has_length = any(name.lower() == "content-length" for name, _ in said)
        if self.status not in _BODILESS and not has_length:
            more.append(("Content-Length", str(len(self.body))))
        body = b"" if asked.method == _HEAD else self.body
        return Answer(self.status, (*said, *more), body)


class Waits(Protocol):
    """A request that is answered later: a long poll."""

    @property
    def wait_s(self) -> float:
        """How long it waits at most."""

    @property
    def end_ms(self) -> int:
        """Until when, by the fake's clock."""

    def reply(self, is_late: bool) -> Reply | None:
        """Its answer, once there is one; `is_late`: it has waited long enough."""

    def leave(self) -> None:
        """Whoever asked is gone."""


Outcome: TypeAlias = Reply | Waits


def json_reply(
    content: Mapping[str, object],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    media_type: str = JSON,
) -> Reply:
    """One line of JSON."""
    body = json.dumps(content).encode() + b"\n"
    return Reply(status, {**(headers or {}), "Content-Type": media_type}, body)


def problem_reply(
    problem: Problem, headers: Mapping[str, str] | None = None, error: MqError | None = None
) -> Reply:
    """A problem as an answer."""
    content = problem_members(problem, {} if error is None else facts_of(error))
    said = {**(headers or {}), **problem_headers(problem, error)}
    return json_reply(content, problem.status, said, MEDIA_TYPE)


def error_reply(error: Exception) -> Reply:
    """The answer to an error."""
    if isinstance(error, MqError):
        return problem_reply(problem_for(error), error=error)
    return problem_reply(INTERNAL)


def problem_item(error: Exception) -> dict[str, object]:
    """The problem of one item of an answer."""
    if isinstance(error, MqError):
        return problem_members(problem_for(error), facts_of(error))
    return problem_members(INTERNAL, {})
