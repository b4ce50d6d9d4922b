"""Messages, without fetching them: `peek`, `tail`, `read`, `keys`, `history`."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, get_args

import click
from click.shell_completion import CompletionItem

from mq.client.client import AsyncClient
from mq.client.errors import ClientError, Forbidden, MessageNotFound, Problem, QueueNotFound
from mq.client.queue import AsyncQueue
from mq.client.values import History, PeekedMessage, State, StoredMessage, TagHistory
from mq.model.clock import SystemClock
from mq.model.limits import BATCH_MESSAGES_MAX, MIB, SIDELINE_SUFFIX
from mq.protocol.consume.frames import LAST_MAX
from mq.protocol.fetching import GROUPS_SHOWN_DEFAULT, PEEK_MESSAGES_DEFAULT
from mq.tools.mqctl.arguments import Kind, queue_argument
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer, plain, relative, shown
from mq.tools.mqctl.running import run

STATES: Final[tuple[State, ...]] = get_args(State)
_PART_BYTES: Final = 4 * MIB
_SHOWN_CHARS: Final = 60
_COLUMNS: Final = ("id", "state", "receives", "published", "due", "bytes", "body")
# Columns that a narrow terminal leaves out, in this order.
_LEFT_OUT: Final = ("bytes", "published", "receives", "due", "state")
_PAST_THE_END: Final = "range-unsatisfiable"


_facts_option: Final = click.option(
    "--facts", is_flag=True, help="Print its state, times and headers, not its body."
)


class _States(Kind):
    """One or several states, separated by commas."""

    name = "states"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[State, ...]:
        if isinstance(value, tuple):
            return value
        names = str(value).split(",")
        found = tuple(state for name in names for state in STATES if state == name)
        if len(found) < len(names) or len(set(found)) < len(found):
            self.fail(f"{value!r}: give each of {', '.join(STATES)} once at most", param, ctx)
        return found

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(before + comma + state) for state in STATES if state.startswith(last)
        ]


@click.command()
@queue_argument
@click.option(
    "--state",
    "states",
    type=_States(),
    default="ready",
    show_default=True,
    help="ready, delayed, leased or removed; or several, separated by commas.",
)
@click.option(
    "--count",
    type=click.IntRange(1),
    default=PEEK_MESSAGES_DEFAULT,
    show_default=True,
    help="The most messages to list.",
)
@click.option("--after", metavar="ID", help="Start after this id; for one state.")
@click.option("--select", multiple=True, metavar="TERM", help="List only messages that match.")
@click.option("--tag", help="List only messages with this tag.")
@click.option("--absolute", is_flag=True, help="On a terminal too: times of the clock, not 5m ago.")
@shared_options
def peek(options: Options, queue: str, states: tuple[State, ...], count: int, **only: Any) -> None:
    """List QUEUE's messages in order, with the beginning of each body.

    A narrow terminal leaves out columns, never a part of an id.
    """
    absolute = only.pop("absolute")
    if only["after"] is not None and len(states) > 1:
        raise click.UsageError("--after requires a single --state.")

    async def work(client: AsyncClient, printer: Printer) -> None:
        rows = []
        async for message in _pages(client.queue(queue), states, count, **only):
            if printer.as_json:
                printer.row(plain(message))
            elif printer.is_terminal:
                rows.append(_row(message) if absolute else _aged(_row(message)))
            else:
                printer.table((), [_row(message)])
        if rows:
            printer.fitted(_COLUMNS, rows, _LEFT_OUT)

    run(options, work)


@click.command()
@queue_argument
@click.option(
    "--count", type=click.IntRange(1, BATCH_MESSAGES_MAX), default=GROUPS_SHOWN_DEFAULT,
    show_default=True, help="The most groups to list.",
)  # fmt: skip
@shared_options
def groups(options: Options, queue: str, count: int) -> None:
    """List QUEUE's groups that wait for a message which was fetched, the longest first."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).groups(count=count)
        if printer.as_json:
            printer.document({"groups": [plain(each) for each in found]})
            return
        columns = ("group", "id", "state", "receives", "due", "since")
        rows = [
            (each.group, each.id, each.state, each.receives, each.due, each.since) for each in found
        ]
        printer.table(columns, rows)

    run(options, work)


@click.command()
@queue_argument
@click.option("--select", multiple=True, metavar="TERM", help="Show only messages that match.")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(0, LAST_MAX),
    default=10,
    show_default=True,
    help="Begin with the last messages that are ready.",
)
@shared_options
def tail(options: Options, queue: str, select: tuple[str, ...], last: int) -> None:
    """Show QUEUE's messages as they become ready, and consume none, until Ctrl-C.

    A message that is consumed at once is shown too, unless it was removed for good before mq looked
    at it. What comes while mqctl is not connected is not shown.
    """

    async def work(client: AsyncClient, printer: Printer) -> None:
        async for message in client.queue(queue).follow(select=select or None, last=last):
            if message.dropped:
                printer.note(f"left out {message.dropped} messages: the output is too slow")
            if printer.as_json:
                printer.row(plain(message))
            elif printer.is_terminal:
                printer.line("  ".join(map(shown, _aged(_row(message)))))
                printer.flush()
            else:
                printer.table((), [_row(message)])

    run(options, work)


def _row(message: PeekedMessage) -> tuple[object, ...]:
    text = message.body.decode("utf-8", "backslashreplace")
    return (
        *(message.id, message.state, message.receives, message.published, message.due),
        message.size,
        text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…",
    )


def _aged(row: Sequence[object]) -> list[object]:
    """The row with times relative to now."""
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    return [relative(each, now) if isinstance(each, datetime) else each for each in row]


async def _pages(
    queue: AsyncQueue, states: tuple[State, ...], count: int, after: str | None, **only: Any
) -> AsyncIterator[PeekedMessage]:
    only["select"] = only["select"] or None
    for state in states:
        behind = after
        while count > 0:
            wanted = min(count, BATCH_MESSAGES_MAX)
            page = await queue.peek(states=(state,), count=wanted, after=behind, **only)
            for message in page:
                yield message
            count -= len(page)
            if len(page) < wanted:
                break
            behind = page[-1].id


@click.command()
@queue_argument
@click.argument("message_id", metavar="ID")
@_facts_option
@shared_options
def read(options: Options, queue: str, message_id: str, facts: bool) -> None:
    """Print the body of message ID of QUEUE, in any state."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        await _print_stored(_Stored(client, queue, message_id=message_id), printer, facts)

    run(options, work)


class _Stored:
    """A message to read in parts, by its id or its key."""

    def __init__(
        self, client: AsyncClient, queue: str, *, message_id: str = "", key: str | None = None
    ) -> None:
        self._queue = client.queue(queue)
        self._id = message_id
        self._key = key

    async def part(self, start: int, length: int | None) -> StoredMessage:
        """Bytes from `start` on. Later parts are of the message that had the key at first."""
        if self._key is None:
            return await self._queue.read(self._id, start=start, length=length)
        found = await self._queue.read_key(self._key, start=start, length=length)
        self._key, self._id = None, found.id
        return found


async def _print_stored(stored: _Stored, printer: Printer, facts: bool) -> None:
    """Prints a body part by part, or the facts, or both as JSON."""
    if printer.as_json:
        printer.document(plain(await stored.part(0, None)))
        return
    try:
        found = await stored.part(0, _PART_BYTES)
    except Problem as error:
        if error.slug != _PAST_THE_END:
            raise
        # The body is empty.
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
    facts = [(name, getattr(message, name)) for name in (*names, "reason")]
    if fired := message.schedule:
        facts.append(("schedule", f"{fired.name}, due {shown(fired.due)}, number {fired.number}"))
    facts += [("tag", tag) for tag in message.tags]
    return facts + [(f"header {name}", value) for name, value in message.headers.items()]


@click.group()
def keys() -> None:
    """Read or delete a message by its lookup key."""


@keys.command("read")
@queue_argument
@click.argument("key")
@_facts_option
@shared_options
def read_key(options: Options, queue: str, key: str, facts: bool) -> None:
    """Print the message of QUEUE that has KEY, without fetching it."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        await _print_stored(_Stored(client, queue, key=key), printer, facts)

    run(options, work)


@keys.command("delete")
@queue_argument
@click.argument("key")
@click.option("--receives", type=click.IntRange(0), help="Only with this receive count.")
@shared_options
def delete_key(options: Options, queue: str, key: str, receives: int | None) -> None:
    """Delete the message of QUEUE that has KEY."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        await client.queue(queue).delete_key(key, receives=receives)
        if printer.as_json:
            printer.document({"key": key, "deleted": True})
        else:
            printer.line(f"deleted {key}")

    run(options, work)


@click.command()
@queue_argument
@click.argument("message_id", metavar="ID")
@shared_options
def history(options: Options, queue: str, message_id: str) -> None:
    """Show the events of message ID. QUEUE's setting `history` must be true."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).history(message_id)
        print_events(printer, found, ("time", "event", "receives", "due", "reason", "process"))
        if printer.as_json:
            return
        if queue.endswith(SIDELINE_SUFFIX):
            printer.note(await _advice_of_a_sideline(client, queue, message_id))
        elif not found.recording:
            printer.note(not_recording(queue))

    run(options, work)


@click.command()
@queue_argument
@click.argument("message_id", metavar="ID")
@shared_options
def failures(options: Options, queue: str, message_id: str) -> None:
    """Show why message ID was released or sidelined, as its consumers said."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).failures(message_id)
        if printer.as_json:
            printer.document(plain({"failures": found}))
            return
        for each in found:
            names = ("time", "event", "queue", "receives", "handler", "type", "text")
            printer.facts([(name, getattr(each, name)) for name in names])
            if each.trace:
                for line in each.trace.splitlines():
                    printer.line(line)

    run(options, work)


async def _advice_of_a_sideline(client: AsyncClient, sideline: str, message_id: str) -> str:
    """Where to find the events before the message was sidelined."""
    queue = sideline.removesuffix(SIDELINE_SUFFIX)
    source = client.queue(queue)
    nothing = f"The history of {queue} has no events of the message."
    try:
        try:
            found = await source.history(message_id)
        except MessageNotFound:
            is_recording = (await source.settings()).values["history"]
        else:
            if found.events:
                return (
                    f"The earlier events are in the history of {queue}: "
                    f"mqctl history {queue} {message_id}"
                )
            is_recording = found.recording
    except QueueNotFound:
        return nothing
    except Forbidden:
        return f"This token may not read the history of {queue}, which has the earlier events."
    except ClientError:
        return f"The history of {queue} could not be read."
    return nothing if is_recording else not_recording(queue)


def print_events(printer: Printer, found: History | TagHistory, columns: Sequence[str]) -> None:
    """Prints the events of a history, those columns of each; or all as JSON."""
    if printer.as_json:
        printer.document(plain(found))
        return
    rows = [[getattr(each, name) for name in columns] for each in found.events]
    printer.table(columns, rows)
    if found.left_out:
        printer.note(f"{found.left_out} earlier events are left out.")


def not_recording(queue: str) -> str:
    return f"The queue records no history. Turn it on: mqctl settings {queue} history=true"
