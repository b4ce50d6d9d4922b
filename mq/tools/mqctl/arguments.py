"""What arguments and options may be: queues, seconds, times, headers. Each refuses what mq would
refuse, before anything is sent.
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

if TYPE_CHECKING:
    Kind = click.ParamType[Any]
else:
    # Not every click has it take what it gives.
    Kind = click.ParamType

_UNITS: Final = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SECONDS: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|m|h|d|)")
_HEADER: Final = re.compile(r"(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+):(?P<value>.*)")


class _Queue(Kind):
    """A queue's name."""

    name = "queue"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See click."""
        try:
            return QueueName.parse(str(value)).text
        except BadName as error:
            self.fail(f"{value!r} is no queue's name: {error.expected}", param, ctx)


class _Seconds(Kind):
    """Seconds, or so many ms, s, m, h, d."""

    name = "seconds"

    def __init__(self, least: float = 0.0) -> None:
        self._least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See click."""
        if isinstance(value, int | float):
            return float(value)
        match = _SECONDS.fullmatch(str(value).strip().lower())
        seconds = float(match[1]) * _UNITS[match[2]] if match else math.nan
        if math.isnan(seconds) or math.isinf(seconds):
            self.fail(f"{value!r} is no number of seconds; say 90, 1.5, 500ms, 15m, 2h", param, ctx)
        if seconds < self._least:
            self.fail(f"{value!r} is less than {self._least:g} seconds", param, ctx)
        return seconds


class _Moment(Kind):
    """A time as RFC 3339 has it, with its zone."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """See click."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            moment = datetime.min
        if moment.tzinfo is None:
            self.fail(f"{value!r} is no time such as 2030-01-31T12:00:00Z", param, ctx)
        return moment


class _Header(Kind):
    """`Name: value`."""

    name = "name: value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """See click."""
        if isinstance(value, tuple):
            return value
        match = _HEADER.fullmatch(str(value))
        if match is None or not match["value"].strip().isprintable():
            self.fail(f"{value!r} is no `Name: value`", param, ctx)
        return match["name"], match["value"].strip()


QUEUE: Final = _Queue()
SECONDS: Final = _Seconds()
MOMENT: Final = _Moment()
HEADER: Final = _Header()
PRIORITY: Final = click.IntRange(0, PRIORITY_MAX)

queue_argument: Final = click.argument("queue", type=QUEUE)


def whole_seconds(ctx: click.Context, param: click.Parameter, value: float | None) -> int | None:
    """An option's value in whole seconds. Raises click's BadParameter."""
    if value is None:
        return None
    if value != int(value):
        raise click.BadParameter("is whole seconds", ctx, param)
    return int(value)


def message_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What send and schedules say of messages: --priority, --key, --visibility, --header and
    --content-type.
    """
    options: tuple[Callable[[Any], Any], ...] = (
        click.option("--content-type", default=None, help="The body's Content-Type."),
        click.option(
            "--header",
            "headers",
            type=HEADER,
            multiple=True,
            help="A header that the message keeps: ce-*, traceparent, tracestate, x-attribute-*, "
            "Content-Encoding. May be said again.",
        ),
        click.option(
            "--visibility",
            type=SECONDS,
            callback=whole_seconds,
            default=None,
            help="For how long a fetch of it lasts, whole seconds.",
        ),
        click.option("--key", default=None, help="A lookup key that no other message has."),
        click.option("--priority", type=PRIORITY, default=None, help="9 goes first."),
    )
    for option in options:
        command = option(command)
    return command


def headers_of(pairs: tuple[tuple[str, str], ...]) -> Mapping[str, str] | None:
    """Headers as the client takes them. Raises click's UsageError where one is said twice."""
    names = [name.lower() for name, _ in pairs]
    if len(set(names)) < len(names):
        raise click.UsageError("--header: one of them is said twice.")
    if "content-type" in names:
        raise click.UsageError("--header: the Content-Type is said by --content-type.")
    return dict(pairs) or None


def confirm(question: str, is_sure: bool) -> None:
    """Asks somebody at the terminal. Raises click's Abort for a no, UsageError where nobody can be
    asked.
    """
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here: --yes says that it is meant.")
    click.confirm(question, abort=True, err=True)
