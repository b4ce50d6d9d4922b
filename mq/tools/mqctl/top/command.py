"""`mqctl top`: its flags, and its output live, once, or as JSON."""

import asyncio
import sys
from typing import Final

import click
from rich.console import Console

from mq.client.options import Retry, Timeouts
from mq.model.clock import SystemClock, rfc3339
from mq.runtime.options import Number
from mq.tools.mqctl import completing
from mq.tools.mqctl.complaints import failed
from mq.tools.mqctl.exits import ExitCode
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.running import client_of
from mq.tools.mqctl.top.asking import ASKED_AT_A_TIME, Asker
from mq.tools.mqctl.top.picture import Screen, document, picture
from mq.tools.mqctl.top.rows import ORDERS, in_order, rows_of
from mq.tools.mqctl.top.terminal import Terminal
from mq.tools.mqctl.top.view import View
from mq.tools.mqctl.top.watching import Watching

INTERVAL_S_MIN: Final = 0.2
_INTERVAL_S_MAX: Final = 3600.0
_INTERVAL_S_DEFAULT: Final = 2.0
_REQUESTS_MAX: Final = 10_000
_REQUESTS_DEFAULT: Final = 100
_PATTERNS_MAX: Final = 100
# A slower answer counts as none.
_ANSWER_S_MAX: Final = 5.0
# A pipe gets all columns.
_PIPE_COLUMNS: Final = 10_000


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=Number(INTERVAL_S_MIN, _INTERVAL_S_MAX),
    default=_INTERVAL_S_DEFAULT,
    show_default=True,
    help="Seconds between two polls.",
)
@click.option(
    "--queue",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    shell_complete=completing.queues,
    help="Only queues whose names match, such as 'orders*'. Repeatable.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(ORDERS),
    default=ORDERS[0],
    show_default=True,
    help="What to sort by, the largest first.",
)
@click.option("--reverse", "is_reversed", is_flag=True, help="Reverse the order.")
@click.option("--once", is_flag=True, help="Poll twice, print all queues once, and exit.")
@click.option(
    "--requests",
    "room",
    type=click.IntRange(1, _REQUESTS_MAX),
    default=_REQUESTS_DEFAULT,
    show_default=True,
    help="Queues to describe per poll: those on the screen, and the others in turn. --once "
    "describes all.",
)
@shared_options
def top(
    options: Options,
    interval_s: float,
    patterns: tuple[str, ...],
    order: str,
    is_reversed: bool,
    once: bool,
    room: int,
) -> int:
    """Watch the queues live: their messages, and operations per second.

    Keys: q quits; < and > (or s) choose the order, r reverses it; / filters by a part of the name;
    p pauses; arrows, PageUp, PageDown, Home and End move.
    """
    if len(patterns) > _PATTERNS_MAX:
        raise click.UsageError(f"--queue may be given {_PATTERNS_MAX} times at most.")
    if not (once or options.as_json or sys.stdout.isatty()):
        raise click.UsageError("Standard output is not a terminal: use --once or --json.")
    view = View(order=order, is_reversed=is_reversed)
    with asyncio.Runner() as runner:
        return runner.run(_top(options, (patterns, room), view, interval_s, once))


async def _top(
    options: Options, wanted: tuple[tuple[str, ...], int], view: View, interval_s: float, once: bool
) -> int:
    """`wanted`: the patterns of names, and the most requests per poll."""
    answer_s = min(options.timeout_s, _ANSWER_S_MAX)
    # No retries: the next poll is soon enough.
    async with client_of(
        options,
        timeouts=Timeouts(answer_s, answer_s),
        retry=Retry(attempts=1),
        connections_max=ASKED_AT_A_TIME,
    ) as client:
        asker = Asker(client, SystemClock(), *wanted)
        try:
            if once:
                await _poll_twice(asker, options, interval_s)
                _print_once(asker, view, options)
                return ExitCode.DONE
            if options.as_json:
                await _print_each(asker, view, options, interval_s)
        finally:
            await asker.close()
        terminal = Terminal(Console(highlight=False, markup=False, emoji=False))
        return await Watching(asker, terminal, view, interval_s, options.shown_url).run()


async def _poll_twice(asker: Asker, options: Options, interval_s: float) -> None:
    """Polls twice, as rates need. Raises Failed if mq does not answer."""
    await asker.all_once()
    if asker.error is None:
        await asyncio.sleep(interval_s)
        await asker.all_once()
    if asker.error is not None:
        raise failed(asker.error, options)


def _print_once(asker: Asker, view: View, options: Options) -> None:
    if options.as_json:
        _print_document(asker, view, options)
        return
    now_s = asker.clock.steady_s()
    rows = in_order(rows_of(asker.board, now_s), view.order, view.is_reversed)
    console = Console(highlight=False, markup=False, emoji=False)
    columns = console.width if sys.stdout.isatty() else _PIPE_COLUMNS
    for line in picture(asker.board, rows, view, Screen(columns), now_s, options.shown_url):
        line.rstrip()
        console.print(line, soft_wrap=True)


async def _print_each(asker: Asker, view: View, options: Options, interval_s: float) -> None:
    """Prints a line per poll without end, also while mq does not answer."""
    while True:
        began_s = asker.clock.steady_s()
        await asker.tick(())
        _print_document(asker, view, options)
        await asyncio.sleep(max(0.0, began_s + interval_s - asker.clock.steady_s()))


def _print_document(asker: Asker, view: View, options: Options) -> None:
    now_s = asker.clock.steady_s()
    rows = in_order(rows_of(asker.board, now_s), view.order, view.is_reversed)
    at = rfc3339(asker.clock.now_ms())
    Printer(as_json=True).row(document(asker.board, rows, options.shown_url, at, now_s))
