"""Small pictures without axes: for a row of a table, and for priorities side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from mq.spark.jobs.report.drawing import area, stretched, stroke, veil
from mq.spark.jobs.report.markup import Markup, tag
from mq.spark.jobs.report.plots import unknown_spans
from mq.spark.jobs.report.scales import Hours, Scale
from mq.spark.jobs.report.timelines import Figure, Timeline

POINTS = 60


@dataclass(frozen=True, slots=True)
class Shape:
    """A line of a small picture: its figures, how it is drawn, whether it stands on the axis."""

    values: tuple[Figure, ...]
    style: str
    filled: bool = False


def ceiling(columns: Sequence[Sequence[Figure]]) -> Scale:
    """From 0 to the greatest of these values, for pictures that are compared."""
    most = max((value for values in columns for value in values if value is not None), default=0.0)
    return Scale(0.0, most or 1.0, ())


def sparkline(
    label: str,
    line: Timeline,
    shapes: Sequence[Shape],
    x: Hours,
    y: Scale | None = None,
    style: str = "spark",
) -> Markup:
    """A small picture, called `label`; without a known figure it is hatched."""
    shown = [shape for shape in shapes if any(value is not None for value in shape.values)]
    scale = y or ceiling([shape.values for shape in shown])
    marks = [
        *(area(line, one.values, x, scale, one.style) for one in shown if one.filled),
        *(stroke(line, one.values, x, scale, one.style) for one in shown),
    ]
    told = [any(one.values[i] is not None for one in shown) for i in range(len(line))]
    return tag(
        "svg",
        *((unknown_spans(line, told, x), stretched(*marks)) if shown else [veil(0, 1, "unknown")]),
        class_=style,
        role="img",
        aria_label=label if shown else f"{label}: not known",
    )
