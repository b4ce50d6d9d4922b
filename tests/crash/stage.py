"""A disk that forgets, clients, and the daemons that a script of `scripts.py` starts on it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from crash.faulty_disk import FaultyDisk
from crash.load import Clients
from harness.clock import FakeClock
from harness.folders import files_below
from harness.server import Server
from harness.upkeep import all_policies

from mq.daemon.daemon import Daemon
from mq.model.clock import SystemClock
from mq.model.lifecycle import State
from mq.model.limits import FOLDER_FILES_MAX
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.runtime.server_settings import ServerSettings
from mq.store.core.facts import FACTS_SETTLE_S
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher, OrderedFolders
from mq.store.disk.mounts import FileSystem
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.mover import Mover
from mq_reaper.reaper import Reaper

VISIBILITY_S = 600
SOON_S = VISIBILITY_S
"""When a message is due that a client puts off."""
LATER_S = VISIBILITY_S + 100.0
HOURS_S = 2 * 3600.0
ORDERS = "orders"
ROOT = "srv/mq/root"
"""The root's place on the disk; nothing of it is there when a script begins."""


class _StageClock(SystemClock):
    """The machine's clock, whose steady time a script moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def steady_s(self) -> float:
        return super().steady_s() + self.ahead_s


@dataclass
class Bystander:
    """A process that stands by, and knows what it has looked at until its clock is moved on."""

    root: Root
    clock: FakeClock
    flusher: FsyncFlusher


@dataclass
class Stage:
    """A disk, clients, and the daemons that a script starts."""

    disk: FaultyDisk
    clients: Clients
    session: aiohttp.ClientSession
    ports: list[int]
    folder_max: int = FOLDER_FILES_MAX
    _running: list[Daemon] = field(default_factory=list)
    _clock: _StageClock = field(default_factory=_StageClock)
    _bystanders: list[Bystander] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.disk.top / ROOT

    def known(self) -> None:
        """Another script has what came so far: no cut is made before this place of the log."""
        self.disk.mark("known")

    async def start(self, files: Files | None = None) -> Server:
        """An mq that every request goes to."""
        settings = ServerSettings(
            root=self.root,
            port=0,
            commit="fsync",
            folder_max=self.folder_max,
            queue=QueueSettings(visibility_s=VISIBILITY_S),
        )
        # Made by an operator, who flushes nothing.
        self.root.parent.mkdir(parents=True, exist_ok=True)
        daemon = Daemon(settings, files, clock=self._clock)
        self._running.append(daemon)
        self.ports[:] = [await daemon.start()]
        url = f"http://127.0.0.1:{self.ports[0]}"
        return Server(daemon, self.root, url, self.ports[0], self.session)

    async def begin(self, *queues: str) -> None:
        """Starts and makes queues, as in `first_start`, which is cut there too."""
        await self.start()
        for queue in queues:
            await self.clients.make(queue)
        self.known()

    async def published(self, count: int) -> list[str]:
        """Begins with so many messages, as other scripts do, which are cut there too."""
        await self.start()
        await self.clients.make(ORDERS)
        ids = [await self.clients.publish(300) for _ in range(count)]
        self.known()
        return ids

    async def fetched(self, queue: str = ORDERS) -> str:
        """The message that a client fetches."""
        self.disk.mark("fetch_asked", queue=queue)
        message_id = await self.clients.fetch(queue)
        assert message_id is not None
        return message_id

    async def stop(self) -> None:
        """Ends what runs, with all that it does in the background."""
        while self._running:
            await self._running.pop().drain()
        while self._bystanders:
            self._bystanders.pop().flusher.close()

    async def other(self, work: "Callable[[Root, FsyncFlusher], object]") -> None:
        """What another daemon does, as late as it is by the disk's marks."""

        def run() -> None:
            clock = FakeClock()
            clock.advance(self.disk.ahead_s)
            flusher = self._flusher()
            root = open_root(str(self.root), Files(), clock, folder_max=self.folder_max)
            work(root, flusher)
            flusher.close()

        await asyncio.to_thread(run)

    def _flusher(self) -> FsyncFlusher:
        return FsyncFlusher(Files(), 2, OrderedFolders(Files(), lambda: None, str(self.root)))

    async def bystander(self, *queues: str) -> Bystander:
        """Another process, which has looked at the facts of these queues just now."""

        def stands() -> Bystander:
            clock = FakeClock()
            clock.advance(self.disk.ahead_s)
            root = open_root(str(self.root), Files(), clock, folder_max=self.folder_max)
            for queue in queues:
                root.facts.of(QueueName(queue))
            return Bystander(root, clock, self._flusher())

        bystander = await asyncio.to_thread(stands)
        self._bystanders.append(bystander)
        return bystander

    def settle(self) -> None:
        """Advances the clocks until every process must look at the disk again."""
        self._clock.ahead_s += FACTS_SETTLE_S
        for each in self._bystanders:
            each.clock.advance(FACTS_SETTLE_S)

    async def move_due(self) -> None:
        """mq-mover's passes: what is due goes back."""

        def passes(root: Root, flusher: FsyncFlusher) -> None:
            mover = Mover(root, flusher, Timer())
            moved = mover.run_once()
            assert isinstance(root.clock, FakeClock)
            root.clock.advance(2)  # What was not stamped is left alone at first.
            assert moved + mover.run_once()

        await self.other(passes)

    async def sweep(self) -> None:
        """mq-mover's other pass."""
        await self.other(lambda root, flusher: all_policies(root, flusher).run_once())

    async def reap(self) -> None:
        """mq-reaper's pass."""
        await self.other(
            lambda root, flusher: Reaper(root.files, root.clock, root.layout.remove, 0).run_once()
        )

    def moved(
        self, message_id: str, to: State, queue: str = ORDERS, is_timeless: bool = False
    ) -> None:
        """`is_timeless`: its due time was not flushed."""
        facts = {"to": to.value, "is_timeless": is_timeless}
        self.disk.mark("moved", queue=queue, id=message_id, **facts)

    def ready(self, message_id: str, queue: str = ORDERS) -> Path:
        return self._there(self.root / "queues" / queue, message_id)

    def delayed(self, message_id: str, queue: str = ORDERS) -> Path:
        return self._there(self.root / "delay", f"{queue}:{message_id}")

    def removed(self, message_id: str, queue: str = ORDERS) -> Path:
        return self._there(self.root / "remove", f"{queue}:{message_id}")

    @staticmethod
    def _there(top: Path, name: str) -> Path:
        """Where a file of the name lies, in a bucket or not; else its place outside of all."""
        return next((path for path in files_below(top) if path.name == name), top / name)

    def bucket(self, message_id: str) -> str:
        """The bucket of an id, as FORMAT.md says."""
        return message_id.replace("-", "")[:8]


@contextlib.asynccontextmanager
async def stage(disk: FaultyDisk, folder_max: int = FOLDER_FILES_MAX) -> AsyncIterator[Stage]:
    """A stage whose daemons are gone afterwards. They count on the disk's order of changes."""
    ports: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileSystem, "keeps_order", True)
        async with aiohttp.ClientSession() as session:
            clients = Clients(disk.mark, session, ports)
            made = Stage(disk, clients, session, ports, folder_max)
            try:
                yield made
            finally:
                await made.stop()
