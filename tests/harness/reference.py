"""The tables of HTTP.md that are made from the endpoints.

`python -m harness.reference`, in `tests`, writes them into the page: the overview and the problems
between their marks, and of each section `### operation` the line with its request and the table
below, which has no headings.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mq.http
from mq.http.openapi.document import slugs_of
from mq.model.errors import (
    BadBody,
    BadName,
    BadParameter,
    BadPrecondition,
    BodyTooLarge,
    BodyTooSlow,
    BodyUnreadable,
    Busy,
    ConsumerNotFound,
    DeliveredAgain,
    ExpectationUnknown,
    KeyNotFound,
    MediaTypeUnknown,
    MessageNotFound,
    QueueNotFound,
    RangeUnsatisfiable,
    ScheduleNotFound,
    SettingsChanged,
    SettingsUnreadable,
    ShovelNotFound,
    UnknownField,
)
from mq.model.setting_kinds import Kind, Setting, Time, Word
from mq.model.settings import FIXED_SETTINGS, SETTINGS, QueueSettings
from mq.protocol.conditions import IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE
from mq.protocol.endpoint import Answer, Endpoint
from mq.protocol.endpoints import ENDPOINTS, TABLE
from mq.protocol.envelopes import ATTRIBUTES
from mq.protocol.problems import MEMBERS, OTHERS, PROBLEMS, problem_of
from mq.protocol.queues import SETTINGS_SAY

PAGE = Path(mq.http.__file__).with_name("HTTP.md")
DECLARED = [each for each in ENDPOINTS if each.method != "HEAD"]
RETRYABLE = (408, 500, 503)
"""The statuses of problems that a retry may overcome, as the page says."""
EVERYWHERE = {
    "Cache-Control",
    "Content-Security-Policy",
    "Cross-Origin-Resource-Policy",
    "X-Content-Type-Options",
}
MESSAGE = "X-Message-"
"""Reads have all headers of this beginning, which the page lists once."""
SHARED = {
    *(BadParameter, BadName, QueueNotFound, SettingsUnreadable, Busy, BadPrecondition),
    *(BodyTooLarge, BodyTooSlow, BodyUnreadable, ExpectationUnknown, BadBody, MediaTypeUnknown),
    *(UnknownField, ConsumerNotFound, KeyNotFound, MessageNotFound, ScheduleNotFound),
    *(ShovelNotFound, DeliveredAgain, SettingsChanged, RangeUnsatisfiable),
}
"""The errors that the page lists once, by what a request has: parameters, a queue, a body, what
its path names, conditions.
"""
CONDITIONS = (IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE)
OPTIONS = {"visibility_s": "--visibility", "body_bytes_max": "--max-body"}
"""Defaults that the daemon's options set."""
REFERRED = {"MessageId": "an id", "QueueName": "a queue's name"}


def overview() -> Iterator[str]:
    """A row for each path: its requests, each with the right that it needs."""
    yield "| path | requests, and the right that each needs |"
    yield "|---|---|"
    for path, methods in TABLE.items():
        found = [
            f"[{each.request.rpartition(' ')[0]}](#{each.name}) {right_of(each)}"
            for each in methods.values()
            if each in DECLARED
        ]
        yield f"| `{path}` | {' · '.join(found)} |"


def section(endpoint: Endpoint) -> Iterator[str]:
    """An endpoint's heading, and one table of its parameters, headers, answers and problems; with
    one answer, its conditions and its problems alone, a line.
    """
    rows = list(rows_of(endpoint))
    more = f" {endpoint.more}" if endpoint.more else ""
    is_line = not endpoint.parameters and all(each in CONDITIONS for each in endpoint.headers)
    is_line &= len(endpoint.answers) == 1
    words = (each.strip("| ").replace(" | ", " ").removesuffix(".") for each in rows)
    line = "; ".join(words)
    answer = f" {line[:1].upper()}{line[1:]}." if is_line else ""
    yield f"### {endpoint.name}"
    yield ""
    yield f"`{endpoint.request}`. {endpoint.says}{more}{answer}"
    if not answer:
        yield from ("", "| | |", "|---|---|", *rows)


def rows_of(endpoint: Endpoint) -> Iterator[str]:
    """The table's rows. A schedule has a publish's attributes in one row."""
    attributes = [each for each in endpoint.parameters if each in ATTRIBUTES.values()]
    shared = attributes if endpoint.name != "publish" else []
    for parameter in endpoint.parameters:
        if parameter not in shared:
            yield f"| `{parameter.name}` | {takes(parameter.schema)}. {cell(parameter.says)} |"
    if shared:
        names = ", ".join(f"`{each.name}`" for each in shared)
        yield f"| {names} | As in [publish](#publish). |"
    for header in endpoint.headers:
        if header not in CONDITIONS:
            yield f"| `{header.name}: {header.example}` | {cell(header.says)} |"
    if conditions := [f"`{each.name}`" for each in endpoint.headers if each in CONDITIONS]:
        yield f"| takes | [{', '.join(conditions)}](#conditions-and-ranges) |"
    for answer in endpoint.answers:
        yield f"| **{answer.status}** | {cell(told(answer))} |"
    if found := "; ".join(problems(endpoint)):
        yield f"| problems | {found} |"


def all_problems() -> Iterator[str]:
    """A row for each status: its problems, their facts, and the headers of their answers."""
    yield "| status | type `urn:mq:problem:` (facts; headers) |"
    yield "|---|---|"
    found: dict[int, list[str]] = {}
    for error, problem in [*PROBLEMS.items(), *((None, each) for each in OTHERS)]:
        assert problem.retryable is (problem.status in RETRYABLE), problem.slug
        facts = [each for each in getattr(error, "__dataclass_fields__", ()) if each in MEMBERS]
        told = ", ".join(f"`{each}`" for each in facts)
        if problem.own_headers:
            told = f"{told}; {', '.join(f'`{each}`' for each in problem.own_headers)}"
        text = f"`{problem.slug}` ({told.removeprefix('; ')})" if told else f"`{problem.slug}`"
        found.setdefault(problem.status, []).append(text)
    for status in sorted(found):
        yield f"| {status} | {', '.join(sorted(found[status]))} |"


def settings() -> Iterator[str]:
    """A row for each setting."""
    yield "| setting | values; default | meaning |"
    yield "|---|---|---|"
    for name, kind in {**SETTINGS, **FIXED_SETTINGS}.items():
        values = "; ".join(filter(None, (allowed(name, kind), by_default(name))))
        yield f"| `{name}` | {values} | {cell(SETTINGS_SAY[name])} |"


def by_default(name: str) -> str:
    """A setting's default; empty for a fixed one."""
    value = OPTIONS.get(name) or QueueSettings().as_json().get(name, "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return amount(name, value)
    words = value if isinstance(value, str) else json.dumps(value)
    return f"`{words}`" if words else ""


def allowed(name: str, kind: Kind) -> str:
    """The values of a setting, in words."""
    if isinstance(kind, Word):
        return ", ".join(f"`{each}`" for each in kind.words)
    if isinstance(kind, Setting):
        return " to ".join(amount(name, each) for each in (kind.least, kind.most))
    return kind.expected.partition(",")[0] if isinstance(kind, Time) else kind.expected


def amount(name: str, value: float) -> str:
    units = {1 << 20: "MiB", 1 << 30: "GiB", 1 << 40: "TiB", 1 << 50: "PiB"}
    fitting = [each for each in units if value and not value % each]
    if "bytes" in name and fitting:
        return f"{value // max(fitting):.0f} {units[max(fitting)]}"
    return f"{value:,.15g}"


def right_of(endpoint: Endpoint) -> str:
    value = endpoint.right.value
    return value if endpoint.in_path or value in ("nothing", "caller") else f"{value}, of `*`"


def told(answer: Answer) -> str:
    """What an answer says, the names of its schemas, and its headers but those for caches and
    browsers.
    """
    names = [
        each.each_line or str((each.schema or {}).get("$ref", "")).rpartition("/")[2]
        for each in answer.content.values()
    ]
    parts = [*(f"`{name}`" for name in names if name)]
    found = [name for name in answer.headers if name not in EVERYWHERE]
    if sum(name.startswith(MESSAGE) for name in found) > 1:
        found = [f"{MESSAGE}*", *(name for name in found if not name.startswith(MESSAGE))]
    parts += [f"`{name}`" for name in found]
    return f"{answer.says} {', '.join(parts)}".strip()


def problems(endpoint: Endpoint) -> Iterator[str]:
    """Those that the page does not list for all requests, by status."""
    found: dict[int, set[str]] = {}
    for error in endpoint.own_errors():
        if error not in SHARED:
            problem = problem_of(error)
            found.setdefault(problem.status, set()).add(problem.slug)
    for status in sorted(found):
        yield f"{status} {', '.join(f'`{slug}`' for slug in sorted(found[status]))}"


def malformed() -> set[str]:
    """The problems of all malformed names, parameters, headers, bodies and settings."""
    return {
        slug
        for each in DECLARED
        for error in each.own_errors()
        for slug in slugs_of(problem_of(error), each.malformed())
        if slug.startswith("bad-")
    }


def takes(schema: dict[str, Any]) -> str:
    """Which values a schema allows, in words."""
    default = schema.get("default")
    if "$ref" in schema:
        words = REFERRED[schema["$ref"].rpartition("/")[2]]
    elif "maxItems" in schema:
        kind = "an id" if "$ref" in schema["items"] else "text"
        words = f"{kind}, at most {schema['maxItems']} times"
    elif "items" in schema:
        words = f"some of {', '.join(f'`{each}`' for each in schema['items']['enum'])}"
        default = ",".join(schema["default"])
    elif "enum" in schema:
        words = " or ".join(f"`{each}`" for each in schema["enum"])
    elif "minimum" in schema:
        unit = " s" if schema["type"] == "number" else ""
        words = f"{schema['minimum']:,.15g} to {schema['maximum']:,.15g}{unit}"
    else:
        words = "a time (RFC 3339)" if schema.get("format") == "date-time" else "text"
    return words if default is None else f"{words}; `{default}`"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def filled(page: str) -> str:
    """The page with its tables made anew."""
    tables = {each.name: "\n".join(section(each)) for each in DECLARED}
    tables["overview"] = "\n".join(overview())
    tables["settings"] = "\n".join(settings())
    tables["problems"] = "\n".join(all_problems())

    def made(match: re.Match[str]) -> str:
        return f"{match[1]}\n{tables.pop(match[2])}\n\n{match[3]}"

    page = re.sub(
        r"(<!-- table: (\w+)(?:\. [^\n]*)? -->\n).*?(<!-- end -->)", made, page, flags=re.DOTALL
    )
    page = re.sub(
        r"^### (\w+)\n\n`[A-Z].*(?:\n\n\| \| \|(?:\n\|.*)+)?$",
        lambda match: tables.pop(match[1]),
        page,
        flags=re.MULTILINE,
    )
    assert not tables, f"the page has no place for {sorted(tables)}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
