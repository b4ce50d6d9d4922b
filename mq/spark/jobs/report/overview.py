"""The first part of the report: every queue as a row, and what stands out."""

import re
from collections.abc import Mapping, Sequence

from mq.spark.jobs.report import units
from mq.spark.jobs.report.markup import Markup, joined, tag
from mq.spark.jobs.report.queues import FIRST_FETCH, REMOVAL, Queue
from mq.spark.jobs.report.scales import Hours
from mq.spark.jobs.report.sparklines import POINTS, Shape, sparkline
from mq.spark.jobs.report.stalls import Stall, longest_stall
from mq.spark.jobs.report.timelines import Figure, summed, thinned, worst

_HEAD = (
    ("Queue", "text"),
    ("Published", "number"),
    ("Waiting", "number"),
    ("Oldest", "number"),
    ("First fetch p50, p99", "number"),
    ("Removal p50, p99", "number"),
    ("Sidelined", "number"),
    ("Known from", "text"),
)
_MOST_FINDINGS = 6
_SUMMED = ("published", "removed", "sidelined")


def totals(queues: Sequence[Queue], span: tuple[float, float] | None) -> Markup:
    """The report's first line of figures."""
    facts = [
        ("queues", units.whole(len(queues))),
        *((name, _total([queue.counts[name] for queue in queues])) for name in _SUMMED),
        ("waiting", _total([queue.backlog for queue in queues])),
        ("time", units.duration(span[1] - span[0]) if span else units.UNKNOWN),
    ]
    tiles = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts)
    return tag("dl", *tiles, class_="tiles")


def _total(values: Sequence[Figure]) -> str:
    """The sum; of some that are not known, how much it is at least."""
    known = [value for value in values if value is not None]
    at_least = "≥" if len(known) < len(values) else ""
    return f"{at_least}{units.count(sum(known))}" if known else units.UNKNOWN


def findings(queues: Sequence[Queue], anchors: Mapping[str, str]) -> Markup | None:
    """What a reader should look at: the longest stalls, queues that nobody reads, and those that
    sideline.
    """
    stalls = [(queue, stall) for queue in queues if (stall := longest_stall(queue.all))]
    stalls.sort(key=lambda pair: (-_length(pair[1]), pair[0].name))
    said = [
        joined(
            _link(queue, anchors),
            f": nothing was removed for {units.duration(_length(stall))} "
            f"({units.between(stall.begin, stall.end)}); "
            f"{units.count(stall.peak)} waited at its end",
        )
        for queue, stall in stalls[:_MOST_FINDINGS]
    ]
    unread = [queue for queue in queues if queue.counts["removed"] == 0 and queue.backlog]
    unread.sort(key=lambda queue: (-(queue.oldest_age_s or 0.0), queue.name))
    said += [
        joined(_link(queue, anchors), f": nothing was ever removed; {_waiting(queue)}")
        for queue in unread[: _MOST_FINDINGS // 2]
    ]
    sidelining = [queue for queue in queues if queue.counts["sidelined"]]
    sidelining.sort(key=lambda queue: (-(queue.counts["sidelined"] or 0.0), queue.name))
    said += [
        joined(_link(queue, anchors), f": {_sidelined(queue)}")
        for queue in sidelining[: _MOST_FINDINGS // 2]
    ]
    if not said:
        return None
    return tag(
        "section",
        tag("h2", "What stands out"),
        tag("ul", *(tag("li", line) for line in said)),
        class_="findings",
    )


def _length(stall: Stall) -> float:
    return stall.end - stall.begin


def _waiting(queue: Queue) -> str:
    age = f", the oldest for {units.duration(queue.oldest_age_s)}" if queue.oldest_age_s else ""
    return f"{units.count(queue.backlog)} waiting{age}"


def _sidelined(queue: Queue) -> str:
    sidelined, published = queue.counts["sidelined"] or 0.0, queue.counts["published"]
    of = f", {units.share(sidelined, published)} of what was published" if published else ""
    are = "message is" if sidelined == 1 else "messages are"
    return f"{units.whole(sidelined)} {are} sidelined{of}"


def _link(queue: Queue, anchors: Mapping[str, str]) -> Markup:
    # A long name is broken behind its marks.
    parts = re.split(r"(?<=[_.-])", queue.name)
    name = joined(parts[0], *(joined(tag("wbr"), part) for part in parts[1:]))
    if queue.name not in anchors:
        return tag("b", name)
    return tag("a", name, href=f"#{anchors[queue.name]}")


def overview(queues: Sequence[Queue], anchors: Mapping[str, str], x: Hours) -> Markup:
    """A row a queue, over the same span of time; `anchors`: of those that have a section below."""
    head = (
        tag("th", label, scope="col", role="columnheader", data_sort=kind) for label, kind in _HEAD
    )
    rows = (_row(queue, anchors, x) for queue in queues)
    return tag(
        "section",
        tag("h2", "Queues"),
        tag(
            "table",
            tag("thead", tag("tr", *head, role="row"), role="rowgroup"),
            tag("tbody", *rows, role="rowgroup"),
            class_="overview",
            role="table",
            aria_label="Queues",
        ),
    )


def _row(queue: Queue, anchors: Mapping[str, str], x: Hours) -> Markup:
    flow = thinned(queue.all.rates, summed, POINTS)
    depth = thinned(queue.all.backlog, worst, POINTS)
    published, mean = queue.counts["published"], _mean_rate(queue)
    pairs = [queue.all.overall.get(what, {}) for what in (FIRST_FETCH, REMOVAL)]
    sidelined = queue.counts["sidelined"]
    cells = (
        joined(
            sparkline(
                f"{queue.name}: published over time",
                flow,
                [Shape(flow.rates("published"), "published", filled=True)],
                x,
            ),
            _two(units.count(published), units.rate(mean)),
        ),
        joined(
            sparkline(
                f"{queue.name}: waiting over time",
                depth,
                [Shape(depth["messages"], "backlog", filled=True)],
                x,
            ),
            _two(units.count(queue.backlog)),
        ),
        _two(units.duration(queue.oldest_age_s, none=queue.backlog == 0)),
        *map(_latency, pairs),
        _two(units.count(sidelined)),
        _two(", ".join(queue.sources) or units.UNKNOWN),
    )
    orders = (
        published,
        queue.backlog,
        queue.oldest_age_s,
        *(pair.get("p99_s") for pair in pairs),
        sidelined,
        ", ".join(queue.sources),
    )
    return tag(
        "tr",
        tag("th", _link(queue, anchors), scope="row", role="rowheader", data_v=queue.name),
        *(
            tag("td", cell, role="cell", data_label=label, data_v="" if order is None else order)
            for cell, order, (label, _) in zip(cells, orders, _HEAD[1:], strict=True)
        ),
        role="row",
    )


def _latency(overall: Mapping[str, Figure]) -> Markup:
    none = overall.get("messages") == 0
    return _two(
        units.duration(overall.get("p50_s"), none=none),
        None if none else units.duration(overall.get("p99_s")),
    )


def _two(first: str, second: str | None = None) -> Markup:
    """A figure, and another in small beside it; a dash says that it is not known."""
    return tag(
        "span",
        _one(first),
        joined(" ", tag("small", second)) if second not in (None, units.UNKNOWN) else None,
        class_="value",
    )


def _one(text: str) -> Markup:
    return (
        tag("span", text, title="not known", class_="dash")
        if text == units.UNKNOWN
        else joined(text)
    )


def _mean_rate(queue: Queue) -> Figure:
    line = queue.all.rates
    total = summed(line["published"]) if len(line) else None
    span = sum(end - start for start, end in zip(line.starts, line.ends, strict=True))
    return total / span if total is not None and span else None
