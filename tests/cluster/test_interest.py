"""Consumers of the processes of one mq are those of one queue: by priority, in turn, and through a
kill.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from harness.consuming import PATH, Consumer
from harness.processes import Process, Processes
from harness.siblings import server_pids, session_of_each
from harness.waiting import comes_true

MESSAGES = 200
POLLS = 20
MESSAGES_PATH = "/orders/messages"


@pytest.fixture
async def mq(daemons: Processes, root: Path) -> Process:
    """Two processes, and a queue."""
    flags = ("--processes", "2", "--visibility", "600")
    process = await asyncio.to_thread(daemons.mq, root, *flags)
    async with aiohttp.ClientSession() as session, session.put(f"{process.url}/orders") as made:
        assert made.status == 201
    return process


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


class Taking:
    """A consumer at one of the processes, and the messages that came."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.ids: list[str] = []

    async def run(self, begun: asyncio.Event, **terms: Any) -> None:
        try:
            async with self._session.ws_connect(self._url + PATH) as socket:
                consumer = Consumer(socket)
                await consumer.subscribe("orders", credit=1000, **terms)
                begun.set()
                while True:
                    await consumer.frame()
                    self.ids += [each.id for each in consumer.messages]
                    consumer.messages.clear()
        except (TypeError, aiohttp.ClientError):
            return  # Its process is gone.


async def taking(
    stack: AsyncExitStack, session: aiohttp.ClientSession, url: str, **terms: Any
) -> Taking:
    found, begun = Taking(session, url), asyncio.Event()
    task = asyncio.create_task(found.run(begun, **terms))
    stack.callback(task.cancel)
    await begun.wait()
    return found


async def publish(url: str, count: int) -> set[str]:
    """By connections of their own: to whichever process."""
    found = set()
    for number in range(count):
        async with (
            aiohttp.ClientSession() as session,
            session.post(url + MESSAGES_PATH, data=b"%d" % number) as answer,
        ):
            assert answer.status == 201
            found.add(answer.headers["X-Message-Id"])
    return found


async def lost_races(url: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/-/metrics") as answer:
        match = re.search(
            r"^mq_lost_races_total(?:{.*})? (\S+)$", await answer.text(), re.MULTILINE
        )
    assert match is not None
    return float(match[1])


async def test_the_highest_priority_is_served_first(mq: Process, stack: AsyncExitStack) -> None:
    sessions = await stack.enter_async_context(session_of_each(mq.url, 2))
    low = await taking(stack, sessions[0], mq.url)
    high = await taking(stack, sessions[1], mq.url, priority=9)
    sent = await publish(mq.url, MESSAGES)
    await comes_true(lambda: len(high.ids) + len(low.ids) >= MESSAGES, "all")
    assert set(high.ids) | set(low.ids) == sent
    # Both lived, so one may have been slow for a moment on a busy machine.
    assert len(high.ids) >= MESSAGES * 0.95
    assert await lost_races(mq.url) <= MESSAGES * 0.1


async def test_long_polls_have_a_priority(mq: Process, stack: AsyncExitStack) -> None:
    one, other = await stack.enter_async_context(session_of_each(mq.url, 2))

    async def poll(session: aiohttp.ClientSession, priority: int) -> str:
        terms = f"?wait=60&priority={priority}"
        async with session.get(mq.url + MESSAGES_PATH + terms) as answer:
            return answer.headers.get("X-Message-Id", "")

    async def waiting(count: int) -> bool:
        async with aiohttp.ClientSession() as third, third.get(f"{mq.url}/-/metrics") as answer:
            return f"mq_consumers {count:.1f}" in await answer.text()

    first_served = []
    for _ in range(POLLS):
        low = asyncio.create_task(poll(one, 3))
        await comes_true(lambda: waiting(1), "one waits")
        high = asyncio.create_task(poll(other, 4))
        await comes_true(lambda: waiting(2), "both wait")
        sent = await publish(mq.url, 1)
        [first], _ = await asyncio.wait([low, high], return_when=asyncio.FIRST_COMPLETED)
        first_served.append(first is high)
        sent |= await publish(mq.url, 1)
        assert {await low, await high} == sent
    # Others do not yield to a poll that still looks for the first time, though it is counted.
    assert sum(first_served) >= POLLS * 0.6, first_served


async def test_nothing_is_lost_nor_left_when_the_one_that_goes_first_is_killed(
    mq: Process, stack: AsyncExitStack
) -> None:
    sessions = await stack.enter_async_context(session_of_each(mq.url, 2))
    low = await taking(stack, sessions[0], mq.url)
    high = await taking(stack, sessions[1], mq.url, priority=9)
    before = await publish(mq.url, 20)
    await comes_true(lambda: len(high.ids) + len(low.ids) == 20, "those before")
    publishing = sessions[0] = await stack.enter_async_context(aiohttp.ClientSession())
    pid = server_pids(mq, 2)[1]
    sent = set(before)
    for number in range(60):
        if number == 20:
            os.kill(pid, signal.SIGKILL)
        try:
            async with publishing.post(mq.url + MESSAGES_PATH, data=b"x") as answer:
                if answer.status == 201:
                    sent.add(answer.headers["X-Message-Id"])
        except aiohttp.ClientError:
            continue  # It went with its process: not acknowledged.

    root = Path(mq.logged(r"listening .*root=(\S+)").group(1))  # type: ignore[union-attr]

    def is_all_there() -> bool:
        """No message is ready, and only the killed one's claims are hidden, until they are due."""
        hidden = sent - set(high.ids) - set(low.ids)
        in_flight = {name.partition(":")[2] for name in os.listdir(root / "delay")}
        return not os.listdir(root / "queues" / "orders") and hidden <= in_flight

    await comes_true(is_all_there, "no ready message is left")
    assert len(sent) >= 50
    await comes_true(lambda: len(low.ids) >= 20, "what the lower one took instead")
