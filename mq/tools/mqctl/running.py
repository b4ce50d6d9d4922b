"""Runs a command's work with a client of what was said, and ends it well: errors become messages
and exit codes, and a signal cancels the work, which then gives back what it holds.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

from mq.client.client import AsyncClient
from mq.client.errors import ClientError, QueueNotFound
from mq.client.options import Retry, Timeouts
from mq.tools.mqctl.complaints import failed
from mq.tools.mqctl.exits import ExitCode, Failed, of_signal
from mq.tools.mqctl.options import Options
from mq.tools.mqctl.printing import Printer, shown

T = TypeVar("T")
Work = Callable[[AsyncClient, Printer], Awaitable[T]]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CONNECT_S_MAX: Final = 5.0
_RETRY_S_MAX: Final = 10.0
_NAMES_MAX: Final = 2000
_NAMES_S_MAX: Final = 2.0


def run(options: Options, work: Work[T]) -> T:
    """Does the work in an event loop of its own, and gives what it gives. Raises Failed, and
    KeyboardInterrupt after the work was cancelled and has ended.
    """
    with asyncio.Runner() as runner:
        return runner.run(_run(options, work))


def client_of(options: Options) -> AsyncClient:
    """A client of what was said. It tries again for some seconds only: somebody waits."""
    return AsyncClient(
        options.url,
        token=options.token,
        ca_file=options.certificates.ca_file,
        certificate=options.certificates.certificate,
        key=options.certificates.key,
        timeouts=Timeouts(
            connect_s=min(options.timeout_s, _CONNECT_S_MAX), answer_s=options.timeout_s
        ),
        retry=Retry(attempts=4, deadline_s=min(options.timeout_s, _RETRY_S_MAX)),
    )


async def _run(options: Options, work: Work[T]) -> T:
    printer = Printer(options.as_json)
    with _heard(printer) as told:
        try:
            async with client_of(options) as client:
                try:
                    return await work(client, printer)
                except QueueNotFound as error:
                    raise failed(error, options, await _names(client)) from error
                except ClientError as error:
                    raise failed(error, options) from error
                except ValueError as error:
                    # So the client says that something can be no header, no JSON, no UTF-8.
                    why = f"This cannot be sent: {shown(error)}"
                    raise Failed(ExitCode.USAGE, why, as_json=options.as_json) from error
        except (asyncio.CancelledError, KeyboardInterrupt):
            if told:
                raise Failed(of_signal(told[0])) from None
            raise


@contextlib.contextmanager
def _heard(printer: Printer) -> Iterator[list[int]]:
    """A signal cancels the task that runs, which then gives back what it holds; a second one
    cancels that too. Where the output is being written, which may stand for ever, the write is
    given up instead. Gives which signals came.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    told: list[int] = []

    def hear(number: int, frame: object) -> None:
        told.append(number)
        if printer.is_writing:
            raise KeyboardInterrupt
        if task is not None:
            task.cancel()
        # So that a loop that waits turns.
        loop.call_soon_threadsafe(lambda: None)

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # What ignores a signal, as under nohup, is to go on ignoring it.
        before = {
            each: signal.signal(each, hear)
            for each in _SIGNALS
            if signal.getsignal(each) is not signal.SIG_IGN
        }
    try:
        yield told
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


async def _names(client: AsyncClient) -> list[str]:
    """Of the queues that there are, as many as are soon had."""
    found: list[str] = []
    with contextlib.suppress(ClientError, TimeoutError):
        async with asyncio.timeout(_NAMES_S_MAX):
            async for entry in client.queues():
                found.append(entry.name)
                if len(found) >= _NAMES_MAX:
                    break
    return found
