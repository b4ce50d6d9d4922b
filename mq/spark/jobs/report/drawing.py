"""Marks of a picture: paths in a square of 1000 by 1000, which is stretched over the plot."""

from collections.abc import Iterator, Sequence

from mq.spark.jobs.report.markup import Markup, tag
from mq.spark.jobs.report.scales import Hours, Scale
from mq.spark.jobs.report.timelines import Figure, Timeline

SIDE = 1000


def runs(values: Sequence[Figure]) -> Iterator[range]:
    """The steps that are known, one stretch after the other."""
    begun: int | None = None
    for index, value in enumerate((*values, None)):
        if value is not None and begun is None:
            begun = index
        elif value is None and begun is not None:
            yield range(begun, index)
            begun = None


def percent(part: float) -> str:
    """A part of the plot's width or height, from 0 to 1, as SVG has it."""
    return f"{100 * part:.2f}".rstrip("0").rstrip(".") + "%"


def _point(across: float, up: float) -> str:
    return f"{round(SIDE * across)} {round(SIDE * (1 - up))}"


def _points(run: range, line: Timeline, values: Sequence[Figure], x: Hours, y: Scale) -> list[str]:
    """A stretch's points; that of a single step goes from its begin to its end."""
    if len(run) == 1:
        height = y.at(values[run[0]] or 0.0)
        ends = dict.fromkeys((line.starts[run[0]], line.ends[run[0]]))
        return [_point(x.at(when), height) for when in ends]
    return [_point(x.at(line.middle(i)), y.at(values[i] or 0.0)) for i in run]


def stroke(
    line: Timeline, values: Sequence[Figure], x: Hours, y: Scale, style: str
) -> Markup | None:
    """A line through the values, broken where they are not known; a value alone is a dot."""
    drawn = [
        "M" + "L".join(points if len(points) > 1 else [points[0], points[0]])
        for points in (_points(run, line, values, x, y) for run in runs(values))
    ]
    return tag("path", class_=f"line {style}", d="".join(drawn)) if drawn else None


def area(line: Timeline, values: Sequence[Figure], x: Hours, y: Scale, style: str) -> Markup | None:
    """What is between the values and the axis below."""
    drawn = []
    for run in runs(values):
        points = _points(run, line, values, x, y)
        first, last = points[0].split()[0], points[-1].split()[0]
        drawn.append(f"M{first} {SIDE}L{'L'.join(points)}L{last} {SIDE}Z")
    return tag("path", class_=f"area {style}", d="".join(drawn)) if drawn else None


def band(
    line: Timeline,
    lower: Sequence[Figure],
    upper: Sequence[Figure],
    x: Hours,
    y: Scale,
    style: str,
) -> Markup | None:
    """What is between two columns, where both are known."""
    both = [
        None if low is None or high is None else high
        for low, high in zip(lower, upper, strict=True)
    ]
    drawn = []
    for run in runs(both):
        over = _points(run, line, upper, x, y)
        under = _points(run, line, lower, x, y)
        drawn.append(f"M{'L'.join((*over, *reversed(under)))}Z")
    return tag("path", class_=f"area {style}", d="".join(drawn)) if drawn else None


def stretched(*marks: Markup | None) -> Markup:
    """Marks as wide and as high as the plot; their strokes keep their width."""
    return tag(
        "svg", *marks, class_="marks", viewBox=f"0 0 {SIDE} {SIDE}", preserveAspectRatio="none"
    )


def veil(begin: float, end: float, style: str) -> Markup:
    """A rectangle over the plot's whole height, between two places from 0 to 1."""
    return tag(
        "rect",
        class_=style,
        x=percent(begin),
        y="0",
        width=percent(max(end - begin, 0.0)),
        height="100%",
    )


def apart(places: Sequence[float], least: float) -> tuple[float, ...]:
    """Places from 0 to 1, in rising order, moved until neighbours are that far from each other."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + least) if moved else place)
    ceiling = 1.0
    for index in range(len(moved) - 1, -1, -1):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - least
    return tuple(moved)
