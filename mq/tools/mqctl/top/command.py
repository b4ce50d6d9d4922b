"""`mqctl top`: its flags, and the ways it shows what it sees."""

import asyncio
import sys
from typing import Final

import click
from rich.console import Console

from mq.client.client import AsyncClient
from mq.client.options import Retry, Timeouts
from mq.model.clock import Clock, SystemClock, rfc3339
from mq.runtime.options import Number
from mq.tools.mqctl.complaints import failed
from mq.tools.mqctl.exits import ExitCode
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.top.asking import Asker
from mq.tools.mqctl.top.board import Board, Reach
from mq.tools.mqctl.top.document import document
from mq.tools.mqctl.top.limits import (
    ASKED_A_TICK_DEFAULT,
    ASKED_A_TICK_MAX,
    ASKED_AT_A_TIME,
    INTERVAL_S_DEFAULT,
    INTERVAL_S_MAX,
    INTERVAL_S_MIN,
    PATTERNS_MAX,
)
from mq.tools.mqctl.top.picture import Screen, picture
from mq.tools.mqctl.top.rows import ORDERS, in_order, rows_of
from mq.tools.mqctl.top.terminal import Terminal
from mq.tools.mqctl.top.view import View
from mq.tools.mqctl.top.watching import Watching

# An answer that takes longer is not waited for: the view is to say so.
_ANSWER_S_MAX: Final = 5.0
# A pipe has room for all columns.
_PIPE_COLUMNS: Final = 10_000


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=Number(INTERVAL_S_MIN, INTERVAL_S_MAX),
    default=INTERVAL_S_DEFAULT,
    show_default=True,
    help="Seconds from one look to the next.",
)
@click.option(
    "--queue",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    help="Only queues whose names match, such as 'orders*'; may be said again.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(ORDERS),
    default=ORDERS[0],
    show_default=True,
    help="By what the queues are in order, the largest first.",
)
@click.option("--reverse", "is_reversed", is_flag=True, help="The other way round.")
@click.option("--once", is_flag=True, help="Look twice, print one picture of all queues, and end.")
@click.option(
    "--requests",
    "room",
    type=click.IntRange(1, ASKED_A_TICK_MAX),
    default=ASKED_A_TICK_DEFAULT,
    show_default=True,
    help="Queues that are asked about in a look: those on the screen, and the others in turn. "
    "--once asks about all.",
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
    """Watch the queues live: what lies in them, and what is done with them a second.

    Keys: q quits; < and > (or s) choose the order, r reverses it; / filters by a part of the name;
    p pauses; arrows, PageUp, PageDown, Home and End move.
    """
    if len(patterns) > PATTERNS_MAX:
        raise click.UsageError(f"--queue may be said {PATTERNS_MAX} times.")
    if not (once or options.as_json or sys.stdout.isatty()):
        raise click.UsageError("Standard output is no terminal: say --once, or --json.")
    view = View(order=order, is_reversed=is_reversed)
    with asyncio.Runner() as runner:
        return runner.run(_top(options, interval_s, patterns, view, once, room))


async def _top(
    options: Options,
    interval_s: float,
    patterns: tuple[str, ...],
    view: View,
    once: bool,
    room: int,
) -> int:
    clock = SystemClock()
    board = Board(Reach(clock.steady_s()))
    async with _client_of(options) as client:
        asker = Asker(client, board, clock.steady_s, patterns, room)
        try:
            if once:
                await _look_twice(asker, options, interval_s)
                _print_once(board, view, options, clock)
                return ExitCode.DONE
            if options.as_json:
                await _print_each(asker, board, view, options, clock, interval_s)
        finally:
            await asker.close()
        terminal = Terminal(Console(highlight=False, markup=False, emoji=False))
        url = options.shown_url
        return await Watching(asker, board, terminal, view, interval_s, url, clock.steady_s).run()


def _client_of(options: Options) -> AsyncClient:
    """Each request once: the next look is soon enough."""
    timeout_s = min(options.timeout_s, _ANSWER_S_MAX)
    return AsyncClient(
        options.url,
        token=options.token,
        ca_file=options.certificates.ca_file,
        certificate=options.certificates.certificate,
        key=options.certificates.key,
        timeouts=Timeouts(connect_s=timeout_s, answer_s=timeout_s),
        retry=Retry(attempts=1),
        connections_max=ASKED_AT_A_TIME,
    )


async def _look_twice(asker: Asker, options: Options, interval_s: float) -> None:
    """Rates are had from two looks. Raises Failed where mq does not answer."""
    await asker.all_once()
    if asker.error is None:
        await asyncio.sleep(interval_s)
        await asker.all_once()
    if asker.error is not None:
        raise failed(asker.error, options)


def _print_once(board: Board, view: View, options: Options, clock: Clock) -> None:
    if options.as_json:
        _print_document(board, view, options, clock)
        return
    now_s = clock.steady_s()
    rows = in_order(rows_of(board, now_s), view.order, view.is_reversed)
    console = Console(highlight=False, markup=False, emoji=False)
    columns = console.width if sys.stdout.isatty() else _PIPE_COLUMNS
    for line in picture(board, rows, view, Screen(columns), now_s, options.shown_url):
        line.rstrip()
        console.print(line, soft_wrap=True)


async def _print_each(
    asker: Asker,
    board: Board,
    view: View,
    options: Options,
    clock: Clock,
    interval_s: float,
) -> None:
    """A line each look, until somebody ends it. What is not reached is told, and asked again."""
    while True:
        began_s = clock.steady_s()
        await asker.tick(())
        _print_document(board, view, options, clock)
        await asyncio.sleep(max(0.0, began_s + interval_s - clock.steady_s()))


def _print_document(board: Board, view: View, options: Options, clock: Clock) -> None:
    now_s = clock.steady_s()
    rows = in_order(rows_of(board, now_s), view.order, view.is_reversed)
    at = rfc3339(clock.now_ms())
    Printer(as_json=True).row(document(board, rows, options.shown_url, at, now_s))
