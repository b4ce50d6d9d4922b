"""The doctor's side of its partners: starts processes, sends requests, waits for answers."""

import contextlib
import errno
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Final, cast

from mq.model.clock import Clock

# How long a partner may take for a request.
_PATIENCE_S: Final = 30.0

_READ_BYTES = 1 << 16
_END_S = 2.0


@dataclass(frozen=True, slots=True)
class _Running:
    process: "subprocess.Popen[bytes]"
    requests: IO[bytes]
    answers: IO[bytes]


class Partner:
    """One process. Raises OSError as the process's file operations do; ETIMEDOUT without an answer
    within `patience_s`: then the next request starts another process.
    """

    def __init__(self, clock: Clock, patience_s: float) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._process: _Running | None = None
        self._heard = b""

    def ask(self, what: str, **arguments: Any) -> Any:
        """Sends a request, and waits for its result."""
        self.tell(what, **arguments)
        return self.answer()

    def tell(self, what: str, **arguments: Any) -> None:
        """Sends a request without waiting; `answer` waits."""
        requests = self._running().requests
        try:
            requests.write(json.dumps([what, arguments]).encode() + b"\n")
            requests.flush()
        except BrokenPipeError:
            self.kill()
            raise

    def answer(self) -> Any:
        """The result of the last request."""
        said = json.loads(self._line())
        if "errno" in said:
            raise OSError(said["errno"], said["error"])
        return said["found"]

    def kill(self) -> None:
        """Kills it at once (SIGKILL). A process that hangs in a dead mount stays."""
        running, self._process, self._heard = self._process, None, b""
        if running is None:
            return
        running.process.kill()
        for pipe in (running.requests, running.answers):
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(_END_S)

    def _running(self) -> "_Running":
        if self._process is None:
            command = [sys.executable, "-m", "mq.tools.doctor.partner", str(os.getpid())]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe)  # noqa: S603
            requests, answers = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
            self._process = _Running(process, requests, answers)
        return self._process

    def _line(self) -> bytes:
        answers = self._running().answers
        end_s = self._clock.steady_s() + self._patience_s
        while b"\n" not in self._heard:
            left_s = end_s - self._clock.steady_s()
            if left_s <= 0 or not select.select([answers], [], [], left_s)[0]:
                self.kill()
                raise TimeoutError(errno.ETIMEDOUT, f"hung for {self._patience_s:g} s")
            part = os.read(answers.fileno(), _READ_BYTES)
            if not part:
                self.kill()
                raise OSError(errno.EPIPE, "the doctor's second process ended")
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        return line


@dataclass(frozen=True, slots=True)
class Side:
    """A process, and its path to the doctor's folder."""

    name: str
    partner: Partner
    folder: str

    def path(self, name: str) -> str:
        """A path in the doctor's folder, as this side sees it."""
        return f"{self.folder}/{name}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides of one storage: two processes at one mount, or at two. `within_s`: how long one
    side waits for a change by the other.
    """

    left: Side
    right: Side
    within_s: float

    def both(self, what: str, name: str, **arguments: Any) -> tuple[Any, Any]:
        """Sends both a request at the same time, for a name in the doctor's folder; `side` is each
        one's own.
        """
        sides = (self.left, self.right)
        for side in sides:
            side.partner.tell(what, path=side.path(name), side=side.name, **arguments)
        answers, errors = [], []
        for side in sides:
            try:
                answers.append(side.partner.answer())
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers[0], answers[1]

    def turned(self) -> "Pair":
        """The same pair with its sides exchanged."""
        return Pair(self.right, self.left, self.within_s)


@contextlib.contextmanager
def paired(left: str, right: str, clock: Clock, within_s: float) -> Iterator[Pair]:
    """A pair of processes, with each side's path to the doctor's folder. Ends them after
    the block.
    """
    patience_s = within_s + _PATIENCE_S
    pair = Pair(
        Side("left", Partner(clock, patience_s), left),
        Side("right", Partner(clock, patience_s), right),
        within_s,
    )
    try:
        yield pair
    finally:
        for side in (pair.left, pair.right):
            side.partner.kill()
