"""Several requests at once, as one call."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Runs all at once; returns their results, in order. The first failure cancels the others and
    is raised once they have ended.

    A failed asyncio.TaskGroup leaves its caller counted as cancelled (Python 3.11 and 3.12), and
    aiohttp then takes the end of an answer for a cancellation.
    """
    tasks = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
