"""What a history's tables are to say, by loops over all messages. Times are milliseconds since the
epoch, of files' and lines' own clocks.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mq.spark.jobs.history_cells import Steps

FETCHES = ("fetched", "leased")


@dataclass(frozen=True)
class Told:
    """A line of a history."""

    at: int
    event: str
    receives: int | None = None


@dataclass
class Message:
    """A message, and what each source has of it. `state`: where its inode is: ready, delayed,
    leased, sidelined, removed, or "" where there is none; `size` is None where only lines know it.
    """

    queue: str
    id: str
    priority: int
    published_ms: int
    size: int | None = None
    state: str = ""
    inode_removed_ms: int | None = None
    aside_ms: int | None = None
    receives: int | None = None
    archived_ms: int | None = None
    archived_receives: int | None = None
    lines: list[Told] = field(default_factory=list)

    def last(self, event: str) -> int | None:
        return max((told.at for told in self.lines if told.event == event), default=None)


@dataclass(frozen=True)
class Life:
    """What is so, of all that."""

    priority: int
    published: int
    fetched: int | None
    removed: int | None
    gone: int | None
    state: str
    size: int | None
    receives: int | None


def life_of(message: Message, now_ms: int) -> Life:
    published = min(message.published_ms, now_ms)

    def ordered(ms: int | None) -> int | None:
        return None if ms is None else min(max(ms, published), now_ms)

    state = "removed" if message.archived_ms is not None else message.state
    if message.archived_ms is not None:
        removed = message.archived_ms
    elif message.state:
        removed = message.inode_removed_ms
    else:
        removed = message.last("removed")
    sidelined, shovelled = message.last("sidelined"), message.last("shovelled")
    if state == "sidelined":
        gone = sidelined if sidelined is not None else message.aside_ms
    elif state in ("ready", "delayed", "leased"):
        gone = None
    elif removed is None:
        gone = max(told.at for told in message.lines)
    else:
        is_aside = sidelined is not None and (shovelled is None or shovelled < sidelined)
        gone = min(removed, sidelined) if is_aside and sidelined is not None else removed
    firsts = [told.at for told in message.lines if told.event in FETCHES and told.receives == 1]
    received = [message.receives, message.archived_receives]
    received += [told.receives for told in message.lines]
    return Life(
        message.priority,
        published,
        ordered(min(firsts, default=None)),
        ordered(removed),
        ordered(gone),
        state if state not in ("", "removed") else "",
        message.size,
        max((each for each in received if each is not None), default=None),
    )


@dataclass
class Model:
    """The tables of one queue. `removals_ms`, `lines_ms`: since when it is known what was removed,
    and of which time lines tell; `drops`: steps in which lines were lost.
    """

    queue: str
    messages: list[Message]
    steps: Steps
    now_ms: int
    removals_ms: int | None
    lines_ms: tuple[int, int] | None
    drops: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.lives = [life_of(message, self.now_ms) for message in self.messages]

    def is_told(self, step: int) -> bool:
        if self.lines_ms is None or step in self.drops:
            return False
        first, last = self.lines_ms
        return self.steps.end(step) > first and self.steps.start(step) <= last

    def is_kept(self, step: int) -> bool:
        return self.removals_ms is not None and self.steps.end(step) > self.removals_ms

    def priorities(self) -> list[int | None]:
        return [None, *sorted({life.priority for life in self.lives})]

    def of(self, priority: int | None) -> list[Life]:
        return [life for life in self.lives if priority in (None, life.priority)]

    def rates(self) -> Iterable[tuple[Any, ...]]:
        each = [
            (message.priority, told) for message in self.messages for told in set(message.lines)
        ]
        for priority in self.priorities():
            lives = self.of(priority)
            lines = [told for own, told in each if priority in (None, own)]
            for step in range(self.steps.count):
                came = [life for life in lives if step_of(self.steps, life.published) == step]
                went = [life for life in lives if self._is_in(life.removed, step)]
                here = [told for told in lines if step_of(self.steps, told.at) == step]
                is_counted = self.is_kept(step) or self.is_told(step)
                sizes = [life.size for life in came]
                told_of = self.is_told(step)
                yield (
                    self.queue,
                    priority,
                    self.steps.start(step),
                    self.steps.step_s,
                    len(came) if is_counted else None,
                    _total(sizes) if is_counted else None,
                    sum(told.event in FETCHES for told in here) if told_of else None,
                    sum(told.event == "redelivered" and bool(told.receives) for told in here)
                    if told_of
                    else None,
                    len(went) if is_counted else None,
                    sum(told.event == "sidelined" for told in here) if told_of else None,
                )

    def backlog(self) -> Iterable[tuple[Any, ...]]:
        for priority in self.priorities():
            for step in range(self.steps.count):
                end = self.steps.end(step)
                waiting = [
                    life
                    for life in self.of(priority)
                    if life.published < end and (life.gone is None or life.gone >= end)
                ]
                goes_on = self.lines_ms is not None and self.lines_ms[1] >= self.now_ms
                if not (
                    end > self.now_ms or self.is_kept(step) or (goes_on and self.is_told(step))
                ):
                    yield (self.queue, priority, end, None, None, None)
                    continue
                oldest = min((life.published for life in waiting), default=None)
                yield (
                    self.queue,
                    priority,
                    end,
                    len(waiting),
                    _total([life.size for life in waiting]),
                    None if oldest is None else (end - oldest) / 1000,
                )

    def receives(self) -> Iterable[tuple[Any, ...]]:
        for priority in self.priorities():
            over = [life for life in self.of(priority) if self._is_within(life.removed)]
            counted = Counter(life.receives for life in over if life.receives is not None)
            for receives, messages in sorted(counted.items()):
                yield (self.queue, priority, receives, messages)

    def sizes(self) -> Iterable[tuple[Any, ...]]:
        for priority in self.priorities():
            lives = [life for life in self.of(priority) if self._is_within(life.published)]
            sizes = [life.size for life in lives if life.size is not None]
            powers = Counter(-1 if size == 0 else int(math.log2(size)) for size in sizes)
            for power, messages in sorted(powers.items()):
                least, most = (0, 1) if power < 0 else (2**power, 2 ** (power + 1))
                bytes_ = sum(size for size in sizes if least <= size < most)
                yield (self.queue, priority, least, most, messages, bytes_)

    def latencies(self) -> "dict[tuple[int | None, str, int | None], list[int]]":
        """The latencies themselves, sorted, by priority, what, and start."""
        found: dict[tuple[int | None, str, int | None], list[int]] = {}
        for priority in self.priorities():
            for life in self.of(priority):
                for what, ended in (
                    ("publish-to-first-fetch", life.fetched),
                    ("publish-to-removal", life.removed),
                ):
                    if ended is None or not self._is_within(ended):
                        continue
                    for start in (None, self.steps.start(step_of(self.steps, ended))):
                        found.setdefault((priority, what, start), []).append(ended - life.published)
        return {key: sorted(latencies) for key, latencies in found.items()}

    def _is_in(self, ms: int | None, step: int) -> bool:
        return ms is not None and step_of(self.steps, ms) == step

    def _is_within(self, ms: int | None) -> bool:
        return ms is not None and 0 <= step_of(self.steps, ms) < self.steps.count


def step_of(steps: Steps, ms: int) -> int:
    """Which step a time is of: -1 before them all, `count` behind them all."""
    if ms < steps.start_ms:
        return -1
    if ms >= steps.until_ms:
        return steps.count
    return (ms - steps.start_ms) // steps.step_ms


def _total(sizes: Iterable[int | None]) -> int | None:
    found = list(sizes)
    known = [size for size in found if size is not None]
    return sum(known) if len(known) == len(found) else None
