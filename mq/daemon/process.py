"""What a process of the command `mq` does between its flags and its end.

Signals and the supervisor's word; the daemon and the supervisor do the rest.
"""

import asyncio
import contextlib
import gc
import io
import logging
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mq.daemon.children import Children
from mq.daemon.daemon import Daemon
from mq.daemon.supervisor import Supervisor
from mq.daemon.vitals import Vitals
from mq.model.limits import CHILD_END_S, IO_THREADS_MAX, KIB
from mq.runtime.notify import Notifier
from mq.runtime.server_settings import ServerSettings

_log = logging.getLogger("mq")

_OBJECTS_BEFORE_COLLECTING: Final = 10_000


async def serve(settings: ServerSettings, upkeep: Children, notifier: Notifier) -> None:
    """Serves until SIGTERM or SIGINT, or until its supervisor is gone, and drains. `upkeep`: what
    runs beside it. `notifier`: who is told how it is. Raises StartupError.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(IO_THREADS_MAX, thread_name_prefix="mq-io"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if settings.is_supervised:
        _stop_with_standard_input(loop, stopped)
    asked = asyncio.Event()
    if settings.has_files or notifier.is_told:
        loop.add_signal_handler(signal.SIGHUP, asked.set)
    # Held back until somebody hears it: a supervisor may tell a child that it has just started.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))
    daemon = Daemon(settings)
    await daemon.start()
    reloading = asyncio.create_task(_reload(daemon, asked))
    _spare_the_collector()
    vitals = Vitals(daemon, notifier, settings)
    vitals.begin()
    upkeep.start()
    await stopped.wait()
    reloading.cancel()
    vitals.ending()
    upkeep.expect_end()
    await daemon.drain()
    await upkeep.end(CHILD_END_S)
    vitals.end()


async def _reload(daemon: Daemon, asked: asyncio.Event) -> None:
    """Whenever it is asked for, one after the other: what is asked meanwhile is done once more."""
    while True:
        await asked.wait()
        asked.clear()
        try:
            await daemon.reload()
        except Exception:
            # The next one is to be heard: it may take somebody's rights away.
            _log.exception("not read again")


async def supervise(supervisor: Supervisor) -> int:
    """Runs it until SIGTERM or SIGINT; a second one kills what still drains; SIGHUP is for its
    processes. The exit status. Raises StartupError.
    """
    asked, insisted = asyncio.Event(), asyncio.Event()

    def hear() -> None:
        (insisted if asked.is_set() else asked).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear)
    if supervisor.reloads:
        loop.add_signal_handler(signal.SIGHUP, supervisor.reload)
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


def supervisor_notifier(watchdog_s: float | None) -> Notifier:
    """The supervisor of several, which takes any word for a sign of life, and the first one for
    readiness. `watchdog_s`: after so many seconds without one it kills this process.
    """
    return Notifier(_tell_supervisor, watchdog_s)


def _tell_supervisor(message: bytes) -> None:
    """Unbuffered: nothing is left to be written for one that is gone."""
    with contextlib.suppress(OSError):
        io.FileIO(sys.stdout.fileno(), "w", closefd=False).write(message + b"\n")
