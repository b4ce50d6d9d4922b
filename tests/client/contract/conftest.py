"""The suite's fixtures: each test is run with both clients; what bodies, headers and WebSockets do
on their way is run with the fake as well, whose own they are.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest
from harness.in_threads import InThreads
from harness.server import Serve

from mq import AsyncClient, Client
from mq.client.fake import FakeMq

Open: TypeAlias = Callable[..., Any]
"""Makes another client of the same server, with more arguments."""
Told: TypeAlias = Callable[[], dict[str, Any]]
"""How a client is told of a server: each anew."""
Server: TypeAlias = Callable[[], Awaitable[Told]]
"""Starts a server."""


@pytest.fixture
def live(serve: Serve) -> Server:
    async def start() -> Told:
        url = (await serve()).url
        return lambda: {"url": url}

    return start


@pytest.fixture
def fake() -> Server:
    async def start() -> Told:
        made = FakeMq()
        return lambda: {"transport": made.transport()}

    return start


# By the names of their fixtures.
SERVERS = ("live", "fake")
WITH_THE_FAKE = ("test_consuming", "test_publishing")


# First, so that a test has the same name in a run of its own: the order says which word is first.
@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server_of" in metafunc.fixturenames:
        has_fake = metafunc.module.__name__.endswith(WITH_THE_FAKE)
        metafunc.parametrize("server_of", SERVERS if has_fake else SERVERS[:1], indirect=True)


@pytest.fixture
def server_of(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["in_a_loop", "in_threads"])
async def opened(request: pytest.FixtureRequest, server_of: Server) -> AsyncIterator[Open]:
    told = await server_of()
    made = []

    def make(**more: Any) -> Any:
        is_async = request.param == "in_a_loop"
        client = AsyncClient(**told(), **more) if is_async else InThreads(Client(**told(), **more))
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
