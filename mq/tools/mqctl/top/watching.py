"""The live view: polls, draws, and handles keys and signals until one of them ends it."""

import asyncio
import contextlib
import os
import signal
from dataclasses import replace
from typing import Final

from mq.tools.mqctl.exits import ExitCode, of_signal
from mq.tools.mqctl.top.asking import Asker
from mq.tools.mqctl.top.keys import Keys
from mq.tools.mqctl.top.picture import picture
from mq.tools.mqctl.top.rows import Row, in_order, rows_of
from mq.tools.mqctl.top.terminal import Terminal
from mq.tools.mqctl.top.view import View, press, settled

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Redraw ages between polls.
_DRAWN_EVERY_S: Final = 1.0
# An Esc without more bytes for this long is the Esc key.
_ESCAPE_S: Final = 0.05


class Watching:
    """One run of the view. Restores the terminal however it ends, except for SIGKILL."""

    def __init__(
        self, asker: Asker, terminal: Terminal, view: View, interval_s: float, url: str
    ) -> None:
        self._asker = asker
        self._board = asker.board
        self._terminal = terminal
        self._view = view
        self._interval_s = interval_s
        self._url = url
        self._steady_s = asker.clock.steady_s
        self._keys = Keys()
        self._changed = asyncio.Event()
        self._goes_on = asyncio.Event()
        self._visible: tuple[str, ...] = ()
        self._ended_by: int | None = None
        self._is_to_stop = False
        self._escape: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        """Runs until a key or a signal ends it; returns the exit code."""
        self._goes_on.set()
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as cleanup:
            for number in _ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, self._end, number)
                    cleanup.callback(loop.remove_signal_handler, number)
            loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
            cleanup.callback(loop.remove_signal_handler, signal.SIGWINCH)
            self._handle_stop()
            cleanup.callback(loop.remove_signal_handler, signal.SIGTSTP)
            cleanup.callback(self._terminal.leave)
            cleanup.callback(self._ignore_keys)
            try:
                self._enter()
                await self._watch()
            except OSError:
                # The terminal is gone.
                self._end(signal.SIGHUP)
        return int(ExitCode.DONE) if self._ended_by is None else of_signal(self._ended_by)

    async def _watch(self) -> None:
        asking = asyncio.create_task(self._ask())
        asking.add_done_callback(lambda _: self._changed.set())
        try:
            while self._ended_by is None and not self._view.is_over:
                if asking.done():
                    asking.result()
                if self._is_to_stop:
                    self._stop()
                self._draw()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), _DRAWN_EVERY_S)
                self._changed.clear()
        finally:
            asking.cancel()
            await asyncio.wait([asking])

    async def _ask(self) -> None:
        """Polls repeatedly, except while the view is paused."""
        try:
            while True:
                began_s = self._steady_s()
                await self._asker.tick(self._visible)
                self._changed.set()
                await asyncio.sleep(max(0.0, began_s + self._interval_s - self._steady_s()))
                await self._goes_on.wait()
        finally:
            await self._asker.close()

    def _rows(self) -> list[Row]:
        rows = rows_of(self._board, self._steady_s(), self._view.wanted)
        return in_order(rows, self._view.order, self._view.is_reversed)

    def _draw(self) -> None:
        screen, rows = self._terminal.screen, self._rows()
        page = screen.page or 1
        self._view = settled(self._view, len(rows), page)
        first = self._view.first
        self._visible = tuple(row.name for row in rows[first : first + page])
        lines = picture(self._board, rows, self._view, screen, self._steady_s(), self._url)
        self._terminal.draw(lines)

    def _end(self, number: int) -> None:
        self._ended_by = number
        self._changed.set()

    # Keys.

    def _enter(self) -> None:
        self._terminal.enter()
        if self._terminal.keys_fd is not None:
            asyncio.get_running_loop().add_reader(self._terminal.keys_fd, self._typed)

    def _ignore_keys(self) -> None:
        if self._escape is not None:
            self._escape.cancel()
        if self._terminal.keys_fd is not None:
            asyncio.get_running_loop().remove_reader(self._terminal.keys_fd)

    def _typed(self) -> None:
        data = self._terminal.pressed()
        if not data:
            self._end(signal.SIGHUP)
            return
        if self._escape is not None:
            self._escape.cancel()
            self._escape = None
        self._press(self._keys.feed(data))
        if self._keys.is_within:
            loop = asyncio.get_running_loop()
            self._escape = loop.call_later(_ESCAPE_S, lambda: self._press(self._keys.flush()))

    def _press(self, keys: list[str]) -> None:
        page = self._terminal.screen.page or 1
        for key in keys:
            self._view = press(self._view, key, len(self._rows()), page)
        if self._view.is_paused:
            self._goes_on.clear()
        else:
            self._goes_on.set()
        self._changed.set()

    # Ctrl-Z.

    def _handle_stop(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTSTP, self._to_stop)

    def _to_stop(self) -> None:
        self._is_to_stop = True
        self._changed.set()

    def _stop(self) -> None:
        """Restores the terminal and stops the process, as SIGTSTP does by default. Returns when the
        process continues.
        """
        self._is_to_stop = False
        self._ignore_keys()
        self._terminal.leave()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        self._handle_stop()
        self._view = replace(self._view, typing=None)
        self._enter()
