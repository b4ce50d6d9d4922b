"""A queue's section of the report: its figures in words, and all its charts."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from mq.spark.jobs.report import units
from mq.spark.jobs.report.charts import (
    CARD,
    POINTS,
    Line,
    Names,
    backlog,
    bands,
    nothing,
    oldest,
    rates,
    receives,
    sizes,
    sparkline,
)
from mq.spark.jobs.report.drawing import Span
from mq.spark.jobs.report.markup import Markup, tag
from mq.spark.jobs.report.queues import (
    FETCHED,
    FIRST_FETCH,
    REMOVAL,
    REMOVED,
    SIZED,
    Figure,
    Part,
    Queue,
    longest_stall,
    named,
    not_known,
    summed,
    thinned,
    worst,
)

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_WORDS: Final = {FIRST_FETCH: "first fetch", REMOVAL: "removal"}
_INODES_ALONE = (
    "Inodes alone tell the present, and little of the past: an archive (mqctl pipeline "
    "archive), or a queue that keeps its history, tells the rest from then on."
)


class _Measure(NamedTuple):
    """A latency: its name in the tables, style, title, source, and the verb of its end."""

    what: str
    style: str
    title: str
    by: str
    verb: str


_LATENCIES = (
    _Measure(FIRST_FETCH, "fetch", "Publish to first fetch", FETCHED, "fetched"),
    _Measure(REMOVAL, "removal", "Publish to removal", REMOVED, "removed"),
)


def anchor(queue: Queue, number: int) -> str:
    """The fragment of the page for a queue, made from its name, so that links to it last."""
    return f"queue-{queue.name}" if _PLAIN.fullmatch(queue.name) else f"other-{number}"


def section(queue: Queue, number: int, *, opened: bool) -> Markup:
    """A queue's section, unfolded if `opened`."""
    head = tag("summary", tag("h2", queue.name), tag("span", _summary(queue), class_="facts"))
    span = queue.span
    body = (
        tag("p", "Nothing happened here that any source tells of.", class_="note")
        if span is None and queue.all.empty
        else tag("div", *_pictures(queue, f"q{number}", span or (0.0, 0.0)), class_="charts")
    )
    return tag(
        "details",
        head,
        _facts(queue),
        tag("p", _INODES_ALONE, class_="note lone") if queue.sources == ("inodes",) else None,
        body,
        priorities(queue, span) if span else None,
        class_="queue",
        id=anchor(queue, number),
        open="" if opened else None,
    )


def _summary(queue: Queue) -> str:
    known = (
        (queue.counts["published"], "published"),
        (queue.counts["removed"], "removed"),
        (queue.backlog, "waiting"),
    )
    return ", ".join(f"{units.count(value)} {what}" for value, what in known if value is not None)


def _facts(queue: Queue) -> Markup:
    facts = [(name, units.whole(queue.counts[name])) for name in queue.counts if name != "bytes"]
    facts += [
        ("bytes", units.volume(queue.counts["bytes"])),
        ("oldest", units.duration(queue.oldest_age_s, none=queue.backlog == 0)),
    ]
    if queue.first is not None and queue.last is not None:
        facts.append(("span", units.between(queue.first, queue.last)))
    facts.append(("known from", named(queue.sources) if queue.sources else units.UNKNOWN))
    items = (
        tag("div", tag("dt", name), tag("dd", value, title=_why(value))) for name, value in facts
    )
    return tag("dl", *items, class_="counts")


def _why(value: str) -> str | None:
    return "not known" if value == units.UNKNOWN else None


def _pictures(queue: Queue, prefix: str, span: Span) -> list[Markup]:
    part = queue.all
    flow = thinned(part.rates, summed)
    depth = thinned(part.backlog, worst)
    stall = longest_stall(part)
    fetches = not_known(queue, FETCHED)
    made = [
        rates(
            Names(f"{prefix}-rates", "Published and removed", "messages", _told(queue, "rates")),
            flow,
            span,
            (
                Line("published", (), "published", True, why=not_known(queue, REMOVED)),
                Line("removed", (), "removed", why=not_known(queue, REMOVED)),
            ),
            stall,
        ),
        backlog(
            Names(f"{prefix}-backlog", "Waiting", "messages", _told(queue, "backlog")),
            depth,
            span,
            not_known(queue, REMOVED),
            stall,
        ),
        *(_latency(queue, prefix, span, each) for each in _LATENCIES),
        oldest(
            Names(f"{prefix}-age", "Oldest message", "age", _told(queue, "age")),
            depth,
            span,
            not_known(queue, REMOVED),
        ),
        rates(
            Names(
                f"{prefix}-fetches",
                "Delivered again, sidelined",
                "messages",
                _told(queue, "fetches"),
            ),
            flow,
            span,
            (
                Line("fetched", why=fetches),
                Line("redelivered", (), "redelivered", True, why=fetches),
                Line("sidelined", (), "sidelined", why=fetches),
            ),
        ),
    ]
    return [*made, _receives(queue, prefix), _sizes(queue, prefix)]


def _latency(queue: Queue, prefix: str, span: Span, measure: _Measure) -> Markup:
    what, style, title, by, verb = measure
    overall = queue.all.overall.get(what)
    line = thinned(queue.all.latencies[what], worst, totals=("messages",))
    said = f"Quantiles of the time from {title.lower()}, on a logarithmic axis."
    if overall and overall["p50_s"] is not None:
        said += (
            f" Of all the time: half within {units.duration(overall['p50_s'])}, "
            f"99% within {units.duration(overall['p99_s'])}."
        )
    names = Names(f"{prefix}-{style}", title, "log scale; in figures: of the whole span", said)
    told = [*line["messages"], *([overall["messages"]] if overall else [])]
    if 0.0 in told and not any(told):
        known = " that is known" if None in told else ""
        return nothing(names, f"No message was {verb} in the time{known}.", hatched=False)
    return bands(names, line, overall, span, not_known(queue, by), style)


def _receives(queue: Queue, prefix: str) -> Markup:
    names = Names(
        f"{prefix}-receives",
        "Receives",
        "share of the messages that are over",
        "How often messages were received before they were removed.",
    )
    if _none(queue.all.receives, queue.counts["removed"]):
        return nothing(names, "No message is over yet.", hatched=False)
    return receives(names, queue.all.receives, not_known(queue, REMOVED))


def _sizes(queue: Queue, prefix: str) -> Markup:
    names = Names(
        f"{prefix}-sizes", "Sizes", "messages by bytes of body", "How large the bodies are."
    )
    if _none(queue.all.sizes, queue.counts["published"]):
        return nothing(names, "No message was published.", hatched=False)
    return sizes(names, queue.all.sizes, not_known(queue, SIZED))


def _none(rows: Sequence[tuple[float, ...]], messages: Figure) -> bool:
    """Whether it is known that there is no message to count."""
    return all(row[-1] == 0 for row in rows) if rows else messages == 0


def _told(queue: Queue, what: str) -> str:
    counts, waiting = queue.counts, queue.all.backlog
    peak = worst(waiting["messages"])
    age = worst(waiting["oldest_age_s"])
    return {
        "rates": f"Over time: {units.whole(counts['published'])} messages were published and "
        f"{units.whole(counts['removed'])} removed in all.",
        "backlog": f"Messages published and not yet removed, over time; {units.whole(peak)} at "
        f"most, {units.whole(queue.backlog)} now.",
        "age": f"The age of the oldest message that waits, over time; {units.duration(age)} at "
        "most.",
        "fetches": "How many messages were fetched, delivered again and sidelined, over time.",
    }[what].replace(units.UNKNOWN, "an unknown number of")


def priorities(queue: Queue, span: Span) -> Markup | None:
    """A card per priority, the most urgent first; None if the queue has only one."""
    if len(queue.parts) < 2:
        return None
    moved = {part.priority: thinned(part.rates, summed, POINTS) for part in queue.parts}
    waiting = {part.priority: thinned(part.backlog, worst, POINTS) for part in queue.parts}
    flow = worst(
        [v for line in moved.values() for v in (*line.rates("published"), *line.rates("removed"))]
    )
    depth = worst([v for line in waiting.values() for v in line["messages"]])
    cards = []
    for part in queue.parts:
        line, depths = moved[part.priority], waiting[part.priority]
        pictures = (
            sparkline(
                f"Priority {part.priority}: published and removed over time",
                line,
                [
                    Line("published", line.rates("published"), "published", filled=True),
                    Line("removed", line.rates("removed"), "removed"),
                ],
                span,
                flow,
                CARD,
            ),
            sparkline(
                f"Priority {part.priority}: waiting over time",
                depths,
                [Line("waiting", depths["messages"], "backlog", filled=True)],
                span,
                depth,
                CARD,
            ),
        )
        title = tag("h4", f"Priority {part.priority}")
        cards.append(tag("li", title, *pictures, _card(part)))
    note = (
        f"Above, published (area) and removed (dashed), to {units.rate(flow)}; "
        f"below, waiting, to {units.count(depth)}. All have the same axes."
    )
    return tag(
        "section",
        tag("h3", "By priority"),
        tag("p", note, class_="note"),
        tag("ul", *cards, class_="cards"),
        class_="priorities",
    )


def _card(part: Part) -> Markup:
    facts: list[tuple[str, str]] = [
        ("published", units.count(_sum(part.rates["published"]))),
        ("removed", units.count(_sum(part.rates["removed"]))),
    ]
    for what, word in _WORDS.items():
        overall = part.overall.get(what, {})
        facts += [
            (f"{word} {label}", units.duration(overall.get(column)))
            for column, label in (("p50_s", "p50"), ("p99_s", "p99"))
        ]
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts))


def _sum(values: tuple[Figure, ...]) -> Figure:
    return summed(values) if values else None
