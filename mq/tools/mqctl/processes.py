"""Runs several processes of one worker, and restarts those that die.

This process shares a socket with each of them. A process reports on it that its worker is ready,
and for how long that drains. When this process ends, also by kill -9, the socket ends, and the
worker drains.
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
"""The argument of a command that the number of its socket replaces."""
_SIGNAL: Final = 128


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a process. `environment`: None for this process's own."""

    arguments: Sequence[str]
    environment: Mapping[str, str] | None = field(default=None, repr=False)


class Processes:
    """Starts processes, restarts those that die, and ends them all."""

    def __init__(self, command: Command, count: int) -> None:
        self._members = [_Member(f"worker-{index}", command) for index in range(count)]

    async def run(self, asked: asyncio.Event, insisted: asyncio.Event) -> int:
        """Runs until it is `asked` to end and all processes have drained, or all have ended by
        themselves; kills them once the user `insisted`. Returns the highest exit code; or the code
        of a process that could not begin, which ends all.
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
        _log.warning(
            "kills the worker processes that have not drained in time, or after a second signal"
        )
        for each in self._members:
            each.kill()


def _is_over(keeping: "list[asyncio.Task[int]]") -> bool:
    """Whether a process could not begin, or all have ended."""
    codes = _codes(keeping)
    return any(codes) or len(codes) == len(keeping)


def _codes(keeping: "list[asyncio.Task[int]]") -> list[int]:
    return [task.result() for task in keeping if task.done()]


class _Member:
    """One process, and its restarts."""

    def __init__(self, name: str, command: Command) -> None:
        self.drain_s = 0.0
        self._name = name
        self._command = command
        self._is_ready = self._was_ready = False
        self._ending = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    def ask_to_end(self) -> None:
        """Sends SIGTERM, at which it drains, and restarts it no more."""
        self._ending.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._signal(signal.SIGKILL)

    async def keep(self) -> int:
        """Runs it until it ends with 0, is asked to end, or does not begin at its first start;
        returns its exit code. Restarts it when it dies: at once, then after growing waits while it
        dies soon.
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
                "worker process %s died with code %d; it is restarted in %.1f s",
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
            _log.info("started worker process %s, pid %d", *facts.values(), extra={"fields": facts})
            if self._ending.is_set():
                self._signal(signal.SIGTERM)
            hearing = asyncio.create_task(self._hear(ours))
            code = await process.wait()
            self._process = None
            hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hearing
            if code == -signal.SIGTERM and not self._is_ready:
                return 0  # It was asked to end before its worker was ready.
            return code if code >= 0 else _SIGNAL - code

    async def _hear(self, ours: socket.socket) -> None:
        """Reads its report that it is ready: for how long it drains."""
        ours.setblocking(False)
        with contextlib.suppress(OSError, ValueError):
            self.drain_s = float(await asyncio.get_running_loop().sock_recv(ours, KIB))
            self._is_ready = self._was_ready = True

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


@contextlib.contextmanager
def looked_after(number: int, worker: Worker) -> Iterator[None]:
    """Inside, this process's worker drains at each SIGTERM, and when its parent has ended, and
    ignores Ctrl-C: a signal may come to the whole group, and from the parent as well, which kills
    where the user insists. `number`: the socket's.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    theirs = socket.socket(fileno=number)
    theirs.set_inheritable(False)  # A process that a handler starts would keep it open.

    def watch() -> None:
        with contextlib.suppress(OSError):
            while theirs.recv(KIB):
                continue
        worker.stop()

    with contextlib.closing(theirs):
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
    """Processes that are started inside never get Ctrl-C, not even before their first line: they
    inherit the blocked signal.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
