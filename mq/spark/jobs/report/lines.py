"""Pictures of lines over time: what was published and removed, the backlog, its age, troubles."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mq.spark.jobs.report import units
from mq.spark.jobs.report.drawing import area, percent, stroke, veil
from mq.spark.jobs.report.markup import Markup, joined, tag
from mq.spark.jobs.report.plots import (
    Column,
    Entry,
    Names,
    below,
    chart,
    horizontal,
    nothing,
    over_time,
    picture,
    unknown_spans,
)
from mq.spark.jobs.report.scales import Hours, Scale, ages, counts
from mq.spark.jobs.report.stalls import Stall
from mq.spark.jobs.report.timelines import Figure, Timeline
from mq.spark.jobs.report.units import Format


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a picture: its column's label, its figures, how it is drawn."""

    label: str
    values: tuple[Figure, ...] = ()
    style: str = ""
    """Without one it is not drawn: it is in the legend and among the figures."""
    filled: bool = False
    value: str = ""
    why: str = ""
    """It is not known, if it is not."""


@dataclass(frozen=True, slots=True)
class Marked:
    """What a picture points at: its peak, and the time in which nothing was removed."""

    peak: bool = False
    stall: Stall | None = None


_UNMARKED = Marked()


def rates(
    names: Names,
    line: Timeline,
    x: Hours,
    columns: Sequence[Line],
    marked: Marked = _UNMARKED,
) -> Markup:
    """Events for each second, minute, hour or day: `columns` are named for the timeline's, which
    give their figures.
    """
    each = [replace(one, values=line.rates(one.label)) for one in columns]
    most = max((v for one in each if one.style for v in one.values if v is not None), default=0.0)
    size, unit = units.per(most)
    drawn = [
        replace(
            one,
            values=tuple(None if value is None else value * size for value in one.values),
            value=_mean(line, one.label),
        )
        for one in each
    ]
    scale = counts([value for one in drawn if one.style for value in one.values])
    told = replace(names, unit=f"messages/{unit}")
    return lines(told, line, x, drawn, scale, units.count, marked)


def backlog(names: Names, line: Timeline, x: Hours, why: str, stall: Stall | None) -> Markup:
    """What was waiting at each moment."""
    values = line["messages"]
    now = next((value for value in reversed(values) if value is not None), None)
    drawn = Line("waiting", values, "backlog", True, f"{units.count(now)} at the end", why)
    marked = Marked(peak=True, stall=stall)
    return lines(names, line, x, [drawn], counts(values), units.count, marked)


def oldest(names: Names, line: Timeline, x: Hours, why: str) -> Markup:
    """How old the oldest message was at each moment."""
    values = tuple(
        0.0 if age is None and messages == 0 else age
        for age, messages in zip(line["oldest_age_s"], line["messages"], strict=True)
    )
    now = next((value for value in reversed(values) if value is not None), None)
    drawn = Line("oldest", values, "age", True, f"{units.duration(now)} at the end", why)
    return lines(names, line, x, [drawn], ages(values), units.duration, Marked(peak=True))


def lines(
    names: Names,
    line: Timeline,
    x: Hours,
    drawn: Sequence[Line],
    y: Scale,
    written: Format,
    marked: Marked,
) -> Markup:
    """A picture of lines; without a known figure, why there is none."""
    known = [one for one in drawn if one.style and any(v is not None for v in one.values)]
    if not known:
        return nothing(names, drawn[0].why)
    told = [any(one.values[i] is not None for one in known) for i in range(len(line))]
    plot = picture(
        names,
        joined(
            unknown_spans(line, told, x),
            _stall(marked.stall, x),
            horizontal(y, [written(tick) for tick in y.ticks]),
            below(x),
        ),
        [
            *(area(line, one.values, x, y, one.style) for one in known if one.filled),
            *(stroke(line, one.values, x, y, one.style) for one in known),
        ],
        joined(_peak(line, known[0], x, y, written) if marked.peak else None),
    )
    legend = [
        Entry(f"line {one.style}" if one.style else "", one.label, one.value)
        if one in known or (not one.style and one.value)
        else Entry("", one.label, "not known")
        for one in drawn
    ]
    if not all(told):
        legend.append(Entry("unknown", "not known"))
    if marked.stall:
        lasted = units.duration(marked.stall.end - marked.stall.begin)
        legend.append(Entry("stall", f"nothing removed for {lasted}"))
    columns = [Column(one.label, one.values, _exact(written)) for one in drawn]
    return chart(names, plot, legend, over_time(names, line, x, columns), note_of(line, drawn))


def note_of(line: Timeline, drawn: Sequence[Line] = ()) -> str | None:
    """What a reader of the picture has to know: what is missing, and what was joined."""
    missing: dict[str, list[str]] = {}
    for one in drawn:
        if all(value is None for value in one.values):
            missing.setdefault(one.why, []).append(one.label)
    said = [f"{' and '.join(labels).capitalize()}: {why}" for why, labels in missing.items()]
    if line.joined > 1:
        said.append(f"Each point is {line.joined} steps of the tables.")
    return " ".join(said) or None


def _exact(written: Format) -> Format:
    return written if written is not units.count else _figure


def _figure(value: Figure) -> str:
    if value is None:
        return units.UNKNOWN
    return units.whole(value) if value == round(value) else f"{value:,.3g}"


def _mean(line: Timeline, column: str) -> str:
    pairs = zip(line[column], line.starts, line.ends, strict=True)
    known = [(value, end - start) for value, start, end in pairs if value is not None]
    span = sum(seconds for _, seconds in known)
    if not span:
        return ""
    of_what = "" if len(known) == len(line) else " where known"
    return f"mean {units.rate(sum(value for value, _ in known) / span)}{of_what}"


def _peak(line: Timeline, one: Line, x: Hours, y: Scale, written: Format) -> Markup | None:
    peak, index = max((value, -i) for i, value in enumerate(one.values) if value is not None)
    if peak <= 0:
        return None
    across, up = x.at(line.middle(-index)), percent(1 - y.at(peak))
    anchor = "start" if across < 0.2 else "end" if across > 0.8 else "middle"
    label = f"peak {written(peak)}"
    return joined(
        tag("circle", class_=f"dot {one.style}", cx=percent(across), cy=up, r="3.5"),
        tag("text", label, class_=f"mark {anchor}", x=percent(across), y=up, dy="-0.75em"),
    )


def _stall(stall: Stall | None, x: Hours) -> Markup | None:
    if stall is None:
        return None
    return veil(x.at(stall.begin), x.at(stall.end), "stall")
