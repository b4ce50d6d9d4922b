"""The frame of a picture: its axes and grid, its name, its legend, and its figures as a table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mq.spark.jobs.report.drawing import percent, stretched, veil
from mq.spark.jobs.report.markup import Markup, joined, tag
from mq.spark.jobs.report.scales import Hours, Scale
from mq.spark.jobs.report.timelines import Figure, Timeline
from mq.spark.jobs.report.units import Format, at


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a legend: what a style stands for, and its figure in a word or two."""

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
    """What a picture is called, and what it says to those who cannot see it."""

    identity: str
    """In the page's own words: letters, digits and hyphens."""
    title: str
    unit: str
    description: str


def horizontal(scale: Scale, labels: Sequence[str]) -> Markup:
    """Lines across the plot at the ticks, and their labels on its left."""
    drawn = []
    for tick, label in zip(scale.ticks, labels, strict=True):
        height = percent(1 - scale.at(tick))
        style = "grid" if tick > scale.low or scale.logarithmic else "axis"
        drawn.append(tag("line", class_=style, x1="0", x2="100%", y1=height, y2=height))
        drawn.append(tag("text", label, class_="y", x="-8", y=height, dy="0.32em"))
    return joined(*drawn)


def below(x: Hours) -> Markup:
    """The ticks of time below the plot; every second one gives way where there is little room."""
    drawn = []
    for number, (tick, label) in enumerate(zip(x.scale.ticks, x.labels, strict=True)):
        across = percent(x.at(tick))
        style = "x" if number % 2 == 0 else "x odd"
        drawn.append(tag("line", class_="tick", x1=across, x2=across, y1="100%", y2="102.5%"))
        drawn.append(tag("text", label, class_=style, x=across, y="100%", dy="1.55em"))
    return joined(*drawn)


def unknown_spans(line: Timeline, known: Sequence[bool], x: Hours) -> Markup:
    """Hatching over the steps that nothing is known of."""
    drawn = []
    begun: int | None = None
    for index, is_known in enumerate((*known, True)):
        if not is_known and begun is None:
            begun = index
        elif is_known and begun is not None:
            # What is at a moment is not known since the one before.
            since = min(line.starts[begun], line.ends[begun - 1]) if begun else x.scale.low
            begin = line.starts[begun] if line.lasts else since
            drawn.append(veil(x.at(begin), x.at(line.ends[index - 1]), "unknown"))
            begun = None
    return joined(*drawn)


def picture(names: Names, behind: Markup, marks: Sequence[Markup | None], front: Markup) -> Markup:
    """The SVG of a plot: what is behind its marks, the marks, and what is written over them."""
    title, description = f"{names.identity}-t", f"{names.identity}-d"
    return tag(
        "svg",
        tag("title", f"{names.title}, {names.unit}", id=title),
        tag("desc", names.description, id=description),
        behind,
        stretched(*marks) if any(marks) else None,
        front,
        class_="plot",
        role="img",
        aria_labelledby=title,
        aria_describedby=description,
    )


def nothing(names: Names, why: str, *, hatched: bool = True) -> Markup:
    """The place of a picture that there is nothing to draw in, with the reason: hatched where
    nothing is known, plain where it is known that nothing was.
    """
    told = replace(names, description=why)
    plot = picture(told, veil(0, 1, "unknown" if hatched else "none"), (), Markup())
    return tag(
        "figure",
        _caption(names, ()),
        tag("div", plot, tag("p", why, class_="why"), class_="frame bare"),
        class_="chart without",
    )


def chart(
    names: Names,
    plot: Markup,
    legend: Sequence[Entry] = (),
    figures: Markup | None = None,
    note: str | None = None,
    style: str = "",
) -> Markup:
    """A picture with its caption, its legend, a note and its figures."""
    return tag(
        "figure",
        _caption(names, legend),
        tag("div", plot, class_="frame"),
        tag("p", note, class_="note") if note else None,
        figures,
        class_=f"chart {style}".strip(),
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
        if style.startswith(("area", "unknown", "bar", "stall"))
        else tag("path", class_=style, d="M1 5H17")
    )
    return tag("svg", mark, class_="swatch", viewBox="0 0 18 10", aria_hidden="true")


def over_time(names: Names, line: Timeline, x: Hours, columns: Sequence[Column]) -> Markup:
    """The figures of a picture of time; each row says where in the plot it is."""
    sharp = any(when % 60 for when in line.starts[:100])
    rows = [
        (
            [at(line.starts[index], with_seconds=sharp)],
            [column.format(column.values[index]) for column in columns],
            round(1000 * x.at(line.middle(index))),
        )
        for index in range(len(line))
    ]
    return _table(names, ["Time (UTC)", *(column.label for column in columns)], rows)


def listed(names: Names, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """The figures of any other picture: the first cell of a row is what it is about."""
    return _table(names, head, [(row[:1], row[1:], None) for row in rows])


def _table(
    names: Names,
    head: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[str], int | None]],
) -> Markup:
    body = [
        tag(
            "tr",
            *(tag("th", cell) for cell in firsts),
            *(tag("td", cell) for cell in cells),
            data_x=place,
        )
        for firsts, cells, place in rows
    ]
    caption = f"Figures: {names.title}"
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", label, scope="col") for label in head))),
        tag("tbody", *body),
        class_="figures",
    )
    scroller = tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return tag("details", tag("summary", "Figures"), scroller)
