"""Outages in a row, in the middle of a load: what mq answered holds after each. A hundred of each
kind, half of them with messages in buckets.

In the one test the power is cut: the file system (`faulty_disk_server.py`) fails from a call on
that chance chooses, the daemons are killed, and it comes back with one of the trees that the cut
may have left. In the other the daemons are killed, and nothing is lost. The same promises are
checked, those of all earlier rounds too. MQ_TIMES=10 makes ten times as many outages, and
MQ_OUTAGE_SEED plays others; it is printed.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from crash.faulty_disk import FaultyDisk, faulty_disk
from crash.legal_states import Model
from crash.load import PACK_SIZES, QUEUE, SIZES, Busy, Clients, Refused
from crash.promises import DELAYED, READY, Found, Ledger, broken
from harness.chance import TIMES
from harness.folders import make_folders_tiny
from harness.fuse import check_fuse
from harness.processes import Process, Processes, processes
from harness.tally import tally
from harness.waiting import comes_true

from mq.store.disk.files import Files
from mq.store.operations.reap import reap

SEED = int(os.environ.get("MQ_OUTAGE_SEED", "1"))
OUTAGES = 50 * TIMES
PUBLISHERS = 8
CONSUMERS = 4
ALIVE_MAX = 150
CALLS_BEFORE_A_CUT = 600
MARKS_BEFORE_A_KILL = 120
# One round of kills in five is of two mqs.
ROUNDS_PER_SECOND_MQ = 5
FLAGS = ("--commit", "fsync", "--visibility", "1")
# Answers in a row that others are at a message, after which a client gives up.
BUSY_MAX = 20

pytestmark = [pytest.mark.certificate, pytest.mark.timeout(600 * TIMES)]

folders = pytest.mark.parametrize("tiny", [False, True], ids=["flat", "in-buckets"])

GONE = (Refused, aiohttp.ClientError, ConnectionError, asyncio.TimeoutError)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Herd:
    """Clients that go on until nothing is answered any more, and what they know."""

    root: Path
    chance: random.Random
    ledger: Ledger = field(default_factory=Ledger)
    ports: list[int] = field(default_factory=list)
    marks: int = 0
    alive: int = 0
    _due: tuple[int, Callable[[], None]] | None = None

    def mark(self, what: str, **facts: Any) -> None:
        """What a client asked for or was told."""
        self.ledger.note(what, now_ms(), **facts)
        self.marks += 1
        self.alive += (what == "published") - (what == "deleted")
        if self._due is not None and self.marks >= self._due[0]:
            self._due[1]()

    def at_mark(self, number: int, act: Callable[[], None]) -> None:
        """Acts as soon as there were so many marks."""
        self._due = (number, act)

    async def run(self, clients: Clients) -> None:
        """Until each client was refused, or got no answer."""
        await asyncio.gather(
            *(self._go_on(lambda: self._publish(clients)) for _ in range(PUBLISHERS)),
            *(self._go_on(lambda: self._consume(clients)) for _ in range(CONSUMERS)),
        )

    async def _go_on(self, step: Callable[[], Any]) -> None:
        busy = 0
        try:
            while busy < BUSY_MAX:
                try:
                    await step()
                    busy = 0
                except Busy:  # Another process is at a pack.
                    busy += 1
        except GONE:
            return

    async def _publish(self, clients: Clients) -> None:
        if self.alive < ALIVE_MAX and self.chance.random() < 0.2:
            await clients.publish_pack(PACK_SIZES)
        elif self.alive < ALIVE_MAX:
            await clients.publish(self.chance.choice(SIZES))
        else:
            await self._consume(clients)

    async def _consume(self, clients: Clients) -> None:
        if self.chance.random() < 0.2:
            await clients.consume_packs(self.chance)
            return
        message_id = await clients.fetch()
        if message_id is not None and self.chance.random() < 0.85:
            await clients.delete(message_id)

    def check(self) -> None:
        """That the root, which nobody uses, keeps every promise."""
        if not (self.root / "remove").exists():
            assert not self.ledger.messages
            return  # The first start was cut short.
        self.ledger.until_ms = now_ms()
        problems = broken(self.ledger, Found(self.root))
        assert not problems, "\n".join(problems[:10])
        # What was deleted may go: the files that lie there would be looked at in every round.
        reap(Files(), str(self.root / "remove"), now_ms(), 0)

    async def drain(self, clients: Clients) -> None:
        """Fetches and deletes until nothing is alive."""

        async def drained() -> bool:
            message_id = await clients.fetch()
            if message_id is not None:
                await clients.delete(message_id)
                return False
            try:
                found = Found(self.root)
            except FileNotFoundError:
                return False  # It moved while it was looked at.
            return not {READY, DELAYED} & {
                place.state for places in found.places.values() for place in places
            }

        await comes_true(drained, "an empty root", patience_s=120)

    def tell(self, what: str) -> None:
        """Prints what was done, and that all of it was needed."""
        told = self.ledger.messages.values()
        published, deleted = (
            sum(each.published for each in told),
            sum(each.deleted for each in told),
        )
        print(f"{published} published, {deleted} deleted")
        assert deleted > OUTAGES
        tally(what, OUTAGES)


def session() -> aiohttp.ClientSession:
    """A connection a request: aiohttp would send some again by itself on one that was cut."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0))


async def start(daemons: Processes, root: Path) -> tuple[Process, Process]:
    """An mq and a mover. AssertionError when one does not start, once the other has or has not."""
    mq, mover = await asyncio.gather(
        asyncio.to_thread(daemons.mq, root, *FLAGS),
        asyncio.to_thread(daemons.mover, "--root", str(root)),
        return_exceptions=True,
    )
    for each in (mq, mover):
        if isinstance(each, BaseException):
            raise each
    assert isinstance(mq, Process)
    assert isinstance(mover, Process)
    return mq, mover


@pytest.fixture
def disk(needs_root: None, tmp_path: Path) -> Iterator[FaultyDisk]:
    check_fuse()
    with faulty_disk(tmp_path) as disk:
        yield disk


async def work_until_the_power_goes(
    disk: FaultyDisk, herd: Herd, clients: Clients, daemons: Processes
) -> None:
    """One time in ten it goes so soon that the daemons hardly start."""
    soon = herd.chance.random() < 0.1
    if soon:
        disk.cut_after(herd.chance.randrange(40))
    try:
        mq, _ = await start(daemons, herd.root)
        herd.ports[:] = [mq.port]
        if not soon:
            disk.cut_after(herd.chance.randrange(CALLS_BEFORE_A_CUT))
        await clients.make(QUEUE)
        await clients.allow_packs()
        await herd.run(clients)
    except AssertionError:
        if not disk.is_cut():  # A daemon that cannot reach its root does not start.
            raise
    except GONE:
        pass
    assert disk.is_cut(), "the clients were refused, and the power is on"


@pytest.mark.needs_root
@folders
async def test_a_hundred_power_cuts(
    disk: FaultyDisk, tiny: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"MQ_OUTAGE_SEED={SEED}")
    if tiny:
        make_folders_tiny(monkeypatch)
    herd = Herd(disk.top / "root", random.Random(SEED))
    async with session() as requests:
        clients = Clients(herd.mark, requests, herd.ports)
        for _ in range(OUTAGES):
            with processes() as daemons:
                await work_until_the_power_goes(disk, herd, clients, daemons)
            disk.power_on(Model.JOURNAL, herd.chance.randrange(2**31))
            herd.check()
        with processes() as daemons:
            mq, _ = await start(daemons, herd.root)
            herd.ports[:] = [mq.port]
            await herd.drain(clients)
    herd.check()
    herd.tell("cuts")


@folders
async def test_a_hundred_kills(root: Path, tiny: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"MQ_OUTAGE_SEED={SEED}")
    if tiny:
        make_folders_tiny(monkeypatch)
    herd = Herd(root, random.Random(SEED))
    with processes() as daemons:
        mq, mover = await start(daemons, herd.root)
        async with session() as requests:
            clients = Clients(herd.mark, requests, herd.ports)
            for number in range(OUTAGES):
                mqs = [mq]
                if number % ROUNDS_PER_SECOND_MQ == 0:
                    mqs.append(await asyncio.to_thread(daemons.mq, root, *FLAGS))
                herd.ports[:] = [each.port for each in mqs]
                await clients.make(QUEUE)
                await clients.allow_packs()
                herd.at_mark(
                    herd.marks + herd.chance.randint(1, MARKS_BEFORE_A_KILL),
                    lambda mqs=mqs: [each.popen.kill() for each in mqs],
                )
                await herd.run(clients)
                assert [each.popen.wait() for each in mqs] == [-9] * len(mqs)
                mover.kill()
                herd.check()
                mq, mover = await start(daemons, herd.root)
            herd.ports[:] = [mq.port]
            await herd.drain(clients)
    herd.check()
    herd.tell("kills")
