"""A real root under a clock that the test moves, and movers over it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.messages import put_entry
from harness.upkeep import all_policies

from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.mover import Mover
from mq_mover.policy import Policies
from mq_mover.timers import Timers


@dataclass
class Bench:
    """A root with one queue, `orders`, and what the tests do to it."""

    path: Path
    clock: FakeClock
    root: Root
    flusher: FsyncFlusher

    def folder(self, name: str) -> Path:
        return self.path / name

    @property
    def ready(self) -> Path:
        return self.path / "queues" / "orders"

    def delayed(self, due_in_ms: int, queue: str = "orders", receives: int = 1) -> Path:
        """A message in delay/, due so long after the clock's time."""
        due_ms = self.clock.now_ms() + due_in_ms
        return put_entry(self.folder("delay"), queue, b"body", due_ms, receives)

    def redelivered(self, entry: Path) -> Path:
        """Where a message of delay/ goes."""
        queue, _, message_id = entry.name.partition(":")
        return self.path / "queues" / queue / message_id

    def removed(self, entry: Path) -> Path:
        return self.folder("remove") / entry.name

    def mover(self, timer: Timer | None = None, timers: Timers | None = None) -> Mover:
        return Mover(self.root, self.flusher, timer or Timer(), timers)

    def sweeper(self) -> Policies:
        return all_policies(self.root, self.flusher)


@pytest.fixture
def make_bench(root: Path) -> Iterator[Callable[[Files], Bench]]:
    """Makes a bench whose system calls are the given ones."""
    made: list[Bench] = []

    def make(files: Files) -> Bench:
        clock = FakeClock()
        opened = open_root(str(root), files, clock)
        made.append(Bench(root, clock, opened, FsyncFlusher(files, threads=2)))
        made[-1].ready.mkdir(mode=0o700)
        return made[-1]

    yield make
    for bench in made:
        bench.flusher.close()


@pytest.fixture
def bench(make_bench: Callable[[Files], Bench]) -> Bench:
    return make_bench(Files())
