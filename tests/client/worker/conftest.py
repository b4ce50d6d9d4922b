"""Fixtures: a client of an mq in this loop, and a queue; a client of a fake."""

from collections.abc import AsyncIterator

import pytest
from harness.server import Server

from mq.client.client import AsyncClient
from mq.client.queue import AsyncQueue
from mq.testing import FakeMq


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url) as made:
        yield made


@pytest.fixture
async def orders(client: AsyncClient) -> AsyncQueue:
    queue = client.queue("orders")
    await queue.create()
    return queue


@pytest.fixture
async def fake() -> FakeMq:
    return FakeMq()


@pytest.fixture
async def faked(fake: FakeMq) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(transport=fake.transport()) as made:
        yield made
