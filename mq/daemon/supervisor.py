"""`mq --processes=N`: N mq processes on one port and one root, and this one, which supervises them.

The supervisor serves no requests. It holds the port and passes its number on. `process` and
`daemon` have the rest, the same as for one process alone.
"""

import asyncio
import contextlib
import itertools
import signal
import socket
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

from mq.broker.permits import permits_bytes
from mq.broker.siblings import shared_bytes
from mq.daemon.admission import check_exposure
from mq.daemon.children import Child, Children
from mq.daemon.daemon import open_for_children
from mq.daemon.port import HeldPort, hold_port
from mq.daemon.vitals import STATUS_EVERY_S, end_s
from mq.http.metering import PLAN
from mq.metrics.board import make_shared
from mq.model.limits import CHILD_END_S
from mq.model.log import logger
from mq.runtime.activation import GivenSockets
from mq.runtime.exchange import make_pairs
from mq.runtime.notify import Notifier
from mq.runtime.server_settings import ServerSettings

_log = logger("mq")


class Supervisor:
    """Starts the processes, restarts those that die, and drains all."""

    def __init__(
        self,
        settings: ServerSettings,
        arguments: Sequence[str],
        upkeep: Children,
        notifier: Notifier | None = None,
    ) -> None:
        """`arguments`: this command's own, which each process gets too. `upkeep`: the children that
        run beside them, once. `notifier`: receives their state.
        """
        self._notifier = notifier or Notifier()
        self._is_serving = False
        self._settings = settings
        self._arguments = arguments
        self._servers = Children()
        self._upkeep = upkeep
        self._attaching: tuple[str, ...] = ()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        """For each process, the socket on which it receives and the one by which others send to it.
        """

    async def run(self, asked: asyncio.Event, insisted: asyncio.Event) -> int:
        """Serves until it is `asked` to drain; kills draining processes after a second signal,
        `insisted`. Returns the exit status: that of a process that could not start at all, or 0.
        Raises StartupError when the port is taken.
        """
        await asyncio.to_thread(check_exposure, self._settings)
        held = await asyncio.to_thread(_hold, self._settings)
        watching = asyncio.create_task(self._watch())
        try:
            self._attaching = await asyncio.to_thread(open_for_children, self._settings)
            processes = self._settings.processes
            board = make_shared(PLAN.numbers, processes, shared_bytes(processes) + permits_bytes())
            self._pairs = make_pairs(processes)
            self._servers = Children(
                [self._server(index, held, board) for index in range(self._settings.processes)]
            )
            status = await self._serve(held, asked)
            self._is_serving = False
            self._notifier.stopping(end_s(self._settings))
            await self._drain(insisted)
        finally:
            watching.cancel()
            held.release()
            for ours in itertools.chain(*self._pairs):
                ours.close()
        if status == 0:
            _log.info("all drained")
        return status

    @property
    def reloads(self) -> bool:
        """Whether its processes have files to read again, or a service manager may ask for it."""
        return self._settings.has_files or self._notifier.is_told

    def reload(self) -> None:
        """Makes all processes read their files again. A process that is starting has not read them
        yet.
        """
        for each in self._servers.members:
            each.signal(signal.SIGHUP)

    def _server(self, index: int, held: HeldPort | GivenSockets, board: int | None) -> Child:
        # The last value of a repeated flag wins. -P: the installed mq.
        internal = [*held.flags, "--process-index", str(index)]
        if self._notifier.watchdog_s is not None:
            internal += ["--speak-within", str(self._notifier.watchdog_s)]
        descriptors = self._settings.descriptors
        if board is not None:
            internal += ["--board", str(board)]
            descriptors = (*descriptors, board)
        receives, sends = self._pairs[index][0], [each[1] for each in self._pairs]
        exchange = [each.fileno() for each in (receives, *sends)]
        internal += ["--exchange", ",".join(map(str, exchange))]
        descriptors = (*descriptors, *exchange)
        command = ("-P", "-m", "mq", *self._arguments, *internal)
        return Child(f"mq-{index}", command, speaks=True, descriptors=descriptors)

    async def _serve(self, held: HeldPort | GivenSockets, asked: asyncio.Event) -> int:
        """Serves until asked to drain: 0; or until a process cannot start: its exit status."""
        beginning = asyncio.create_task(self._begin())
        asking = asyncio.create_task(asked.wait())
        await asyncio.wait((beginning, asking), return_when=asyncio.FIRST_COMPLETED)
        status = beginning.result() if beginning.done() else 0
        if beginning.done() and status == 0:
            facts = {
                "address": self._settings.address,
                "port": held.number,
                "root": self._settings.root,
                "processes": self._settings.processes,
            }
            if held.number:
                facts["page"] = self._settings.page_at(held.number)
            _log.info("listening", extra={"fields": facts | held.facts})
            self._is_serving = True
            self._notifier.ready(self._status())
            self._upkeep.start(self._attaching)
            await asking
        for task in (beginning, asking):
            task.cancel()
        return status

    async def _watch(self) -> None:
        """Reports the processes' state. Under a watchdog of its own, reports its life, and kills
        processes that were silent for too long, which are then restarted.
        """
        watchdog_s = self._notifier.watchdog_s
        every_s = STATUS_EVERY_S if watchdog_s is None else watchdog_s / LOOKS
        silences = Silences()
        while self._notifier.is_told:
            await asyncio.sleep(every_s)
            if watchdog_s is not None:
                self._notifier.alive()
                for child in silences.too_long(self._servers.members):
                    _log.warning(
                        "a daemon stopped responding; killed it",
                        extra={"fields": {"daemon": child.name}},
                    )
                    child.kill()
            if self._is_serving:
                self._notifier.status(self._status())

    def _status(self) -> str:
        up = sum(each.is_up for each in self._servers.members)
        of = self._settings.processes
        return f"Serving {self._settings.root}: {up} of {of} processes are up"

    async def _begin(self) -> int:
        """Starts all processes and waits until they listen: 0. Or returns the exit status of one
        that cannot.
        """
        first, *others = self._servers.members
        # Alone: an error that prevents its start would prevent all, and is so reported once.
        first.start(self._attaching)
        if (status := await first.ready()) != 0:
            return status
        for each in others:
            each.start(self._attaching)
        return max(await asyncio.gather(*(each.ready() for each in others)))

    async def _drain(self, insisted: asyncio.Event) -> None:
        """Drains all processes together, then ends the children beside them."""
        self._servers.expect_end()
        self._upkeep.expect_end()
        killing = asyncio.create_task(self._kill_once(insisted))
        await self._servers.end(self._settings.drain_s + CHILD_END_S)
        await self._upkeep.end(CHILD_END_S)
        killing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killing

    async def _kill_once(self, insisted: asyncio.Event) -> None:
        await insisted.wait()
        _log.warning("second signal to end; killing the daemons that still run")
        self._servers.kill()
        self._upkeep.kill()


def _hold(settings: ServerSettings) -> HeldPort | GivenSockets:
    """The port or sockets on which all processes listen. Raises StartupError."""
    if settings.descriptors:
        return GivenSockets(settings.descriptors)
    return hold_port(settings.address, settings.port)


LOOKS: Final = 4
"""Looks in each watchdog period."""
_SILENT_LOOKS_MAX: Final = LOOKS + 1


class Speaker(Protocol):
    """A process that reports repeatedly once it is up."""

    name: str
    words: int
    is_up: bool


S = TypeVar("S", bound=Speaker)


class Silences:
    """Finds processes that have been silent for too long. It counts looks, not seconds, since the
    supervisor may itself have been stopped meanwhile.
    """

    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, int]] = {}

    def too_long(self, speakers: Iterable[S]) -> list[S]:
        """Takes one more look. Returns the processes that are up and have been silent for too long,
        and counts them anew.
        """
        return [each for each in speakers if self._is_too_long(each)]

    def _is_too_long(self, speaker: Speaker) -> bool:
        words, looks = self._heard.get(speaker.name, (-1, 0))
        looks = looks + 1 if speaker.is_up and speaker.words == words else 0
        is_too_long = looks >= _SILENT_LOOKS_MAX
        self._heard[speaker.name] = (speaker.words, 0 if is_too_long else looks)
        return is_too_long
