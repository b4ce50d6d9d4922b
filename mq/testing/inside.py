"""A fake's daemon, in an event loop of its own thread, with a root in memory."""

import asyncio
import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from yarl import URL

from mq.broker.broker import Broker
from mq.client.portal import Portal
from mq.daemon.daemon import Daemon
from mq.daemon.port import Sites
from mq.http.acceptor import Bounds
from mq.http.answers import Result
from mq.http.connection import Server
from mq.http.dispatcher import Dispatcher
from mq.http.request import Request
from mq.http.service import Service
from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.runtime.server_settings import ServerSettings
from mq.sqs.serving import Front as Sqs
from mq.store.disk.files import ClockFiles
from mq.store.scan.census import Census
from mq.testing.clock import FakeClock
from mq.testing.faults import Faults
from mq.testing.upkeep import Upkeep, ids_of

T = TypeVar("T")

# A file system in memory, on Linux.
MEMORY = "/dev/shm"  # noqa: S108
# An advance of the clock would look like a client's silence: no pings, no ends of idle or slow
# connections.
_NEVER_S: Final = 1e9
# When to look for due work after a request; looking takes at most this share of the time.
_LOOK_S: Final = 0.02
_LOOK_SHARE: Final = 0.05
# Turns of the loop and of the commit threads until operations have ended that need no time.
_TURNS: Final = 4
_CREATED: Final = 201
# Requests that may make something due at once, such as a release beyond max_receives.
_MAKES_DUE: Final = ("PATCH", "PUT")


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


class _Dispatcher(Dispatcher):
    """Has mq-mover's work done before each request, and what the request made due behind it."""

    def __init__(self, service: Service, running: "Running") -> None:
        super().__init__(service, front=Sqs(service.broker))
        self._running = running

    def begin(self, request: Request) -> Result:
        return self._begin(request)

    async def _begin(self, request: Request) -> Result:
        await self._running.before(request)
        return super().begin(request)

    def ended(self, request: Request, status: int | None, headers: Mapping[str, str]) -> None:
        super().ended(request, status, headers)
        self._running.after(request, status)


class Running:
    """The daemon of a fake, in the thread of its loop but for `__init__` and `new_loop`."""

    def __init__(self, clock: FakeClock, settings: QueueSettings) -> None:
        self._clock = clock
        self._settings = ServerSettings(
            Path(),
            port=0,
            durability="none",
            force=True,
            head_s=_NEVER_S,
            inotify=False,
            ping_s=_NEVER_S,
            queue=settings,
            timings=False,
            unread_s=_NEVER_S,
        )
        self._beginning: asyncio.Task[None] | None = None
        self.folder: str | None = None
        self._daemon: Daemon | None = None
        self._sites: Sites | None = None
        self.buried: dict[QueueName, set[str]] = {}
        """Messages that were removed before their queues were created again."""
        self._timer: asyncio.TimerHandle | None = None
        self._next_ms: int | None = None
        self._look_cost_s = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._acting: asyncio.Task[None] | None = None
        """Does what the last request made due."""

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return _Loop(self._clock)

    async def begin(self) -> str:
        """Starts the daemon, once. Returns its URL when it runs."""
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin())
        await asyncio.shield(self._beginning)
        at = self._settings
        return str(URL.build(scheme="http", host=at.address, port=at.port))

    async def _begin(self) -> None:
        self.folder = _new_folder()
        settings = self._settings = replace(self._settings, root=Path(self.folder, "root"))
        self._files = ClockFiles(self._clock.now_ms)
        self._daemon = Daemon(settings, self._files, self._clock)
        self.service = await self._daemon.open()
        self.broker = self.service.broker
        self.broker.root.facts.settle_s = 0.0
        self._upkeep = Upkeep(self.broker.root, self._files, self.broker.committer.flusher)
        bounds = Bounds.of(settings, descriptors=math.inf)
        self._server = Server(_Dispatcher(self.service, self), bounds)
        self._server.keepalive_s = _NEVER_S
        self._sites = Sites(self._server, None, settings.handshake_s)
        # The same port after a reset.
        self._settings = replace(settings, port=await self._sites.listen(settings))

    async def end(self) -> None:
        """Ends the daemon, and deletes its root."""
        for begun in (self._timer, self._looking, self._acting):
            if begun is not None:
                begun.cancel()
        try:
            if self._sites is not None:
                self._sites.stop()
                for each in list(self._server.connections):
                    each.cut()
                self._upkeep.end()
            if self._daemon is not None:
                await self._daemon.drain()
        finally:
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)

    async def reset(self) -> None:
        """Begins anew, with an empty root, at the same port."""
        await self.begin()
        await self.end()
        self._daemon = self._sites = self._timer = self._next_ms = None
        self._looking = self._acting = None
        self.buried = {}
        self._beginning = asyncio.create_task(self._begin())
        await self.begin()

    # Time

    async def catch_up(self) -> int | None:
        """Does all that is due; returns when something is due next, None: nothing is."""
        await self._pass()
        await self.settle()
        # Waiting consumers may have fetched messages, which have due times as well.
        self._upkeep.run()
        return self._find_next()

    def _find_next(self) -> int | None:
        self._next_ms = self._upkeep.next_ms(self.service.shovels.running)
        return self._next_ms

    async def _pass(self) -> None:
        """Does all that is due, and serves waiting consumers."""
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
        """Does all that is due by the running clock, or by a WebSocket's command."""
        await self.begin()
        while self._acting is not None:
            await asyncio.shield(self._acting)
        is_due = self._next_ms is not None and self._next_ms <= self._clock.now_ms()
        if is_due or (self._server.counts()[1] and self._upkeep.has_news):
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

    async def before(self, request: Request) -> None:
        """Has the work done that is due."""
        await self._now()
        if request.method == "GET" and (queue := self.broker.used(request.path[1:])) is not None:
            # The daemon counts a queue's messages at once, instead of once a second.
            queue.description = None
            self.broker.describer.census = Census(self.broker.root)

    def after(self, request: Request, status: int | None) -> None:
        """Does what an answered request made due, before the next one begins."""
        if request.method == "PUT" and status == _CREATED:
            self._bury(request.path)
        if request.method in _MAKES_DUE or request.path.endswith("/shovel"):
            self._acting = asyncio.create_task(self._act(self._acting))
        self._look_soon()

    async def _act(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await before
        try:
            await self.settle()
            await self._pass()
        finally:
            if self._acting is asyncio.current_task():
                self._acting = None

    def _bury(self, path: str) -> None:
        """A queue was created: the removed messages of its name are of earlier queues."""
        with contextlib.suppress(BadName):
            name = QueueName.parse(path[1:])
            removed = ids_of(self.broker.root, State.REMOVED, name)
            self.buried[name] = {each.name for each in removed}

    async def drop_sockets(self) -> None:
        """Ends all WebSockets; on return, mq has released the messages that their clients held."""
        await self.begin()
        for each in [each for each in self._server.connections if each.is_upgraded]:
            each.cut()
        await self.settle()
        self._look_soon()

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
    """A fake's daemon, for its transports and views, in any thread. It starts at its first use."""

    def __init__(self, clock: FakeClock, settings: QueueSettings) -> None:
        self.faults = Faults()
        self.running = Running(clock, settings)
        self._portal = Portal(self.running.end, self.running.new_loop, "mq-fake")
        self._is_begun = False
        clock.lead(self)

    def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine in the daemon's loop; returns its result. Raises NotUsable."""
        self._is_begun = True
        return self._portal.run(begin)

    def url(self) -> "Future[str]":
        """Its URL, once it runs. Raises NotUsable."""
        self._is_begun = True
        return self._portal.submit(self.running.begin)

    def catch_up(self) -> int | None:
        if not self._is_begun or self._portal.is_over:
            return None
        return self.run(self.running.catch_up)

    def look(self, looked: Callable[[Broker], T]) -> T:
        """The result of a function that reads the broker and its root."""
        return self.run(lambda: self.running.look(looked))

    def close(self) -> None:
        """Ends the daemon. May be called again."""
        self._portal.close()
