"""Limits of deliveries over the processes of one mq, also when one of them is killed."""

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
from harness.processes import Processes
from harness.siblings import server_pids, session_of_each
from harness.waiting import comes_true

LIMIT = 3
MESSAGES = 60
MESSAGES_PATH = "/orders/messages"


async def test_no_more_are_in_flight_than_may_be_in_all_processes(
    daemons: Processes, root: Path
) -> None:
    flags = ("--processes", "2", "--visibility", "600")
    mq = await asyncio.to_thread(daemons.mq, root, *flags)
    held: set[str] = set()
    done: set[str] = set()
    most = 0

    async def consume(session: aiohttp.ClientSession) -> None:
        nonlocal most
        while len(done) < MESSAGES:
            try:
                async with session.get(mq.url + MESSAGES_PATH + "?wait=1") as answer:
                    if answer.status != 200:
                        continue
                    name = answer.headers["X-Message-Id"]
            except aiohttp.ClientError:
                continue
            held.add(name)
            most = max(most, len(held))
            await asyncio.sleep(0)
            # Before it is asked for: the next delivery may come before the answer.
            held.discard(name)
            done.add(name)
            async with session.delete(f"{mq.url}{MESSAGES_PATH}/{name}") as answer:
                assert answer.status == 202

    async with aiohttp.ClientSession() as session:
        async with session.put(f"{mq.url}/orders") as answer:
            assert answer.status == 201
        async with session.patch(
            f"{mq.url}/orders/settings", json={"in_flight_max": LIMIT}
        ) as answer:
            assert answer.status == 200
        for _ in range(MESSAGES):
            async with session.post(mq.url + MESSAGES_PATH, data=b"x") as answer:
                assert answer.status == 201
        async with session_of_each(mq.url, 2) as sessions:
            # As many as may be, through both; nothing more comes through either.
            names = []
            for number in range(LIMIT):
                async with sessions[number % 2].get(mq.url + MESSAGES_PATH) as answer:
                    assert answer.status == 200
                    names.append(answer.headers["X-Message-Id"])
            for each in sessions:
                async with each.get(mq.url + MESSAGES_PATH) as answer:
                    assert answer.status == 204
            # What one delivered the other deletes: then there is room for the first.
            for number, name in enumerate(names):
                async with sessions[(number + 1) % 2].delete(
                    f"{mq.url}{MESSAGES_PATH}/{name}"
                ) as answer:
                    assert answer.status == 202
            done.update(names)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as many:
            await asyncio.gather(*(consume(many) for _ in range(12)))
    assert len(done) == MESSAGES
    assert most <= LIMIT


async def test_what_a_killed_process_delivered_counts_until_it_is_due(
    daemons: Processes, root: Path
) -> None:
    mq = await asyncio.to_thread(daemons.mq, root, "--processes", "2", "--visibility", "600")
    async with aiohttp.ClientSession() as session:
        async with session.put(f"{mq.url}/orders") as answer:
            assert answer.status == 201
        patch = {"in_flight_max": 2}
        async with session.patch(f"{mq.url}/orders/settings", json=patch) as answer:
            assert answer.status == 200
        for _ in range(4):
            async with session.post(mq.url + MESSAGES_PATH, data=b"x") as answer:
                assert answer.status == 201
        async with session_of_each(mq.url, 2) as sessions:
            names = []
            for visibility in ("600", "3"):
                path = f"{MESSAGES_PATH}?visibility={visibility}"
                async with sessions[1].get(mq.url + path) as answer:
                    assert answer.status == 200
                    names.append(answer.headers["X-Message-Id"])
            os.kill(server_pids(mq, 2)[1], signal.SIGKILL)
            async with sessions[0].get(mq.url + MESSAGES_PATH) as answer:
                assert answer.status in (200, 204)
                had_lapsed = answer.status == 200

            async def is_fetched() -> bool:
                async with sessions[0].get(mq.url + MESSAGES_PATH) as answer:
                    return answer.status == 200

            if not had_lapsed:
                await comes_true(is_fetched, "room, once the second one is due")
            # The first one is not due, and any process can end it.
            async with sessions[0].get(mq.url + MESSAGES_PATH) as answer:
                assert answer.status == 204
            async with sessions[0].delete(f"{mq.url}{MESSAGES_PATH}/{names[0]}") as answer:
                assert answer.status == 202
            async with sessions[0].get(mq.url + MESSAGES_PATH) as answer:
                assert answer.status == 200
