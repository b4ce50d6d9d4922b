"""Spans of time as options say them: how long ("90s", "12h", "7d"), and when, which is a time of
RFC 3339 or so long ago. Callbacks of click's.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from mq.model.clock import SystemClock, parse_rfc3339

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LENGTH: Final = re.compile(r"([1-9][0-9]{0,9})([smhdw])")
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def length(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """How long something lasts, in seconds. Raises click's BadParameter."""
    if value is None:
        return None
    length_s = _length_s(value)
    if length_s is None:
        raise click.BadParameter(f"{value!r} is no length; say 90s, 15m, 12h, 7d or 2w")
    return length_s


def when(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """A moment, in UTC. Raises click's BadParameter."""
    if value is None:
        return None
    ago_s = _length_s(value)
    try:
        now_ms = SystemClock().now_ms()
        ms = parse_rfc3339(value) if ago_s is None else now_ms - ago_s * 1000
        return _EPOCH + timedelta(milliseconds=ms)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(
            f"{value!r} is no time; say 2026-01-31T12:00:00Z, or 7d for so long ago"
        ) from error


def _length_s(text: str) -> int | None:
    match = _LENGTH.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS_S[match[2]]
