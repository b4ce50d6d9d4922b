"""What is said of an operation beyond its parameters: its answers, its body, what it may raise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import MqError
from mq.protocol.query import Schema
from mq.protocol.rows import MEDIA_TYPE as ROWS

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
ANY: Final = "*/*"


@dataclass(frozen=True, slots=True)
class Content:
    """A body of one media type: the schema of the whole, or the name of that of each of its lines,
    and an example.
    """

    schema: Schema | None = None
    each_line: str = ""
    example: object = None


@dataclass(frozen=True, slots=True)
class Success:
    """An answer that is no problem. `gives` has, by a path's parameter, the runtime expression for
    its value in a next request.
    """

    status: int
    says: str
    content: Mapping[str, Content] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    gives: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Described:
    """An operation: its name, what it does in a line, in more lines, its answers, the errors of its
    own that it may end with, and the body that it takes.
    """

    name: str
    says: str
    successes: tuple[Success, ...]
    raises: tuple[type[MqError], ...] = ()
    body: Mapping[str, Content] = field(default_factory=dict)
    body_is_required: bool = True
    more: str = ""
    is_stored: bool = True
    """Whether it asks the storage for anything, and so may end with what that says."""
    frames: Mapping[str, Schema] = field(default_factory=dict)
    """Of a WebSocket: what the text frames of each side are."""


def json_of(schema: Schema) -> dict[str, Content]:
    """A body of JSON."""
    return {JSON: Content(schema)}


def rows_of(name: str) -> dict[str, Content]:
    """A body of lines of JSON."""
    return {ROWS: Content({"type": "string"}, each_line=name)}


MESSAGE_HEADERS: Final = (
    "X-Message-Id",
    "X-Message-Receives",
    "X-Message-Published",
    "X-Message-Due",
    "X-Message-Sidelined",
    "ETag",
    "Cache-Control",
    "Content-Security-Policy",
    "Cross-Origin-Resource-Policy",
    "X-Content-Type-Options",
)
"""Those of an answer that is a message."""
