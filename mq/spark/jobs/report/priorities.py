"""A queue's priorities side by side: small pictures with the same axes."""

from mq.spark.jobs.report import units
from mq.spark.jobs.report.markup import Markup, tag
from mq.spark.jobs.report.queues import FIRST_FETCH, REMOVAL, Part, Queue
from mq.spark.jobs.report.scales import Hours
from mq.spark.jobs.report.sparklines import POINTS, Shape, ceiling, sparkline
from mq.spark.jobs.report.timelines import Figure, summed, thinned, worst

_WORDS = {FIRST_FETCH: "first fetch", REMOVAL: "removal"}


def priorities(queue: Queue, x: Hours) -> Markup | None:
    """A card a priority, the most urgent first; None of a queue that has but one."""
    if len(queue.parts) < 2:
        return None
    rates = {part.priority: thinned(part.rates, summed, POINTS) for part in queue.parts}
    waiting = {part.priority: thinned(part.backlog, worst, POINTS) for part in queue.parts}
    flow = ceiling(
        [line.rates(name) for line in rates.values() for name in ("published", "removed")]
    )
    depth = ceiling([line["messages"] for line in waiting.values()])
    cards = []
    for part in queue.parts:
        line, backlog = rates[part.priority], waiting[part.priority]
        moved = sparkline(
            f"Priority {part.priority}: published and removed over time",
            line,
            [
                Shape(line.rates("published"), "published", filled=True),
                Shape(line.rates("removed"), "removed"),
            ],
            x,
            flow,
            "mini",
        )
        waited = sparkline(
            f"Priority {part.priority}: waiting over time",
            backlog,
            [Shape(backlog["messages"], "backlog", filled=True)],
            x,
            depth,
            "mini",
        )
        title = tag("h4", f"Priority {part.priority}")
        cards.append(tag("li", title, moved, waited, _facts(part)))
    note = (
        f"Above, published (area) and removed (dashed), to {units.rate(flow.high)}; "
        f"below, waiting, to {units.count(depth.high)}. All have the same axes."
    )
    return tag(
        "section",
        tag("h3", "By priority"),
        tag("p", note, class_="note"),
        tag("ul", *cards, class_="cards"),
        class_="priorities",
    )


def _facts(part: Part) -> Markup:
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
