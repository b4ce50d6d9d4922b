"""How tasks wait for the fake: each in its own event loop, woken from any thread."""

import asyncio
import contextlib
import threading


class Bell:
    """Wakes one task."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wakes it, now or when it next waits. From any thread."""
        with contextlib.suppress(RuntimeError):  # Its loop has ended, and it with it.
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float | None) -> None:
        """Waits until it is rung, or for so long; None: until then only."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


class Bells:
    """Those of all who wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: set[Bell] = set()

    def add(self, bell: Bell) -> None:
        """It is rung from here on."""
        with self._lock:
            self._bells.add(bell)

    def discard(self, bell: Bell) -> None:
        """It is rung no more."""
        with self._lock:
            self._bells.discard(bell)

    def ring(self) -> None:
        """Something has happened: all look whether it is for them."""
        with self._lock:
            bells = list(self._bells)
        for each in bells:
            each.ring()
