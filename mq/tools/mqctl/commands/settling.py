"""Acts on messages by their ids: `ack`, `release`, `extend`, `sideline`."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Literal

import click

from mq.client.client import AsyncClient
from mq.client.errors import ClientError, MessageNotFound, Problem, QueueNotFound, Unanswered
from mq.model.limits import BATCH_MESSAGES_MAX
from mq.tools.mqctl.arguments import SECONDS, queue_argument
from mq.tools.mqctl.complaints import problem_said, problem_text
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer, plain
from mq.tools.mqctl.reading import Descriptor, LineTooLong, batches
from mq.tools.mqctl.running import run

_AT_ONCE: Final = 32
_ID_CHARS_MAX: Final = 1024

Outcome = tuple[str, object, ClientError | None]
"""An id, the answer, and the error."""


def _ids_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("ids", nargs=-1, required=True, metavar="ID...")(command)


def _receives_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--receives",
        type=click.IntRange(0),
        help="Only with this receive count, which names one delivery. For one ID.",
    )(command)


async def _batches(ids: tuple[str, ...]) -> AsyncIterator[list[str]]:
    """The ids in batches; with `-` from the lines of stdin. Raises Failed."""
    if ids != ("-",):
        for start in range(0, len(ids), BATCH_MESSAGES_MAX):
            yield list(ids[start : start + BATCH_MESSAGES_MAX])
        return
    source = Descriptor(sys.stdin.buffer)
    try:
        async for batch in batches(source, _ID_CHARS_MAX, BATCH_MESSAGES_MAX):
            yield batch
    except (OSError, LineTooLong) as error:
        raise Failed(ExitCode.PARTLY, f"stdin: {error}") from None


def _check(ids: tuple[str, ...], receives: int | None) -> None:
    """Raises click's UsageError."""
    if receives is not None and (len(ids) > 1 or ids[0] == "-"):
        raise click.UsageError("--receives requires a single ID.")
    if "-" in ids and len(ids) > 1:
        raise click.UsageError("Give either IDs or -, which reads all ids from stdin.")


@click.command()
@queue_argument
@_ids_argument
@_receives_option
@shared_options
def ack(options: Options, queue: str, ids: tuple[str, ...], receives: int | None) -> None:
    """Delete messages of QUEUE. ID - reads ids from stdin."""
    _check(ids, receives)

    async def work(client: AsyncClient, printer: Printer) -> None:
        where = client.queue(queue)
        outcomes = _Outcomes(printer, "deleted")
        async for batch in _batches(ids):
            if receives is not None:
                await outcomes.each(
                    batch, lambda each: where.delete_message(each, receives=receives)
                )
            else:
                settled = await where.delete_messages(batch)
                outcomes.add([(each.id, None, each.problem) for each in settled])
        outcomes.end()

    run(options, work)


@click.command()
@queue_argument
@_ids_argument
@click.option("--delay", type=SECONDS, default=0.0, help="Make them ready after this time.")
@click.option("--reason", help="Text to keep with them: why.")
@_receives_option
@shared_options
def release(
    options: Options,
    queue: str,
    ids: tuple[str, ...],
    delay: float,
    reason: str | None,
    receives: int | None,
) -> None:
    """Make messages of QUEUE ready again for any consumer. ID - reads ids from stdin."""
    _check(ids, receives)
    _for_each(
        *(options, queue, ids, "released"),
        lambda where, each: where.release(each, delay_s=delay, receives=receives, reason=reason),
    )


@click.command()
@queue_argument
@_ids_argument
@click.option("--for", "seconds", type=SECONDS, required=True, help="The new time, from now on.")
@_receives_option
@shared_options
def extend(
    options: Options, queue: str, ids: tuple[str, ...], seconds: float, receives: int | None
) -> None:
    """Extend the visibility of fetched messages of QUEUE, or delay ready ones. ID - reads stdin."""
    _check(ids, receives)
    _for_each(
        *(options, queue, ids, "extended"),
        lambda where, each: where.extend(each, seconds, receives=receives),
    )


@click.command()
@queue_argument
@_ids_argument
@click.option(
    "--reason",
    default="rejected",
    show_default=True,
    help="rejected, exception (a consumer failed on it), or text to keep with it: why.",
)
@_receives_option
@shared_options
def sideline(
    options: Options,
    queue: str,
    ids: tuple[str, ...],
    reason: Literal["rejected", "exception"],
    receives: int | None,
) -> None:
    """Move messages of QUEUE to its sideline (dead-letter queue). ID - reads ids from stdin."""
    _check(ids, receives)
    _for_each(
        *(options, queue, ids, "sidelined"),
        lambda where, each: where.sideline(each, reason=reason, receives=receives),
    )


def _for_each(
    options: Options,
    queue: str,
    ids: tuple[str, ...],
    done: str,
    act: Callable[[Any, str], Awaitable[object]],
) -> None:
    async def work(client: AsyncClient, printer: Printer) -> None:
        where = client.queue(queue)
        outcomes = _Outcomes(printer, done)
        async for batch in _batches(ids):
            await outcomes.each(batch, lambda each: act(where, each))
        outcomes.end()

    run(options, work)


class _Outcomes:
    """Prints the outcome of each id, and decides the exit code."""

    def __init__(self, printer: Printer, done: str) -> None:
        self._printer = printer
        self._done = done
        self._count = 0
        self._failed: list[ClientError] = []
        self._failed_count = 0

    async def each(self, ids: Sequence[str], act: Callable[[str], Awaitable[object]]) -> None:
        """Acts on the ids concurrently. Raises Unanswered, QueueNotFound after all are printed."""
        turn = asyncio.Semaphore(_AT_ONCE)

        async def one(message_id: str) -> Outcome:
            async with turn:
                try:
                    return message_id, await act(message_id), None
                except ClientError as error:
                    return message_id, None, error

        self.add(await asyncio.gather(*(one(each) for each in ids)))

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Prints these. Raises Unanswered, QueueNotFound."""
        final: ClientError | None = None
        for message_id, answer, error in outcomes:
            self._count += 1
            if error is not None:
                self._failed_count += 1
                # One of each kind is enough for the exit code.
                if not any(type(each) is type(error) for each in self._failed):
                    self._failed.append(error)
                if isinstance(error, Unanswered | QueueNotFound):
                    final = error
            self._print(message_id, answer, error)
        self._printer.flush()
        if final is not None:
            raise final

    def _print(self, message_id: str, answer: object, error: ClientError | None) -> None:
        if self._printer.as_json:
            row: dict[str, Any] = {"id": message_id, "done": error is None}
            if error is not None:
                row["problem"] = problem_said(error)
            elif answer is not None:
                row |= plain(answer)
            self._printer.row(row)
        elif error is None:
            self._printer.line(f"{self._done} {message_id}")
        else:
            self._printer.note(f"{message_id}: {problem_text(error)}")

    def end(self) -> None:
        """Raises Failed unless all succeeded."""
        if not self._failed_count:
            return
        if self._failed_count < self._count:
            code = ExitCode.PARTLY
        elif all(isinstance(each, MessageNotFound) for each in self._failed):
            code = ExitCode.NOTHING
        elif all(isinstance(each, Problem) for each in self._failed):
            code = ExitCode.REFUSED
        else:
            code = ExitCode.UNREACHABLE
        raise Failed(code)
