"""`mqctl bench`: its flags, and how it ends."""

import asyncio
import contextlib
import time
import uuid
from typing import Final

import click

from mq import __version__
from mq.client.client import AsyncClient
from mq.client.errors import ClientError
from mq.client.http_transport import HttpTransport
from mq.client.options import Retry, Seams, Timeouts
from mq.client.sending import Sender
from mq.client.transport import Pairs
from mq.model.clock import SystemClock
from mq.runtime.options import Number
from mq.tools.mqctl.bench.keeping import Holds, Left
from mq.tools.mqctl.bench.limits import (
    BATCH_MAX,
    CONNECTIONS_DEFAULT,
    CONNECTIONS_MAX,
    MARK_BYTES,
    MESSAGES_DEFAULT,
    MESSAGES_MAX,
    RATE_PER_S_MAX,
    SECONDS_MAX,
    SIZE_BYTES_DEFAULT,
    SIZE_BYTES_MAX,
    WARM_UP_S_DEFAULT,
    WARM_UP_S_MAX,
)
from mq.tools.mqctl.bench.measuring import Measuring
from mq.tools.mqctl.bench.plan import NoPlan, Plan
from mq.tools.mqctl.bench.report import document, lines
from mq.tools.mqctl.complaints import failed
from mq.tools.mqctl.exits import ExitCode, Failed, of_signal
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer

_CONNECT_S_MAX: Final = 5.0
_RETRY_S_MAX: Final = 10.0
_RUN_CHARS: Final = 12


@click.command()
@click.option(
    "--queue",
    default=None,
    help="The queue to use: made and deleted where it is not there, kept where it is. "
    "[default: one of its own]",
)
@click.option(
    "--among-others",
    is_flag=True,
    help="Also use a queue that holds messages: those of others are neither fetched nor deleted.",
)
@click.option(
    "--messages",
    "-n",
    type=click.IntRange(1, MESSAGES_MAX),
    default=None,
    help=f"How many to publish, fetch and delete. [default: {MESSAGES_DEFAULT}, without --seconds]",
)
@click.option(
    "--seconds",
    type=Number(0.1, SECONDS_MAX),
    default=None,
    help="Publish for so long, and then fetch and delete for as long at most.",
)
@click.option(
    "--connections",
    "-c",
    type=click.IntRange(1, CONNECTIONS_MAX),
    default=CONNECTIONS_DEFAULT,
    show_default=True,
    help="Requests that are on their way at a time.",
)
@click.option(
    "--size",
    "size_bytes",
    type=click.IntRange(MARK_BYTES, SIZE_BYTES_MAX),
    default=SIZE_BYTES_DEFAULT,
    show_default=True,
    help="Bytes of a message.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, BATCH_MAX),
    default=1,
    show_default=True,
    help="Messages of a request.",
)
@click.option(
    "--idempotent", "is_idempotent", is_flag=True, help="Give each publish an Idempotency-Key."
)
@click.option(
    "--rate",
    "rate_per_s",
    type=Number(0, RATE_PER_S_MAX, min_open=True),
    default=None,
    help="Messages a second, whether mq answers or not: latencies count from when a request was "
    "due. [default: as fast as it goes]",
)
@click.option(
    "--warm-up",
    "warm_up_s",
    type=Number(0, WARM_UP_S_MAX),
    default=WARM_UP_S_DEFAULT,
    show_default=True,
    help="Seconds of the same before, which are not counted.",
)
@shared_options
def bench(
    options: Options,
    queue: str | None,
    among_others: bool,
    messages: int | None,
    seconds: float | None,
    connections: int,
    size_bytes: int,
    batch: int,
    is_idempotent: bool,
    rate_per_s: float | None,
    warm_up_s: float,
) -> None:
    """Measure publish, fetch and delete.

    Publishes messages into a queue of its own, fetches and deletes them, and deletes the queue,
    also when it is interrupted. The figures are of this machine, the network and mq together.
    """
    if messages is None and seconds is None:
        messages = MESSAGES_DEFAULT
    run = uuid.uuid4().hex[:_RUN_CHARS]
    plan = Plan(
        *(run, queue, messages, seconds, connections, size_bytes, batch, is_idempotent),
        *(rate_per_s, warm_up_s, among_others),
    )
    try:
        plan.check()
    except NoPlan as error:
        raise click.UsageError(str(error)) from None
    with asyncio.Runner() as runner:
        runner.run(_bench(options, plan))


async def _bench(options: Options, plan: Plan) -> None:
    """Raises Failed for all ends but the good one."""
    printer = Printer(options.as_json)

    def told(text: str) -> None:
        # Whoever looked on may be gone: the cleaning goes on.
        with contextlib.suppress(OSError, ValueError):
            if printer.err_is_terminal:
                printer.note(text)

    timeouts = Timeouts(min(options.timeout_s, _CONNECT_S_MAX), options.timeout_s)
    sender = _sender(options, plan, timeouts)
    client = AsyncClient(
        options.url,
        token=options.token,
        ca_file=options.certificates.ca_file,
        certificate=options.certificates.certificate,
        key=options.certificates.key,
        timeouts=timeouts,
        retry=Retry(attempts=4, deadline_s=min(options.timeout_s, _RETRY_S_MAX)),
    )
    async with client, contextlib.aclosing(_Closing(sender)):
        measuring = Measuring(plan, client, sender, SystemClock(), time.process_time, told)
        try:
            outcome, stopped_by = await measuring.run(options.shown_url)
        except Holds as error:
            raise Failed(
                ExitCode.REFUSED,
                f"Queue {error.queue} holds {error.messages:,} messages. Say --among-others to "
                "bench beside them, or leave --queue out.",
                {"queue": error.queue, "messages": error.messages},
                as_json=options.as_json,
            ) from None
        except ClientError as error:
            raise _with_left(failed(error, options), measuring.left) from error
    if options.as_json:
        printer.document(document(outcome))
    else:
        for line in lines(outcome):
            printer.line(line)
    printer.flush()
    if stopped_by is not None:
        raise Failed(of_signal(stopped_by))
    if not outcome.is_whole:
        raise Failed(ExitCode.PARTLY)


class _Closing:
    """A sender as something to close."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def aclose(self) -> None:
        await self._sender.close()


def _sender(options: Options, plan: Plan, timeouts: Timeouts) -> Sender:
    """Of the load: as many connections as were said, each request once."""
    headers: Pairs = (("User-Agent", f"mqctl-bench/{__version__}"),)
    if options.token is not None:
        headers = (*headers, ("Authorization", f"Bearer {options.token}"))
    transport = HttpTransport(
        options.url, plan.connections, options.certificates.context(options.url)
    )
    return Sender(transport, headers, timeouts, Retry(attempts=1), Seams())


def _with_left(error: Failed, left: Left) -> Failed:
    """The same, and what is left of the bench."""
    if left.queue is None:
        return error
    return Failed(
        error.exit_code,
        f"{error.message} LEFT: queue {left.queue}: {left.why}",
        {**error.facts, "queue_left": left.queue, "queue_left_why": left.why},
        as_json=error.as_json,
    )
