"""Faults for a cluster's processes, from a seed: kill -9, SIGSTOP for a while, SIGTERM, both.

The schedule is data, and the same for the same seed. A fault begins when so many operations of
clients have ended since the one before it, and not at a time.
"""

import asyncio
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from harness.processes import Process
from harness.tally import tally
from harness.waiting import comes_true
from mq.model.clock import SystemClock


class Kind(Enum):
    """What is done to a process; each ends with the process serving."""

    KILL = "kill"
    STOP = "stop"
    STOP_AND_KILL = "stop and kill"
    TERMINATE = "terminate"


_TALLIED = {
    Kind.KILL: ["kills"],
    Kind.STOP: ["stops"],
    Kind.STOP_AND_KILL: ["stops", "kills"],
    Kind.TERMINATE: ["terminations"],
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one member, `after` operations since the fault before; a stop `lasts_s`."""

    after: int
    kind: Kind
    member: str
    lasts_s: float


def schedule(
    seed: int, faults: int, members: list[str], stop_s: tuple[float, float], after: tuple[int, int]
) -> list[Fault]:
    """So many faults; stops last between `stop_s`. The first ones are one of each kind."""
    chance = random.Random(seed)
    # The servers are what clients talk to: they come first in `members` and more often.
    kinds = [*Kind, *chance.choices(list(Kind), weights=[4, 5, 2, 1], k=max(0, faults - 4))]
    chance.shuffle(kinds)
    return [
        Fault(chance.randint(*after), kind, chance.choice(members), chance.uniform(*stop_s))
        for kind in kinds[:faults]
    ]


@dataclass
class Member:
    """A daemon of the cluster under one name, whichever process it is at the time."""

    name: str
    start: Callable[[], Process]
    process: Process
    is_up: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    retired: list[Process] = field(default_factory=list)
    ill_ms: list[tuple[int, int]] = field(default_factory=list)
    """When it was not itself: from a fault's begin to its end, milliseconds since the epoch."""

    @property
    def url(self) -> str:
        return self.process.url

    def logs(self) -> list[str]:
        """The log lines of all its processes."""
        return [line for each in (*self.retired, self.process) for line in each.lines]

    async def suffer(self, fault: Fault) -> None:
        """One fault, to its end; faults of one member come one after the other."""
        async with self.lock:
            began_ms = SystemClock().now_ms()
            await self._suffer(fault)
            self.ill_ms.append((began_ms, SystemClock().now_ms()))
            tally_fault(fault.kind)

    async def _suffer(self, fault: Fault) -> None:
        if fault.kind in (Kind.STOP, Kind.STOP_AND_KILL):
            self.process.popen.send_signal(signal.SIGSTOP)
            await stand_still(fault.lasts_s)
        match fault.kind:
            case Kind.STOP:
                self.process.popen.send_signal(signal.SIGCONT)
                return
            case Kind.KILL | Kind.STOP_AND_KILL:
                self.is_up.clear()
                await asyncio.to_thread(self.process.kill)
            case Kind.TERMINATE:
                self.is_up.clear()
                code = await asyncio.to_thread(self.process.terminate)
                assert code == 0, (self.name, code, self.process.lines)
        self.retired.append(self.process)
        self.process = await asyncio.to_thread(self.start)
        self.is_up.set()

    @property
    def is_stopped(self) -> bool:
        """Whether its process stands still by a SIGSTOP."""
        try:
            status = Path(f"/proc/{self.process.popen.pid}/stat").read_text()
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] == "T"

    async def keep(self, stop_s: Callable[[], float], is_over: Callable[[], bool]) -> int:
        """Looks after a daemon that stops or kills itself, until it is over: what is stopped goes
        on after `stop_s` seconds, what died starts again. How often it did.
        """
        ills = 0
        while True:
            died = self.process.popen.poll
            await comes_true(
                lambda died=died: is_over() or self.is_stopped or died() is not None,
                f"an end of {self.name}",
                patience_s=600,
            )
            if is_over():
                return ills
            ills += 1
            stopped = Fault(0, Kind.STOP, self.name, stop_s())
            killed = Fault(0, Kind.KILL, self.name, 0)
            await self.suffer(stopped if self.is_stopped else killed)


async def stand_still(lasts_s: float) -> None:
    """Waits while what was stopped stands still."""
    clock = SystemClock()
    until_ms = clock.now_ms() + round(lasts_s * 1000)
    await comes_true(lambda: clock.now_ms() >= until_ms, "the end of a stop")


def tally_fault(kind: Kind) -> None:
    """Counts what was done."""
    for done in _TALLIED[kind]:
        tally(done, 1)


class Sufferer(Protocol):
    """What faults are done to."""

    name: str

    async def suffer(self, fault: Fault) -> None:
        """One fault, to its end."""
        ...


async def torment(
    members: Sequence[Sufferer], faults: list[Fault], operations: Callable[[], int]
) -> None:
    """Does all faults, side by side where their times fall together; all members serve then."""
    by_name = {member.name: member for member in members}
    suffering = []
    at = operations()
    for fault in faults:
        at = max(at, operations()) + fault.after
        await comes_true(lambda at=at: operations() >= at, f"operation {at}")
        suffering.append(asyncio.create_task(by_name[fault.member].suffer(fault)))
    await asyncio.gather(*suffering)
