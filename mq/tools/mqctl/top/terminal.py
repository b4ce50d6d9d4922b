"""The terminal in full-screen mode with unbuffered keys, and its restoration."""

import contextlib
import os
import sys
import termios
import tty
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from mq.tools.mqctl.top.picture import Screen

_READ_BYTES: Final = 1024


class Terminal:
    """Takes and restores a terminal. Ctrl-Z calls `leave` and `enter` again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._before: list[Any] | None = None
        self.keys_fd: int | None = sys.stdin.fileno() if sys.stdin.isatty() else None
        """The file descriptor of the keyboard, or None."""

    @property
    def screen(self) -> Screen:
        size = self._console.size
        return Screen(size.width, size.height)

    def enter(self) -> None:
        """Takes the terminal. Raises OSError if it is gone."""
        if self.keys_fd is not None:
            with contextlib.suppress(termios.error):
                self._before = termios.tcgetattr(self.keys_fd)
                # Ctrl-C and Ctrl-Z still send signals.
                tty.setcbreak(self.keys_fd, termios.TCSADRAIN)
        live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live = live
        live.start()

    def draw(self, lines: list[Text]) -> None:
        """Raises OSError if the terminal is gone."""
        if self._live is not None:
            for line in lines:
                line.no_wrap = True
            self._live.update(Group(*lines), refresh=True)

    def leave(self) -> None:
        """Restores the terminal. May be called again. Raises nothing, even if it is gone."""
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError, ValueError):
                live.stop()
        before, self._before = self._before, None
        if before is not None and self.keys_fd is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(self.keys_fd, termios.TCSADRAIN, before)

    def pressed(self) -> bytes:
        """The bytes typed; empty if the terminal is gone."""
        if self.keys_fd is None:
            return b""
        try:
            return os.read(self.keys_fd, _READ_BYTES)
        except OSError:
            return b""
