"""The report: one file of HTML with all that it needs in it."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final

from mq.spark.jobs.report import units
from mq.spark.jobs.report.markup import Markup, joined, tag
from mq.spark.jobs.report.overview import findings, overview, totals
from mq.spark.jobs.report.queues import Queue, queues
from mq.spark.jobs.report.scales import hours
from mq.spark.jobs.report.sections import anchor, section

MOST_BYTES: Final = 3_000_000
"""The sections of queues together have no more than this many characters."""
MOST_SECTIONS: Final = 40
OPENED: Final = 3
"""So many queues' sections are unfolded from the start."""

_HATCH: Final = Markup(
    '<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>'
    '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path class="hatch" d="M0 0V7"/></pattern></defs></svg>'
)


def render(tables: Mapping[str, list[dict[str, Any]]], *, title: str, made_at: datetime) -> str:
    """The report of a history's tables, which are rows as history_tables.TABLES names them, as one
    HTML file; the same for the same tables.

    A time without a zone is UTC. It asks no other host, needs no script to be read, and stays below
    some megabytes: the busiest queues are shown in full, all of them in the overview.
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
        overview(found, anchors, hours(*(span or (0.0, 0.0)))) if found else _EMPTY,
        *sections,
        _rest(found, len(sections)),
        tag("footer", tag("p", *_LEGEND)),
    )
    html = tag("html", _head(title), tag("body", _HATCH, main, _script()), lang="en")
    return f"<!doctype html>\n{html}\n"


_EMPTY: Final = tag(
    "p",
    "There is nothing to show: no source tells of any queue.",
    class_="empty",
)
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
    """Of the busiest queues, as many as fit."""
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
