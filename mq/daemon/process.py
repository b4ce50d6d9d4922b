"""A process of the command `mq`, from its flags to its end: signals, and messages of the
supervisor. The daemon and the supervisor do the rest.
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
from mq.model.limits import CHILD_END_S, KIB
from mq.runtime.notify import Notifier
from mq.runtime.server_settings import ServerSettings

# Threads for what no commit group does: listings, large bodies.
IO_THREADS_MAX: Final = 32

_log = logging.getLogger("mq")

_OBJECTS_BEFORE_COLLECTING: Final = 10_000


async def serve(settings: ServerSettings, upkeep: Children, notifier: Notifier) -> None:
    """Serves until SIGTERM or SIGINT, or until the supervisor is gone, then drains. `upkeep`:
    children that run beside it. `notifier`: receives its state. Raises StartupError.
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
    # Blocked until there is a handler: a supervisor may signal a child that it has just started.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))
    daemon = Daemon(settings)
    await daemon.start()
    reloading = asyncio.create_task(_reload(daemon, asked))
    _spare_the_collector()
    vitals = Vitals(daemon, notifier, settings)
    vitals.begin()
    upkeep.start(daemon.attaching)
    await stopped.wait()
    reloading.cancel()
    vitals.ending()
    upkeep.expect_end()
    await daemon.drain()
    await upkeep.end(CHILD_END_S)
    vitals.end()


async def _reload(daemon: Daemon, asked: asyncio.Event) -> None:
    """Reloads at each request, one after the other; requests meanwhile cause one more."""
    while True:
        await asked.wait()
        asked.clear()
        try:
            await daemon.reload()
        except Exception:
            # The loop continues: the next reload may revoke a caller's rights.
            _log.exception("could not reload")


async def supervise(supervisor: Supervisor) -> int:
    """Runs the supervisor until SIGTERM or SIGINT. A second signal kills processes that are still
    draining; SIGHUP is passed on. Returns the exit status. Raises StartupError.
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
    """Excludes the objects of the start from garbage collection. Requests leave no cycles, and
    collections after every few hundred objects took a twentieth of the time.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)


def _stop_with_standard_input(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    """Stops when standard input ends: the supervisor holds the other end, which closes however it
    ends.
    """

    def look() -> None:
        with contextlib.suppress(OSError):
            if os.read(sys.stdin.fileno(), KIB):
                return
        loop.remove_reader(sys.stdin.fileno())
        stopped.set()

    loop.add_reader(sys.stdin.fileno(), look)


def supervisor_notifier(watchdog_s: float | None) -> Notifier:
    """Reports to the supervisor of several processes, which takes any word as a sign of life, and
    the first one as readiness. `watchdog_s`: it kills this process after this many seconds without
    one.
    """
    return Notifier(_tell_supervisor, watchdog_s)


def _tell_supervisor(message: bytes) -> None:
    """Unbuffered, so that nothing remains to be written once the supervisor is gone."""
    with contextlib.suppress(OSError):
        io.FileIO(sys.stdout.fileno(), "w", closefd=False).write(message + b"\n")
