"""Runs a command with a client. Errors become messages and exit codes. A signal cancels the
command, which then releases its messages.
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
    """Runs the work in an event loop and returns its result. Raises Failed, and KeyboardInterrupt
    after a signal has cancelled the work.
    """
    with asyncio.Runner() as runner:
        return runner.run(_run(options, work))


def client_of(options: Options, **changes: Any) -> AsyncClient:
    """A client of these options, with other arguments of AsyncClient's. By default it retries for
    seconds only: a person waits.
    """
    timeouts = Timeouts(min(options.timeout_s, _CONNECT_S_MAX), options.timeout_s)
    retry = Retry(attempts=4, deadline_s=min(options.timeout_s, _RETRY_S_MAX))
    return AsyncClient(
        options.url,
        token=options.token,
        ca_file=options.certificates.ca_file,
        certificate=options.certificates.certificate,
        key=options.certificates.key,
        **{"timeouts": timeouts, "retry": retry, **changes},
    )


async def _run(options: Options, work: Work[T]) -> T:
    printer = Printer(options.as_json)
    with _signals(printer) as received:
        try:
            async with client_of(options) as client:
                try:
                    return await work(client, printer)
                except QueueNotFound as error:
                    raise failed(error, options, await _names(client)) from error
                except ClientError as error:
                    raise failed(error, options) from error
                except ValueError as error:
                    # The client raises it for an impossible header, JSON or text.
                    why = f"Cannot send this: {shown(error)}"
                    raise Failed(ExitCode.USAGE, why, as_json=options.as_json) from error
        except (asyncio.CancelledError, KeyboardInterrupt):
            if received:
                raise Failed(of_signal(received[0])) from None
            raise


@contextlib.contextmanager
def _signals(printer: Printer) -> Iterator[list[int]]:
    """A signal cancels the task, which then releases its messages; a second one cancels that too. A
    signal during a write, which may block forever, aborts the write. Yields the signals received.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    received: list[int] = []

    def handle(number: int, frame: object) -> None:
        received.append(number)
        if printer.is_writing:
            raise KeyboardInterrupt
        if task is not None:
            task.cancel()
        # Wakes the event loop.
        loop.call_soon_threadsafe(lambda: None)

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # Signals that are ignored, as under nohup, stay ignored.
        before = {
            each: signal.signal(each, handle)
            for each in _SIGNALS
            if signal.getsignal(each) is not signal.SIG_IGN
        }
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


async def _names(client: AsyncClient) -> list[str]:
    """Names of queues, as many as arrive soon."""
    found: list[str] = []
    with contextlib.suppress(ClientError, TimeoutError):
        async with asyncio.timeout(_NAMES_S_MAX):
            async for entry in client.queues():
                found.append(entry.name)
                if len(found) >= _NAMES_MAX:
                    break
    return found
