"""A queue's own part of the report: its figures in words, and all its pictures."""

import re
from collections.abc import Sequence

from mq.spark.jobs.report import units
from mq.spark.jobs.report.bands import bands
from mq.spark.jobs.report.bars import receives, sizes
from mq.spark.jobs.report.lines import Line, Marked, backlog, oldest, rates
from mq.spark.jobs.report.markup import Markup, tag
from mq.spark.jobs.report.plots import Names, nothing
from mq.spark.jobs.report.priorities import priorities
from mq.spark.jobs.report.queues import FIRST_FETCH, REMOVAL, Queue
from mq.spark.jobs.report.reasons import FETCHES, REMOVALS, SIZES, named, not_known
from mq.spark.jobs.report.scales import Hours, hours
from mq.spark.jobs.report.stalls import longest_stall
from mq.spark.jobs.report.timelines import Figure, summed, thinned, worst

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_INODES_ALONE = (
    "Inodes alone tell what is there now, and little of what was: an archive (mqctl pipeline "
    "archive), or a queue that keeps its history, tells the rest from then on."
)
_LATENCIES = (
    (FIRST_FETCH, "fetch", "Publish to first fetch", FETCHES, "fetched"),
    (REMOVAL, "removal", "Publish to removal", REMOVALS, "removed"),
)


def anchor(queue: Queue, number: int) -> str:
    """The fragment of the page that a queue is at: by its name, so that a link to it lasts."""
    return f"queue-{queue.name}" if _PLAIN.fullmatch(queue.name) else f"other-{number}"


def section(queue: Queue, number: int, *, opened: bool) -> Markup:
    """All of one queue, which the page shows or folds up."""
    head = tag(
        "summary",
        tag("h2", queue.name),
        tag("span", _summary(queue), class_="facts"),
    )
    span = queue.span
    body = (
        tag("p", "Nothing happened here that any source tells of.", class_="note")
        if span is None and queue.all.empty
        else tag(
            "div", *_pictures(queue, f"q{number}", hours(*(span or (0.0, 0.0)))), class_="charts"
        )
    )
    return tag(
        "details",
        head,
        _facts(queue),
        tag("p", _INODES_ALONE, class_="note lone") if queue.sources == ("inodes",) else None,
        body,
        priorities(queue, hours(*span)) if span else None,
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


def _pictures(queue: Queue, prefix: str, x: Hours) -> list[Markup]:
    part = queue.all
    flow = thinned(part.rates, summed)
    depth = thinned(part.backlog, worst)
    stall = longest_stall(part)
    fetches = not_known(queue, FETCHES)
    made = [
        rates(
            Names(f"{prefix}-rates", "Published and removed", "messages", _told(queue, "rates")),
            flow,
            x,
            (
                Line("published", (), "published", True, why=not_known(queue, REMOVALS)),
                Line("removed", (), "removed", why=not_known(queue, REMOVALS)),
            ),
            Marked(stall=stall),
        ),
        backlog(
            Names(f"{prefix}-backlog", "Waiting", "messages", _told(queue, "backlog")),
            depth,
            x,
            not_known(queue, REMOVALS),
            stall,
        ),
        *(_latency(queue, prefix, x, *words) for words in _LATENCIES),
        oldest(
            Names(f"{prefix}-age", "Oldest message", "age", _told(queue, "age")),
            depth,
            x,
            not_known(queue, REMOVALS),
        ),
        rates(
            Names(
                f"{prefix}-fetches",
                "Delivered again, sidelined",
                "messages",
                _told(queue, "fetches"),
            ),
            flow,
            x,
            (
                Line("fetched", why=fetches),
                Line("redelivered", (), "redelivered", True, why=fetches),
                Line("sidelined", (), "sidelined", why=fetches),
            ),
        ),
    ]
    return [*made, _receives(queue, prefix), _sizes(queue, prefix)]


def _latency(
    queue: Queue, prefix: str, x: Hours, what: str, style: str, title: str, by: str, verb: str
) -> Markup:
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
    return bands(names, line, overall, x, not_known(queue, by), style)


def _receives(queue: Queue, prefix: str) -> Markup:
    names = Names(
        f"{prefix}-receives",
        "Receives",
        "share of the messages that are over",
        "How often messages were received before they were removed.",
    )
    if _none(queue.all.receives, queue.counts["removed"]):
        return nothing(names, "No message is over yet.", hatched=False)
    return receives(names, queue.all.receives, not_known(queue, REMOVALS))


def _sizes(queue: Queue, prefix: str) -> Markup:
    names = Names(
        f"{prefix}-sizes", "Sizes", "messages by bytes of body", "How large the bodies are."
    )
    if _none(queue.all.sizes, queue.counts["published"]):
        return nothing(names, "No message was published.", hatched=False)
    return sizes(names, queue.all.sizes, not_known(queue, SIZES))


def _none(rows: Sequence[tuple[float, ...]], messages: Figure) -> bool:
    """Whether it is known that there is no message to be counted."""
    return all(row[-1] == 0 for row in rows) if rows else messages == 0


def _told(queue: Queue, what: str) -> str:
    """A picture in a sentence."""
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
