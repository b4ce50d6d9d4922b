"""A command on a terminal of its own: what it draws, what is typed, and how it leaves it."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence

from harness.processes import PATIENCE_S, eventually

ENTERS = "\x1b[?1049h"
LEAVES = "\x1b[?1049l"
SHOWS_CURSOR = "\x1b[?25h"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OWN = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class Screen:
    """A terminal and the command that it was begun with."""

    def __init__(self, command: Sequence[str], columns: int = 140, lines: int = 30) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self._slave)
        self.popen = subprocess.Popen(
            [sys.executable, "-c", _OWN, *command],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        self._drawn = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                self._drawn += data

    @property
    def drawn(self) -> str:
        """All that was ever sent to it, but for colours."""
        return _COLOUR.sub("", self._drawn.decode(errors="replace"))

    @property
    def modes(self) -> list[object]:
        """The terminal's modes as they are now."""
        return termios.tcgetattr(self._slave)

    def resize(self, columns: int, lines: int) -> None:
        """Sets its size, as a window does; who draws on it is told."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> int:
        """Types; how much was drawn until then."""
        at = len(self.drawn)
        os.write(self._master, keys.encode())
        return at

    def shows(self, text: str, since: int = 0) -> int:
        """Waits until this is drawn; how much was drawn by then."""
        eventually(lambda: text in self.drawn[since:], f"{text!r} on the screen")
        return len(self.drawn)

    def ends(self) -> int:
        """Waits for the command's end; its exit code."""
        return self.popen.wait(PATIENCE_S)

    def close(self) -> None:
        """Ends the command, if it is there yet, and the terminal."""
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait(PATIENCE_S)
        # The other side is to see an end, so that its reader does.
        os.close(self._slave)
        self._reader.join(PATIENCE_S)
        os.close(self._master)


@contextlib.contextmanager
def screen(*command: str, columns: int = 140, lines: int = 30) -> Iterator[Screen]:
    """A terminal with the command, which is ended at last."""
    made = Screen(command, columns, lines)
    try:
        yield made
    finally:
        made.close()
