"""A fake's daemon, in an event loop of its own thread, with a root in memory."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakSet

from mq.broker.broker import Broker
from mq.client.fake.clock import FakeClock
from mq.client.fake.faults import Faults
from mq.client.fake.upkeep import Upkeep, ids_of
from mq.client.fake.wire import Wire, exchange
from mq.client.portal import Portal
from mq.client.transport import Answer, Request
from mq.daemon.daemon import Daemon
from mq.http.acceptor import Bounds
from mq.http.connection import Server
from mq.http.dispatcher import Dispatcher
from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.runtime.server_settings import HEAD_S_DEFAULT, ServerSettings
from mq.sqs.serving import Front as Sqs
from mq.store.disk.files import ClockFiles
from mq.store.scan.census import Census

T = TypeVar("T")

# A file system in memory, on Linux.
MEMORY = "/dev/shm"  # noqa: S108
_CONNECTIONS_MAX: Final = 100_000
# No pings: an advance of the clock would look like a client's silence.
_PING_S: Final = 1e9
# When to look for due work after a request; looking takes at most this share of the time.
_LOOK_S: Final = 0.02
_LOOK_SHARE: Final = 0.05
# Turns of the loop and of the commit threads until operations have ended that need no time.
_TURNS: Final = 4
_CREATED: Final = 201
# Requests that may make something due at once, such as a release beyond max_receives.
_MAKES_DUE: Final = ("PATCH", "PUT")
_RELEASES: Final = '"release"'


class _Loop(asyncio.SelectorEventLoop):
    """Its timers follow the fake's clock. It runs blocking functions itself: all is in memory."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def time(self) -> float:
        return self._clock.steady_s()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        ended: asyncio.Future[T] = self.create_future()
        try:
            ended.set_result(func(*args))
        except Exception as error:
            ended.set_exception(error)
        return ended


class _World:
    """The daemon of a fake, in the thread of its loop but for `__init__` and `new_loop`."""

    def __init__(self, clock: FakeClock, settings: QueueSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._beginning: asyncio.Task[None] | None = None
        self.folder: str | None = None
        self._daemon: Daemon | None = None
        self._is_there = False
        self.buried: dict[QueueName, set[str]] = {}
        """Messages that were removed before their queues were created again."""
        self._wires: WeakSet[Wire] = WeakSet()
        self._timer: asyncio.TimerHandle | None = None
        self._next_ms: int | None = None
        self._look_cost_s = 0.0
        self._is_commanded = False
        """Whether a WebSocket sent a release, which may make something due."""
        self._looking: asyncio.Task[None] | None = None

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return _Loop(self._clock)

    async def begin(self) -> None:
        """Starts the daemon, once; returns when it runs."""
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin())
        await asyncio.shield(self._beginning)

    async def _begin(self) -> None:
        self.folder = _new_folder()
        settings = ServerSettings(
            Path(self.folder, "root"),
            durability="none",
            force=True,
            ping_s=_PING_S,
            inotify=False,
            queue=self._settings,
            timings=False,
        )
        self._files = ClockFiles(self._clock.now_ms)
        self._daemon = Daemon(settings, self._files, self._clock)
        self.service = await self._daemon.open()
        self.broker = self.service.broker
        self.broker.root.facts.settle_s = 0.0
        bounds = Bounds(_CONNECTIONS_MAX, HEAD_S_DEFAULT)
        self._server = Server(Dispatcher(self.service, front=Sqs(self.service.broker)), bounds)
        flusher = self.broker.committer.flusher
        self._upkeep = Upkeep(self.broker.root, self._files, flusher)
        self._is_there = True

    async def end(self) -> None:
        """Ends the daemon, and deletes its root."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._is_there:
                for each in list(self._server.connections):
                    each.cut()
                self._upkeep.end()
            if self._daemon is not None:
                await self._daemon.drain()
        finally:
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)

    # Time

    async def catch_up(self) -> int | None:
        await self._pass()
        await self.settle()
        # Waiting consumers may have fetched messages, which have due times as well.
        self._upkeep.run()
        return self._find_next()

    def _find_next(self) -> int | None:
        self._next_ms = self._upkeep.next_ms(self.service.shovels.running)
        return self._next_ms

    async def _pass(self) -> None:
        """Does all that is due, and notifies waiting consumers."""
        await self.begin()
        if not self._upkeep.run():
            return
        await self.service.following.refresh()
        for queue in self.broker.in_use():
            queue.serves_others()
            queue.end_if_expired()
            for selection in queue.lines.selections:
                queue.claimer(selection).scan_again()

    async def settle(self) -> None:
        """Waits for operations in flight, as far as they need no time."""
        for run in (*self.service.shovels.running, *self._upkeep.shovels):
            run.goes_on_in_s()
        for _ in range(_TURNS):
            if self._daemon is not None:
                await self._daemon.turn()

    async def _now(self) -> None:
        """Does all that is due by the running clock, or by a command."""
        await self.begin()
        if self._is_commanded or (
            self._next_ms is not None and self._next_ms <= self._clock.now_ms()
        ):
            self._is_commanded = False
            await self.catch_up()

    def _look_soon(self) -> None:
        """Looks soon for what a request may have made due."""
        if not self._clock.stands:
            self._look_in(max(_LOOK_S, self._look_cost_s / _LOOK_SHARE))

    def _look_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if (
            self._timer is None
            or self._timer.cancelled()
            or self._timer.when() > loop.time() + seconds
        ):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        self._looking = asyncio.create_task(self._look_again())

    async def _look_again(self) -> None:
        began_s = self._clock.steady_s()
        await self._pass()
        next_ms = self._find_next()
        self._look_cost_s = self._clock.steady_s() - began_s
        if next_ms is not None:
            in_ms = next_ms - self._clock.now_ms()
            self._look_in(in_ms / 1000 if in_ms > 0 else _LOOK_S)

    # Requests

    async def ask(self, request: Request, body: bytes) -> Answer:
        """Sends a request to the daemon; returns the answer. Raises ConnectionLost."""
        await self._now()
        if request.method == "GET":
            self._forget_counts(request.path)
        try:
            answer = await exchange(self._server, request, body)
            if request.method == "PUT" and answer.status == _CREATED:
                self._bury(request.path)
            return answer
        finally:
            if request.path.endswith("/shovel"):
                await self.settle()
            if request.method in _MAKES_DUE:
                await self._pass()
            self._look_soon()

    def _bury(self, path: str) -> None:
        """A queue was created: the removed messages of its name are of earlier queues."""
        with contextlib.suppress(BadName):
            name = QueueName.parse(path[1:])
            removed = ids_of(self.broker.root, State.REMOVED, name)
            self.buried[name] = {each.name for each in removed}

    def _forget_counts(self, path: str) -> None:
        """Makes the daemon count a queue's messages at once, instead of once a second."""
        if (queue := self.broker.used(path[1:])) is not None:
            queue.description = None
            self.broker.describer.census = Census(self.broker.root)

    async def connect(
        self, request: Request, received: Callable[[str | bytes | None], None]
    ) -> Wire:
        """Opens a WebSocket. Raises UpgradeRefused, ConnectionLost."""
        await self._now()
        wire = Wire(self._server, request, received)
        await wire.begun()
        self._wires.add(wire)
        return wire

    async def send(self, wire: Wire, text: str) -> None:
        """Sends a command by a WebSocket. Raises ConnectionLost."""
        await self._now()
        wire.send(text)
        self._is_commanded = self._is_commanded or _RELEASES in text
        self._look_soon()

    async def drop(self, *wires: Wire) -> None:
        """Ends WebSockets; on return, mq has released the messages that their clients held."""
        for each in wires:
            each.drop()
        await self.settle()
        self._look_soon()

    async def drop_all(self) -> None:
        await self.begin()
        await self.drop(*self._wires)

    async def look(self, looked: Callable[[Broker], T]) -> T:
        """The result of a function that reads the broker and its root."""
        await self._now()
        await self._pass()
        await self.settle()
        return looked(self.broker)


def _new_folder() -> str:
    where = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
    made = tempfile.mkdtemp(prefix=f"mq-fake-{os.getpid()}-", dir=where)
    # On macOS the temporary folder's path has a link, which a root's path must not have.
    return os.path.realpath(made)


class Inside:
    """A fake's daemon, for its transports and views, in any thread."""

    def __init__(self, clock: FakeClock, settings: QueueSettings) -> None:
        self.faults = Faults()
        self.world = _World(clock, settings)
        self._portal = Portal(self.world.end, self.world.new_loop, "mq-fake")
        self._is_begun = False
        clock.lead(self)

    def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine in the daemon's loop; returns its result. Raises NotUsable."""
        self._is_begun = True
        return self._portal.run(begin)

    def submit(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Starts a coroutine in the daemon's loop. Raises NotUsable."""
        self._is_begun = True
        return self._portal.submit(begin)

    def catch_up(self) -> int | None:
        if not self._is_begun or self._portal.is_over:
            return None
        return self.run(self.world.catch_up)

    def look(self, looked: Callable[[Broker], T]) -> T:
        """The result of a function that reads the broker and its root."""
        return self.run(lambda: self.world.look(looked))

    def drop_sockets(self) -> None:
        self.run(self.world.drop_all)

    def close(self) -> None:
        """Ends the daemon. May be called again."""
        self._portal.close()
