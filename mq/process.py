"""What a process of the command `mq` does between its flags and its end.

Floor 4: signals and the supervisor's word; the daemon and the supervisor do the rest.
"""

import asyncio
import contextlib
import gc
import io
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mq.children import Children
from mq.daemon import Daemon
from mq.limits import CHILD_END_S, IO_THREADS_MAX, KIB
from mq.settings import ServerSettings
from mq.supervisor import Supervisor

_OBJECTS_BEFORE_COLLECTING: Final = 10_000


async def serve(settings: ServerSettings, upkeep: Children) -> None:
    """Serves until SIGTERM or SIGINT, or until its supervisor is gone, and drains. `upkeep`: what
    runs beside it. Raises StartupError.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(IO_THREADS_MAX, thread_name_prefix="mq-io"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if settings.is_supervised:
        _stop_with_standard_input(loop, stopped)
    daemon = Daemon(settings)
    await daemon.start()
    _spare_the_collector()
    if settings.is_supervised:
        _tell_supervisor()
    upkeep.start()
    await stopped.wait()
    upkeep.expect_end()
    await daemon.drain()
    await upkeep.end(CHILD_END_S)


async def supervise(supervisor: Supervisor) -> int:
    """Runs it until SIGTERM or SIGINT; a second one kills what still drains. The exit status.
    Raises StartupError.
    """
    asked, insisted = asyncio.Event(), asyncio.Event()

    def hear() -> None:
        (insisted if asked.is_set() else asked).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear)
    return await supervisor.run(asked, insisted)


def _spare_the_collector() -> None:
    """What start-up made stays, and a request leaves no cycles: looking for some after every few
    hundred objects took a twentieth of the time.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)


def _stop_with_standard_input(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    """The supervisor holds the other end, which closes however it ends."""

    def look() -> None:
        with contextlib.suppress(OSError):
            if os.read(sys.stdin.fileno(), KIB):
                return
        loop.remove_reader(sys.stdin.fileno())
        stopped.set()

    loop.add_reader(sys.stdin.fileno(), look)


def _tell_supervisor() -> None:
    """That this process listens. Unbuffered: nothing is left to be written for one that is gone."""
    with contextlib.suppress(OSError):
        io.FileIO(sys.stdout.fileno(), "w", closefd=False).write(b"listening\n")
