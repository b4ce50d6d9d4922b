"""The report: one self-contained HTML file."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final

from mq.spark.jobs.report import units
from mq.spark.jobs.report.charts import POINTS, Line, sparkline
from mq.spark.jobs.report.drawing import Span
from mq.spark.jobs.report.markup import Markup, joined, tag
from mq.spark.jobs.report.queues import (
    FIRST_FETCH,
    REMOVAL,
    Figure,
    Queue,
    Stall,
    longest_stall,
    queues,
    summed,
    thinned,
    worst,
)
from mq.spark.jobs.report.sections import anchor, section

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
    """The sum; if some values are unknown, the least that it can be."""
    known = [value for value in values if value is not None]
    at_least = "≥" if len(known) < len(values) else ""
    return f"{at_least}{units.count(sum(known))}" if known else units.UNKNOWN


def findings(queues: Sequence[Queue], anchors: Mapping[str, str]) -> Markup | None:
    """Notable findings: the longest stalls, queues without a consumer, and queues that sideline."""
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
    of = f", {units.share(sidelined, published)} of the published messages" if published else ""
    are = "message is" if sidelined == 1 else "messages are"
    return f"{units.whole(sidelined)} {are} sidelined{of}"


def _link(queue: Queue, anchors: Mapping[str, str]) -> Markup:
    # A long name may break after these characters.
    parts = re.split(r"(?<=[_.-])", queue.name)
    name = joined(parts[0], *(joined(tag("wbr"), part) for part in parts[1:]))
    if queue.name not in anchors:
        return tag("b", name)
    return tag("a", name, href=f"#{anchors[queue.name]}")


def overview(queues: Sequence[Queue], anchors: Mapping[str, str], span: Span) -> Markup:
    """A row per queue, over the same span of time; `anchors`: queues that have a section below."""
    head = (
        tag("th", label, scope="col", role="columnheader", data_sort=kind) for label, kind in _HEAD
    )
    rows = (_row(queue, anchors, span) for queue in queues)
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


def _row(queue: Queue, anchors: Mapping[str, str], span: Span) -> Markup:
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
                [Line("published", flow.rates("published"), "published", filled=True)],
                span,
            ),
            _two(units.count(published), units.rate(mean)),
        ),
        joined(
            sparkline(
                f"{queue.name}: waiting over time",
                depth,
                [Line("waiting", depth["messages"], "backlog", filled=True)],
                span,
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
    """A figure, with another in small beside it; a dash stands for an unknown one."""
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


MOST_BYTES: Final = 3_000_000
"""The most characters of all queues' sections together."""
MOST_SECTIONS: Final = 40
OPENED: Final = 3
"""How many queues' sections are unfolded at first."""

_HATCH: Final = Markup(
    '<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>'
    '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path class="hatch" d="M0 0V7"/></pattern></defs></svg>'
)


def render(tables: Mapping[str, list[dict[str, Any]]], *, title: str, made_at: datetime) -> str:
    """The report of a history's tables, whose rows are as in history_folder.TABLES, as one HTML
    file; the same for the same tables.

    A time without a zone is UTC. The file loads nothing from other hosts, can be read without
    scripts, and stays below some megabytes: it shows the busiest queues in full, and all in the
    overview.
    """
    found = queues(tables)
    sections = _sections(found)
    anchors = {
        queue.name: anchor(queue, number) for number, queue in enumerate(found[: len(sections)])
    }
    spans = [queue.span for queue in found if queue.span]
    span = (min(s[0] for s in spans), max(s[1] for s in spans)) if spans else None
    main = tag(
        "main",
        tag(
            "header",
            tag("h1", title),
            tag("p", _subtitle(span, made_at), class_="subtitle"),
            totals(found, span) if found else None,
        ),
        findings(found, anchors),
        overview(found, anchors, span or (0.0, 0.0)) if found else _EMPTY,
        *sections,
        _rest(found, len(sections)),
        tag("footer", tag("p", *_LEGEND)),
    )
    html = tag("html", _head(title), tag("body", _HATCH, main, _script()), lang="en")
    return f"<!doctype html>\n{html}\n"


_EMPTY: Final = tag("p", "There is nothing to show: no source tells of any queue.", class_="empty")
_LEGEND: Final = (
    "Times are UTC. ",
    tag("b", units.UNKNOWN),
    " and hatching: not known, since none of the sources tells it; 0 is a known zero. ",
    "Waiting: published and not yet removed.",
)


def _subtitle(span: tuple[float, float] | None, made_at: datetime) -> str:
    made = (made_at if made_at.tzinfo else made_at.replace(tzinfo=UTC)).astimezone(UTC)
    covered = f"{units.between(*span)}, made" if span else "Made"
    return f"{covered} {made.day} {made:%b %Y %H:%M} UTC"


def _sections(found: Sequence[Queue]) -> list[Markup]:
    """The sections of the busiest queues, as many as fit."""
    made: list[Markup] = []
    room = MOST_BYTES
    for number, queue in enumerate(found[:MOST_SECTIONS]):
        part = section(queue, number, opened=number < OPENED)
        room -= len(part)
        if made and room < 0:
            break
        made.append(part)
    return made


def _rest(found: Sequence[Queue], shown: int) -> Markup | None:
    if shown == len(found):
        return None
    return tag(
        "p",
        f"The {shown} busiest of {len(found)} queues are shown in full. The others are in the "
        "overview; a history of some queues alone (",
        tag("code", "--queue NAME"),
        ") has all of theirs.",
        class_="note rest",
    )


def _resource(name: str) -> Markup:
    text = (files("mq.spark.jobs.report") / name).read_text(encoding="utf-8")
    return Markup(text.strip())


def _head(title: str) -> Markup:
    script = hashlib.sha256(_resource("report.js").encode()).digest()
    allowed = base64.b64encode(script).decode()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    )
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", _resource("report.css")),
    )


def _script() -> Markup:
    return joined(tag("script", _resource("report.js")))
