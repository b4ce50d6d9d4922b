"""Who waits at one process has what another one does, with the kernel's help and without."""

import asyncio
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
from harness.processes import PATIENCE_S, Process, Processes

MESSAGES = "/orders/messages"

Answer: TypeAlias = tuple[int, str, str]
"""Status, message id and receives."""


async def ask(
    session: aiohttp.ClientSession, process: Process, method: str, path: str, **more: Any
) -> Answer:
    async with session.request(method, process.url + path, **more) as response:
        await response.read()
        headers = response.headers
        found = (headers.get("X-Message-Id", ""), headers.get("X-Message-Receives", ""))
        return response.status, *found


async def poll(session: aiohttp.ClientSession, process: Process) -> "asyncio.Task[Answer]":
    """One who waits, and has found nothing."""
    asked = ask(session, process, "GET", f"{MESSAGES}?wait=60")
    task = asyncio.create_task(asyncio.wait_for(asked, PATIENCE_S))
    for _ in range(3):
        assert (await ask(session, process, "GET", MESSAGES))[0] == 204
    assert not task.done()
    return task


async def check(session: aiohttp.ClientSession, waited_at: Process, other: Process) -> None:
    """One process is waited at, the other does things."""
    assert (await ask(session, other, "PUT", "/orders"))[0] == 201
    # A publish.
    task = await poll(session, waited_at)
    status, message_id, _ = await ask(session, other, "POST", MESSAGES, data=b"one")
    assert status == 201
    assert await task == (200, message_id, "1")
    # A release.
    path = f"{MESSAGES}/{message_id}"
    task = await poll(session, waited_at)
    assert (await ask(session, other, "PATCH", path, json={"due_in_s": 0}))[0] == 200
    assert await task == (200, message_id, "2")
    # A redelivery: mq-mover's doing.
    task = await poll(session, waited_at)
    assert (await ask(session, other, "PATCH", path, json={"due_in_s": 0.2}))[0] == 200
    assert await task == (200, message_id, "3")
    # A delay that is over: also.
    task = await poll(session, waited_at)
    delayed = f"{MESSAGES}?delay=0.2"
    status, message_id, _ = await ask(session, other, "POST", delayed, data=b"two")
    assert status == 201
    assert await task == (200, message_id, "1")
    # A deletion of the queue.
    task = await poll(session, waited_at)
    assert (await ask(session, other, "DELETE", "/orders"))[0] == 200
    assert (await task)[0] == 404


async def test_what_another_process_does_ends_the_waiting(daemons: Processes, root: Path) -> None:
    hearing = await asyncio.to_thread(daemons.mq, root)
    looking = await asyncio.to_thread(daemons.mq, root, "--no-inotify")
    await asyncio.to_thread(daemons.mover, "--root", str(root))
    async with aiohttp.ClientSession() as session:
        await check(session, hearing, looking)
        await check(session, looking, hearing)
