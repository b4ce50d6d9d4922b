"""Runs operations that lock a file of the root one at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from mq.model.errors import Busy

T = TypeVar("T")

_LOCK_TRIES: Final = 100
_LOCK_WAIT_S: Final = 0.05


class Turns:
    """Orders operations: in this process by a lock, and against other processes by retries for a
    few seconds.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Runs the operation when it is its turn, and again while it raises Busy. Raises Busy when
        other processes keep the lock for too long.
        """
        async with self._lock:
            for _ in range(_LOCK_TRIES):
                try:
                    return await operation()
                except Busy:
                    await asyncio.sleep(_LOCK_WAIT_S)
            return await operation()
