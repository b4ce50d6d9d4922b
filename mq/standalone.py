"""`mq --standalone`: mq-mover and mq-reaper as children, restarted if they die, gone with mq.

Floor 4. A child's standard input is a pipe that only this process holds: when this process
goes, by kill -9 too, the pipe ends and the child stops.
"""

import asyncio
import contextlib
import logging
import sys
from typing import Final

from mq.logs import LogFormat
from mq.settings import ServerSettings

_log = logging.getLogger("mq.standalone")

_RESTART_WAIT_S_MIN: Final = 0.5
_RESTART_WAIT_S_MAX: Final = 30.0
_STOP_WAIT_S: Final = 10.0


class Children:
    """The two daemons beside mq. In mq's process group, so that Ctrl-C reaches them too."""

    def __init__(self, settings: ServerSettings, log_format: LogFormat, log_level: str) -> None:
        common = ("--exit-with-stdin", "--log-format", log_format, "--log-level", log_level)
        root = str(settings.root)
        self._commands = {
            # -P: the installed daemons, not what the current folder has under their names.
            "mq-mover": (
                *("-P", "-m", "mq_mover", "--root", root),
                *("--folder-max", str(settings.folder_max), *common),
            ),
            "mq-reaper": ("-P", "-m", "mq_reaper", "--root", root, *common),
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()

    def start(self) -> None:
        """Starts both; each is started again whenever it ends."""
        self._tasks = [
            asyncio.create_task(self._keep(name, command))
            for name, command in self._commands.items()
        ]

    def expect_end(self) -> None:
        """Starts none again from here on: Ctrl-C ends the children while mq still drains."""
        self._ending.set()

    async def stop(self) -> None:
        """Ends both, and waits for them."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _keep(self, name: str, command: tuple[str, ...]) -> None:
        loop = asyncio.get_running_loop()
        wait_s = _RESTART_WAIT_S_MIN
        while not self._ending.is_set():
            began_s = loop.time()
            why = await self._run(name, command)
            if self._ending.is_set():
                return
            lived_long = loop.time() - began_s > _RESTART_WAIT_S_MAX
            wait_s = _RESTART_WAIT_S_MIN if lived_long else wait_s
            _log.warning(
                "ended, starts again",
                extra={"fields": {"daemon": name, "why": why, "in_s": wait_s}},
            )
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _RESTART_WAIT_S_MAX)

    async def _run(self, name: str, command: tuple[str, ...]) -> str:
        """Runs a child to its end; why it ended."""
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdin=asyncio.subprocess.PIPE
            )
        except OSError as error:
            return repr(error)
        _log.info("started", extra={"fields": {"daemon": name, "pid": child.pid}})
        try:
            return f"exit {await child.wait()}"
        except asyncio.CancelledError:
            await _end(child)
            raise


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.stdin is not None:
        child.stdin.close()
    try:
        async with asyncio.timeout(_STOP_WAIT_S):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
