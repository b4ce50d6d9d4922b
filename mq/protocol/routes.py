"""Finds the endpoint and handler of a method and raw path. Pure.

Segments are decoded after the split, so an escaped slash stays in its segment, where the parsers of
names refuse it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Final, Generic, TypeAlias, TypeVar
from urllib.parse import unquote

from mq.model.errors import BadName, BadParameter
from mq.protocol.endpoint import TEXTS, Endpoint
from mq.protocol.endpoints import ENDPOINTS, TABLE

H = TypeVar("H")

_Pick: TypeAlias = Callable[[list[str]], object]
"""Picks the literal segments of a path."""

# Clients repeat their paths: the routes of this many are remembered.
PATHS_KEPT_MAX: Final = 256

OPERATIONS: Final = "-"
"""The first segment of everything that is not a queue."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[H]):
    """An endpoint and its handler; `number`: its place in ENDPOINTS."""

    endpoint: Endpoint
    handler: H
    number: int


@dataclass(frozen=True, slots=True)
class Route(Generic[H]):
    """A path's pattern, and its operations by method."""

    pattern: str
    operations: Mapping[str, Operation[H]]
    segments: tuple[str, ...] = field(init=False)
    places: tuple[tuple[int, str], ...] = field(init=False)
    """The positions and names of the parameters."""

    def __post_init__(self) -> None:
        segments = tuple(self.pattern.removeprefix("/").split("/"))
        object.__setattr__(self, "segments", segments)
        named = enumerate(segments)
        places = tuple((at, each[1:-1]) for at, each in named if each.startswith("{"))
        object.__setattr__(self, "places", places)

    @property
    def allow(self) -> str:
        """The value of an Allow header."""
        return ", ".join(sorted({*self.operations, "OPTIONS"}))


def bound(handlers: Mapping[str, H]) -> list[Route[H]]:
    """The routes of all endpoints, with handlers by name; a HEAD has its GET's. Raises ValueError
    for an endpoint without a handler, and the reverse.
    """
    names = [each.name for each in ENDPOINTS]
    if (declared := {each.removesuffix("_head") for each in names}) != handlers.keys():
        raise ValueError(f"no endpoint, or no handler: {sorted(declared ^ handlers.keys())}")
    return [
        Route(
            path,
            {
                method: Operation(
                    each, handlers[each.name.removesuffix("_head")], names.index(each.name)
                )
                for method, each in methods.items()
            },
        )
        for path, methods in TABLE.items()
    ]


class Routes(Generic[H]):
    """Routes by their number of segments, whether they are a queue's, and which segments are
    literal. Those with the most literal segments are tried first.
    """

    def __init__(self, routes: Iterable[Route[H]]) -> None:
        self._tables: dict[tuple[int, bool], dict[_Pick, dict[object, Route[H]]]] = {}
        pickers: dict[tuple[int, ...], _Pick] = {}
        for route in sorted(routes, key=lambda each: len(each.places)):
            literal = tuple(
                at for at, each in enumerate(route.segments) if not each.startswith("{")
            )
            # A path without literal segments is known by its length alone.
            pick = pickers.setdefault(literal, itemgetter(*literal) if literal else len)
            kind = (len(route.segments), route.segments[0] == OPERATIONS)
            table = self._tables.setdefault(kind, {})
            table.setdefault(pick, {})[pick([*route.segments])] = route
        self.find = lru_cache(PATHS_KEPT_MAX)(self._find)
        """The path's route and decoded parameters; None: there is none. Raises BadName or
        BadParameter for a segment that is not percent-encoded UTF-8.
        """

    def _find(self, raw_path: str) -> tuple[Route[H], Mapping[str, str]] | None:
        segments = raw_path.removeprefix("/").split("/")
        kind = (len(segments), segments[0] == OPERATIONS)
        for pick, routes in self._tables.get(kind, {}).items():
            if (route := routes.get(pick(segments))) is None:
                continue
            values: dict[str, str] = {}
            for at, name in route.places:
                found = segments[at]
                if not found or (found == OPERATIONS and name not in TEXTS):
                    break
                values[name] = _decode(found, name) if "%" in found else found
            else:
                return route, values
        return None


def _decode(segment: str, what: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        # A key, or a tag, is a query parameter too, and is reported in the same way.
        kind = BadParameter if what in TEXTS else BadName
        raise kind(what, "percent-encoded UTF-8") from None
