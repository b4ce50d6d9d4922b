"""The mq daemon: opens the root, serves it, and drains.

Wires the packages below; decides nothing.
"""

import asyncio
import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Final

from mq.access.tls import ServerTls
from mq.broker.broker import Broker
from mq.broker.following import Following
from mq.broker.permits import SharedPermits
from mq.broker.readiness import Readiness, ReadinessProbe
from mq.broker.siblings import Siblings, shared_bytes
from mq.broker.watching import Listening
from mq.daemon.admission import Admission, check_exposure
from mq.daemon.port import Sites
from mq.http.acceptor import bounds_of
from mq.http.access import Access
from mq.http.connection import FIRST_REQUEST_LOOK_S, FIRST_REQUEST_LOOKS, Server
from mq.http.dispatcher import Dispatcher
from mq.http.metering import PLAN
from mq.http.service import Service
from mq.metrics.board import Board, behind
from mq.metrics.disk import Disk
from mq.metrics.meter import Meter
from mq.metrics.scrape import Scrapes
from mq.metrics.survey import Survey
from mq.metrics.trends import COUNTING_S, Recorder
from mq.model.clock import Clock, SystemClock
from mq.model.errors import MqError, StartupError, Unavailable
from mq.model.lifecycle import State
from mq.model.log import logger
from mq.model.totals import TOTALS_EVERY_S
from mq.runtime.activation import cannot_listen, open_sockets, place_of, port_of
from mq.runtime.server_settings import ServerSettings
from mq.sqs.serving import Front as Sqs
from mq.store.bulk.journal import journals
from mq.store.bulk.roll_forward import roll_all_forward
from mq.store.core.arrivals import open_arrivals
from mq.store.core.clocks import CLOCK_OFFSET_EVERY_S, ClockFollower
from mq.store.core.presence import PresentFlusher
from mq.store.core.root import Root, probe_write
from mq.store.disk.commit import Committer, untold
from mq.store.disk.files import Files, TimedFiles
from mq.store.disk.flush import FSYNC_THREADS, Flusher
from mq.store.disk.mounts import (
    PROMISE_IF_ORDERED,
    FileSystem,
    choose_flusher,
    file_system_of,
    promise,
)
from mq.store.disk.steps import Flush, Steps
from mq.store.opening import attaching, cannot_open, known_root, open_trusted_root
from mq.store.packs.rolling import is_any_parted, roll_all_on
from mq.store.settings.registry import Registry
from mq.store.totals.writing import write_totals

# How often mq looks whether its root is still there, for requests that commit nothing, and whether
# the clock was set.
LOOK_EVERY_S: Final = 0.5
# How long after its start mq takes its first sample of all queues.
TRENDS_AFTER_S: Final = 30.0

if TYPE_CHECKING:
    from mq.daemon.traces import Traces

_log = logger("mq")


class Daemon:
    """One mq process's server, for an event loop. Start it, then drain it."""

    def __init__(
        self, settings: ServerSettings, files: Files | None = None, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        board = Board(PLAN.numbers, settings.processes, settings.process_index, settings.board)
        self._meter = Meter(PLAN, board, self._clock.steady_s)
        measured = TimedFiles(self._clock.steady_s, self._meter.flush)
        self._files = files or (measured if settings.timings else Files())
        self.server: Server | None = None
        """The connections of clients; None before the start."""
        self._sites: Sites | None = None
        self._broker: Broker | None = None
        self.service: Service | None = None
        """The parts that answer requests; None before the start."""
        self._tasks: list[asyncio.Task[None]] = []
        self._probe: ReadinessProbe | None = None
        self._is_to_roll_forward = False
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
        """Opens the root and listens. Returns the port. Raises StartupError."""
        settings = self._settings
        service = await self.open()
        tracing = None if self._traces is None else self._traces.spans()
        self.server = Server(Dispatcher(service, tracing, Sqs(service.broker)), bounds_of(settings))
        service.scrapes.connections = self.server.counts
        context = None if self._tls is None else self._tls.context
        self._sites = Sites(self.server, context, settings.handshake_s)
        port = await self._listen(self._sites)
        service.following.start()
        service.roster.begin()
        if settings.board is not None:
            self._tasks.append(asyncio.create_task(service.scrapes.keep_on()))
        root = service.broker.root
        if self._is_to_roll_forward:
            self._roll_forward(root)
        # With several processes, the supervisor logs that all of them listen.
        event = "serving" if settings.is_supervised else "listening"
        facts = _facts(settings, port, root, service.broker.committer.flusher)
        if port and not settings.is_supervised:
            facts["page"] = settings.page_at(port)
        if settings.descriptors:
            facts["sockets"] = ", ".join(self.places)
        if self._tls is not None:
            facts["tls"] = True
        _log.info(event, extra={"fields": facts})
        if settings.process_index == 0:
            _warn_of_the_root(root, service.broker.committer.flusher)
        return port

    async def open(self) -> Service:
        """Opens the root without listening. Raises StartupError."""
        settings = self._settings
        await asyncio.to_thread(check_exposure, settings)
        self._admission = await asyncio.to_thread(Admission, settings, self._clock)
        if settings.tls is not None:
            self._tls = await asyncio.to_thread(ServerTls, settings.tls)
        if settings.traces:
            # An extra, so imported only on request.
            from mq.daemon.traces import Traces  # noqa: PLC0415

            self._traces = Traces()
        root, self._is_to_roll_forward = await asyncio.to_thread(
            _open, settings, self._files, self._clock
        )
        file_system = file_system_of(root.layout.root)
        flusher = choose_flusher(
            root.layout.root,
            self._files,
            FSYNC_THREADS,
            settings.commit,
            settings.durability,
            settings.force,
            self._folder_failed,
        )
        in_memory = file_system.in_memory and settings.durability == "none"
        root.history.begin()
        flushed = self._meter.commit if settings.timings else untold
        present = PresentFlusher(flusher, root.presence)
        committer = Committer(present, in_memory, self._clock, flushed)
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
            siblings=_siblings(settings, self._clock),
            permits=_permits(settings),
        )
        self._probe = ReadinessProbe(root, committer, flusher, file_system)
        self._tasks.append(asyncio.create_task(_look_around(root)))
        self._tasks.append(asyncio.create_task(_write_totals(root)))
        if isinstance(self._clock, SystemClock) and file_system.over_network:
            follower = ClockFollower(root, self._clock, every_s=0)
            # Before serving: due times must be by the clock that mq-mover follows.
            await asyncio.to_thread(follower.follow)
            self._tasks.append(asyncio.create_task(_follow_clock(follower)))
        registry = await asyncio.to_thread(Registry, root, settings.queue, settings.refresh_s)
        self._following = Following(self._broker, registry)
        if settings.process_index == 0:
            describer = self._broker.describer
            survey = Survey(describer.census, describer.ledger, sys.maxsize, COUNTING_S)
            self._tasks.append(asyncio.create_task(_record(Recorder(root, survey))))
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
        self._admission.start(self._access)
        return self.service

    async def readiness(self) -> Readiness:
        """The answer of /-/readyz. Raises Unavailable."""
        if self._probe is None:
            raise Unavailable("not started")
        return await self._probe.check()

    @property
    def attaching(self) -> tuple[str, ...]:
        """The flags by which children know the root that this one has opened."""
        return () if self._root is None else attaching(self._root)

    async def turn(self) -> None:
        """Returns once the loop and the commit thread have had a turn, whatever its outcome: it
        flushes an unchanged file behind the flushes in progress.
        """
        if self._committer is not None and self._root is not None:
            with contextlib.suppress(MqError, OSError):
                await self._committer.commit(_flushed(self._root.layout.folder(State.NEW)))

    def look(self) -> None:
        """Uses the root as a publish does: blocking, outside the commit thread. Raises OSError.
        Durable on return: no file is left.
        """
        if self._root is not None:
            probe_write(self._root)

    async def reload(self) -> None:
        """Reads the callers and certificates again. Where a file is bad, the old ones stay, and the
        log says why.
        """
        if self._tls is not None:
            await asyncio.to_thread(self._tls.reload)
        if self._admission is not None:
            await self._admission.reload(self._access)

    async def drain(self) -> None:
        """Stops accepting connections, answers the requests in progress, and releases
        everything.
        """
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
            self.service.roster.end()
        if self.server is not None and self._sites is not None:
            self._sites.stop()
            if self._settings.descriptors:
                await self._hear_first_requests(self.server)
            await self.server.drain(self._settings.drain_s)
        if self._broker is not None:
            await self._broker.drain()
            await asyncio.to_thread(self._broker.root.history.end)
            await asyncio.to_thread(write_totals, self._broker.root, at_end=True)
        self._tell_the_last()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.end)
        _log.info("drained")

    def _tell_the_last(self) -> None:
        """Leaves the counts of the drain to the processes that go on."""
        if self.service is not None:
            self.service.scrapes.keep()

    def _scrapes(self, broker: Broker, probe: ReadinessProbe) -> Scrapes:
        describer = broker.describer
        survey = Survey(describer.census, describer.ledger, self._settings.metrics_queues)
        looks = Disk(broker.root, broker.committer, probe, survey)
        return Scrapes(self._meter, broker, looks)

    async def _listen(self, sites: Sites) -> int:
        """Listens; returns the port, 0 without one. Raises StartupError, with nothing left open."""
        settings = self._settings
        try:
            if settings.descriptors:
                listening = open_sockets(settings.descriptors)
                self.places = tuple(map(place_of, listening))
                await sites.take(listening)
                return max(map(port_of, listening))
            port = await sites.listen(settings)
            self.places = (f"{settings.address} port {port}",)
            return port
        except (StartupError, OSError) as error:
            sites.stop()
            if self._admission is not None:
                await self._admission.stop()
            if isinstance(error, StartupError):
                raise
            raise cannot_listen(settings.address, settings.port, error) from error

    async def _hear_first_requests(self, server: Server) -> None:
        """Waits for first requests. New connections wait for the next process, but a client that
        has just connected to this one may have a request on its way, and is not disconnected.
        """
        for _ in range(FIRST_REQUEST_LOOKS):
            # The sleep comes first: a connection that was just accepted is not counted yet.
            await asyncio.sleep(FIRST_REQUEST_LOOK_S)
            if server.all_have_spoken():
                return

    def _roll_forward(self, root: Root) -> None:
        """Rolls parted packs and bulk publishes forward beside requests, since a large one takes a
        while. The end of the daemon may interrupt it.
        """

        def roll() -> None:
            roll_all_on(root)
            roll_all_forward(root)

        threading.Thread(target=roll, daemon=True).start()

    def _folder_failed(self) -> None:
        _log.error("could not flush a folder; changes in it may be lost")
        if self._probe is not None:
            self._probe.folder_failed()


def open_for_children(settings: ServerSettings) -> tuple[str, ...]:
    """Opens the root once, for the supervisor of several: the flags by which they find it. Raises
    StartupError.
    """
    root, _ = _open(settings, Files(), SystemClock())
    return attaching(root)


def _open(settings: ServerSettings, files: Files, clock: Clock) -> tuple[Root, bool]:
    """Opens the root. Returns it, and whether it may have bulk publishes or parted packs to roll
    forward.
    """
    try:
        root = open_trusted_root(
            str(settings.root),
            files,
            clock,
            makes=settings.makes_root,
            known=known_root(settings.known_root),
            reserve_bytes=settings.reserve_bytes,
            folder_max=settings.folder_max,
        )
        return root, bool(journals(root)) or is_any_parted(root)
    except OSError as error:
        raise cannot_open(str(settings.root), error) from error


def _flushed(folder: str) -> Steps[None]:
    yield Flush(folders=(folder,))


def _listening(settings: ServerSettings, root: Root, file_system: FileSystem) -> Listening:
    """How the daemon learns of new messages. On a network mount inotify misses other machines'."""
    has_siblings = settings.board is not None
    arrivals = open_arrivals(root.layout, has_siblings) if settings.inotify else None
    return Listening(arrivals, file_system.has_own_times)


def _siblings(settings: ServerSettings, clock: Clock) -> Siblings | None:
    """The state shared with the other processes of this mq, if there are any."""
    if settings.board is None:
        return None
    memory = behind(settings.board, PLAN.numbers, settings.processes)
    own = memory[: shared_bytes(settings.processes)]
    return Siblings(own, settings.process_index, clock.steady_s)


def _permits(settings: ServerSettings) -> SharedPermits | None:
    """The permits shared with them for the limits of queues."""
    if settings.board is None:
        return None
    memory = behind(settings.board, PLAN.numbers, settings.processes)
    return SharedPermits(
        memory[shared_bytes(settings.processes) :], settings.board, settings.process_index
    )


def _warn_of_the_root(root: Root, flusher: Flusher) -> None:
    """Logs what its file system may lose. Once it serves: a start that fails is one clear line."""
    path, file_system = root.layout.root, file_system_of(root.layout.root)
    if file_system.is_of_a_container:
        fields = {"root": path, "do": "mount a volume there"}
        _log.warning("the root goes with its container", extra={"fields": fields})
    if promise(flusher, file_system, root.files) == PROMISE_IF_ORDERED:
        fields = {"file_system": file_system.kind, "do": f"mqctl doctor {path}"}
        _log.warning("a power cut may lose messages on this file system", extra={"fields": fields})


def _facts(settings: ServerSettings, port: int, root: Root, flusher: Flusher) -> dict[str, object]:
    return {
        "address": settings.address,
        "port": port,
        "root": settings.root,
        "file_system": file_system_of(root.layout.root).kind,
        "commit": flusher.name,
    }


async def _write_totals(root: Root) -> None:
    while True:
        await asyncio.sleep(TOTALS_EVERY_S)
        await asyncio.to_thread(write_totals, root)


async def _record(recorder: Recorder) -> None:
    pause_s = TRENDS_AFTER_S
    try:
        while True:
            await asyncio.sleep(pause_s)
            pause_s = await asyncio.to_thread(recorder.step)
    finally:
        await asyncio.to_thread(recorder.end)


async def _look_around(root: Root) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        root.steps.look()
        if root.over_network:
            await asyncio.to_thread(root.presence.follow)
        else:
            root.presence.follow()


async def _follow_clock(follower: ClockFollower) -> None:
    while True:
        await asyncio.sleep(CLOCK_OFFSET_EVERY_S)
        await asyncio.to_thread(follower.follow)
