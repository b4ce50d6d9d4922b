"""A root with schedules, and a clock that a test moves; all without a daemon."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from harness.clock import FakeClock
from mq.model.headers import Headers, parse_block
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName, ScheduleName, UuidSource
from mq.model.recurrence import Every
from mq.model.schedule import Armed, Schedule
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import Flusher, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Steps
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue
from mq.store.scan.order import list_ready
from mq.store.schedules.firing import Firing, fire, rearm
from mq.store.schedules.schedules import put_schedule, read_schedule
from mq_mover.scheduler import Scheduler

T = TypeVar("T")

QUEUE = QueueName.parse("q")
NAME = ScheduleName.parse("nightly")
EVERY_S = 60.0
MINUTELY = Schedule(Every(EVERY_S), body=b"again")


def to_its_end(operation: Steps[T]) -> T:
    """Goes on with what has begun; nothing is flushed."""
    try:
        while True:
            next(operation)
    except StopIteration as end:
        value: T = end.value
        return value


class TimedRoot:
    """A root with the queue `q`, and its schedules."""

    def __init__(
        self, top: Path, files: Files | None = None, flusher: Flusher | None = None
    ) -> None:
        self.top = top
        self.files = files or Files()
        self.clock = FakeClock()
        self.root: Root = open_root(str(top), self.files, self.clock)
        self.uuids = UuidSource(self.clock)
        self.flusher = flusher or NoFlusher()
        self.run(create_queue(self.root, QUEUE))

    def run(self, operation: Steps[T]) -> T:
        return run_alone(operation, self.flusher)

    def put(self, schedule: Schedule = MINUTELY, name: str = NAME.text, **said: Any) -> Armed:
        schedule = replace(schedule, **said)
        armed, _ = self.run(put_schedule(self.root, QUEUE, ScheduleName.parse(name), schedule))
        return armed

    def read(self, name: str = NAME.text) -> Armed:
        return read_schedule(self.root, QUEUE, ScheduleName.parse(name))

    def fire(self, name: str = NAME.text) -> Firing:
        return self.run(fire(self.root, self.uuids, QUEUE, ScheduleName.parse(name)))

    def rearm(self, *firings: Firing) -> list[Armed | None]:
        return self.run(rearm(self.root, firings))

    def scheduler(self) -> Scheduler:
        return Scheduler(self.root, self.flusher)

    def pass_s(self, seconds: float = EVERY_S) -> None:
        self.clock.advance(seconds)

    def ready(self) -> list[MessageId]:
        listing = list_ready(self.root, QUEUE, 10_000)
        assert listing is not None
        return listing.ids

    def bodies(self) -> list[bytes]:
        return [
            (self.top / "queues/q" / each.text).read_bytes()[each.header_bytes :]
            for each in self.ready()
        ]

    def headers(self) -> list[Headers]:
        return [
            parse_block((self.top / "queues/q" / each.text).read_bytes()[: each.header_bytes])
            for each in self.ready()
        ]

    def take_away(self) -> None:
        """As consumers and a reaper do."""
        for message_id in self.ready():
            (self.top / "queues/q" / message_id.text).unlink()

    def path(self, name: str = NAME.text) -> Path:
        return self.top / "schedules" / f"q:{name}"

    def touch(self, due_in_s: float, name: str = NAME.text) -> int:
        """As a hand does; when it is due then."""
        due_ms = self.clock.now_ms() + round(due_in_s * 1000)
        mtime_ns = Stamp(due_ms).mtime_ns()
        os.utime(self.path(name), ns=(mtime_ns, mtime_ns))
        return due_ms

    def firings(self) -> list[Path]:
        """The links of what was fired."""
        return sorted(
            path for path in (self.top / "queues").glob("*/.firings/*/*") if path.is_symlink()
        )

    def names(self) -> list[str]:
        """What lies in schedules/."""
        return sorted(path.name for path in (self.top / "schedules").iterdir())
