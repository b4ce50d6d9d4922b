"""The mq daemon: opens the root, serves it, and drains.

Floor 4: wires the floors below; decides nothing.
"""

import asyncio
import contextlib
import logging
import threading

from aiohttp import web

from mq.broker.broker import Broker
from mq.broker.listening import Listening
from mq.broker.readiness import ReadinessProbe
from mq.clock import Clock, SystemClock
from mq.errors import StartupError
from mq.http.app import make_runner
from mq.http.service import Service
from mq.limits import CLOCK_OFFSET_EVERY_S
from mq.settings import ServerSettings
from mq.store.arrivals import open_arrivals
from mq.store.commit import Committer
from mq.store.files import Files
from mq.store.journal import journals
from mq.store.mounts import ClockFollower, FileSystem, choose_flusher, file_system_of
from mq.store.roll_forward import drop_second_names, roll_all_forward
from mq.store.root import Root, open_root

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
        self._files = files or Files()
        self._clock = clock or SystemClock()
        self._runner: web.ServerRunner | None = None
        self._broker: Broker | None = None
        self._clock_task: asyncio.Task[None] | None = None
        self._probe: ReadinessProbe | None = None

    async def start(self) -> int:
        """Opens the root and listens; the port. Raises StartupError."""
        settings = self._settings
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
        committer = Committer(flusher, in_memory, self._clock)
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
        )
        self._probe = ReadinessProbe(root, committer, flusher, file_system)
        if isinstance(self._clock, SystemClock) and file_system.over_network:
            follower = ClockFollower(root, self._clock, every_s=0)
            # Before anything is served: its due time would be of another clock than the mover's.
            await asyncio.to_thread(follower.follow)
            self._clock_task = asyncio.create_task(_follow_clock(follower))
        self._runner = make_runner(Service(self._broker, self._probe, settings), settings.drain_s)
        await self._runner.setup()
        port = await _listen(self._runner, settings)
        if is_published_in_bulk:
            self._roll_forward(root)
        # That all of several listen is for their supervisor to say.
        event = "serving" if settings.is_supervised else "listening"
        _log.info(event, extra={"fields": _facts(settings, port, file_system, flusher.name)})
        return port

    async def drain(self) -> None:
        """No new connections; what is in hand is answered; then everything is given back."""
        if self._clock_task is not None:
            self._clock_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._clock_task
        if self._broker is not None:
            self._broker.stop_waiting()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._broker is not None:
            await self._broker.drain()
            await asyncio.to_thread(self._broker.root.history.end)
        _log.info("drained")

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
        root = open_root(
            str(settings.root), files, clock, settings.reserve_bytes, settings.folder_max
        )
        is_published_in_bulk = bool(journals(root))
        if is_published_in_bulk:
            drop_second_names(root)
        return root, is_published_in_bulk
    except OSError as error:
        raise StartupError(f"cannot open the root {settings.root}: {error}") from error


def _listening(settings: ServerSettings, root: Root, file_system: FileSystem) -> Listening:
    """Nothing is heard on a network mount of what other machines do there."""
    arrivals = open_arrivals(root.layout) if settings.inotify else None
    return Listening(arrivals, file_system.has_own_times)


async def _listen(runner: web.ServerRunner, settings: ServerSettings) -> int:
    # Peers on one machine may share a port.
    shares_port = settings.is_supervised or settings.peers > 0 or None
    site = web.TCPSite(runner, settings.address, settings.port, reuse_port=shares_port)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
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
    }


async def _follow_clock(follower: ClockFollower) -> None:
    while True:
        await asyncio.sleep(CLOCK_OFFSET_EVERY_S)
        await asyncio.to_thread(follower.follow)
