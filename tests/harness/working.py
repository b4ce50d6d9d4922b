"""Workers that run in the test's event loop, and queues to see what they do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from harness.waiting import comes_true
from mq.client.client import AsyncClient
from mq.client.queue import AsyncQueue
from mq.client.values import PeekedMessage
from mq.client.worker import Worker


@contextlib.asynccontextmanager
async def working(worker: Worker) -> AsyncIterator["asyncio.Task[None]"]:
    """The worker runs; at the end it drains."""
    running = asyncio.create_task(worker.run_async())
    try:
        yield running
    finally:
        worker.stop()
        if not running.cancelled():
            await running


async def made(client: AsyncClient, *names: str) -> list[AsyncQueue]:
    queues = [client.queue(name) for name in names]
    for queue in queues:
        await queue.create()
    return queues


async def published(queue: AsyncQueue, bodies: Iterable[str]) -> list[str]:
    found = await queue.publish_many(list(bodies))
    return [str(each.id) for each in found]


async def is_empty(queue: AsyncQueue) -> bool:
    """Nothing is ready, delayed or fetched."""
    return not await queue.peek(states=("ready",)) and not await queue.peek(states=("delayed",))


async def becomes_empty(queue: AsyncQueue) -> None:
    await comes_true(lambda: is_empty(queue), f"{queue.name} is empty")


async def sidelined(queue: AsyncQueue, client: AsyncClient) -> list[PeekedMessage]:
    """What lies in the queue's sideline, once something does."""

    async def found() -> list[PeekedMessage]:
        names = [entry.name async for entry in client.queues()]
        name = f"{queue.name}_SIDELINE"
        return await client.queue(name).peek() if name in names else []

    return await comes_true(found, f"something is in the sideline of {queue.name}")
