"""One server, measured: a warm-up, publish, and the cycle of publish, fetch and delete; and the
table of all.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from deploy.bench.load import Mode, Run, load
from deploy.bench.machine import flushes
from deploy.bench.others.rival import Rival
from deploy.bench.places import synchronous
from deploy.bench.table import drawn

MODES: Final[tuple[Mode, ...]] = ("publish", "cycle")
TITLES: Final[dict[Mode, str]] = {"publish": "publish", "cycle": "publish + fetch + delete"}

_HEADINGS: Final = (
    "what", "messages/s", "mq = 1", "p50 ms", "p99 ms", "p99.9 ms", "stall ms",
    "CPU us a message", "flushes a message", "on the disk before the answer",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """What each is asked: connections, and seconds of each run and of its warm-up."""

    connections: int
    seconds: int
    warm_s: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A run, and what it cost."""

    run: Run
    cpu_us: float
    """Of the server's processes, a message; without the kernel's own threads."""
    flushes: float | None
    """Of the device, a message."""


@dataclass(slots=True)
class Samples:
    """One server's, a sample a round, by mode."""

    rival: Rival
    by_mode: dict[Mode, list[Sample]] = field(default_factory=dict)

    def rates(self, mode: Mode) -> Sequence[float]:
        """Messages a second of each round."""
        return [sample.run.rate for sample in self.by_mode[mode]]

    def rate(self, mode: Mode) -> float:
        """The median of the rounds."""
        return median(self.rates(mode))

    def p99_us(self, mode: Mode) -> float:
        """The median of the rounds' p99."""
        return median(sample.run.whole.p99_us for sample in self.by_mode[mode])


def measure(rival: Rival, folder: Path, asked: Asked) -> dict[Mode, Sample]:
    """Starts it with its data in a folder not there yet, below a mount of loop_ext4() where it is
    `mounted_sync`; measures, and stops it.
    """
    folder.mkdir()
    measured = {}
    mounted = synchronous(folder.parent) if rival.mounted_sync else contextlib.nullcontext()
    with mounted, rival.serve(folder) as serving:
        # Java and Erlang compile what is hot; all are warmed alike, and count nothing of it.
        for mode in MODES if asked.warm_s else ():
            url = serving.queue(f"warm-{mode}")
            load(mode, url, connections=asked.connections, seconds=asked.warm_s)
        for mode in MODES:
            url = serving.queue(mode)
            cpu_s, flushed = serving.cpu_s(), flushes(folder)
            run = load(mode, url, connections=asked.connections, seconds=asked.seconds)
            cpu_us = (serving.cpu_s() - cpu_s) * 1e6 / run.messages
            per_message = None
            if flushed is not None and (after := flushes(folder)) is not None:
                per_message = (after - flushed) / run.messages
            measured[mode] = Sample(run, cpu_us, per_message)
    return measured


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
