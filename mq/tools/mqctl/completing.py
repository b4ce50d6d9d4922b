"""What a shell offers for names that only mq knows: queues, their settings and schedules. It offers
nothing if mq cannot be asked.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

import click
from click.shell_completion import CompletionItem

from mq.client.client import AsyncClient
from mq.client.options import Retry
from mq.tools.mqctl.options import options_of, remember
from mq.tools.mqctl.running import client_of

ANSWER_S_MAX: Final = 1.0
"""The longest that a shell waits."""
_NAMES_MAX: Final = 2000

Offer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Names = Callable[[AsyncClient, str], AsyncIterator[str]]


def _offer(names: Names) -> Offer:
    """The names that begin with the typed text, as click's `shell_complete`."""

    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found: list[str] = []
        # A command line that is being typed has no place for an error.
        with contextlib.suppress(Exception):
            asyncio.run(_ask(ctx, names, incomplete, found))
        return [CompletionItem(name) for name in found]

    return offer


async def _ask(ctx: click.Context, names: Names, incomplete: str, found: list[str]) -> None:
    # The groups and the command did not run, which would have kept their options.
    contexts = [ctx]
    while (parent := contexts[0].parent) is not None:
        contexts.insert(0, parent)
    for each in contexts:
        remember(each, each.params)
    options = replace(options_of(ctx), timeout_s=ANSWER_S_MAX)
    async with asyncio.timeout(ANSWER_S_MAX), client_of(options, retry=Retry(attempts=1)) as client:
        async for name in names(client, str(ctx.params.get("queue"))):
            if name.startswith(incomplete):
                found.append(name)
                if len(found) >= _NAMES_MAX:
                    return


async def _queues(client: AsyncClient, queue: str) -> AsyncIterator[str]:
    async for entry in client.queues():
        yield entry.name


async def _settings(client: AsyncClient, queue: str) -> AsyncIterator[str]:
    for name in (await client.queue(queue).settings()).values:
        yield f"{name}="


async def _schedules(client: AsyncClient, queue: str) -> AsyncIterator[str]:
    for each in await client.queue(queue).schedules():
        yield each.name


queues: Final = _offer(_queues)
settings: Final = _offer(_settings)
"""Settings of the queue before it, each with its `=`."""
schedules: Final = _offer(_schedules)
"""Schedules of the queue before it."""
