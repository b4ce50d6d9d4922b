"""Daemons kept alive by the process that started them: started again whenever they end.

A child's standard input is a pipe that only this process holds: when this process goes,
by kill -9 too, the pipe ends and the child stops by itself.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence

from mq.model.limits import CHILD_LONG_LIFE_S, CHILD_RESTART_S_MAX, CHILD_RESTART_S_MIN, KIB
from mq.model.log import logger
from mq.runtime.logs import LogFormat
from mq.runtime.server_settings import ServerSettings

_log = logger("mq.children")


class Child:
    """A python command that runs until a signal ends it. In this process's group."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        speaks: bool = False,
        descriptors: Sequence[int] = (),
    ) -> None:
        """`name` is for the log. A child that `speaks` writes a word to standard output once it is
        ready, and later ones at any time; another is ready as soon as it runs. It inherits the
        `descriptors` under their numbers.
        """
        self.name = name
        self.words = 0
        """The number of words from it and its predecessors."""
        self.is_up = False
        """Whether it runs and was ready."""
        self._arguments = arguments
        self._speaks = speaks
        self._descriptors = descriptors
        self._status = 0
        self._known = asyncio.Event()
        self._ending = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, more: Sequence[str] = ()) -> None:
        """Starts it, with `more` arguments, and again whenever it ends: at once, then after growing
        waits.
        """
        self._arguments = (*self._arguments, *more)
        self._task = asyncio.create_task(self._keep())

    async def ready(self) -> int:
        """Waits until it is ready for the first time and returns 0, or its exit status if it gave
        up before; then it is not started again.
        """
        await self._known.wait()
        return self._status

    def expect_end(self) -> None:
        self._ending.set()

    async def end(self, patience_s: float) -> None:
        """Asks it to end and waits until it has; after `patience_s` it is killed."""
        self.expect_end()
        if self._task is None:
            return
        self._ask_to_end()
        _, late = await asyncio.wait((self._task,), timeout=patience_s)
        if late:
            _log.warning(
                "a daemon did not end in time; killed it", extra={"fields": {"daemon": self.name}}
            )
            self.kill()
        await self._task

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal, if it runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """Kills it, if it runs; it counts as down at once."""
        self.is_up = False
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = 0.0
        while not self._ending.is_set():
            began_s = loop.time()
            status, why = await self._run()
            if status > 0 and not self._known.is_set():
                self._tell(status)
                return
            if self._ending.is_set():
                return
            if loop.time() - began_s > CHILD_LONG_LIFE_S:
                wait_s = 0.0
            _log.warning(
                "a daemon ended and starts again",
                extra={"fields": {"daemon": self.name, "why": why, "in_s": wait_s}},
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._ending.wait()
            wait_s = min(max(2 * wait_s, CHILD_RESTART_S_MIN), CHILD_RESTART_S_MAX)

    async def _run(self) -> tuple[int, str]:
        """Runs it to its end. Returns its exit status (0 also if it could not start), and why."""
        try:
            with _without_signals(*((signal.SIGHUP,) if self._speaks else ())):
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *self._arguments,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE if self._speaks else None,
                    pass_fds=self._descriptors,
                )
        except (OSError, RuntimeError) as error:  # No process, descriptor or thread to be had.
            return 0, repr(error)
        self._process = process
        _log.info("started", extra={"fields": {"daemon": self.name, "pid": process.pid}})
        if self._ending.is_set():
            self._ask_to_end()
        if process.stdout is None:
            self._tell(0)
        else:
            while await process.stdout.read(KIB):
                self.words += 1
                self._tell(0)
        status = await process.wait()
        self.is_up = False
        self._process = None
        return status, f"exit {status}"

    def _tell(self, status: int) -> None:
        self.is_up = status == 0
        if not self._known.is_set():
            self._status = status
            self._known.set()

    def _ask_to_end(self) -> None:
        """Waits for its word or its end, whichever comes first."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()


class Children:
    """Children that start and end together."""

    def __init__(self, members: Sequence[Child] = ()) -> None:
        self.members = members

    def start(self, more: Sequence[str] = ()) -> None:
        for member in self.members:
            member.start(more)

    def expect_end(self) -> None:
        """Stops starting them again: a signal to the whole group may end them."""
        for member in self.members:
            member.expect_end()

    async def end(self, patience_s: float) -> None:
        """Ends all, side by side, and waits for them."""
        await asyncio.gather(*(member.end(patience_s) for member in self.members))

    def kill(self) -> None:
        for member in self.members:
            member.kill()


@contextlib.contextmanager
def _without_signals(*more: signal.Signals) -> Iterator[None]:
    """Blocks signals in processes started inside: none gets Ctrl-C, not even before its first line,
    since its parent ends it. (uvloop unblocks signals; asyncio's own loop, on which the supervisor
    runs, does not.) `more`: signals that the process unblocks itself once it handles them.
    """
    blocked = (signal.SIGINT, *more)
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)


def upkeep(settings: ServerSettings, log_format: LogFormat, log_level: str) -> Children:
    """`--standalone`: mq-mover and mq-reaper as children of mq, for its root; not started yet."""
    flags = ("--root", str(settings.root), "--log-format", log_format, "--log-level", log_level)
    return Children(
        [
            # -P: the installed daemons, not what the current folder has under their names.
            Child(
                "mq-mover",
                (
                    *("-P", "-m", "mq_mover", "--exit-with-stdin", *flags),
                    *("--folder-max", str(settings.folder_max)),
                    *("--refresh", str(settings.refresh_s)),
                ),
            ),
            Child("mq-reaper", ("-P", "-m", "mq_reaper", "--exit-with-stdin", *flags)),
        ]
    )
