"""The declaration of an endpoint, and what follows from it. Pure.

`mq.protocol.endpoints` declares each once. Routes, rights, metrics, traces, `/-/openapi.json` and
the tables of HTTP.md are made from that.
"""

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from mq.access.callers import Needed, Needs, Right
from mq.access.errors import Forbidden, Unauthenticated
from mq.model.errors import (
    BadBody,
    BadName,
    BadParameter,
    BadPrecondition,
    BodyTooLarge,
    BodyTooSlow,
    BodyUnreadable,
    ExpectationUnknown,
    ForeignOrigin,
    HeadersTooLarge,
    HeadTooSlow,
    MediaTypeUnknown,
    MqError,
    NoDescriptors,
    NoInodes,
    NoMemory,
    NoSpace,
    QuotaExceeded,
    RangeUnsatisfiable,
    ReadOnly,
    RootAway,
    StorageFailed,
    TooManyConnections,
    Unavailable,
    UnknownParameter,
)
from mq.protocol.conditions import IF_MATCH, IF_RANGE, RANGE
from mq.protocol.envelopes import IDEMPOTENCY
from mq.protocol.problems import BAD_REQUEST, INTERNAL, PATH_UNKNOWN, Problem
from mq.protocol.query import Header, Parameter, Schema, reference
from mq.protocol.rows import MEDIA_TYPE as ROWS

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
ANY: Final = "*/*"
TEXTS: Final = ("key", "tag")
"""The path parameters that may be any text, like the query parameters of these names."""

STORAGE: Final = (
    Unavailable, NoSpace, NoInodes, QuotaExceeded, NoDescriptors, ReadOnly, RootAway,
    StorageFailed,
)  # fmt: skip
"""The errors of requests that use the storage."""
_ALWAYS: Final = (UnknownParameter, HeadersTooLarge, HeadTooSlow, NoMemory, TooManyConnections)
_WITH_BODY: Final = (BodyTooLarge, BodyTooSlow, BodyUnreadable, ExpectationUnknown)
_READING: Final = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Content:
    """A body of one media type: the schema of the whole, or the schema's name of each line, and an
    example.
    """

    schema: Schema | None = None
    each_line: str = ""
    example: object = None


def json_of(name: str) -> dict[str, Content]:
    """A JSON body, by the name of its schema."""
    return {JSON: Content(reference(name))}


def rows_of(name: str) -> dict[str, Content]:
    """A body of JSON lines, by the name of each line's schema."""
    return {ROWS: Content({"type": "string"}, each_line=name)}


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer. `gives` has OpenAPI's runtime expressions for path parameters of next
    requests.
    """

    status: int
    says: str
    content: Mapping[str, Content] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    gives: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method at a path. Other query parameters than its own are refused."""

    name: str
    request: str
    """`GET /{queue}`, where `{name}` is a segment; `GET HEAD /{queue}` has a HEAD too."""
    says: str
    """What it does, in one line."""
    _: KW_ONLY
    more: str = ""
    right: Needed = Right.ADMIN
    """A right to the path's queue, or without one to the daemon."""
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[Header, ...] = ()
    body: Mapping[str, Content] = field(default_factory=dict)
    body_is_required: bool = True
    answers: tuple[Answer, ...] = ()
    problems: tuple[type[MqError], ...] = ()
    """Its own errors; the common ones follow from the rest."""
    items: Mapping[str, tuple[type[MqError], ...]] = field(default_factory=dict)
    """The errors of items of an answer, by the name of their schema."""
    frames: Mapping[str, str] = field(default_factory=dict)
    """A WebSocket's schemas of text frames, by side."""
    is_stored: bool = True
    """Whether it uses the storage."""
    changes: bool = False
    """Whether it changes anything, which a page of another origin may not; true of all but GET and
    HEAD.
    """
    messaging: tuple[str, str] | None = None
    """Its operation's name and type in OpenTelemetry's conventions for messaging systems."""
    is_traced: bool = True
    method: str = field(init=False)
    path: str = field(init=False)
    names: frozenset[str] = field(init=False)
    """The names of the query parameters."""

    def __post_init__(self) -> None:
        words = self.request.split()
        object.__setattr__(self, "method", words[0])
        object.__setattr__(self, "path", words[-1])
        object.__setattr__(self, "names", frozenset(each.name for each in self.parameters))
        object.__setattr__(self, "changes", self.changes or self.method not in _READING)

    @property
    def in_path(self) -> tuple[str, ...]:
        """The names of the path's parameters."""
        return tuple(each[1:-1] for each in self.path.split("/") if each.startswith("{"))

    def each(self) -> Iterator["Endpoint"]:
        """The endpoint, and its HEAD if it has one, without bodies and ranges."""
        yield self
        if self.request.split()[1] == "HEAD":
            yield self._head()

    def _head(self) -> "Endpoint":
        return replace(
            self,
            request=f"HEAD {self.path}",
            name=f"{self.name}_head",
            says=f"The head of: {self.says}",
            headers=tuple(each for each in self.headers if each not in (RANGE, IF_RANGE)),
            answers=tuple(replace(each, content={}) for each in self.answers if each.status != 206),
            problems=tuple(each for each in self.problems if each is not RangeUnsatisfiable),
        )

    def malformed(self) -> Iterator[str]:
        """The parameters that a BadParameter may name."""
        yield from self.names
        yield from (each for each in TEXTS if each in self.in_path)
        if IDEMPOTENCY in self.headers:
            yield IDEMPOTENCY.name.lower()
        if ANY in self.body:
            yield "headers"

    def errors(self) -> Iterator[type[MqError]]:
        yield from self.common_errors()
        yield from self.own_errors()

    def common_errors(self) -> Iterator[type[MqError]]:
        """The errors that do not depend on what it does."""
        if self.right is not Needs.NOTHING:
            yield Unauthenticated
        if self.right not in (Needs.NOTHING, Needs.CALLER):
            yield Forbidden
        if self.changes:
            yield ForeignOrigin
        yield from _ALWAYS
        if self.is_stored:
            yield from STORAGE

    def own_errors(self) -> Iterator[type[MqError]]:
        yield BadParameter
        if self.in_path:
            yield BadName
        if IF_MATCH in self.headers:
            yield BadPrecondition
        if self.body:
            yield from _WITH_BODY
            if ANY not in self.body:
                yield from (BadBody, MediaTypeUnknown)
        yield from self.problems

    def other_problems(self) -> Iterator[Problem]:
        """The problems that are no handler's errors."""
        yield from (BAD_REQUEST, INTERNAL)
        if self.in_path:
            yield PATH_UNKNOWN
