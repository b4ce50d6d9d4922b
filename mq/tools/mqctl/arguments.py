"""Types of arguments and options: queues, durations, times, headers. Each rejects what mq would
reject, before a request is sent.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from mq.model.errors import BadName
from mq.model.limits import PRIORITY_MAX
from mq.model.names import QueueName
from mq.tools.mqctl import completing

if TYPE_CHECKING:
    Kind = click.ParamType[Any]
else:
    # Before click 8.2 the class takes no type argument.
    Kind = click.ParamType

_UNITS: Final = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SECONDS: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|m|h|d|)")
_HEADER: Final = re.compile(r"(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+):(?P<value>.*)")


class _Queue(Kind):
    name = "queue"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return QueueName.parse(str(value)).text
        except BadName as error:
            self.fail(f"{value!r} is not a queue name: {error.expected}", param, ctx)


class _Seconds(Kind):
    """A duration: a number, and a unit (ms, s, m, h, d) or none for seconds."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, int | float):
            return float(value)
        match = _SECONDS.fullmatch(str(value).strip().lower())
        seconds = float(match[1]) * _UNITS[match[2]] if match else math.nan
        if math.isnan(seconds) or math.isinf(seconds):
            self.fail(f"{value!r} is not a duration, such as 90, 1.5, 500ms, 15m, 2h", param, ctx)
        return seconds


class _Moment(Kind):
    """An RFC 3339 time with a zone."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            moment = datetime.min
        if moment.tzinfo is None:
            self.fail(f"{value!r} is not a time such as 2030-01-31T12:00:00Z", param, ctx)
        return moment


class _Header(Kind):
    name = "name: value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        match = _HEADER.fullmatch(str(value))
        if match is None or not match["value"].strip().isprintable():
            self.fail(f"{value!r} is not of the form `Name: value`", param, ctx)
        return match["name"], match["value"].strip()


QUEUE: Final = _Queue()
SECONDS: Final = _Seconds()
MOMENT: Final = _Moment()
HEADER: Final = _Header()
PRIORITY: Final = click.IntRange(0, PRIORITY_MAX)

queue_argument: Final = click.argument("queue", type=QUEUE, shell_complete=completing.queues)


def whole_seconds(ctx: click.Context, param: click.Parameter, value: float | None) -> int | None:
    """A click callback that requires whole seconds. Raises click's BadParameter."""
    if value is None:
        return None
    if value != int(value):
        raise click.BadParameter("must be a whole number of seconds", ctx, param)
    return int(value)


def _headers(
    ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, str], ...]
) -> Mapping[str, str] | None:
    names = [name.lower() for name, _ in pairs]
    if len(set(names)) < len(names):
        raise click.BadParameter("a header is given twice.", ctx, param)
    if "content-type" in names:
        raise click.BadParameter("use --content-type for the Content-Type.", ctx, param)
    return dict(pairs) or None


def message_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command --priority, --key, --visibility, --ttl, --group, --tag, --header and
    --content-type, and calls it with their values by the client's names, as publish and schedule
    take them.
    """
    options: tuple[Callable[[Any], Any], ...] = (
        click.option("--content-type", help="The body's Content-Type."),
        click.option(
            "--header",
            "headers",
            type=HEADER,
            multiple=True,
            callback=_headers,
            help="A header to keep with the message: ce-*, traceparent, tracestate, x-attribute-*, "
            "Content-Encoding. Repeatable.",
        ),
        click.option(
            "--tag",
            "tags",
            multiple=True,
            help="A tag, by which messages are found. Repeatable, at most 9 times.",
        ),
        click.option(
            "--group", help="Its group, whose messages are delivered one at a time, in order."
        ),
        click.option(
            "--ttl",
            "ttl_s",
            type=SECONDS,
            callback=whole_seconds,
            help="Expire this long after the publish, in whole seconds.",
        ),
        click.option(
            "--visibility",
            "visibility_s",
            type=SECONDS,
            callback=whole_seconds,
            help="Its visibility timeout, in whole seconds.",
        ),
        click.option("--key", help="A lookup key, unique in the queue."),
        click.option("--priority", type=PRIORITY, help="9 is delivered first."),
    )
    for option in options:
        command = option(command)
    return command


def queues_said(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[QueueName, ...]:
    """Parses an option's values as queue names; a click callback. Raises click's BadParameter."""
    try:
        return tuple(map(QueueName.parse, values))
    except BadName as error:
        raise click.BadParameter(str(error)) from error


def confirm(question: str, is_sure: bool) -> None:
    """Asks at the terminal. Raises click's Abort for a no, UsageError without a terminal."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Cannot ask: standard input is not a terminal. Confirm with --yes.")
    click.confirm(question, abort=True, err=True)
