"""Axes and marks: matplotlib lays them out, and report.css styles them.

A chart has no colours, fonts or widths of its own, so that it is light or dark like its page: the
`gid` of each mark is its CSS class.
"""

import io
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple, cast

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from mq.spark.jobs.report.markup import Markup, tag
from mq.spark.jobs.report.queues import Figure, Timeline
from mq.spark.jobs.report.units import count, duration

Span = tuple[float, float]
"""Seconds since 1970."""

WIDTH: Final = 340
HEIGHT: Final = 190
LEFT: Final = 56
RIGHT: Final = 38
TOP: Final = 20
BOTTOM: Final = 24
"""Pixels of a chart, and of the margins around its plot; report.css has the same values."""
_DAY: Final = 86400.0
_FIRST_DAY: Final = -719_160.0
_LAST_DAY: Final = 2_932_890.0
"""Days of a calendar from the year 1 to 9999, nearly."""
_LEAST_SPAN: Final = 5 / _DAY
_LEAST: Final = 1e-12
"""Smaller values are drawn as 0."""
_SPANS: Final = (_DAY, 3600.0, 60.0, 1.0, 1e-3)
_DURATIONS: Final = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0),
    *(days * _DAY for days in (1, 7, 30, 365, 3650, 36500, 365000)),
)
"""Ticks of a logarithmic axis."""
_MOST_DURATIONS: Final = 7
_LABEL_HEIGHT: Final = 0.085
"""The height of a label, as a part of the plot's."""

_GROUP: Final = re.compile(r'<g id="([^"]*?)(?:_\d+)?">')
_PAINT: Final = re.compile(r' (?:style|clip-path|transform)="[^"]*"|<g id="[^"]*"/>')
_PATH: Final = re.compile(r' d="[^"]*"')
_DIGITS: Final = re.compile(r"(\.\d)\d+")


class Margins(NamedTuple):
    """The pixels around a plot."""

    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    bottom: int = BOTTOM


_USUAL: Final = Margins()


def blank(width: int = WIDTH, height: int = HEIGHT, margins: Margins = _USUAL) -> Axes:
    """Axes in a chart of this size in pixels."""
    left, right, top, bottom = margins
    canvas = Canvas(figsize=(width / 72, height / 72), dpi=72)
    inner = (width - left - right) / width, (height - top - bottom) / height
    axes = canvas.add_axes((left / width, bottom / height, *inner))
    axes.tick_params(length=0, pad=6)
    axes.set_axisbelow(True)
    return axes


def sketch(width: int, height: int, span: Span, high: float) -> Axes:
    """Unlabelled axes over time, from 0 to `high`."""
    axes = blank(width, height, Margins(0, 0, 2, 1))
    axes.set_axis_off()
    axes.set_ylim(0, high if high > _LEAST else 1)
    axes.set_xlim(*_days(span))
    axes.autoscale(enable=False)
    return axes


def over_time(axes: Axes, span: Span) -> None:
    """An axis of UTC times."""
    locator = AutoDateLocator(minticks=2, maxticks=5)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(
            locator,
            formats=["%Y", "%b %Y", "%-d %b", "%H:%M", "%H:%M", "%H:%M:%S"],
            zero_formats=["%Y", "%Y", "%-d %b", "%-d %b", "%H:%M", "%H:%M:%S"],
            show_offset=False,
        )
    )
    axes.set_xlim(*_days(span))
    axes.autoscale(enable=False)
    axes.grid(visible=True)


def place(span: Span, seconds: float) -> float:
    """The place of a time on a time axis, from 0 to 1."""
    begin, end = _days(span)
    return min(max((_day(seconds) - begin) / (end - begin), 0.0), 1.0)


def _day(seconds: float) -> float:
    return min(max(seconds / _DAY, _FIRST_DAY), _LAST_DAY)


def _days(span: Span) -> tuple[float, float]:
    begin = _day(span[0])
    return begin, max(_day(span[1]), begin + _LEAST_SPAN)


def counts(axes: Axes, high: float) -> None:
    """An axis of counts from 0 to a round number that covers `high`."""
    _linear(axes, high, 1.0, count)


def ages(axes: Axes, high: float) -> None:
    """As `counts`, for seconds: its ticks are round in seconds, minutes, hours or days."""
    _linear(axes, high, next((unit for unit in _SPANS if high >= unit), 1e-6), duration)


def _linear(axes: Axes, high: float, unit: float, written: Callable[[float], str]) -> None:
    ticks = [0.0]
    if high > _LEAST:
        locator = MaxNLocator(4, steps=[1, 2, 5, 10])
        ticks = [float(tick) * unit for tick in locator.tick_values(0, high / unit)]
    axes.set_ylim(0, ticks[-1] or 1.0)
    axes.set_yticks(ticks, [written(tick) for tick in ticks])


def latencies(axes: Axes, known: Sequence[float]) -> None:
    """A logarithmic axis of durations; its lowest tick stands for all smaller values, 0 too."""
    positive = [value for value in known if value > 0] or [1e-3]
    below = max(bisect_right(_DURATIONS, min(positive)) - 1, 0)
    below = min(below, len(_DURATIONS) - 2)
    above = min(max(bisect_left(_DURATIONS, max(positive)), below + 1), len(_DURATIONS) - 1)
    ticks = _DURATIONS[below : above + 1]
    shown = ticks[:: math.ceil(len(ticks) / _MOST_DURATIONS)]
    labels = [duration(tick) for tick in shown]
    if min(known) < ticks[0]:
        labels[0] = f"≤{labels[0]}"
    axes.set_yscale("log")
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(shown, labels)
    axes.minorticks_off()


def _runs(axes: Axes, line: Timeline, *columns: Sequence[Figure]) -> Iterator[list[list[float]]]:
    """The runs of steps in which all columns are known: the days of their steps, and each column's
    figures. A single step spans from its begin to its end.
    """

    def is_known(index: int) -> bool:
        return all(column[index] is not None for column in columns)

    for known, group in groupby(range(len(line)), is_known):
        steps = list(group)
        if not known:
            continue
        days = [_across(axes, line.middle(index)) for index in steps]
        if len(steps) == 1:
            days = [_across(axes, when) for when in (line.starts[steps[0]], line.ends[steps[0]])]
            steps *= 2
        yield [days, *([column[index] or 0.0 for index in steps] for column in columns)]


def _across(axes: Axes, seconds: float) -> float:
    low, high = axes.get_xlim()
    return min(max(_day(seconds), low), high)


def _within(axes: Axes, values: Sequence[float]) -> list[float]:
    low, high = axes.get_ylim()
    return [min(max(value, low), high) for value in values]


def stroke(axes: Axes, line: Timeline, values: Sequence[Figure], style: str) -> None:
    """A line through the values, broken where they are unknown; a single value is drawn across its
    step.
    """
    for days, heights in _runs(axes, line, values):
        axes.plot(days, _within(axes, heights), gid=f"line {style}")


def area(
    axes: Axes,
    line: Timeline,
    upper: Sequence[Figure],
    style: str,
    lower: Sequence[Figure] | None = None,
) -> None:
    """The area between two columns, or between one and the axis, where both are known."""
    floor = lower or [axes.get_ylim()[0]] * len(line)
    for days, over, under in _runs(axes, line, upper, floor):
        edge = [*_within(axes, over), *reversed(_within(axes, under))]
        axes.fill([*days, *reversed(days)], edge, gid=f"area {style}")


def veil(axes: Axes, begin: float, end: float, style: str) -> None:
    """A rectangle over the plot's whole height, between two times within it."""
    left, right = _across(axes, begin), _across(axes, end)
    axes.axvspan(left, right, gid=style)


def unknown(axes: Axes, line: Timeline, known: Sequence[bool], since: float) -> bool:
    """Hatches the unknown steps; returns whether there are any. `since`: the beginning of
    the axis.
    """
    for is_known, group in groupby(range(len(line)), known.__getitem__):
        if is_known:
            continue
        steps = list(group)
        begin = line.starts[steps[0]]
        if not line.lasts:
            # A figure at a time is unknown since the time before.
            begin = min(begin, line.ends[steps[0] - 1]) if steps[0] else since
        veil(axes, begin, line.ends[steps[-1]], "unknown")
    return not all(known)


def dot(axes: Axes, when: float, value: float, label: str, style: str) -> None:
    """Marks a value, with its label above it."""
    day, (height,) = _across(axes, when), _within(axes, [value])
    low, high = axes.get_xlim()
    across = (day - low) / (high - low)
    anchor = "start" if across < 0.2 else "end" if across > 0.8 else "middle"
    axes.plot([day, day], [height, height], gid=f"dot {style}")
    axes.annotate(label, (day, height), (0, 6), textcoords="offset points", gid=f"mark {anchor}")


def ends(axes: Axes, values: Sequence[tuple[float, str]]) -> None:
    """Labels at the right of a plot, at their values but without overlap."""
    begin = axes.get_xlim()[0]
    upward = axes.transScale + axes.transLimits
    heights = [upward.transform((begin, *_within(axes, [value])))[1] for value, _ in values]
    for height, (_, label) in zip(apart(heights, _LABEL_HEIGHT), values, strict=True):
        axes.text(1.02, height, label, transform=axes.transAxes, va="center", gid="end")


def apart(places: Sequence[float], least: float) -> tuple[float, ...]:
    """Places from 0 to 1, in rising order, moved until neighbours are at least `least` apart."""
    moved: list[float] = []
    for at in places:
        moved.append(max(at, moved[-1] + least) if moved else at)
    ceiling = 1.0
    for index in range(len(moved) - 1, -1, -1):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - least
    return tuple(moved)


def drawn(axes: Axes, *contents: Markup, **attributes: object) -> Markup:
    """The chart as an SVG element, with `contents` before its marks."""
    canvas = cast(Canvas, axes.get_figure(root=True))
    for part in (canvas.patch, axes.patch, *axes.spines.values()):
        part.set_visible(False)
    written = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):
        canvas.savefig(written, format="svg")
    text = written.getvalue()
    marks = text[text.index("<g id=") : text.rindex("</g>") + len("</g>")]
    marks = _GROUP.sub(r'<g class="\1">', _PAINT.sub("", marks))
    marks = _PATH.sub(lambda path: _DIGITS.sub(r"\1", path[0]), marks)
    width, height = (round(72 * inches) for inches in canvas.get_size_inches())
    return tag(
        "svg",
        *contents,
        Markup(re.sub(r"\s*\n\s*", "", marks)),
        viewBox=f"0 0 {width} {height}",
        **attributes,
    )
