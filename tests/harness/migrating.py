"""Programs that move messages into mq, as processes; and sources that die in the middle."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.processes import eventually
from tests.examples.migrate.moving import Source, Taken

TOP = Path(__file__).parents[2]
IDLE_S = "2"


class Died(Exception):
    """As a process that was killed, it settles nothing any more."""


class CrashingSource:
    """A source that fails once it has deleted so many times: what it was given then is stored.

    `taken`: all that it has given.
    """

    def __init__(self, source: Source, settles: int = 1_000) -> None:
        self._source = source
        self._left = settles
        self.taken: list[Taken] = []

    def take(self) -> list[Taken]:
        taken = self._source.take()
        self.taken += taken
        return taken

    def settle(self, taken: Sequence[Taken]) -> None:
        if self._left == 0:
            raise Died
        self._left -= 1
        self._source.settle(taken)

    def give_back(self, taken: Sequence[Taken]) -> None:
        self._source.give_back(taken)

    def left(self) -> int:
        return self._source.left()


def begin(name: str, *flags: str) -> "subprocess.Popen[str]":
    """`python -m tests.examples.migrate.{name}`."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.examples.migrate.{name}", *flags],
        cwd=TOP,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def move_all(name: str, *flags: str) -> None:
    """The same until nothing is left: servers take a moment to see that a program was killed."""
    eventually(lambda: move(name, *flags)[0] == 0, "an empty source", patience_s=90)


def move(name: str, *flags: str) -> tuple[int, str, str]:
    """The same to its end: how it ended, its last line, and what it said of what went wrong."""
    with begin(name, "--idle", IDLE_S, *flags) as popen:
        said, wrong = popen.communicate(timeout=150)
    return popen.returncode, (said.splitlines() or [""])[-1], wrong
