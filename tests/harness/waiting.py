"""Waiting for a condition in a test's event loop."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

from harness.processes import PATIENCE_S

T = TypeVar("T")


async def comes_true(
    condition: Callable[[], T | Awaitable[T]],
    what: str = "the condition",
    patience_s: float = PATIENCE_S,
) -> T:
    """Waits, while the loop turns, until the condition gives something true, and gives that."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        found = condition()
        value: T = await found if inspect.isawaitable(found) else found
        if value:
            return value
        if loop.time() > deadline:
            raise AssertionError(f"{what} never came true")
        await asyncio.sleep(0.01)
