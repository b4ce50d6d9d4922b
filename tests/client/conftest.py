"""A live mq, what misbehaves before it, and clients that note how long they would have slept."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness.lossy import Lossy, lossy
from harness.server import Server

from mq import AsyncClient
from mq.client.options import Seams, Timeouts


@dataclass
class Slept:
    """The pauses of clients, which are none."""

    pauses_s: list[float] = field(default_factory=list)

    async def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        await asyncio.sleep(0)


@pytest.fixture
def slept() -> Slept:
    return Slept()


@pytest.fixture
async def between(server: Server) -> AsyncIterator[Lossy]:
    """What stands before an mq with its defaults."""
    async with lossy(server.port) as made:
        yield made


@dataclass
class Opened:
    """Makes clients with these pauses and short time-outs; ends them."""

    url: str
    slept: Slept
    made: list[AsyncClient] = field(default_factory=list)

    def __call__(self, **more: Any) -> AsyncClient:
        seams = Seams(sleep=self.slept.sleep, chance=lambda: 1.0)
        told = {"url": self.url, "timeouts": Timeouts(5, 5), "seams": seams, **more}
        client = AsyncClient(**told)
        self.made.append(client)
        return client


@pytest.fixture
async def opened(between: Lossy, slept: Slept) -> AsyncIterator[Opened]:
    """Makes clients that talk to mq through what misbehaves."""
    made = Opened(between.url, slept)
    yield made
    for client in made.made:
        await client.close()


@pytest.fixture
async def queue(opened: Opened, between: Lossy) -> Any:
    """A queue that was just made."""
    found = opened().queue("orders")
    await found.create()
    between.seen.clear()
    return found
