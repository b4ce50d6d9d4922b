"""Groups under kill -9: publishers and consumers at two mqs that die again and again, beside
mq-mover. At each delivery all that was published in its group before is done with, and none of it
is out.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from harness.audits import assert_audits_clean
from harness.processes import Process, Processes
from harness.waiting import comes_true

from mq.model.clock import SystemClock
from mq.model.names import MessageId

GROUPS = ("a", "b", "c")
EACH = 25
KILLS = 4


@dataclass
class Shop:
    """Two mqs on one root, and what their clients know. `gone`: ids of which a delete was asked."""

    daemons: Processes
    root: Path
    session: aiohttp.ClientSession
    chance: random.Random
    mqs: list[Process] = field(default_factory=list)
    published: dict[str, list[str]] = field(default_factory=lambda: {each: [] for each in GROUPS})
    gone: set[str] = field(default_factory=set)
    deliveries: int = 0

    def start(self, port: int = 0) -> Process:
        return self.daemons.mq(self.root, port=port)

    async def ask(self, method: str, path: str, **more: object) -> tuple[int, str, str]:
        """Asks any of the mqs, again where that one dies: status, id and group."""
        while True:
            url = f"{self.chance.choice(self.mqs).url}{path}"
            try:
                async with self.session.request(method, url, **more) as response:  # type: ignore[arg-type]
                    await response.read()
                    if response.status != 503:
                        found = response.headers
                        return (
                            response.status,
                            found.get("X-Message-Id", ""),
                            found.get("X-Message-Group", ""),
                        )
            except (aiohttp.ClientError, ConnectionError):
                await asyncio.sleep(0.01)

    async def publishes(self, group: str) -> None:
        for number in range(EACH):
            status, message_id, _ = await self.ask(
                "POST", f"/q/messages?group={group}&visibility=1",
                headers={"Idempotency-Key": f"{group}-{number}"}, data=b"%d" % number,
            )  # fmt: skip
            assert status == 201
            self.published[group].append(message_id)
            # Ids of one millisecond, made by two processes, are in no order.
            ms = MessageId.parse(message_id).published_ms
            await comes_true(lambda ms=ms: time.time_ns() // 1_000_000 > ms)

    async def consumes(self) -> None:
        while len(self.gone) < EACH * len(GROUPS):
            status, message_id, group = await self.ask("GET", "/q/messages?wait=0.2")
            if status == 204:
                continue
            self.deliveries += 1
            ids = self.published[group]
            # Perhaps its publisher was killed, and does not know of it yet.
            before = ids[: ids.index(message_id)] if message_id in ids else ids
            assert set(before) <= self.gone, f"{message_id} before {set(before) - self.gone}"
            if self.chance.random() < 0.2:
                continue  # It lapses.
            self.gone.add(message_id)
            status, _, _ = await self.ask("DELETE", f"/q/messages/{message_id}")
            assert status in (202, 404)

    async def kills(self) -> None:
        for _ in range(KILLS):
            seen = self.deliveries
            await comes_true(
                lambda seen=seen: self.deliveries > seen + 5 or len(self.gone) == EACH * len(GROUPS)
            )
            index = self.chance.randrange(len(self.mqs))
            await asyncio.to_thread(self.mqs[index].kill)
            self.mqs[index] = await asyncio.to_thread(self.start)


async def test_a_group_keeps_its_order_while_processes_are_killed(
    daemons: Processes, root: Path
) -> None:
    async with aiohttp.ClientSession() as session:
        shop = Shop(daemons, root, session, random.Random(4))
        shop.mqs = [await asyncio.to_thread(shop.start) for _ in range(2)]
        await asyncio.to_thread(daemons.mover, f"--root={root}")
        assert (await shop.ask("PUT", "/q"))[0] == 201
        async with asyncio.TaskGroup() as tasks:
            for group in GROUPS:
                tasks.create_task(shop.publishes(group))
            for _ in range(3):
                tasks.create_task(shop.consumes())
            tasks.create_task(shop.kills())
        assert (await shop.ask("GET", "/q/messages"))[0] == 204
    assert_audits_clean(root, SystemClock())
