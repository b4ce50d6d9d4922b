"""Every path, its methods, and what a request may be told there: pure, and a table.

Whoever answers requests gives each of them a handler, and finds it by a method and a raw path.
Segments are decoded one by one and after the split, so an escaped slash stays in its segment,
where the names' parsers refuse it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from urllib.parse import unquote

from mq import __version__
from mq.access.callers import Right
from mq.access.rules import Needed, Needs
from mq.model.errors import BadName, BadParameter
from mq.protocol import (
    envelopes,
    fetching,
    lines,
    members,
    peeking,
    queues,
    ranges,
    schedules,
    shovels,
    sidelines,
)
from mq.protocol.etags import IF_MATCH, IF_NONE_MATCH
from mq.protocol.query import Header, Parameter

H = TypeVar("H")

OPERATIONS: Final = "-"
"""The first segment of everything that is not a queue."""
_KEY: Final = "{key}"
"""A segment that may be any text."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a request may be told: the query parameters that it has (any other is refused), and the
    headers that it looks at; and the right that it needs, to its path's queue, or where there is
    none to the daemon: admin, unless it says less.
    """

    parameters: tuple[Parameter, ...] = ()
    headers: tuple[Header, ...] = ()
    right: Needed = Right.ADMIN


_OPEN: Final = Told(right=Needs.NOTHING)
_KNOWN: Final = Told(right=Needs.CALLER)
_ANY: Final = Told(right=Needs.ANY)
_PUBLISHES: Final = Told(right=Right.PUBLISH)
_CONSUMES: Final = Told(right=Right.CONSUME)
_ADMINISTERS: Final = Told(right=Right.ADMIN)
_PUBLISH: Final = Told(
    (
        envelopes.DELAY,
        envelopes.AT,
        envelopes.PRIORITY,
        envelopes.KEY,
        envelopes.VISIBILITY,
        lines.SPLIT,
    ),
    (envelopes.IDEMPOTENCY,),
    Right.PUBLISH,
)
_FETCH: Final = Told(
    (fetching.WAIT, fetching.VISIBILITY, fetching.COUNT, fetching.SELECT),
    (fetching.PREFER,),
    Right.CONSUME,
)
_RANGED: Final = Told(headers=(ranges.RANGE, ranges.IF_RANGE), right=Right.CONSUME)
_MATCHED: Final = Told(headers=(IF_MATCH,), right=Right.CONSUME)
_LISTED: Final = Told((queues.AFTER, queues.COUNT), right=Needs.CALLER)
_MEMBERS: Final = Told((members.QUEUE,))
# What it shows it asks for by itself, as whoever looks at it may.
_PAGE: Final = Told(headers=(IF_NONE_MATCH,), right=Needs.NOTHING)

ABOUT: Final = {
    "name": "mq",
    "version": __version__,
    "page": "/-/",
    "openapi": "/-/openapi.json",
    "livez": "/-/livez",
    "readyz": "/-/readyz",
}
"""The answer of `/`."""
TABLE: Final[Mapping[str, Mapping[str, Told]]] = {
    "/{queue}": {
        "PUT": Told((queues.DIGITS, queues.SHARDS)),
        "GET": _ANY,
        "HEAD": _ANY,
        "DELETE": _ADMINISTERS,
    },
    "/{queue}/messages": {"POST": _PUBLISH, "GET": _FETCH, "DELETE": _ADMINISTERS},
    "/{queue}/acks": {"POST": _CONSUMES},
    "/{queue}/messages/{id}": {
        "GET": _RANGED,
        "HEAD": _CONSUMES,
        "PATCH": _MATCHED,
        "DELETE": _MATCHED,
    },
    # Who may delete a message may put it aside.
    "/{queue}/messages/{id}/sideline": {
        "POST": Told((sidelines.REASON,), (IF_MATCH,), Right.CONSUME)
    },
    "/{queue}/messages/{id}/history": {"GET": _CONSUMES, "HEAD": _CONSUMES},
    "/{queue}/peek": {
        "GET": Told((peeking.STATE, peeking.COUNT, peeking.AFTER), right=Right.CONSUME)
    },
    "/{queue}/keys/{key}": {"GET": _RANGED, "HEAD": _CONSUMES, "DELETE": _MATCHED},
    # The description has them too.
    "/{queue}/settings": {
        "GET": _ANY,
        "HEAD": _ANY,
        "PATCH": Told(headers=(IF_MATCH,), right=Right.ADMIN),
    },
    # A schedule is a publisher's: it stands for publishes to come.
    "/{queue}/schedules/{schedule}": {
        "PUT": Told(schedules.PUT_PARAMETERS, right=Right.PUBLISH),
        "GET": _PUBLISHES,
        "HEAD": _PUBLISHES,
        "DELETE": _PUBLISHES,
    },
    "/{queue}/schedules": {"GET": _PUBLISHES},
    "/{queue}/shovel": {
        "POST": Told(shovels.PARAMETERS),
        "GET": _ADMINISTERS,
        "HEAD": _ADMINISTERS,
        "DELETE": _ADMINISTERS,
    },
    # Each command is looked at by itself.
    "/-/consume": {"GET": _KNOWN},
    "/": {"GET": _OPEN, "HEAD": _OPEN},
    "/-/livez": {"GET": _OPEN, "HEAD": _OPEN},
    "/-/readyz": {"GET": _OPEN, "HEAD": _OPEN},
    "/-/memory": {"GET": _ADMINISTERS, "HEAD": _ADMINISTERS},
    # It names queues: for whoever has some right to all of them.
    "/-/metrics": {"GET": _ANY, "HEAD": _ANY},
    # Everybody sees those to which they have some right.
    "/-/queues": {"GET": _LISTED, "HEAD": _LISTED},
    "/-/members": {"GET": _MEMBERS, "HEAD": _MEMBERS},
    "/-/refresh": {"POST": _ADMINISTERS},
    "/-/openapi.json": {"GET": _OPEN, "HEAD": _OPEN},
    "/-/": {"GET": _PAGE, "HEAD": _PAGE},
    "/-/page/{asset}": {"GET": _PAGE, "HEAD": _PAGE},
}
"""By a path's pattern, `{name}` standing for a segment, and a method."""

_READING: Final = {"GET", "HEAD"}
_CHANGED_BY_READING: Final = {"/{queue}/messages"}
"""Where a GET is no reading: who fetches has what is fetched."""


def changes(method: str, pattern: str) -> bool:
    """Whether a request changes anything: what no page of another origin may have a browser do."""
    return method not in _READING or pattern in _CHANGED_BY_READING


@dataclass(frozen=True, slots=True)
class Operation(Generic[H]):
    """What a method does at a path: its handler, what it may be told, and the right it needs."""

    handler: H
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[Header, ...] = ()
    right: Needed = Right.ADMIN
    names: frozenset[str] = field(init=False)
    """The query parameters' names."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(each.name for each in self.parameters))


@dataclass(frozen=True, slots=True)
class Route(Generic[H]):
    """A path's pattern, and its operations by method."""

    pattern: str
    operations: Mapping[str, Operation[H]]
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.pattern.removeprefix("/").split("/")))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the segments that are parameters."""
        return tuple(each[1:-1] for each in self.segments if each.startswith("{"))

    @property
    def allow(self) -> str:
        """The value of an Allow header."""
        return ", ".join(sorted({*self.operations, "OPTIONS"}))


def routes_of(handlers: Mapping[str, Mapping[str, H]]) -> list[Route[H]]:
    """The routes of the table with these handlers, by pattern and method; each has one."""
    if {pattern: set(methods) for pattern, methods in handlers.items()} != {
        pattern: set(methods) for pattern, methods in TABLE.items()
    }:
        raise ValueError("a request has no handler, or a handler no request")
    return [
        Route(
            pattern,
            {
                method: Operation(
                    handlers[pattern][method], told.parameters, told.headers, told.right
                )
                for method, told in methods.items()
            },
        )
        for pattern, methods in TABLE.items()
    ]


class Routes(Generic[H]):
    """The routes, by how many segments they have; literal segments are tried first."""

    def __init__(self, routes: Iterable[Route[H]]) -> None:
        self._by_length: dict[int, list[Route[H]]] = {}
        for route in sorted(routes, key=lambda each: each.pattern.count("{")):
            self._by_length.setdefault(len(route.segments), []).append(route)

    def find(self, raw_path: str) -> tuple[Route[H], dict[str, str]] | None:
        """The path's route and what stands for its parameters, decoded; None: no such path.

        Raises BadName, or BadParameter, for a segment that is no percent-encoded UTF-8.
        """
        segments = raw_path.removeprefix("/").split("/")
        for route in self._by_length.get(len(segments), ()):
            if (values := _match(route.segments, segments)) is not None:
                return route, values
        return None


def _match(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for expected, found in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            if not found or (found == OPERATIONS and expected != _KEY):
                return None
            values[expected[1:-1]] = _decode(found, expected[1:-1])
        elif expected != found:
            return None
    return values


def _decode(segment: str, what: str) -> str:
    if "%" not in segment:
        return segment
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        # A key may be a parameter too: what is wrong with one is said in one way.
        kind = BadParameter if what == _KEY[1:-1] else BadName
        raise kind(what, "UTF-8, percent-encoded") from None
