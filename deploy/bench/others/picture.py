"""The rates as a picture: an SVG of two panels of bars, readable in a page of 800 pixels."""

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from deploy.bench.load import Mode
from deploy.bench.others.measure import MODES, TITLES, Samples

_WIDTH: Final = 860
_MARGIN: Final = 24
_BAR_LEFT: Final = 268
_BAR_RIGHT: Final = 640
_RATE_RIGHT: Final = 740
_BAR_HEIGHT: Final = 20
_ROW_HEIGHT: Final = 34
_HEAD_HEIGHT: Final = 96
_PANEL_HEAD: Final = 44
_FOOT_HEIGHT: Final = 84

_INK, _FAINT, _RULE = "#1f2328", "#656d76", "#d8dee4"
_OURS, _SAME, _LESS = "#d1582b", "#2f6db3", "#b4c8de"
_FONT: Final = "-apple-system, 'Segoe UI', Roboto, Helvetica, Arial, 'DejaVu Sans', sans-serif"


def picture(measured: Sequence[Samples], subtitles: Sequence[str]) -> str:
    """Messages a second of each server, mq's own in another colour, the fastest on top; two
    lines below its title.

    Pale bars are of those that have less on the disk before they answer than mq has. One that
    has nothing there of what was published is left out: its bar would dwarf all others.
    """
    left_out = [each.rival.name for each in measured if each.rival.publish_on_disk != "yes"]
    measured = [each for each in measured if each.rival.name not in left_out]
    panel_height = _PANEL_HEAD + _ROW_HEIGHT * len(measured)
    height = _HEAD_HEIGHT + len(MODES) * panel_height + _FOOT_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="{_FONT}">',
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        _text(_MARGIN, 38, "Durable messages a second", 20, weight=600),
        *(_text(_MARGIN, 60 + 18 * n, line, 12.5, _FAINT) for n, line in enumerate(subtitles)),
    ]
    for place, mode in enumerate(MODES):
        parts += _panel(measured, mode, _HEAD_HEIGHT + place * panel_height)
    notes = ["Whiskers: the slowest and the fastest round."]
    notes += [
        f"Not here, since nothing is on its disk when it answers: {name}." for name in left_out
    ]
    parts += _legend(height - _FOOT_HEIGHT + 28, " ".join(notes))
    return "\n".join((*parts, "</svg>")) + "\n"


def _panel(measured: Sequence[Samples], mode: Mode, top: int) -> list[str]:
    ordered = sorted(measured, key=lambda each: each.rate(mode), reverse=True)
    scale = (_BAR_RIGHT - _BAR_LEFT) / max(max(each.rates(mode)) for each in measured)
    bottom = top + _PANEL_HEAD + _ROW_HEIGHT * len(ordered) - 8
    parts = [
        _text(_MARGIN, top + 24, TITLES[mode], 15, weight=600),
        _text(_RATE_RIGHT, top + 24, "messages/s", 12, _FAINT, anchor="end"),
        _text(_WIDTH - _MARGIN, top + 24, "p99", 12, _FAINT, anchor="end"),
        f'<path d="M{_BAR_LEFT} {top + 36}V{bottom}" stroke="{_RULE}"/>',
    ]
    for place, samples in enumerate(ordered):
        parts += _bar(samples, mode, scale, top + _PANEL_HEAD + place * _ROW_HEIGHT)
    return parts


def _bar(samples: Samples, mode: Mode, scale: float, top: int) -> list[str]:
    """The median as a bar, the slowest and fastest round as a whisker, figures to the right."""
    rates, rate = samples.rates(mode), samples.rate(mode)
    middle, baseline = top + _BAR_HEIGHT / 2, top + _BAR_HEIGHT - 5
    low, high = (_BAR_LEFT + each(rates) * scale for each in (min, max))
    ours = samples.rival.name.startswith("mq")
    weight = 600 if ours else 400
    return [
        _text(_BAR_LEFT - 10, baseline, samples.rival.name, 13, weight=weight, anchor="end"),
        f'<rect x="{_BAR_LEFT}" y="{top}" width="{rate * scale:.1f}" height="{_BAR_HEIGHT}" '
        f'rx="2" fill="{_color(samples, mode)}"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} '
        f'{middle - 4}v8" stroke="{_INK}" stroke-opacity="0.55" fill="none"/>',
        _text(_RATE_RIGHT, baseline, f"{rate:,.0f}", 13, weight=weight, anchor="end"),
        _text(_WIDTH - _MARGIN, baseline, _ms(samples.p99_us(mode)), 12, _FAINT, anchor="end"),
    ]


def _color(samples: Samples, mode: Mode) -> str:
    if samples.rival.name.startswith("mq"):
        return _OURS
    return _SAME if mode == "publish" or samples.rival.as_much_as_mq else _LESS


def _legend(top: int, note: str) -> list[str]:
    entries = (
        (_OURS, "mq"),
        (_SAME, "promises the same: what is answered is on the disk"),
        (_LESS, "promises less: some of it is in memory only when it is answered"),
    )
    parts = []
    left = _MARGIN
    for color, words in entries:
        parts.append(
            f'<rect x="{left}" y="{top - 10}" width="12" height="12" rx="2" fill="{color}"/>'
        )
        parts.append(_text(left + 18, top, words, 12, _FAINT))
        left += 18 + int(len(words) * 6.3) + 20
    parts.append(_text(_MARGIN, top + 28, note, 12, _FAINT))
    return parts


def _ms(us: float) -> str:
    return f"{us / 1000:,.1f} ms" if us < 100_000 else f"{us / 1000:,.0f} ms"


def _text(
    x: float, y: float, words: str, size: float, fill: str = _INK, weight: int = 400,
    anchor: str = "start",
) -> str:  # fmt: skip
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{fill}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )
