"""`mq --processes=N`: N mq processes on one port and one root, and this one to look after them.

It serves nothing itself. The port is held here and handed on by its number; what a
process answers, and how it drains, is in `process` and `daemon`, the same as for one alone.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence

from mq.daemon.admission import check_exposure
from mq.daemon.children import Child, Children
from mq.daemon.port import HeldPort, hold_port
from mq.daemon.silences import LOOKS, Silences
from mq.daemon.vitals import end_s
from mq.http.metering import PLAN
from mq.metrics.board import make_shared
from mq.model.limits import CHILD_END_S, STATUS_EVERY_S
from mq.runtime.activation import GivenSockets
from mq.runtime.notify import Notifier
from mq.runtime.server_settings import ServerSettings

_log = logging.getLogger("mq")


class Supervisor:
    """Starts the processes, starts again those that die, drains them all."""

    def __init__(
        self,
        settings: ServerSettings,
        arguments: Sequence[str],
        upkeep: Children,
        notifier: Notifier | None = None,
    ) -> None:
        """`arguments`: this command's own, which each process is given too. `upkeep`: what runs
        beside them, once. `notifier`: who is told how they are.
        """
        self._notifier = notifier or Notifier()
        self._is_serving = False
        self._settings = settings
        self._arguments = arguments
        self._servers = Children()
        self._upkeep = upkeep

    async def run(self, asked: asyncio.Event, insisted: asyncio.Event) -> int:
        """Serves until it is `asked` to drain; processes that drain are killed once somebody
        `insisted`. The exit status: that of a process that could not start at all, or 0.
        Raises StartupError when the port is not to be had.
        """
        await asyncio.to_thread(check_exposure, self._settings)
        held = await asyncio.to_thread(_hold, self._settings)
        watching = asyncio.create_task(self._watch())
        try:
            board = make_shared(PLAN.numbers, self._settings.processes)
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
        if status == 0:
            _log.info("all drained")
        return status

    @property
    def reloads(self) -> bool:
        """Whether there is anything that its processes read again, or a service manager that may
        ask for it all the same.
        """
        return self._settings.has_files or self._notifier.is_told

    def reload(self) -> None:
        """Has all processes read their files again; one that starts has not read them yet."""
        for each in self._servers.members:
            each.signal(signal.SIGHUP)

    def _server(self, index: int, held: HeldPort | GivenSockets, board: int | None) -> Child:
        # The last word counts where a flag is given twice. -P: the installed mq.
        internal = [*held.flags, "--process-index", str(index)]
        if self._notifier.watchdog_s is not None:
            internal += ["--speak-within", str(self._notifier.watchdog_s)]
        descriptors = self._settings.descriptors
        if board is not None:
            internal += ["--board", str(board)]
            descriptors = (*descriptors, board)
        command = ("-P", "-m", "mq", *self._arguments, *internal)
        return Child(f"mq-{index}", command, speaks=True, descriptors=descriptors)

    async def _serve(self, held: HeldPort | GivenSockets, asked: asyncio.Event) -> int:
        """Until asked to drain, or one cannot start: its exit status then, else 0."""
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
            _log.info("listening", extra={"fields": facts | held.facts})
            self._is_serving = True
            self._notifier.ready(self._status())
            self._upkeep.start()
            await asking
        for task in (beginning, asking):
            task.cancel()
        return status

    async def _watch(self) -> None:
        """Tells how they are; and, where it is itself watched, that it lives, and ends those of
        whom nothing is heard for longer than that may be, which are then started again.
        """
        watchdog_s = self._notifier.watchdog_s
        every_s = STATUS_EVERY_S if watchdog_s is None else watchdog_s / LOOKS
        silences = Silences()
        while self._notifier.is_told:
            await asyncio.sleep(every_s)
            if watchdog_s is not None:
                self._notifier.alive()
                for child in silences.too_long(self._servers.members):
                    _log.warning("says nothing, killed", extra={"fields": {"daemon": child.name}})
                    child.kill()
            if self._is_serving:
                self._notifier.status(self._status())

    def _status(self) -> str:
        up = sum(each.is_up for each in self._servers.members)
        of = self._settings.processes
        return f"Serving {self._settings.root}: {up} of {of} processes are up"

    async def _begin(self) -> int:
        """Starts all, and waits until they listen: 0. Or the exit status of one that cannot."""
        first, *others = self._servers.members
        # Alone: what keeps it from starting keeps all of them, and is then said once.
        first.start()
        if (status := await first.ready()) != 0:
            return status
        for each in others:
            each.start()
        return max(await asyncio.gather(*(each.ready() for each in others)))

    async def _drain(self, insisted: asyncio.Event) -> None:
        """All processes side by side, and then what runs beside them."""
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
        _log.warning("asked twice to end, kills what is left")
        self._servers.kill()
        self._upkeep.kill()


def _hold(settings: ServerSettings) -> HeldPort | GivenSockets:
    """What all of them listen on. Raises StartupError."""
    if settings.descriptors:
        return GivenSockets(settings.descriptors)
    return hold_port(settings.address, settings.port)
