"""The charts of a queue: lines over time, quantiles over time, and bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes

from mq.spark.jobs.report import drawing, units
from mq.spark.jobs.report.drawing import Margins, Span, drawn, place
from mq.spark.jobs.report.markup import Markup, joined, tag
from mq.spark.jobs.report.queues import QUANTILES, Figure, Stall, Timeline, worst
from mq.spark.jobs.report.units import Format, at


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a legend: what a style stands for, and its figure in a word or two."""

    style: str
    label: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of figures."""

    label: str
    values: Sequence[Figure]
    format: Format


@dataclass(frozen=True, slots=True)
class Names:
    """A chart's texts: its title, and its description for readers who cannot see it."""

    identity: str
    """The chart's id in the page: letters, digits and hyphens."""
    title: str
    unit: str
    description: str


def nothing(names: Names, why: str, *, hatched: bool = True) -> Markup:
    """Stands for a chart without data, with the reason: hatched if the data is unknown, plain if it
    is known to be empty.
    """
    return tag(
        "figure",
        _caption(names, ()),
        tag("div", tag("p", why, class_="why"), class_=f"bare {'unknown' if hatched else 'none'}"),
        class_="chart without",
    )


def chart(
    names: Names, axes: Axes, legend: Sequence[Entry], figures: Markup, note: str | None = None
) -> Markup:
    """A chart with its caption, its legend, a note and its figures."""
    title, description = f"{names.identity}-t", f"{names.identity}-d"
    plot = drawn(
        axes,
        tag("title", f"{names.title}, {names.unit}", id=title),
        tag("desc", names.description, id=description),
        class_="plot",
        role="img",
        aria_labelledby=title,
        aria_describedby=description,
    )
    return tag(
        "figure",
        _caption(names, legend),
        tag("div", plot, class_="frame"),
        tag("p", note, class_="note") if note else None,
        figures,
        class_="chart",
        data_name=names.title,
    )


def _caption(names: Names, legend: Sequence[Entry]) -> Markup:
    entries = [
        tag("li", _swatch(entry.style) if entry.style else None, entry.label, _strong(entry.value))
        for entry in legend
    ]
    return tag(
        "figcaption",
        tag("h3", names.title, " ", tag("span", names.unit, class_="unit")),
        tag("ul", *entries, class_="legend") if entries else None,
    )


def _strong(value: str) -> Markup | None:
    return joined(" ", tag("b", value)) if value else None


def _swatch(style: str) -> Markup:
    mark = (
        tag("rect", class_=style, width="18", height="10")
        if style.startswith(("area", "unknown", "stall"))
        else tag("path", class_=style, d="M1 5H17")
    )
    return tag("svg", mark, class_="swatch", viewBox="0 0 18 10", aria_hidden="true")


def over_time(names: Names, line: Timeline, span: Span, columns: Sequence[Column]) -> Markup:
    """The figures of a chart over time; each row has its place in the plot."""
    sharp = any(when % 60 for when in line.starts[:100])
    rows = [
        (
            at(line.starts[index], with_seconds=sharp),
            [column.format(column.values[index]) for column in columns],
            round(1000 * place(span, line.middle(index))),
        )
        for index in range(len(line))
    ]
    return _table(names, ["Time (UTC)", *(column.label for column in columns)], rows)


def listed(names: Names, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """The figures of any other chart; a row's first cell names it."""
    return _table(names, head, [(row[0], row[1:], None) for row in rows])


def _table(
    names: Names, head: Sequence[str], rows: Sequence[tuple[str, Sequence[str], int | None]]
) -> Markup:
    body = [
        tag("tr", tag("th", first), *(tag("td", cell) for cell in cells), data_x=across)
        for first, cells, across in rows
    ]
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", label, scope="col") for label in head))),
        tag("tbody", *body),
        class_="figures",
    )
    label = f"Figures: {names.title}"
    scroller = tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)
    return tag("details", tag("summary", "Figures"), scroller)


LABELS = {"p50_s": "p50", "p90_s": "p90", "p99_s": "p99", "p999_s": "p99.9", "max_s": "max"}
_DRAWN = ("p50_s", "p90_s", "p99_s", "p999_s")
_BANDS = (("p99_s", "p999_s", "far"), ("p90_s", "p99_s", "mid"), ("p50_s", "p90_s", "near"))
_RECEIVES = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (10, 19), (20, 99), (100, 10**9))
_LABELLED_SIZES = 5
SMALL = (84, 26)
CARD = (200, 46)
POINTS = 60
"""The points of a small chart."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart: its column's label, its figures, how it is drawn."""

    label: str
    values: tuple[Figure, ...] = ()
    style: str = ""
    """Empty: the line is not drawn, only listed in the legend and among the figures."""
    filled: bool = False
    value: str = ""
    why: str = ""
    """Why it is unknown, if it is."""


def rates(
    names: Names, line: Timeline, span: Span, columns: Sequence[Line], stall: Stall | None = None
) -> Markup:
    """Events per second, minute, hour or day. `columns` name the timeline's columns, which have the
    figures.
    """
    each = [replace(one, values=line.rates(one.label)) for one in columns]
    size, unit = units.per(worst([v for one in each if one.style for v in one.values]) or 0.0)
    shown = [
        replace(
            one,
            values=tuple(None if value is None else value * size for value in one.values),
            value=_mean(line, one.label),
        )
        for one in each
    ]
    return _lines(replace(names, unit=f"messages/{unit}"), line, span, shown, stall=stall)


def backlog(names: Names, line: Timeline, span: Span, why: str, stall: Stall | None) -> Markup:
    """The messages that waited at each time."""
    values = line["messages"]
    end = f"{units.count(_last(values))} at the end"
    shown = Line("waiting", values, "backlog", True, end, why)
    return _lines(names, line, span, [shown], peak=units.count, stall=stall)


def oldest(names: Names, line: Timeline, span: Span, why: str) -> Markup:
    """The age of the oldest message at each time."""
    values = tuple(
        0.0 if age is None and messages == 0 else age
        for age, messages in zip(line["oldest_age_s"], line["messages"], strict=True)
    )
    end = f"{units.duration(_last(values))} at the end"
    shown = Line("oldest", values, "age", True, end, why)
    return _lines(names, line, span, [shown], peak=units.duration)


def _last(values: Sequence[Figure]) -> Figure:
    return next((value for value in reversed(values) if value is not None), None)


def _lines(
    names: Names,
    line: Timeline,
    span: Span,
    shown: Sequence[Line],
    *,
    peak: Format | None = None,
    stall: Stall | None = None,
) -> Markup:
    """A chart of lines; without a known figure, the reason. `peak`: formats the first line's
    maximum.
    """
    known = [one for one in shown if one.style and any(v is not None for v in one.values)]
    if not known:
        return nothing(names, shown[0].why)
    axes = drawing.blank()
    scale = drawing.ages if peak is units.duration else drawing.counts
    scale(axes, worst([value for one in known for value in one.values]) or 0.0)
    drawing.over_time(axes, span)
    reported = [any(one.values[i] is not None for one in known) for i in range(len(line))]
    has_unknown = drawing.unknown(axes, line, reported, span[0])
    if stall:
        drawing.veil(axes, stall.begin, stall.end, "stall")
    for one in known:
        if one.filled:
            drawing.area(axes, line, one.values, one.style)
    for one in known:
        drawing.stroke(axes, line, one.values, one.style)
    if peak:
        _peak(axes, line, known[0], peak)
    legend = [
        Entry(f"line {one.style}" if one.style else "", one.label, one.value)
        if one in known or (not one.style and one.value)
        else Entry("", one.label, "not known")
        for one in shown
    ]
    if has_unknown:
        legend.append(Entry("unknown", "not known"))
    if stall:
        lasted = units.duration(stall.end - stall.begin)
        legend.append(Entry("stall", f"nothing removed for {lasted}"))
    written = units.duration if peak is units.duration else _exact
    columns = [Column(one.label, one.values, written) for one in shown]
    figures = over_time(names, line, span, columns)
    return chart(names, axes, legend, figures, _note(line, shown))


def _note(line: Timeline, shown: Sequence[Line] = ()) -> str | None:
    """A note about missing or joined figures."""
    missing: dict[str, list[str]] = {}
    for one in shown:
        if all(value is None for value in one.values):
            missing.setdefault(one.why, []).append(one.label)
    said = [f"{' and '.join(labels).capitalize()}: {why}" for why, labels in missing.items()]
    if line.joined > 1:
        said.append(f"Each point is {line.joined} steps of the tables.")
    return " ".join(said) or None


def _exact(value: Figure) -> str:
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


def _peak(axes: Axes, line: Timeline, one: Line, written: Format) -> None:
    peak, index = max((value, -i) for i, value in enumerate(one.values) if value is not None)
    if peak > 0:
        drawing.dot(axes, line.middle(-index), peak, f"peak {written(peak)}", one.style)


def bands(
    names: Names,
    line: Timeline,
    overall: Mapping[str, Figure] | None,
    span: Span,
    why: str,
    style: str,
) -> Markup:
    """Quantiles over time; `style` gives the colour. Without a known figure, the reason."""
    known = [value for column in _DRAWN for value in line[column] if value is not None]
    if not known:
        return nothing(names, why)
    axes = drawing.blank()
    drawing.latencies(axes, known)
    drawing.over_time(axes, span)
    reported = [_is_known(line, i) for i in range(len(line))]
    has_unknown = drawing.unknown(axes, line, reported, span[0])
    for low, high, strength in _BANDS:
        drawing.area(axes, line, line[high], f"{style} {strength}", line[low])
    drawing.stroke(axes, line, line["p99_s"], f"{style} edge")
    drawing.stroke(axes, line, line["p50_s"], style)
    _ends(axes, line)
    legend = [Entry(f"line {style}", "p50", _overall(overall, "p50_s"))]
    for low, high, strength in reversed(_BANDS):
        label = f"{LABELS[low]} to {LABELS[high]}"
        legend.append(Entry(f"area {style} {strength}", label, _overall(overall, high)))
    if has_unknown:
        legend.append(Entry("unknown", "not known"))
    columns = [Column("messages", line["messages"], units.whole)]
    columns += [Column(LABELS[name], line[name], units.duration) for name in QUANTILES]
    gaps = "Gaps: no message got so far then." if 0.0 in line["messages"] else None
    note = " ".join(filter(None, (gaps, _note(line)))) or None
    return chart(names, axes, legend, over_time(names, line, span, columns), note)


def _is_known(line: Timeline, index: int) -> bool:
    """Whether a step is known. A step without messages is, although it has no latencies."""
    return line["messages"][index] == 0 or any(line[name][index] is not None for name in _DRAWN)


def _overall(overall: Mapping[str, Figure] | None, column: str) -> str:
    return units.duration(overall[column]) if overall and overall.get(column) is not None else ""


def _ends(axes: Axes, line: Timeline) -> None:
    """Writes the quantiles' names at the right end of their lines."""
    last = [(value, LABELS[name]) for name in _DRAWN if (value := _last(line[name])) is not None]
    drawing.ends(axes, sorted(last))


def receives(names: Names, found: Sequence[tuple[int, float]], why: str) -> Markup:
    """A bar per number of receives, with its share in figures, since the rare ones matter."""
    total = sum(messages for _, messages in found)
    if not total:
        return nothing(names, why)
    rows = [
        (_often(low, high), sum(n for often, n in found if low <= often <= high))
        for low, high in _RECEIVES
    ]
    last = max(index for index, (_, messages) in enumerate(rows) if messages)
    shown = [row for row in rows[: last + 1] if row[1] or row[0] != "0"]
    most = max(messages for _, messages in shown)
    axes = drawing.blank(margins=Margins(76, 8, 4, 4))
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.set_xticks([])
    axes.set_yticks(range(len(shown)), [label for label, _ in shown])
    for index, (_, messages) in enumerate(shown):
        width = max(0.65 * messages / most, 0.004) if messages else 0.0
        axes.barh(index, width, 0.6, gid="bar")
        text = f"{units.share(messages, total)} ({units.count(messages)})" if messages else "0"
        axes.text(width + 0.02, index, text, va="center", gid="mark start")
    figures = [
        (f"{often:,}" if often < 999 else "999 or more", units.whole(n), units.share(n, total))
        for often, n in found
    ]
    table = listed(names, ("Receives", "Messages", "Share"), figures)
    return chart(names, axes, (), table)


def _often(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} to {high}" if high < 10**9 else f"{low} or more"


def sizes(names: Names, found: Sequence[tuple[int, int, float]], why: str) -> Markup:
    """A bar per power of two, with a gap where no message has such a size."""
    total = sum(messages for _, _, messages in found)
    if not total:
        return nothing(names, why)
    # 0 for an empty body, 1 for one byte, 2 for two or three, ...
    by_power = {low.bit_length(): messages for low, _, messages in found if messages}
    powers = range(min(by_power), max(by_power) + 1)
    axes = drawing.blank(margins=Margins(right=12))
    drawing.counts(axes, max(by_power.values()))
    least = 0.012 * axes.get_ylim()[1]
    heights = [max(messages, least) for messages in by_power.values()]
    axes.bar(list(by_power), heights, 0.84, gid="bar size")
    axes.set_xlim(powers[0] - 0.5, max(powers[-1], powers[0] + 5) + 0.5)
    labelled = powers[:: -(-len(powers) // _LABELLED_SIZES)]
    axes.set_xticks(labelled, [units.volume(1 << power >> 1) for power in labelled])
    axes.grid(visible=True, axis="y")
    rows = [
        (_range(low, high), units.whole(messages), units.share(messages, total))
        for low, high, messages in found
    ]
    return chart(names, axes, (), listed(names, ("Bytes", "Messages", "Share"), rows))


def _range(low: int, high: int) -> str:
    return "0 B" if not low else f"{units.volume(low)} to {units.volume(high)}"


def sparkline(
    label: str,
    line: Timeline,
    shown: Sequence[Line],
    span: Span,
    high: float | None = None,
    size: tuple[int, int] = SMALL,
) -> Markup:
    """A small chart without axes, for a row of a table or a card; `high`: the maximum of those that
    it is compared with.
    """
    known = [one for one in shown if any(value is not None for value in one.values)]
    most = high or worst([value for one in known for value in one.values]) or 0.0
    axes = drawing.sketch(*size, span, most)
    if known:
        reported = [any(one.values[i] is not None for one in known) for i in range(len(line))]
        drawing.unknown(axes, line, reported, span[0])
    else:
        drawing.veil(axes, *span, "unknown")
    for one in known:
        if one.filled:
            drawing.area(axes, line, one.values, one.style)
        drawing.stroke(axes, line, one.values, one.style)
    return drawing.drawn(
        axes,
        class_="spark" if size == SMALL else "mini",
        preserveAspectRatio="none",
        role="img",
        aria_label=label if known else f"{label}: not known",
    )
