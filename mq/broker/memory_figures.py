"""What is held in memory, in figures."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from mq.broker.shelf import Holder
from mq.model.limits import MEMORY_QUEUES_SHOWN_MAX


@dataclass(frozen=True, slots=True)
class HolderFigures:
    """What one kind of holder has, how much of it in hand; and how many bodies gave way so far."""

    bytes: int
    in_hand_bytes: int
    bodies: int
    evicted: int


@dataclass(frozen=True, slots=True)
class ShelfFigures:
    """What is kept of a queue, and up to where it may be read ahead while it is consumed."""

    name: str
    bytes: int
    ahead_bytes: int
    is_consumed: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """What is held now. Of fetches so many found their body (`hits`) or not (`misses`) so far, and
    so many bodies found no room in hand (`refused`).
    """

    budget_bytes: int
    held_bytes: int
    holders: Mapping[Holder, HolderFigures]
    hits: int
    misses: int
    refused: int
    queues: int
    largest: list[ShelfFigures]


def largest(shelves: Iterable[ShelfFigures]) -> list[ShelfFigures]:
    """The queues of which most is kept, at most MEMORY_QUEUES_SHOWN_MAX."""
    return heapq.nlargest(MEMORY_QUEUES_SHOWN_MAX, shelves, key=attrgetter("bytes"))
