"""Publishers at two processes who want one key, again and again: exactly one has it."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from harness.audits import assert_audits_clean
from harness.folders import message_files
from harness.processes import Process, Processes

from mq.model.clock import SystemClock

ROUNDS = 60
EACH = 3


class Publishers:
    """Clients of two processes on one root, in lockstep."""

    def __init__(self, mqs: list[Process], session: aiohttp.ClientSession) -> None:
        self._mqs = mqs
        self._session = session
        self._chance = random.Random(7)

    async def race(self, query: str = "", idempotency: str = "") -> list[tuple[int, str]]:
        """What each is told: status and id. Who finds another at the key's folder tries again."""
        ports = [mq.port for mq in self._mqs for _ in range(EACH)]
        self._chance.shuffle(ports)
        return await asyncio.gather(*(self._publish(port, query, idempotency) for port in ports))

    async def _publish(self, port: int, query: str, idempotency: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{port}/orders/messages{query}"
        headers = {"Idempotency-Key": idempotency} if idempotency else {}
        while True:
            async with self._session.post(url, data=b"%d" % port, headers=headers) as response:
                said = await response.text()
                if response.status != 503:
                    assert response.status in (201, 409), said
                    return response.status, response.headers["X-Message-Id"]

    async def ask(self, method: str, path: str) -> tuple[int, str]:
        """Asks any of the processes; the status, and the id that is answered."""
        port = self._chance.choice(self._mqs).port
        async with self._session.request(method, f"http://127.0.0.1:{port}{path}") as response:
            await response.read()
            return response.status, response.headers.get("X-Message-Id", "")


@pytest.fixture
async def publishers(daemons: Processes, root: Path) -> AsyncIterator[Publishers]:
    mqs = [await asyncio.to_thread(daemons.mq, root) for _ in range(2)]
    async with aiohttp.ClientSession() as session:
        made = Publishers(mqs, session)
        assert (await made.ask("PUT", "/orders"))[0] == 201
        yield made
    assert_audits_clean(root, SystemClock())


@pytest.mark.certificate
async def test_of_those_who_want_one_key_exactly_one_gets_it(
    publishers: Publishers, root: Path
) -> None:
    for number in range(ROUNDS):
        # Every third key is one that was had before, by a message that was deleted.
        key = f"key-{number - number % 3}"
        told = await publishers.race(f"?key={key}")
        winners = [message_id for status, message_id in told if status == 201]
        assert len(winners) == 1
        assert {message_id for _, message_id in told} == set(winners)
        [winner] = winners
        assert f"orders:{winner}" in message_files(root)["queues"]
        assert (await publishers.ask("GET", f"/orders/keys/{key}")) == (200, winner)
        path = (f"messages/{winner}", f"keys/{key}")[number % 2]
        assert (await publishers.ask("DELETE", f"/orders/{path}"))[0] == 202
    assert message_files(root)["new"] == []


async def test_of_those_who_publish_once_exactly_one_does(
    publishers: Publishers, root: Path
) -> None:
    ids = set()
    for number in range(ROUNDS):
        query = f"?key=key-{number}" if number % 2 else ""
        told = await publishers.race(query, f"once-{number}")
        assert {status for status, _ in told} == {201}
        [published] = {message_id for _, message_id in told}
        ids.add(published)
    assert message_files(root)["queues"] == sorted(f"orders:{each}" for each in ids)
    assert len(ids) == ROUNDS
    assert message_files(root)["new"] == []


@pytest.mark.certificate
async def test_a_key_that_is_freed_while_others_want_it_has_one_message(
    publishers: Publishers, root: Path
) -> None:
    """Deletes and publishes of one key side by side; whoever has it last lives, alone."""
    for _ in range(ROUNDS):
        await asyncio.gather(
            publishers.race("?key=k"),
            *(publishers.ask("DELETE", "/orders/keys/k") for _ in range(EACH)),
        )
        living = message_files(root)["queues"]
        assert len(living) <= 1
        status, holder = await publishers.ask("GET", "/orders/keys/k")
        assert (status, holder) == ((200, living[0].partition(":")[2]) if living else (404, ""))
    assert message_files(root)["new"] == []
