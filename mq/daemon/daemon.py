"""The mq daemon: opens the root, serves it, and drains.

Wires the packages below; decides nothing.
"""

import asyncio
import contextlib
import logging
import ssl
import threading
from typing import TYPE_CHECKING, cast

from aiohttp import web

from mq.access.tls import ServerTls
from mq.broker.broker import Broker
from mq.broker.following import Following
from mq.broker.listening import Listening
from mq.broker.readiness import Readiness, ReadinessProbe
from mq.daemon.admission import Admission, check_exposure
from mq.daemon.sites import PortSite, SocketSite
from mq.http.access import Access
from mq.http.app import make_runner
from mq.http.connection import ConnectionServer
from mq.http.metering import PLAN
from mq.http.parsers import PARSER
from mq.http.service import Service
from mq.metrics.board import Board
from mq.metrics.disk import Disk
from mq.metrics.meter import Meter
from mq.metrics.scrape import Scrapes
from mq.metrics.survey import Survey
from mq.model.clock import Clock, SystemClock
from mq.model.errors import MqError, StartupError, Unavailable
from mq.model.lifecycle import State
from mq.model.limits import (
    CLOCK_LOOK_EVERY_S,
    CLOCK_OFFSET_EVERY_S,
    FIRST_REQUEST_LOOK_S,
    FIRST_REQUEST_LOOKS,
)
from mq.runtime.activation import open_sockets, place_of, port_of
from mq.runtime.server_settings import ServerSettings
from mq.store.bulk.journal import journals
from mq.store.bulk.roll_forward import drop_second_names, roll_all_forward
from mq.store.core.arrivals import open_arrivals
from mq.store.core.root import Root, probe_write
from mq.store.core.server_clock import ClockFollower
from mq.store.core.trust import open_trusted_root
from mq.store.disk.commit import Committer
from mq.store.disk.files import Files
from mq.store.disk.line import untold
from mq.store.disk.mounts import FileSystem, choose_flusher, file_system_of
from mq.store.disk.steps import Flush, Steps
from mq.store.disk.timed_files import TimedFiles
from mq.store.settings.registry import Registry

if TYPE_CHECKING:
    from mq.daemon.traces import Traces

_log = logging.getLogger("mq")


class Daemon:
    """One mq process's server, for an event loop. Start it, then drain it."""

    def __init__(
        self,
        settings: ServerSettings,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        board = Board(PLAN.numbers, settings.processes, settings.process_index, settings.board)
        self._meter = Meter(PLAN, board, self._clock.steady_s)
        measured = TimedFiles(self._clock.steady_s, self._meter.flush)
        self._files = files or (measured if settings.timings else Files())
        self.runner: web.ServerRunner | None = None
        """What listens, and has the connections of clients; None before the start."""
        self._broker: Broker | None = None
        self.service: Service | None = None
        """What requests are answered by; None before the start."""
        self._tasks: list[asyncio.Task[None]] = []
        self._probe: ReadinessProbe | None = None
        self._following: Following | None = None
        self._committer: Committer | None = None
        self._access = Access(self._clock)
        self._root: Root | None = None
        self._admission: Admission | None = None
        self._tls: ServerTls | None = None
        self._traces: Traces | None = None
        self.places: tuple[str, ...] = ()
        """Where it listens, for people."""

    async def start(self) -> int:
        """Opens the root and listens; the port. Raises StartupError."""
        settings = self._settings
        await asyncio.to_thread(check_exposure, settings)
        self._admission = await asyncio.to_thread(Admission, settings, self._clock)
        if settings.tls is not None:
            self._tls = await asyncio.to_thread(ServerTls, settings.tls)
        if settings.traces:
            # Imported by those alone who ask for it: it is an extra.
            from mq.daemon.traces import Traces  # noqa: PLC0415

            self._traces = Traces()
        root, is_published_in_bulk = await asyncio.to_thread(
            _open, settings, self._files, self._clock
        )
        file_system = file_system_of(root.layout.root)
        flusher = choose_flusher(
            root.layout.root,
            self._files,
            settings.workers,
            settings.commit,
            settings.durability,
            settings.force,
            self._folder_failed,
        )
        in_memory = file_system.in_memory and settings.durability == "none"
        root.history.begin()
        flushed = self._meter.commit if settings.timings else untold
        committer = Committer(flusher, in_memory, self._clock, flushed)
        self._root, self._committer = root, committer
        own = settings.peer_index
        if settings.is_supervised:
            own = (own or 0) + settings.process_index
        self._broker = Broker(
            root,
            committer,
            settings.queue,
            settings.peers,
            peer_index=own,
            listening=_listening(settings, root, file_system),
            memory_bytes=settings.memory_bytes // settings.processes,
            waiters_max=settings.waiters_max,
        )
        self._probe = ReadinessProbe(root, committer, flusher, file_system)
        self._tasks.append(asyncio.create_task(_look_at_clock(root)))
        if isinstance(self._clock, SystemClock) and file_system.over_network:
            follower = ClockFollower(root, self._clock, every_s=0)
            # Before anything is served: its due time would be of another clock than the mover's.
            await asyncio.to_thread(follower.follow)
            self._tasks.append(asyncio.create_task(_follow_clock(follower)))
        registry = await asyncio.to_thread(Registry, root, settings.queue, settings.refresh_s)
        self._following = Following(self._broker, registry)
        scrapes = self._scrapes(self._broker, self._probe)
        self.service = Service(
            self._broker,
            self._probe,
            self._following,
            settings,
            self._access,
            scrapes,
            self._meter if settings.timings else None,
        )
        traced = None if self._traces is None else self._traces.around
        self.runner = make_runner(self.service, settings.drain_s, traced)
        await self.runner.setup()
        self._admission.start(self._access)
        port = await self._listen(self.runner)
        self._following.start()
        if settings.board is not None:
            self._tasks.append(asyncio.create_task(scrapes.keep_on()))
        if is_published_in_bulk:
            self._roll_forward(root)
        # That all of several listen is for their supervisor to say.
        event = "serving" if settings.is_supervised else "listening"
        facts = _facts(settings, port, file_system, flusher.name)
        if settings.descriptors:
            facts["sockets"] = ", ".join(self.places)
        if self._tls is not None:
            facts["tls"] = True
        _log.info(event, extra={"fields": facts})
        return port

    async def readiness(self) -> Readiness:
        """What /-/readyz says. Raises Unavailable."""
        if self._probe is None:
            raise Unavailable("not started")
        return await self._probe.check()

    async def turn(self) -> None:
        """Returns once the loop and the line of commits have had a turn, whatever came of it: a
        flush of what has not changed, behind those that go on.
        """
        if self._committer is not None and self._root is not None:
            with contextlib.suppress(MqError, OSError):
                await self._committer.commit(_flushed(self._root.layout.folder(State.NEW)))

    def look(self) -> None:
        """Uses the root as a publish does, blocking, in nobody's line. Raises OSError. Durable on
        return: nothing is left.
        """
        if self._root is not None:
            probe_write(self._root)

    async def reload(self) -> None:
        """Reads again who may do what, and with which certificates it serves. Where that cannot be
        read, it stays as it was, and the log says why.
        """
        if self._tls is not None:
            await asyncio.to_thread(self._tls.reload)
        if self._admission is not None:
            await self._admission.reload(self._access)

    async def drain(self) -> None:
        """No new connections; what is in hand is answered; then everything is given back."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._admission is not None:
            await self._admission.stop()
        if self._following is not None:
            await self._following.stop()
        if self._broker is not None:
            self._broker.stop_waiting()
        if self.service is not None:
            self.service.shovels.stop_all()
        if self.runner is not None:
            if self._settings.descriptors:
                await self._hear_first_requests(self.runner)
            await self.runner.cleanup()
        if self._broker is not None:
            await self._broker.drain()
            await asyncio.to_thread(self._broker.root.history.end)
        self._tell_the_last()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.end)
        _log.info("drained")

    def _tell_the_last(self) -> None:
        """What was counted while it drained, for those that go on."""
        if self.service is not None:
            self.service.scrapes.keep()

    def _scrapes(self, broker: Broker, probe: ReadinessProbe) -> Scrapes:
        survey = Survey(broker.describer.census, self._settings.metrics_queues)
        looks = Disk(broker.root, broker.committer, probe, survey)
        return Scrapes(self._meter, broker, looks)

    async def _listen(self, runner: web.ServerRunner) -> int:
        """The port, 0 where there is none. Raises StartupError, with nothing left open."""
        settings = self._settings
        context = None if self._tls is None else self._tls.context
        try:
            if settings.descriptors:
                listening = open_sockets(settings.descriptors)
                self.places = tuple(map(place_of, listening))
                for each in listening:
                    await SocketSite(runner, each, context, settings.handshake_s).start()
                return max(map(port_of, listening))
            port = await _listen(runner, settings, context)
            self.places = (f"{settings.address} port {port}",)
            return port
        except StartupError:
            await runner.cleanup()
            if self._admission is not None:
                await self._admission.stop()
            raise

    async def _hear_first_requests(self, runner: web.ServerRunner) -> None:
        """Who connects from now on waits for the next process. Who came to this one, and has said
        nothing yet, is not to be hung up on with a request on its way.
        """
        for site in list(runner.sites):
            await site.stop()
        server = cast(ConnectionServer, runner.server)
        for _ in range(FIRST_REQUEST_LOOKS):
            # First: one that was just accepted is not known yet.
            await asyncio.sleep(FIRST_REQUEST_LOOK_S)
            if server.all_have_spoken():
                return

    def _roll_forward(self, root: Root) -> None:
        """Beside what is served: a large publish takes a while, and whoever ends can leave it."""
        settings = self._settings
        flusher = choose_flusher(
            root.layout.root, self._files, 1, settings.commit, settings.durability, settings.force
        )
        threading.Thread(target=roll_all_forward, args=(root, flusher), daemon=True).start()

    def _folder_failed(self) -> None:
        _log.error("a folder's fsync failed")
        if self._probe is not None:
            self._probe.folder_failed()


def _open(settings: ServerSettings, files: Files, clock: Clock) -> tuple[Root, bool]:
    """The root, and whether bulk publishes are to be rolled forward there."""
    try:
        root = open_trusted_root(
            str(settings.root),
            files,
            clock,
            settings.reserve_bytes,
            settings.folder_max,
            new_root_level=logging.INFO,
        )
        is_published_in_bulk = bool(journals(root))
        if is_published_in_bulk:
            drop_second_names(root)
        return root, is_published_in_bulk
    except OSError as error:
        raise StartupError(f"cannot open the root {settings.root}: {error}") from error


def _flushed(folder: str) -> Steps[None]:
    yield Flush(folders=(folder,))


def _listening(settings: ServerSettings, root: Root, file_system: FileSystem) -> Listening:
    """Nothing is heard on a network mount of what other machines do there."""
    arrivals = open_arrivals(root.layout) if settings.inotify else None
    return Listening(arrivals, file_system.has_own_times)


async def _listen(
    runner: web.ServerRunner, settings: ServerSettings, context: ssl.SSLContext | None
) -> int:
    # Peers on one machine may share a port.
    shares_port = settings.is_supervised or settings.peers > 0 or None
    site = PortSite(
        runner, settings.address, settings.port, shares_port, context, settings.handshake_s
    )
    try:
        await site.start()
    except OSError as error:
        raise StartupError(
            f"cannot listen on {settings.address} port {settings.port}: {error.strerror}"
        ) from error
    for address in runner.addresses:
        if isinstance(address, tuple):
            return int(address[1])
    raise StartupError("the server listens nowhere")


def _facts(
    settings: ServerSettings, port: int, file_system: FileSystem, commit: str
) -> dict[str, object]:
    return {
        "address": settings.address,
        "port": port,
        "root": settings.root,
        "file_system": file_system.kind,
        "commit": commit,
        "parser": PARSER,
    }


async def _look_at_clock(root: Root) -> None:
    while True:
        await asyncio.sleep(CLOCK_LOOK_EVERY_S)
        root.steps.look()


async def _follow_clock(follower: ClockFollower) -> None:
    while True:
        await asyncio.sleep(CLOCK_OFFSET_EVERY_S)
        await asyncio.to_thread(follower.follow)
