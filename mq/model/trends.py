"""Trends: the load of a queue, or of all queues, over an hour, a day and a week. Pure.

`mq/store/FORMAT.md`, "Trends", has the files. The hour has a point a minute. The points of a longer
range each stand for several of the shorter range.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

ALL_QUEUES: Final = ""
"""The name of the sums of all queues; no queue has it."""
SERIES_MAX: Final = 64
"""How many queues have trends of their own, besides the sums."""


class Range(StrEnum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"

    @property
    def step_s(self) -> int:
        """The seconds between two points."""
        return _STEPS[self][0]

    @property
    def points_max(self) -> int:
        return _STEPS[self][1]


_STEPS: Final = {Range.HOUR: (60, 60), Range.DAY: (900, 96), Range.WEEK: (3600, 168)}


class Point(NamedTuple):
    """The load from `at_s` (since the epoch) for the step of its range. `published`, `fetched` and
    `deleted` count within the `seconds` that were measured, 0 for none. The others are the largest
    values that were seen.
    """

    at_s: int
    seconds: float
    published: int
    fetched: int
    deleted: int
    ready: int
    delayed: int
    in_flight: int
    sidelined: int
    oldest_ready_s: float

    def joined(self, later: "Point") -> "Point":
        """The load of both, at this one's time."""
        return Point(
            self.at_s,
            round(self.seconds + later.seconds, 1),
            self.published + later.published,
            self.fetched + later.fetched,
            self.deleted + later.deleted,
            max(self.ready, later.ready),
            max(self.delayed, later.delayed),
            max(self.in_flight, later.in_flight),
            max(self.sidelined, later.sidelined),
            max(self.oldest_ready_s, later.oldest_ready_s),
        )

    @property
    def rate(self) -> float:
        """Operations a second."""
        operations = self.published + self.fetched + self.deleted
        return operations / self.seconds if self.seconds else 0.0


Series = Mapping[str, Sequence[Point]]
"""Points by queue, oldest first."""


@dataclass(frozen=True, slots=True)
class Trends:
    """The contents of a range's file. `taken_ms`: the time of the last sample, 0 without one.
    `queues` were there then, and `uncounted` of them could not be counted. `last`: the sums of all
    queues in that sample.
    """

    taken_ms: int = 0
    queues: int = 0
    uncounted: int = 0
    last: Point | None = None
    series: Series = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """A range as of a time, in seconds since the epoch."""

    range: Range
    now_s: float

    def kept(self, points: Iterable[Point]) -> list[Point]:
        """As many as the range has. Those of the future are from a clock that was wrong; old ones
        stay, since the clock may be wrong now.
        """
        return [each for each in points if each.at_s <= self.now_s][-self.range.points_max :]

    def shown(self, points: Iterable[Point]) -> list[Point]:
        """Those of the range's time."""
        from_s = self.now_s - self.range.step_s * (self.range.points_max + 1)
        return [each for each in self.kept(points) if each.at_s > from_s]

    def joined(
        self, coarse: Iterable[Point], fine: Iterable[Point], whole: bool = False
    ) -> list[Point]:
        """The points of this range, continued with those of shorter steps. `whole`: up to the last
        step that is over.
        """
        step_s = self.range.step_s
        known = self.kept(coarse)
        from_s = known[-1].at_s + step_s if known else 0
        until_s = self.now_s // step_s * step_s if whole else self.now_s + 1
        more = folded((each for each in fine if from_s <= each.at_s < until_s), step_s)
        return self.kept([*known, *more])

    def busiest(self, series: Series, there: Mapping[str, object]) -> dict[str, list[Point]]:
        """The series to keep: the sums, and the queues of `there` with the highest rates, then with
        the most messages. A queue's best point counts, so a queue that becomes busy takes the place
        of one that never was.
        """
        kept = {queue: self.kept(points) for queue, points in series.items() if queue in there}

        def weight(queue: str) -> tuple[float, int, str]:
            points = kept[queue]
            held = max(each.ready + each.sidelined for each in points)
            return -max(each.rate for each in points), -held, queue

        found = sorted((queue for queue in kept if queue and kept[queue]), key=weight)
        sums = self.kept(series.get(ALL_QUEUES, ()))
        return {ALL_QUEUES: sums, **{queue: kept[queue] for queue in found[:SERIES_MAX]}}


def folded(points: Iterable[Point], step_s: int) -> list[Point]:
    """The points of a shorter step as points of this one."""
    found = []
    for begin, group in itertools.groupby(points, lambda each: each.at_s // step_s):
        first, *others = group
        point = first._replace(at_s=begin * step_s)
        for each in others:
            point = point.joined(each)
        found.append(point)
    return found
