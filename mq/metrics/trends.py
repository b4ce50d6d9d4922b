"""Records the load of all queues over time, a sample a minute, and reads it.

One process of a root records, the holder of a turn. Its files are hints: a power cut may leave a
torn one, which begins anew. PROTOCOL.md, "record trends", has the steps.
"""

import contextlib
import threading
from collections.abc import Iterable, Mapping
from typing import Final

from mq.metrics.survey import Row, Survey
from mq.model.limits import TURN_SILENT_S
from mq.model.log import logger
from mq.model.names import QueueName
from mq.model.totals import Total
from mq.model.trends import ALL_QUEUES, Point, Range, Trends, Window
from mq.store.core.root import Root, sweep_unfinished
from mq.store.core.turns import Turn, take
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_hint
from mq.store.format.trends import (
    TRENDS_BYTES_MAX,
    new_trends_file,
    parse_trends,
    print_trends,
    trends_file,
    trends_turn,
)

TRENDS_SHARE: Final = 0.02
"""The share of its time in which a process records."""
COUNTING_S: Final = 0.02
"""How long a step counts queues, in seconds."""
_KEPT_EVERY_S: Final = TURN_SILENT_S / 2
_COUNTED: Final = (Total.PUBLISHED, Total.FETCHED, Total.DELETED)
_LEVELS: Final = ("ready", "delayed", "in_flight", "sidelined")
_LONGER: Final = (Range.DAY, Range.WEEK)
_NEW: Final = (0, 0, 0)
"""The totals of a queue that was not there before."""

_log = logger("mq.trends")


class Recorder:
    """Takes the samples of one root, unless another process does. Blocking, thread-safe."""

    def __init__(self, root: Root, survey: Survey) -> None:
        """`survey`: of all queues, a row each, COUNTING_S at a time."""
        self._root = root
        self._survey = survey
        self._lock = threading.Lock()
        self._turn: Turn | None = None
        self._is_ended = False
        self._is_failing = False
        self._due_ms = 0
        """When the next sample begins."""
        self._names: list[QueueName] = []
        self._left: list[QueueName] | None = None
        """The queues that this sample has not counted yet; None between samples."""
        self._before: tuple[float, Mapping[str, tuple[int, ...]]] | None = None
        """When totals were last read (steady), and the totals; () if they could not be read."""
        self._folded: dict[Range, int] = {}
        """The step of a range at its last write."""

    def step(self) -> float:
        """Does a part of a sample. Returns the pause before the next call, in seconds. Does not
        raise storage errors. Durable on return: no.
        """
        clock = self._root.clock
        with self._lock:
            if self._is_ended:
                return _KEPT_EVERY_S
            began_s = clock.steady_s()
            try:
                pause_s = self._step()
                self._is_failing = False
            except OSError as error:
                if not self._is_failing:
                    fields = {"error": repr(error)}
                    _log.warning("cannot record trends", extra={"fields": fields})
                self._is_failing = True
                self._drop()
                pause_s = Range.HOUR.step_s
            took_s = clock.steady_s() - began_s
            return max(pause_s, took_s * (1 / TRENDS_SHARE - 1))

    def end(self) -> None:
        """Ends the turn, for another process."""
        with self._lock:
            self._is_ended = True
            self._drop()

    def _step(self) -> float:
        if self._turn is not None and not self._turn.keep():
            self._drop()
        if self._turn is None and not self._take():
            return Range.HOUR.step_s
        now_ms = self._root.now_ms()
        if self._left is None:
            step_ms = Range.HOUR.step_s * 1000
            # A longer wait means that the clock was set back.
            if 0 < (wait_ms := self._due_ms - now_ms) <= step_ms:
                return min(wait_ms / 1000, _KEPT_EVERY_S)
            self._due_ms = (now_ms // step_ms + 1) * step_ms
            self._left = self._names = self._survey.begin()
        self._left = self._survey.count(self._left)
        if self._left:
            return 0.0
        self._left = None
        # The sample is of the minute before the one in which it began.
        self._write(self._due_ms // 1000 - 2 * Range.HOUR.step_s)
        return 0.0

    def _take(self) -> bool:
        files, folder = self._root.files, self._root.layout.trends
        with contextlib.suppress(FileExistsError):
            files.mkdir(folder)
        self._turn = take(self._root, trends_turn(self._root.layout))
        if self._turn is None:
            return False
        sweep_unfinished(self._root, folder, kept_s=None)
        self._due_ms = 0
        return True

    def _drop(self) -> None:
        turn, self._turn = self._turn, None
        self._left, self._before = None, None
        self._folded.clear()
        if turn is not None:
            turn.end()

    def _write(self, at_s: int) -> None:
        surveyed = self._survey.surveyed(self._names)
        points = self._points(at_s, surveyed.rows)
        sums = points[ALL_QUEUES]
        now_ms = self._root.now_ms()
        window = Window(Range.HOUR, now_ms / 1000)
        known = _read(self._root, Range.HOUR).series
        # A process that restarts within a minute adds to that minute's point.
        series = {
            queue: window.joined((), [*known.get(queue, ()), point])
            for queue, point in points.items()
        }
        kept = window.busiest(series, points)
        self._replace(Range.HOUR, Trends(now_ms, surveyed.queues, surveyed.uncounted, sums, kept))
        finer = kept
        for longer in _LONGER:
            window = Window(longer, now_ms / 1000)
            step = now_ms // 1000 // longer.step_s
            if self._folded.get(longer) == step:
                return  # A longer range has longer steps.
            known = _read(self._root, longer).series
            joined = {
                queue: window.joined(known.get(queue, ()), finer.get(queue, ()), whole=True)
                for queue in {*known, *finer}
            }
            finer = window.busiest(joined, points)
            self._replace(longer, Trends(now_ms, series=finer))
            self._folded[longer] = step

    def _points(self, at_s: int, rows: Iterable[Row]) -> dict[str, Point]:
        """The points of all queues, and of their sums."""
        now_s = self._root.clock.steady_s()
        seconds = 0.0 if self._before is None else round(now_s - self._before[0], 1)
        before = {} if self._before is None else self._before[1]
        totals: dict[str, tuple[int, ...]] = {each.text: () for each in self._names}
        found = {}
        for row in rows:
            now = tuple(row.totals[each] for each in _COUNTED) if row.totals else ()
            totals[row.queue] = now
            known = before.get(row.queue, _NEW) if seconds else now
            # A queue whose totals could not be read counts from the next time on.
            pairs = zip(known, now, strict=True) if known and now else ((0, 0) for _ in _COUNTED)
            published, fetched, deleted = (_since(*pair) for pair in pairs)
            levels = {each: row.figures[each] for each in _LEVELS}
            oldest_s = round(row.oldest_ready_s)
            found[row.queue] = Point(
                at_s, seconds, published, fetched, deleted, **levels, oldest_ready_s=oldest_s
            )
        self._before = now_s, totals
        found[ALL_QUEUES] = _summed(at_s, seconds, found)
        return found

    def _replace(self, range_: Range, trends: Trends) -> None:
        layout = self._root.layout
        written, path = new_trends_file(layout, range_), trends_file(layout, range_)
        replace_hint(self._root.files, written, path, print_trends(trends))


def _since(before: int, now: int) -> int:
    """The counts of the time between; a queue that was made again began at 0."""
    return now - before if now >= before else now


def _summed(at_s: int, seconds: float, points: Mapping[str, Point]) -> Point:
    """The point of all queues. The ready messages of sidelines are the dead letters, which wait for
    no consumer.
    """
    sums = dict.fromkeys((*(each.value for each in _COUNTED), *_LEVELS), 0)
    oldest_s = 0.0
    for queue, point in points.items():
        for name in sums:
            sums[name] += getattr(point, name)
        sums["sidelined"] -= point.sidelined
        if QueueName(queue).is_sideline:
            sums["ready"] -= point.ready
            sums["sidelined"] += point.ready
        else:
            oldest_s = max(oldest_s, point.oldest_ready_s)
    return Point(at_s, seconds, **sums, oldest_ready_s=oldest_s)


def read_trends(root: Root, range_: Range, queue: QueueName | None) -> tuple[Trends, list[Point]]:
    """The last sample, and the points of a queue, or of all queues together. Blocking. Raises
    OSError.
    """
    name = ALL_QUEUES if queue is None else queue.text
    now_ms = root.now_ms()
    last = _read(root, Range.HOUR)
    points: list[Point] = []
    for each in Range:
        found = last if each is Range.HOUR else _read(root, each)
        points = Window(each, now_ms / 1000).joined(found.series.get(name, ()), points)
        if each is range_:
            return last, Window(each, now_ms / 1000).shown(points)
    return last, points


def _read(root: Root, range_: Range) -> Trends:
    path = trends_file(root.layout, range_)
    try:
        return parse_trends(root.files.read_file(path, TRENDS_BYTES_MAX))
    except OSError as error:
        if is_gone(error):
            return Trends()
        raise
