"""The client for threads, worn as the one for event loops: each call waits in a thread, so that one
suite of tests is about both.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from mq.client.sync import Client, Consumer, Message, Queue

# What waits for nothing.
_AT_ONCE = frozenset({"queue", "consume", "text", "json"})
_ITERATORS = frozenset({"queues", "browse", "follow"})
_END = object()
# Not the loop's own: an mq in the same loop has need of that, also while all of these wait.
_POOL = ThreadPoolExecutor(max_workers=32, thread_name_prefix="in-threads")


async def in_thread(function: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """What the function gives, called in another thread."""
    call = functools.partial(function, *args, **more)
    return await asyncio.get_running_loop().run_in_executor(_POOL, call)


class InThreads:
    """A Client, or what it gives, with awaitable words."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        if name in _AT_ONCE:
            return lambda *args, **more: _worn(value(*args, **more))
        if name in _ITERATORS:
            return lambda *args, **more: _each(value(*args, **more))

        async def call(*args: Any, **more: Any) -> Any:
            return _worn(await in_thread(value, *args, **more))

        return call

    def __repr__(self) -> str:
        return f"<in threads: {self._inner!r}>"

    def __aiter__(self) -> "InThreads":
        return self

    async def __anext__(self) -> Any:
        found = await in_thread(next, self._inner, _END)
        if found is _END:
            raise StopAsyncIteration
        return _worn(found)

    async def __aenter__(self) -> "InThreads":
        await in_thread(self._inner.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await in_thread(self._inner.__exit__, kind, error, trace)


def _worn(found: Any) -> Any:
    if isinstance(found, Client | Queue | Message | Consumer):
        return InThreads(found)
    if isinstance(found, list):
        return [_worn(each) for each in found]
    return found


async def _each(found: Iterator[Any]) -> AsyncIterator[Any]:
    while (one := await in_thread(next, found, _END)) is not _END:
        yield one
