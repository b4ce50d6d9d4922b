"""One consumer of a queue is active in all processes of a root, also while those are killed: none
other has a message meanwhile, and at each delivery all that came before is done with, or with it.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from harness.audits import assert_audits_clean
from harness.consuming import PATH, Consumer
from harness.processes import Process, Processes
from harness.siblings import server_pids
from harness.waiting import comes_true

from mq.model.clock import SystemClock
from mq.model.names import MessageId

EACH = 12
KILLS = 2
MESSAGES = EACH * (KILLS + 1)
LOST = (aiohttp.ClientError, ConnectionError, TypeError)


@dataclass
class Line:
    """The mqs of a root, and what their clients know. `gone`: ids of which a delete was asked."""

    session: aiohttp.ClientSession
    mqs: list[Process]
    published: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    held: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    takers: list[str] = field(default_factory=list)
    """Who got messages, in turn."""
    kills: int = 0

    @property
    def is_over(self) -> bool:
        return len(self.gone) == MESSAGES

    def came(self, consumer: str, message_id: str) -> None:
        before = self.published
        if message_id in before:
            before = before[: before.index(message_id)]
        assert set(before) <= self.gone | self.held[consumer]
        others = {name: held for name, held in self.held.items() if held and name != consumer}
        assert not others, f"{consumer} beside {others}"
        self.held[consumer].add(message_id)
        if self.takers[-1:] != [consumer]:
            self.takers.append(consumer)

    def goes(self, consumer: str, message_id: str) -> None:
        """Before it is asked for: the next delivery may come before the answer."""
        self.held[consumer].discard(message_id)
        self.gone.add(message_id)

    async def publishes(self) -> None:
        for number in range(MESSAGES):
            await comes_true(lambda number=number: number < EACH * (self.kills + 1))
            while True:
                with contextlib.suppress(*LOST):
                    async with self.session.post(
                        f"{self.mqs[number % len(self.mqs)].url}/q/messages",
                        data=b"x",
                        headers={"Idempotency-Key": str(number)},
                    ) as answer:
                        if answer.status == 201:
                            message_id = answer.headers["X-Message-Id"]
                            break
                await asyncio.sleep(0.01)
            self.published.append(message_id)
            # Ids of one millisecond, made by two processes, are in no order.
            ms = MessageId.parse(message_id).published_ms
            await comes_true(lambda ms=ms: time.time_ns() // 1_000_000 > ms)

    async def polls(self, consumer: str, at: int) -> None:
        while not self.is_over:
            url = f"{self.mqs[at].url}/q/messages"
            try:
                async with self.session.get(f"{url}?consumer={consumer}&wait=0.2") as answer:
                    if answer.status != 200:
                        continue
                    message_id = answer.headers["X-Message-Id"]
                self.came(consumer, message_id)
                await asyncio.sleep(0)
                self.goes(consumer, message_id)
                async with self.session.delete(f"{url}/{message_id}"):
                    pass
            except LOST:
                await asyncio.sleep(0.01)

    async def consumes(self, consumer: str, at: int) -> None:
        while not self.is_over:
            with contextlib.suppress(*LOST):
                async with self.session.ws_connect(self.mqs[at].url + PATH) as socket:
                    talks = Consumer(socket)
                    await talks.subscribe("q", credit=2)
                    await self._takes(consumer, talks)
            self.held[consumer].clear()
            await asyncio.sleep(0.01)

    async def _takes(self, consumer: str, talks: Consumer) -> None:
        while not self.is_over:
            await talks.frame()
            for message in list(talks.messages):
                talks.messages.popleft()
                self.came(consumer, message.id)
                self.goes(consumer, message.id)
                await talks.send(ack=[message.id])
                await talks.send(credit={"q": 1})

    async def active(self) -> tuple[int, int] | None:
        """At which mq the active consumer is, and in which of its processes."""
        for at, mq in enumerate(self.mqs):
            with contextlib.suppress(*LOST):
                async with self.session.get(f"{mq.url}/q/consumers") as answer:
                    rows = json.loads(await answer.read())["consumers"]
                if found := [each["process"] for each in rows if each["active"]]:
                    assert len(found) == 1
                    return at, found[0]
        return None


def _kill_mq(daemons: Processes, root: Path, line: Line, at: int, process: int) -> None:
    line.mqs[at].kill()
    line.mqs[at] = daemons.mq(root)


def _kill_process(daemons: Processes, root: Path, line: Line, at: int, process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(server_pids(line.mqs[at], 2)[process], signal.SIGKILL)


Kill = Callable[[Processes, Path, Line, int, int], None]


@pytest.mark.parametrize("kill", [_kill_mq, _kill_process])
async def test_one_consumer_is_active_while_processes_are_killed(
    daemons: Processes, root: Path, kill: Kill
) -> None:
    if kill is _kill_mq:
        mqs = [await asyncio.to_thread(daemons.mq, root) for _ in range(2)]
    else:
        mqs = [await asyncio.to_thread(daemons.mq, root, "--processes", "2")] * 2
    await asyncio.to_thread(daemons.mover, f"--root={root}")
    async with aiohttp.ClientSession() as session:
        line = Line(session, mqs)
        async with session.put(f"{mqs[0].url}/q") as answer:
            assert answer.status == 201
        patch = {"active_consumer": "single", "visibility_s": 1}
        async with session.patch(f"{mqs[0].url}/q/settings", json=patch) as answer:
            assert answer.status == 200

        async def kills() -> None:
            while line.kills < KILLS:
                await comes_true(lambda: len(line.gone) > EACH * line.kills + EACH // 2)
                at, process = await comes_true(line.active, "an active consumer")
                await asyncio.to_thread(kill, daemons, root, line, at, process)
                line.kills += 1

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(line.publishes())
            taking = [
                tasks.create_task(takes(f"{takes.__name__}-{at}", at))
                for at in range(2)
                for takes in (line.polls, line.consumes)
            ]
            await kills()
            await comes_true(lambda: line.is_over, "the end")
            for each in taking:
                each.cancel()
        assert len(line.takers) > 1
    assert_audits_clean(root, SystemClock())
