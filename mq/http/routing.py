"""From a method and a raw path to a handler: pure, and a table.

Segments are decoded one by one and after the split, so an escaped slash stays in its segment,
where the names' parsers refuse it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import unquote

from aiohttp import web

from mq.errors import BadName, BadParameter
from mq.http.answers import Answer
from mq.http.query import Header, Parameter
from mq.http.service import Service

Handler: TypeAlias = Callable[
    [Service, web.BaseRequest, Mapping[str, str]], Awaitable[Answer | web.StreamResponse]
]

OPERATIONS: Final = "-"
"""The first segment of everything that is not a queue."""
_KEY: Final = "{key}"
"""A segment that may be any text."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a method does at a path: its handler, the query parameters that it has (any other is
    refused), and the request's headers that it looks at.
    """

    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[Header, ...] = ()
    names: frozenset[str] = field(init=False)
    """The query parameters' names."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(each.name for each in self.parameters))


@dataclass(frozen=True, slots=True)
class Route:
    """A path's pattern, `{name}` standing for a segment, and its operations by method."""

    pattern: str
    operations: Mapping[str, Operation]
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.pattern.strip("/").split("/")))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the segments that are parameters."""
        return tuple(each[1:-1] for each in self.segments if each.startswith("{"))

    @property
    def allow(self) -> str:
        """The value of an Allow header."""
        return ", ".join(sorted({*self.operations, "OPTIONS"}))


class Routes:
    """The routes, by how many segments they have; literal segments are tried first."""

    def __init__(self, routes: list[Route]) -> None:
        self._by_length: dict[int, list[Route]] = {}
        for route in sorted(routes, key=lambda each: each.pattern.count("{")):
            self._by_length.setdefault(len(route.segments), []).append(route)

    def find(self, raw_path: str) -> tuple[Route, dict[str, str]] | None:
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
