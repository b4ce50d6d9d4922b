"""The servers' figures as one Markdown table, and their promises below it."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from deploy.bench.load import Mode
from deploy.bench.others.measure import MODES, Sample, Samples
from deploy.bench.table import drawn

TITLES: Final[dict[Mode, str]] = {"publish": "publish", "cycle": "publish + fetch + delete"}

_HEADINGS: Final = (
    "what", "messages/s", "mq = 1", "p50 ms", "p99 ms", "p99.9 ms", "stall ms",
    "CPU us a message", "flushes a message", "on the disk before the answer",
)  # fmt: skip


def table(measured: Sequence[Samples]) -> str:
    """Medians of the rounds, the stall the longest of all; the fastest first, by operation."""
    rows: list[Sequence[str]] = [_HEADINGS]
    base = measured[0]  # mq
    for mode in MODES:
        ordered = sorted(measured, key=lambda each: each.rate(mode), reverse=True)
        rows += [_row(samples, base, mode) for samples in ordered]
    return drawn(rows)


def promises(measured: Sequence[Samples]) -> str:
    """What each promises, a line each."""
    return "\n".join(f"- **{each.rival.name}**: {each.rival.promise}" for each in measured)


def _row(samples: Samples, base: Samples, mode: Mode) -> Sequence[str]:
    rounds, rates = samples.by_mode[mode], samples.rates(mode)
    promise = samples.rival.publish_on_disk if mode == "publish" else samples.rival.cycle_on_disk

    def middle(of: Callable[[Sample], float]) -> float:
        return median(map(of, rounds))

    flushed = [each.flushes for each in rounds if each.flushes is not None]
    return (
        f"{samples.rival.name}: {TITLES[mode]}",
        f"{samples.rate(mode):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})",
        f"{samples.rate(mode) / base.rate(mode):.2f}",
        *(
            f"{us / 1000:,.1f}"
            for us in (
                middle(lambda each: each.run.whole.p50_us),
                middle(lambda each: each.run.whole.p99_us),
                middle(lambda each: each.run.whole.p999_us),
                max(each.run.stall_us for each in rounds),
            )
        ),
        f"{middle(lambda each: each.cpu_us):,.0f}",
        f"{median(flushed):.2f}" if flushed else "",
        promise,
    )
