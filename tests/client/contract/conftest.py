"""The suite's fixtures: each test is run with both clients."""

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pytest
from harness.in_threads import InThreads
from harness.server import Server

from mq import AsyncClient, Client

Open: TypeAlias = Callable[..., Any]
"""Makes another client of the same server, with more arguments."""


@pytest.fixture(params=["in_a_loop", "in_threads"])
async def opened(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Open]:
    url, made = server.url, []

    def make(**more: Any) -> Any:
        is_async = request.param == "in_a_loop"
        client = AsyncClient(url, **more) if is_async else InThreads(Client(url, **more))
        made.append(client)
        return client

    yield make
    for client in made:
        await client.close()


@pytest.fixture
async def client(opened: Open) -> Any:
    return opened()


@pytest.fixture
async def queue(client: Any) -> Any:
    """A queue that was just made."""
    found = client.queue("orders")
    assert await found.create()
    return found
