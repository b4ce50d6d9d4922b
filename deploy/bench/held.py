"""A worker that holds what it gets, for `mqctl worker deploy.bench.held:worker`."""

import asyncio

from mq.client.worker import AsyncWorkerMessage, Worker

HELD_BY_EACH = 25

worker = Worker(consumers=HELD_BY_EACH, prefetch=0)


@worker.handler("bench")
async def hold(_: AsyncWorkerMessage) -> None:
    """For ever."""
    await asyncio.Event().wait()
