"""Looking at messages, which consumes nothing: `peek`, `read`, `history`."""

from collections.abc import AsyncIterator
from typing import Any, Final, get_args

import click

from mq.client.client import AsyncClient
from mq.client.errors import ClientError, Forbidden, MessageNotFound, Problem, QueueNotFound
from mq.client.values import PeekedMessage, State, StoredMessage
from mq.model.limits import BATCH_MESSAGES_MAX, MIB, PEEK_MESSAGES_DEFAULT, SIDELINE_SUFFIX
from mq.tools.mqctl.arguments import Kind, queue_argument
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer, plain
from mq.tools.mqctl.running import run

STATES: Final[tuple[State, ...]] = get_args(State)
_PART_BYTES: Final = 4 * MIB
_SHOWN_CHARS: Final = 60
_PAST_THE_END: Final = "range-unsatisfiable"


class _States(Kind):
    """States, with commas between."""

    name = "states"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[State, ...]:
        """See click."""
        if isinstance(value, tuple):
            return value
        names = str(value).split(",")
        found = tuple(state for name in names for state in STATES if state == name)
        if len(found) < len(names) or len(set(found)) < len(found):
            self.fail(f"{value!r} is none of {', '.join(STATES)}", param, ctx)
        return found


@click.command()
@queue_argument
@click.option(
    "--state",
    "states",
    type=_States(),
    default="ready",
    show_default=True,
    help="ready, delayed, leased, removed, or several with commas between.",
)
@click.option(
    "--count",
    type=click.IntRange(1),
    default=PEEK_MESSAGES_DEFAULT,
    show_default=True,
    help="How many at most.",
)
@click.option("--after", default=None, metavar="ID", help="Begin behind this id; of one state.")
@shared_options
def peek(
    options: Options, queue: str, states: tuple[State, ...], count: int, after: str | None
) -> None:
    """Show QUEUE's messages in order, and the beginning of each. With --json a line each."""
    if after is not None and len(states) > 1:
        raise click.UsageError("--after is for one state alone.")

    async def work(client: AsyncClient, printer: Printer) -> None:
        rows = []
        async for message in _pages(client, queue, states, count, after):
            if printer.as_json:
                printer.row(plain(message))
            elif printer.is_terminal:
                rows.append(_row(message))
            else:
                printer.table((), [_row(message)])
        if rows:
            columns = ("id", "state", "receives", "published", "due", "bytes", "body")
            printer.table(columns, rows)

    run(options, work)


def _row(message: PeekedMessage) -> tuple[object, ...]:
    text = message.body.decode("utf-8", "backslashreplace")
    return (
        *(message.id, message.state, message.receives, message.published, message.due),
        message.size,
        text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…",
    )


async def _pages(
    client: AsyncClient, queue: str, states: tuple[State, ...], count: int, after: str | None
) -> AsyncIterator[PeekedMessage]:
    for state in states:
        behind = after
        while count > 0:
            wanted = min(count, BATCH_MESSAGES_MAX)
            page = await client.queue(queue).peek(states=(state,), count=wanted, after=behind)
            for message in page:
                yield message
            count -= len(page)
            if len(page) < wanted:
                break
            behind = page[-1].id


@click.command()
@queue_argument
@click.argument("message_id", metavar="ID")
@click.option("--facts", is_flag=True, help="Its state, times and headers instead of its body.")
@shared_options
def read(options: Options, queue: str, message_id: str, facts: bool) -> None:
    """Print the message ID of QUEUE as its bytes are, in whatever state it is."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        await print_stored(_Stored(client, queue, message_id=message_id), printer, facts)

    run(options, work)


class _Stored:
    """A message that is read in parts, by its id or by its key."""

    def __init__(
        self, client: AsyncClient, queue: str, *, message_id: str = "", key: str | None = None
    ) -> None:
        self._queue = client.queue(queue)
        self._id = message_id
        self._key = key

    async def part(self, start: int, length: int | None) -> StoredMessage:
        """Bytes of it from `start` on. The first part settles which message has the key."""
        if self._key is None:
            return await self._queue.read(self._id, start=start, length=length)
        found = await self._queue.read_key(self._key, start=start, length=length)
        self._key, self._id = None, found.id
        return found


def stored_by_key(client: AsyncClient, queue: str, key: str) -> "_Stored":
    """The message that has the key."""
    return _Stored(client, queue, key=key)


async def print_stored(stored: "_Stored", printer: Printer, facts: bool) -> None:
    """A message's bytes part by part, whatever their number; or its facts; or both as JSON."""
    if printer.as_json:
        printer.document(plain(await stored.part(0, None)))
        return
    try:
        found = await stored.part(0, _PART_BYTES)
    except Problem as error:
        if error.slug != _PAST_THE_END:
            raise
        # No byte is in it.
        found = await stored.part(0, None)
    if facts:
        printer.facts(_facts(found))
        return
    printer.body(found.body)
    done = len(found.body)
    while done < found.size:
        part = await stored.part(done, _PART_BYTES)
        printer.body(part.body)
        done += len(part.body)


def _facts(message: StoredMessage) -> list[tuple[str, object]]:
    names = ("id", "state", "receives", "published", "due", "priority", "key", "size", "sidelined")
    facts = [(name, getattr(message, name)) for name in names]
    return facts + [(f"header {name}", value) for name, value in message.headers.items()]


@click.command()
@queue_argument
@click.argument("message_id", metavar="ID")
@shared_options
def history(options: Options, queue: str, message_id: str) -> None:
    """Show what became of the message ID, where QUEUE's setting `history` is true."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).history(message_id)
        if printer.as_json:
            printer.document(plain(found))
            return
        rows = [
            (each.time, each.event, each.receives, each.due, each.reason, each.process)
            for each in found.events
        ]
        printer.table(("time", "event", "receives", "due", "reason", "process"), rows)
        if found.left_out:
            printer.note(f"{found.left_out} events before these are left out.")
        if queue.endswith(SIDELINE_SUFFIX):
            printer.note(await _advice_of_a_sideline(client, queue, message_id))
        elif not found.recording:
            printer.note(_not_recording(queue))

    run(options, work)


async def _advice_of_a_sideline(client: AsyncClient, sideline: str, message_id: str) -> str:
    """Names the queue whose history has the time before the sideline."""
    queue = sideline.removesuffix(SIDELINE_SUFFIX)
    source = client.queue(queue)
    try:
        try:
            found = await source.history(message_id)
        except MessageNotFound:
            is_recording = (await source.settings()).values["history"]
        else:
            if found.events:
                return (
                    f"What came before is in the history of {queue}: "
                    f"mqctl history {queue} {message_id}"
                )
            is_recording = found.recording
    except QueueNotFound:
        return f"{queue} has no history of the message."
    except Forbidden:
        return f"{queue} has the history of what came before, which this token may not read."
    except ClientError:
        return f"The history of {queue} could not be read."
    return f"{queue} has no history of the message." if is_recording else _not_recording(queue)


def _not_recording(queue: str) -> str:
    return f"Nothing is recorded now: mqctl settings {queue} history=true"
