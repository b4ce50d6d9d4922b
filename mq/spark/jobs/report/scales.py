"""Scales: where a value stands on an axis, and which round values are written beside it."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mq.spark.jobs.report.units import duration, moment

_DAY: Final = 86400
_SECONDS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600),
    *(_DAY, 2 * _DAY, 5 * _DAY, 10 * _DAY, 20 * _DAY, 50 * _DAY, 100 * _DAY),
)
"""Steps between ticks of seconds, up to where round numbers of days do."""
_DECADES: Final = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0),
    *(float(_DAY), 7.0 * _DAY, 30.0 * _DAY, 365.0 * _DAY, 3650.0 * _DAY),
    *(36500.0 * _DAY, 365000.0 * _DAY),
)
"""Ticks of durations on a logarithmic axis."""
_LEAST: Final = 1e-12
"""What is less is drawn as nothing."""
_CLOCK: Final = (
    *(1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY),
)
_MONTHS: Final = (1, 3, 6, 12, 24, 60, 120, 600)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high`, on a line from 0 to 1; beyond them is at its ends."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Where a value stands, from 0 to 1."""
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
        if high <= low:
            return 0.5
        return min(max((value - low) / (high - low), 0.0), 1.0)


def round_step(span: float, parts: int) -> float:
    """The least of 1, 2 and 5 times a power of ten of which so many parts cover the span."""
    power = 10.0 ** math.floor(math.log10(span / parts))
    for factor in (1, 2, 5, 10, 20):
        if math.ceil(span / (factor * power) - 1e-9) <= parts:
            return factor * power
    return 50 * power


def _stepped(high: float, step: float) -> Scale:
    steps = max(1, math.ceil(high / step - 1e-9))
    ticks = tuple(float(f"{step * number:.12g}") for number in range(steps + 1))
    return Scale(0.0, ticks[-1], ticks)


def counts(values: Sequence[float | None], most: int = 5) -> Scale:
    """From 0 to a round number that covers the values, with `most` ticks at most."""
    high = max((value for value in values if value is not None), default=0.0)
    return _stepped(high, round_step(high, most - 1)) if high > _LEAST else Scale(0.0, 1.0, (0.0,))


def ages(values: Sequence[float | None], most: int = 5) -> Scale:
    """As `counts`, in seconds: its ticks are round in seconds, minutes, hours or days."""
    high = max((value for value in values if value is not None), default=0.0)
    if high <= _LEAST:
        return Scale(0.0, 1.0, (0.0,))
    if high < _SECONDS[0] or high > _SECONDS[-1] * (most - 1):
        days = round_step(high / _DAY, most - 1) if high > 1 else 0
        return _stepped(high, days * _DAY if days else round_step(high, most - 1))
    step = next(step for step in _SECONDS if step * (most - 1) >= high * (1 - 1e-9))
    return _stepped(high, step)


def latencies(values: Sequence[float | None], most: int = 7) -> Scale:
    """Durations on a logarithmic axis, whose ends are round ones; 0 is at its lower end."""
    known = [value for value in values if value is not None and value > 0]
    low, high = min(known, default=0.001), max(known, default=0.001)
    below = max(bisect_left(_DECADES, low * (1 + 1e-9)) - 1, 0)
    above = min(bisect_left(_DECADES, high * (1 - 1e-9)), len(_DECADES) - 1)
    if above <= below:
        below, above = (below, below + 1) if below + 1 < len(_DECADES) else (below - 1, below)
    chosen = _DECADES[below : above + 1]
    every = math.ceil((len(chosen) - 1) / (most - 1))
    ticks = (*chosen[:-1:every], chosen[-1]) if every > 1 else chosen
    if len(ticks) > 2 and every > 1 and (len(chosen) - 1) % every:
        ticks = (*ticks[:-2], ticks[-1])
    return Scale(chosen[0], chosen[-1], ticks, logarithmic=True)


def latency_tick(value: float) -> str:
    """A tick of `latencies`, in one unit."""
    years = value / (365 * _DAY)
    return f"{years:.0f} y" if years >= 1 else duration(value)


@dataclass(frozen=True, slots=True)
class Hours:
    """A span of UTC time, and its ticks with their labels."""

    scale: Scale
    labels: tuple[str, ...]

    def at(self, seconds: float) -> float:
        """Where a time stands, from 0 to 1."""
        return self.scale.at(seconds)


def hours(begin: float, end: float, most: int = 7) -> Hours:
    """The axis of times from `begin` to `end`, seconds since 1970, with `most` ticks at most.

    Its ends are those: its ticks are round times between them.
    """
    if end <= begin:
        return Hours(Scale(begin, end, (begin,)), (_label(begin, 1),))
    step = next((step for step in _CLOCK if (end - begin) / step <= most - 1), None)
    ticks = _even(begin, end, step) if step else _months(begin, end, most)
    return Hours(Scale(begin, end, ticks), tuple(_label(tick, step) for tick in ticks))


def _even(begin: float, end: float, step: int) -> tuple[float, ...]:
    # Weeks begin on Mondays: the fourth day after 1970 began.
    origin = 4 * _DAY if step % (7 * _DAY) == 0 else 0
    first = math.ceil((begin - origin) / step)
    last = math.floor((end - origin) / step)
    return tuple(float(origin + number * step) for number in range(first, last + 1))


def _months(begin: float, end: float, most: int) -> tuple[float, ...]:
    first, last = moment(begin), moment(end)
    start, stop = first.year * 12 + first.month - 1, last.year * 12 + last.month - 1
    every = next((e for e in _MONTHS if (stop - start) // e + 1 <= most), _MONTHS[-1])
    begun = (
        datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()
        for month in range(-(-start // every) * every, stop + 1, every)
    )
    return tuple(seconds for seconds in begun if begin <= seconds <= end)[:most]


def _label(seconds: float, step: int | None) -> str:
    when = moment(seconds)
    if step is None:
        return f"{when:%b %Y}" if when.month > 1 else f"{when:%Y}"
    if step >= _DAY or (when.hour, when.minute, when.second) == (0, 0, 0):
        return f"{when.day} {when:%b}"
    return f"{when:%H:%M:%S}" if step < 60 else f"{when:%H:%M}"
