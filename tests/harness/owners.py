"""Owners: clients that make a queue and delete it while others use it."""

import random
from collections.abc import Callable

import aiohttp

from harness.clients import NO_ANSWER, Recorder, now_us
from harness.history import Create, Drop
from harness.process_faults import Member
from harness.processes import PATIENCE_S
from harness.waiting import comes_true


class Owner:
    """Makes and deletes one queue in turn, at any server; it waits for every answer."""

    def __init__(
        self,
        recorder: Recorder,
        session: aiohttp.ClientSession,
        servers: list[Member],
        chance: random.Random,
        queue: str,
    ) -> None:
        self._recorder = recorder
        self._session = session
        self._servers = servers
        self._chance = chance
        self._queue = queue

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Deletes the queue and makes it again, until it is over; it is there then."""
        while not is_over():
            enough = self._recorder.count() + self._chance.randint(20, 120)
            await comes_true(
                lambda enough=enough: is_over() or self._recorder.count() >= enough,
                f"operations on {self._queue}",
                patience_s=600,
            )
            await self.renew()

    async def renew(self) -> None:
        """Deletes the queue for sure, and makes it again."""
        while not await self.drop():
            pass
        while not await self.create():
            pass

    async def create(self) -> bool:
        """Makes the queue; whether it is there for sure."""
        server = await self._server()
        began_us = now_us()
        status = await self._ask("PUT", server)
        made = Create(server.name, began_us, now_us(), status)
        self._recorder.operations.append(made)
        return made.is_acknowledged

    async def drop(self) -> bool:
        """Deletes the queue; whether it is gone for sure."""
        server = await self._server()
        began_us = now_us()
        status = await self._ask("DELETE", server)
        dropped = Drop(server.name, began_us, now_us(), status)
        self._recorder.operations.append(dropped)
        if dropped.is_acknowledged:
            self._recorder.alive = 0
        return dropped.status in (200, 404)

    async def _server(self) -> Member:
        server = self._chance.choice(self._servers)
        await server.is_up.wait()
        return server

    async def _ask(self, method: str, server: Member) -> int | None:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        try:
            async with self._session.request(
                method, f"{server.url}/{self._queue}", timeout=timeout
            ) as response:
                await response.read()
                return response.status
        except NO_ANSWER:
            return None
