"""Pictures of bars: how often messages were received, and how large they are."""

from collections.abc import Sequence

from mq.spark.jobs.report import units
from mq.spark.jobs.report.drawing import percent
from mq.spark.jobs.report.markup import Markup, joined, tag
from mq.spark.jobs.report.plots import Names, chart, horizontal, listed, nothing, picture
from mq.spark.jobs.report.scales import counts

_RECEIVES = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (10, 19), (20, 99), (100, 10**9))


def receives(names: Names, found: Sequence[tuple[int, float]], why: str) -> Markup:
    """A bar a number of receives, with its share in figures: the rare ones are what matters."""
    total = sum(messages for _, messages in found)
    if not total:
        return nothing(names, why)
    rows = [
        (_often(low, high), sum(n for often, n in found if low <= often <= high))
        for low, high in _RECEIVES
    ]
    last = max(index for index, (_, messages) in enumerate(rows) if messages)
    shown = [row for row in rows[: last + 1] if row[1] or row[0] != "0"]
    most = max(messages for _, messages in shown)
    height = 1 / len(shown)
    drawn = []
    for index, (label, messages) in enumerate(shown):
        middle = percent((index + 0.5) * height)
        drawn.append(tag("text", label, class_="y", x="-8", y=middle, dy="0.32em"))
        if messages:
            bar = percent(max(0.7 * messages / most, 0.004))
            top, thick = percent((index + 0.2) * height), percent(0.6 * height)
            drawn.append(tag("rect", class_="bar", x="0", y=top, width=bar, height=thick, rx="2"))
        text = f"{units.share(messages, total)} ({units.count(messages)})" if messages else "0"
        beside = percent(max(0.7 * messages / most, 0.004) if messages else 0)
        drawn.append(
            tag("text", text, class_="mark start", x=beside, dx="7", y=middle, dy="0.32em")
        )
    plot = picture(names, joined(*drawn), (), Markup())
    table = [
        (f"{often:,}" if often < 999 else "999 or more", units.whole(n), units.share(n, total))
        for often, n in found
    ]
    figures = listed(names, ("Receives", "Messages", "Share"), table)
    return chart(names, plot, (), figures, style="rows")


def _often(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} to {high}" if high < 10**9 else f"{low} or more"


def sizes(names: Names, found: Sequence[tuple[int, int, float]], why: str) -> Markup:
    """A bar a power of two, with a gap where there is no message of that size."""
    total = sum(messages for _, _, messages in found)
    if not total:
        return nothing(names, why)
    by_power = {_power(low): messages for low, _, messages in found if messages}
    powers = range(min(by_power), max(by_power) + 1)
    y = counts(list(by_power.values()))
    width = 1 / max(len(powers), 6)
    drawn = []
    for index, power in enumerate(powers):
        messages = by_power.get(power, 0.0)
        if messages:
            up = max(y.at(messages), 0.012)
            drawn.append(
                tag(
                    "rect",
                    class_="bar size",
                    x=percent((index + 0.08) * width),
                    y=percent(1 - up),
                    width=percent(0.84 * width),
                    height=percent(up),
                    rx="2",
                )
            )
        if index % max(1, -(-len(powers) // 6)) == 0:
            across = percent((index + 0.5) * width)
            style = "x" if index // max(1, -(-len(powers) // 6)) % 2 == 0 else "x odd"
            label = units.volume(_low(power))
            drawn.append(tag("text", label, class_=style, x=across, y="100%", dy="1.55em"))
    plot = picture(
        names,
        horizontal(y, [units.count(tick) for tick in y.ticks]),
        (),
        joined(*drawn),
    )
    rows = [
        (_range(low, high), units.whole(messages), units.share(messages, total))
        for low, high, messages in found
    ]
    return chart(names, plot, (), listed(names, ("Bytes", "Messages", "Share"), rows))


def _power(low: int) -> int:
    """0 for an empty body, 1 for one byte, 2 for two or three, ..."""
    return low.bit_length()


def _low(power: int) -> int:
    return 1 << (power - 1) if power else 0


def _range(low: int, high: int) -> str:
    return "0 B" if not low else f"{units.volume(low)} to {units.volume(high)}"
