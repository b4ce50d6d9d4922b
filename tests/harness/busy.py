"""A client that keeps a queue busy, while somebody looks at the root."""

import asyncio
from collections.abc import Iterator

import aiohttp


async def work(session: aiohttp.ClientSession, numbers: Iterator[int], ended: asyncio.Event) -> int:
    """Publishes, with keys too, fetches, deletes, sidelines, until it is the end; how often."""
    done = 0
    while not ended.is_set():
        number = next(numbers)
        path = "/q/messages" if number % 2 else f"/q/messages?key=k{number}"
        async with session.post(path, data=b"x") as published:
            assert published.status == 201
        async with session.get("/q/messages?visibility=5") as fetched:
            message_id = fetched.headers.get("X-Message-Id")
        if message_id is not None and number % 3:
            async with session.delete(f"/q/messages/{message_id}") as deleted:
                assert deleted.status == 202
        done += 1
    return done
