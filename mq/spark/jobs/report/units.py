"""Formats figures for people: counts, rates, bytes, durations, times. None is UNKNOWN."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

UNKNOWN: Final = "\u2013"
Format = Callable[[float | None], str]

_SI: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SPANS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
_FIRST_TIME: Final = datetime.min.replace(tzinfo=UTC).timestamp()
_LAST_TIME: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
PER: Final = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"))
"""Units of a rate: seconds, and the unit's name."""


def short(value: float) -> str:
    """Three significant digits: 0, 0.04, 1.2, 12.3, 123."""
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    rounded = round(value, max(0, min(2 - size, 6)) if size < 2 else 0)
    text = f"{rounded:.6f}".rstrip("0").rstrip(".")
    return text if text not in ("", "-0") else "0"


def count(value: float | None) -> str:
    """A count in short: 999, 1.2k, 12.3M."""
    if value is None:
        return UNKNOWN
    for size, letter in _SI:
        if abs(value) >= size * 0.9995:
            return short(value / size) + letter
    return short(value)


def whole(value: float | None) -> str:
    """A count with all its digits: 12,345."""
    return UNKNOWN if value is None else f"{round(value):,}"


def volume(value: float | None) -> str:
    """Bytes: 0 B, 1.5 KiB."""
    if value is None:
        return UNKNOWN
    power = 0
    while abs(value) >= 1024 and power < len(_BINARY) - 1:
        value, power = value / 1024, power + 1
    return f"{short(value)} {_BINARY[power]}"


def duration(value: float | None, *, none: bool = False) -> str:
    """Seconds, in the two largest units: 0 s, 12 ms, 1.2 s, 3 min 20 s, 2 d 4 h. `none`: the value
    is known not to exist.
    """
    if value is None:
        return "none" if none else UNKNOWN
    if value == 0:
        return "0 s"
    if abs(value) < 1e-3:
        return f"{short(value * 1e6)} µs"
    if abs(value) < 0.9995:
        return f"{short(value * 1e3)} ms"
    if abs(value) < 60:
        return f"{short(value)} s"
    for (size, unit), (smaller, lesser) in pairwise(_SPANS):
        if abs(value) >= size:
            amount, rest = divmod(round(value / smaller), round(size / smaller))
            tail = f" {rest} {lesser}" if rest and amount < 100 else ""
            return f"{amount:,} {unit}{tail}"
    raise AssertionError("a minute or more is in one of the spans")


def rate(value: float | None) -> str:
    """Events a second, in a unit that gives a readable number: 12/s, 3/min, 4/h."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0/s"
    seconds, unit = per(value)
    return f"{count(value * seconds)}/{unit}"


def per(value: float) -> tuple[float, str]:
    """The unit of time in which this rate is at least one event: (60, "min")."""
    for seconds, unit in PER:
        if value * seconds >= 0.995:
            return seconds, unit
    return PER[-1] if value else PER[0]


def share(part: float, of: float) -> str:
    """A share in percent: a part above 0 is never 0%, and only the whole is 100%."""
    percent = 100 * part / of if of else 0.0
    if 0 < percent < 0.01:
        return "<0.01%"
    if 99.99 < percent < 100:
        return ">99.99%"
    return f"{percent:.2f}".rstrip("0").rstrip(".") + "%"


def moment(seconds: float) -> datetime:
    """The UTC time this many seconds after 1970; the nearest one that a calendar has."""
    return datetime.fromtimestamp(min(max(seconds, _FIRST_TIME), _LAST_TIME), UTC)


def at(seconds: float, *, with_seconds: bool = False) -> str:
    """A time as a table has it: 2026-03-14 12:05."""
    return moment(seconds).strftime("%Y-%m-%d %H:%M:%S" if with_seconds else "%Y-%m-%d %H:%M")


def between(begin: float, end: float) -> str:
    """A span of time, in UTC: 14 Mar 2026 08:00 to 20:00 UTC; a short one with its seconds."""
    first, last = moment(begin), moment(end)
    clock = "%H:%M:%S" if end - begin < 600 else "%H:%M"
    until = last.strftime(clock)
    if first.date() != last.date():
        until = f"{last.day} {last:%b %Y} {until}"
    return f"{first.day} {first:%b %Y} {first.strftime(clock)} to {until} UTC"
