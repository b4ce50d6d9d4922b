"""The picture of latencies: quantiles as bands over time, on a logarithmic axis."""

from collections.abc import Mapping

from mq.spark.jobs.report.drawing import apart, band, percent, stroke
from mq.spark.jobs.report.lines import note_of
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
from mq.spark.jobs.report.queues import QUANTILES
from mq.spark.jobs.report.scales import Hours, Scale, latencies, latency_tick
from mq.spark.jobs.report.timelines import Figure, Timeline
from mq.spark.jobs.report.units import duration, whole

LABELS = {"p50_s": "p50", "p90_s": "p90", "p99_s": "p99", "p999_s": "p99.9", "max_s": "max"}
_DRAWN = ("p50_s", "p90_s", "p99_s", "p999_s")
_BANDS = (("p99_s", "p999_s", "far"), ("p90_s", "p99_s", "mid"), ("p50_s", "p90_s", "near"))
_LABEL_HEIGHT = 0.085
"""Of the plot."""


def bands(
    names: Names,
    line: Timeline,
    overall: Mapping[str, Figure] | None,
    x: Hours,
    why: str,
    style: str,
) -> Markup:
    """Quantiles over time; `style` gives the colour. Without a known figure, why there is none."""
    known = [value for column in _DRAWN for value in line[column] if value is not None]
    if not known:
        return nothing(names, why)
    y = latencies(known)
    plot = picture(
        names,
        joined(
            unknown_spans(line, [_is_known(line, i) for i in range(len(line))], x),
            horizontal(y, _tick_labels(y, known)),
            below(x),
        ),
        [
            *(
                band(line, line[low], line[high], x, y, f"{style} {strength}")
                for low, high, strength in _BANDS
            ),
            stroke(line, line["p99_s"], x, y, f"{style} edge"),
            stroke(line, line["p50_s"], x, y, style),
        ],
        _ends(line, y),
    )
    legend = [Entry(f"line {style}", "p50", _overall(overall, "p50_s"))]
    for (_, high, strength), before in zip(reversed(_BANDS), ("p50", "p90", "p99"), strict=True):
        label = f"{before} to {LABELS[high]}"
        legend.append(Entry(f"area {style} {strength}", label, _overall(overall, high)))
    if not all(_is_known(line, i) for i in range(len(line))):
        legend.append(Entry("unknown", "not known"))
    columns = [Column("messages", line["messages"], whole)]
    columns += [Column(LABELS[name], line[name], duration) for name in QUANTILES]
    gaps = "Gaps: no message got so far then." if 0.0 in line["messages"] else None
    note = " ".join(filter(None, (gaps, note_of(line)))) or None
    return chart(names, plot, legend, over_time(names, line, x, columns), note, "labelled")


def _is_known(line: Timeline, index: int) -> bool:
    """A step without messages has no latencies, and nothing about it is unknown."""
    return line["messages"][index] == 0 or any(line[name][index] is not None for name in _DRAWN)


def _overall(overall: Mapping[str, Figure] | None, column: str) -> str:
    return duration(overall[column]) if overall and overall.get(column) is not None else ""


def _tick_labels(y: Scale, known: list[float]) -> list[str]:
    """The lowest stands for all that is less, 0 too."""
    labels = [latency_tick(tick) for tick in y.ticks]
    if min(known) < y.low:
        labels[0] = f"≤{labels[0]}"
    return labels


def _ends(line: Timeline, y: Scale) -> Markup:
    """The quantiles' names at the right end of their lines."""
    last = [
        (y.at(value), LABELS[column])
        for column in _DRAWN
        for value in (next((v for v in reversed(line[column]) if v is not None), None),)
        if value is not None
    ]
    last.sort(key=lambda pair: pair[0])
    places = apart([place for place, _ in last], _LABEL_HEIGHT)
    return joined(
        *(
            tag("text", label, class_="end", x="100%", dx="6", y=percent(1 - place), dy="0.32em")
            for place, (_, label) in zip(places, last, strict=True)
        )
    )
