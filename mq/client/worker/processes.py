"""Several processes of one worker, and this one to look after them.

A socket is held by both ends of each: by it a process tells that its worker is ready, and for how
long that drains; and when this process goes, by kill -9 too, it ends, and the worker drains.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mq.client.worker.worker import Worker
from mq.model.limits import (
    CHILD_END_S,
    CHILD_LONG_LIFE_S,
    CHILD_RESTART_S_MAX,
    CHILD_RESTART_S_MIN,
    KIB,
)

_log: Final = logging.getLogger("mq.worker")

FD: Final = "{fd}"
"""In a command: an argument in whose place the number of its socket goes."""
_SIGNAL: Final = 128


@dataclass(frozen=True, slots=True)
class Command:
    """How a process is started. `environment`: None for this process's own."""

    arguments: Sequence[str]
    environment: Mapping[str, str] | None = field(default=None, repr=False)


class Processes:
    """Starts the processes, starts again those that die, and ends them all."""

    def __init__(self, command: Command, count: int) -> None:
        self._members = [_Member(f"worker-{index}", command) for index in range(count)]

    async def run(self, asked: asyncio.Event, insisted: asyncio.Event) -> int:
        """Until it is `asked` to end and all have drained, or all have ended by themselves; once
        somebody `insisted` they are killed. The worst of the codes with which they ended; or that
        of one that could not even begin, which ends all.
        """
        keeping = [asyncio.create_task(each.keep()) for each in self._members]
        asking = asyncio.create_task(asked.wait())
        try:
            waiting: set[asyncio.Task[int] | asyncio.Task[bool]] = {*keeping, asking}
            while not asking.done() and not _is_over(keeping):
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                waiting = {each for each in waiting if not each.done()}
            begun_badly = next((code for code in _codes(keeping) if code), 0)
            worst = await self._end(keeping, insisted)
            return begun_badly or worst
        finally:
            asking.cancel()

    async def _end(self, keeping: "list[asyncio.Task[int]]", insisted: asyncio.Event) -> int:
        for each in self._members:
            each.ask_to_end()
        patience_s = max(each.drain_s for each in self._members) + CHILD_END_S
        killing = asyncio.create_task(self._kill_once(insisted, patience_s))
        codes = await asyncio.gather(*keeping)
        killing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killing
        return max(codes)

    async def _kill_once(self, insisted: asyncio.Event, patience_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await insisted.wait()
        _log.warning("kills what is left")
        for each in self._members:
            each.kill()


def _is_over(keeping: "list[asyncio.Task[int]]") -> bool:
    """Whether one could not begin, or all have ended."""
    codes = _codes(keeping)
    return any(codes) or len(codes) == len(keeping)


def _codes(keeping: "list[asyncio.Task[int]]") -> list[int]:
    return [task.result() for task in keeping if task.done()]


class _Member:
    """One process, time and again."""

    def __init__(self, name: str, command: Command) -> None:
        self.drain_s = 0.0
        self._name = name
        self._command = command
        self._is_ready = self._was_ready = False
        self._ending = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    def ask_to_end(self) -> None:
        """SIGTERM: it drains. It is not started again."""
        self._ending.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self._signal(signal.SIGKILL)

    async def keep(self) -> int:
        """Until it ends well, is asked to end, or could not begin for the first time: its code. One
        that dies is started again: at once, and if that does not last, after longer waits.
        """
        loop = asyncio.get_running_loop()
        wait_s = 0.0
        while True:
            began_s = loop.time()
            code = await self._run()
            if code == 0 or self._ending.is_set() or not self._was_ready:
                return code
            if loop.time() - began_s > CHILD_LONG_LIFE_S:
                wait_s = 0.0
            facts = {"process": self._name, "code": code, "in_s": wait_s}
            _log.warning(
                "process %s ended with code %d, starts again in %.1f s",
                *facts.values(),
                extra={"fields": facts},
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._ending.wait()
            if self._ending.is_set():
                return 0
            wait_s = min(max(2 * wait_s, CHILD_RESTART_S_MIN), CHILD_RESTART_S_MAX)

    async def _run(self) -> int:
        self._is_ready = False
        ours, theirs = socket.socketpair()
        with contextlib.closing(ours), contextlib.closing(theirs):
            number = theirs.fileno()
            arguments = [str(number) if each == FD else each for each in self._command.arguments]
            with _without_interrupts():
                process = await asyncio.create_subprocess_exec(
                    *arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(number,),
                    env=self._command.environment,
                )
            self._process = process
            theirs.close()
            facts = {"process": self._name, "pid": process.pid}
            _log.info("started process %s with pid %d", *facts.values(), extra={"fields": facts})
            if self._ending.is_set():
                self._signal(signal.SIGTERM)
            hearing = asyncio.create_task(self._hear(ours))
            code = await process.wait()
            self._process = None
            hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hearing
            if code == -signal.SIGTERM and not self._is_ready:
                return 0  # It was asked to end before it had begun.
            return code if code >= 0 else _SIGNAL - code

    async def _hear(self, ours: socket.socket) -> None:
        """It is ready: its word is for how long it drains."""
        ours.setblocking(False)
        with contextlib.suppress(OSError, ValueError):
            said = await asyncio.get_running_loop().sock_recv(ours, KIB)
            self.drain_s = float(said)
            self._is_ready = self._was_ready = True

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


@contextlib.contextmanager
def looked_after(number: int, worker: Worker) -> Iterator[None]:
    """Inside, the worker of this process drains when the one that started it is gone, and hears
    nothing of Ctrl-C, which that one hears. `number`: the socket's.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    theirs = socket.socket(fileno=number)
    theirs.set_inheritable(False)  # It would outlive this process in one that a handler starts.

    def watch() -> None:
        with contextlib.suppress(OSError):
            while theirs.recv(KIB):
                continue
        worker.stop()

    with contextlib.closing(theirs):
        # From here on it is the worker that is asked, which may have not begun to hear by itself.
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        theirs.sendall(str(worker.drain_s).encode())
        threading.Thread(target=watch, name="mq-supervisor", daemon=True).start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                theirs.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """What is started inside never sees Ctrl-C, not even before its first line, since a blocked
    signal stays blocked.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
