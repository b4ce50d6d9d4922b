"""How often the device was flushed for each message, where a place counts that."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deploy.bench.ceiling import BareLoop
from deploy.bench.comparison import spread
from deploy.bench.http import Load
from deploy.bench.load import Mode, Run
from deploy.bench.table import drawn


@dataclass(slots=True)
class FlushCounts:
    """Flushes a message, by what was measured, one figure a round."""

    flushes: Callable[[], int]
    counted: dict[str, list[float]] = field(default_factory=dict)

    def add(self, what: str, before: int, messages: float) -> None:
        """Takes what was flushed since `before` for so many messages."""
        self.counted.setdefault(what, []).append((self.flushes() - before) / messages)

    def loop(self, loop: BareLoop, made: Path, seconds: float) -> float:
        """Measures a bare loop; messages a second."""
        before, began = self.flushes(), time.monotonic()
        rate = loop.measure(made, seconds)
        self.add(loop.name, before, rate * (time.monotonic() - began))
        return rate

    def table(self) -> str:
        """Median (min-max) of each."""
        rows = [("what", "flushes of the device a message")]
        rows += [(what, spread(rounds, ".3f")) for what, rounds in self.counted.items()]
        return drawn(rows)


@dataclass(frozen=True, slots=True)
class CountingLoad(Load):
    """A load whose runs' flushes are counted, by `mq, {mode}`."""

    counts: FlushCounts = field(kw_only=True)

    def run(self, mode: Mode, url: str, ids: Path | None = None) -> Run:
        """One run of the load tool."""
        before = self.counts.flushes()
        run = Load.run(self, mode, url, ids)
        if mode != "empty":
            self.counts.add(f"mq, {mode}", before, run.messages)
        return run
