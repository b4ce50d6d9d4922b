"""Readiness, status, watchdog and end of an mq that serves."""

import asyncio
from typing import Final

from mq.daemon.daemon import Daemon
from mq.model.errors import MqError
from mq.model.limits import CHILD_END_S
from mq.runtime.notify import Notifier
from mq.runtime.pulse import Pulse
from mq.runtime.server_settings import ServerSettings

# How often the service manager gets mq's status.
STATUS_EVERY_S: Final = 30.0

_GIB: Final = 1 << 30


class Vitals:
    """One daemon's, on its loop. A beat is a turn of the loop and of the commit thread."""

    def __init__(self, daemon: Daemon, notifier: Notifier, settings: ServerSettings) -> None:
        self._daemon = daemon
        self._notifier = notifier
        self._settings = settings
        self._pulse = Pulse(notifier)
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Reports that the daemon serves, then its status repeatedly."""
        self._notifier.ready(self._serves)
        self._pulse.start(self._daemon.look)
        if self._pulse.beat_every_s is not None:
            self._tasks.append(asyncio.create_task(self._beat(self._pulse.beat_every_s)))
        if self._notifier.is_told and not self._settings.is_supervised:
            self._tasks.append(asyncio.create_task(self._tell_status()))

    def ending(self) -> None:
        """Reports that the daemon drains, and the longest time for that."""
        self._pulse.ending()
        self._notifier.stopping(end_s(self._settings))
        for task in self._tasks:
            task.cancel()

    def end(self) -> None:
        self._pulse.stop()

    @property
    def _serves(self) -> str:
        return f"Serving {self._settings.root} on {', '.join(self._daemon.places)}"

    async def _beat(self, every_s: float) -> None:
        while True:
            await self._daemon.turn()
            self._pulse.beat()
            await asyncio.sleep(every_s)

    async def _tell_status(self) -> None:
        """Takes one look at a time: if one hangs, another would too."""
        while True:
            looking = asyncio.create_task(self._status())
            try:
                await asyncio.wait((looking,), timeout=STATUS_EVERY_S)
                if not looking.done():
                    self._notifier.status(f"{self._serves}: the root does not answer")
                self._notifier.status(await looking)
            finally:
                looking.cancel()
            await asyncio.sleep(STATUS_EVERY_S)

    async def _status(self) -> str:
        try:
            found = await self._daemon.readiness()
        except MqError as error:
            return f"{self._serves}: nothing can be stored: {error}"
        free = f"{found.free_bytes / _GIB:.1f} GiB free"
        if found.below_reserve:
            free += ", below the reserve: publishing is refused"
        return f"{self._serves}: {found.file_system}, durability {found.durability}, {free}"


def end_s(settings: ServerSettings) -> float:
    """The longest end, seconds: running requests, then children."""
    return settings.drain_s + 2 * CHILD_END_S
