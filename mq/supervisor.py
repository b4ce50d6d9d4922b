"""`mq --processes=N`: N mq processes on one port and one root, and this one to look after them.

Floor 4. It serves nothing itself. The port is held here and handed on by its number; what a
process answers, and how it drains, is in `process` and `daemon`, the same as for one alone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from mq.children import Child, Children
from mq.limits import CHILD_END_S
from mq.port import HeldPort, hold_port
from mq.settings import ServerSettings

_log = logging.getLogger("mq")


class Supervisor:
    """Starts the processes, starts again those that die, drains them all."""

    def __init__(
        self, settings: ServerSettings, arguments: Sequence[str], upkeep: Children
    ) -> None:
        """`arguments`: this command's own, which each process is given too. `upkeep`: what runs
        beside them, once.
        """
        self._settings = settings
        self._arguments = arguments
        self._servers = Children()
        self._upkeep = upkeep

    async def run(self, asked: asyncio.Event, insisted: asyncio.Event) -> int:
        """Serves until it is `asked` to drain; processes that drain are killed once somebody
        `insisted`. The exit status: that of a process that could not start at all, or 0.
        Raises StartupError when the port is not to be had.
        """
        port = await asyncio.to_thread(hold_port, self._settings.address, self._settings.port)
        try:
            self._servers = Children(
                [self._server(index, port) for index in range(self._settings.processes)]
            )
            status = await self._serve(port, asked)
            await self._drain(insisted)
        finally:
            port.release()
        if status == 0:
            _log.info("all drained")
        return status

    def _server(self, index: int, port: HeldPort) -> Child:
        # The last word counts where a flag is given twice. -P: the installed mq.
        internal = ("--port", str(port.number), "--process-index", str(index))
        command = ("-P", "-m", "mq", *self._arguments, *internal)
        return Child(f"mq-{index}", command, speaks=True)

    async def _serve(self, port: HeldPort, asked: asyncio.Event) -> int:
        """Until asked to drain, or one cannot start: its exit status then, else 0."""
        beginning = asyncio.create_task(self._begin())
        asking = asyncio.create_task(asked.wait())
        await asyncio.wait((beginning, asking), return_when=asyncio.FIRST_COMPLETED)
        status = beginning.result() if beginning.done() else 0
        if beginning.done() and status == 0:
            facts = {
                "address": self._settings.address,
                "port": port.number,
                "root": self._settings.root,
                "processes": self._settings.processes,
            }
            _log.info("listening", extra={"fields": facts})
            self._upkeep.start()
            await asking
        for task in (beginning, asking):
            task.cancel()
        return status

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
