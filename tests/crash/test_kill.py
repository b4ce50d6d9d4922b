"""kill -9 under load, again and again on one root: what was acknowledged holds.

Everything is counted, nothing is timed: a round ends with the kill that follows its n-th
acknowledgement: of a publish in one round, of a delete in another.
"""

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from harness.folders import files_below, make_folders_tiny
from harness.messages import make_body, number_in
from harness.processes import Process, Processes
from harness.raw import raw_connection, raw_head
from harness.tally import tally
from harness.waiting import comes_true

from mq.model.limits import MIB

ROUNDS = 7
PUBLISHERS = 6
CONSUMERS = 4


@dataclass
class Found:
    """What lies in a root, by id."""

    new: dict[str, Path]
    ready: dict[str, Path]
    delayed: dict[str, Path]
    removed: dict[str, Path]

    @classmethod
    def of(cls, root: Path) -> "Found":
        def entries(folder: str) -> dict[str, Path]:
            return {
                path.name.partition(":")[2]: path
                for path in files_below(root / folder)
                if not path.name.startswith(".")
            }

        ready = {path.name: path for path in files_below(root / "queues" / "orders")}
        return cls(entries("new"), ready, entries("delay"), entries("remove"))

    @property
    def alive(self) -> dict[str, Path]:
        return self.ready | self.delayed


@dataclass
class Ledger:
    """What the clients asked for, and what they were told."""

    attempted: dict[int, bytes] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=dict)
    delete_asked: set[str] = field(default_factory=set)
    deleted: dict[str, int] = field(default_factory=dict)
    """Whose delete was acknowledged, and how many were before."""
    left_in_new: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def acknowledgements(self) -> int:
        return len(self.published) + len(self.deleted)

    def check_body(self, message_id: str, body: bytes) -> None:
        """Neither torn nor invented, and the very message that was published under the id."""
        number = number_in(body)
        assert self.attempted.get(number) == body
        assert self.published.get(message_id, number) == number

    def check_delivery(self, message_id: str, body: bytes, deleted_before: int) -> None:
        """`deleted_before`: how many deletes were acknowledged when the fetch was sent."""
        self.check_body(message_id, body)
        self.delivered[message_id] = number_in(body)
        assert message_id not in self.left_in_new
        assert self.deleted.get(message_id, deleted_before) >= deleted_before

    def delete_acknowledged(self, message_id: str) -> None:
        self.deleted.setdefault(message_id, len(self.deleted))

    def check_files(self, root: Path) -> Found:
        """That every acknowledgement holds on disk, while no daemon runs."""
        files = Found.of(root)
        alive = files.alive
        for message_id, number in self.published.items():
            if message_id not in self.delete_asked:
                assert alive[message_id].read_bytes() == self.attempted[number]
        assert not self.deleted.keys() & alive.keys()
        assert not self.deleted.keys() & files.new.keys()
        states = Counter(itertools.chain(files.new, files.ready, files.delayed, files.removed))
        assert max(states.values(), default=1) == 1
        for message_id, path in (alive | files.removed).items():
            self.check_body(message_id, path.read_bytes())
        assert not self.published.keys() & files.new.keys()
        assert not self.delivered.keys() & files.new.keys()
        assert self.left_in_new <= files.new.keys()
        self.left_in_new |= files.new.keys()
        return files


class Client:
    """A publisher, or a consumer, that goes on until the daemon is gone."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        mq: Process,
        ledger: Ledger,
        kill_at: int,
        kill_after: str,
    ) -> None:
        self._session = session
        self._mq = mq
        self._messages = f"{mq.url}/orders/messages"
        self._ledger = ledger
        self._kill_at = kill_at
        self._kill_after = kill_after

    async def publish(self, chance: random.Random) -> None:
        try:
            while True:
                if chance.random() < 0.2:
                    await self._publish_rows(chance)
                    continue
                number = next(self._ledger.numbers)
                body = make_body(number, chance.choice([16, 300, 300, 5000, 70_000]))
                self._ledger.attempted[number] = body
                async with self._session.post(self._messages, data=body) as response:
                    assert response.status == 201
                    self._ledger.published[response.headers["X-Message-Id"]] = number
                self._acknowledged("publish")
        except (aiohttp.ClientError, ConnectionError):
            return

    async def _publish_rows(self, chance: random.Random) -> None:
        """Some with a key of either kind, and each answered one is there."""
        numbers = [next(self._ledger.numbers) for _ in range(chance.randint(1, 20))]
        rows = []
        for number in numbers:
            self._ledger.attempted[number] = make_body(number, chance.choice([16, 300, 5000]))
            key = chance.choice([{}, {}, {"idempotency_key": f"{number}"}, {"key": f"{number}"}])
            rows.append(json.dumps({"body": self._ledger.attempted[number].decode(), **key}))
        url = f"{self._messages}?split=rows"
        async with self._session.post(url, data="\n".join(rows).encode()) as response:
            assert response.status == 200
            answer = [json.loads(row) for row in (await response.read()).splitlines()]
        for row, number in zip(answer, numbers, strict=True):
            self._ledger.published[row["id"]] = number
        self._acknowledged("publish")

    async def consume(self, chance: random.Random) -> None:
        try:
            while True:
                deleted_before = len(self._ledger.deleted)
                async with self._session.get(self._messages) as response:
                    if response.status == 204:
                        continue
                    assert response.status == 200
                    body = await response.read()
                    message_id = response.headers["X-Message-Id"]
                self._ledger.check_delivery(message_id, body, deleted_before)
                if chance.random() < 0.8:
                    await self._delete(message_id)
        except (aiohttp.ClientError, ConnectionError):
            return

    async def _delete(self, message_id: str) -> None:
        self._ledger.delete_asked.add(message_id)
        async with self._session.delete(f"{self._messages}/{message_id}") as response:
            assert response.status == 202
        self._ledger.delete_acknowledged(message_id)
        self._acknowledged("delete")

    def _acknowledged(self, what: str) -> None:
        if what == self._kill_after and self._ledger.acknowledgements >= self._kill_at:
            self._mq.popen.kill()


async def _round(mq: Process, root: Path, ledger: Ledger, chance: random.Random) -> None:
    """Load until so many acknowledgements came, then the kill; an upload hangs all the while."""
    kill_at = ledger.acknowledgements + chance.randint(40, 200)
    uploads = len(Found.of(root).new)
    async with raw_connection(mq.port) as connection, aiohttp.ClientSession() as session:
        await connection.send(
            raw_head("POST", "/orders/messages", f"Content-Length: {4 * MIB}") + b"x" * (2 * MIB)
        )
        await comes_true(lambda: len(Found.of(root).new) > uploads, "a half-written upload")
        client = Client(session, mq, ledger, kill_at, chance.choice(["publish", "delete"]))
        seeds = [chance.random() for _ in range(PUBLISHERS + CONSUMERS)]
        await asyncio.gather(
            *(client.publish(random.Random(seed)) for seed in seeds[:PUBLISHERS]),
            *(client.consume(random.Random(seed)) for seed in seeds[PUBLISHERS:]),
        )
    assert mq.popen.wait() == -9


async def _serves_at_once(mq: Process, ledger: Ledger, ready: dict[str, Path]) -> None:
    """The first request after a restart is answered with the first ready message."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{mq.url}/orders/messages") as response,
    ):
        if not ready:
            assert response.status == 204
            return
        assert response.status == 200
        assert response.headers["X-Message-Id"] == min(ready)
        ledger.check_delivery(min(ready), await response.read(), len(ledger.deleted))


async def _drain(mq: Process, root: Path, ledger: Ledger) -> None:
    """Fetches and deletes until nothing is alive."""
    async with aiohttp.ClientSession() as session:
        while Found.of(root).alive:
            deleted_before = len(ledger.deleted)
            async with session.get(f"{mq.url}/orders/messages") as response:
                if response.status == 204:
                    continue
                body = await response.read()
                message_id = response.headers["X-Message-Id"]
            ledger.check_delivery(message_id, body, deleted_before)
            ledger.delete_asked.add(message_id)
            async with session.delete(f"{mq.url}/orders/messages/{message_id}") as response:
                assert response.status == 202
            ledger.delete_acknowledged(message_id)


@pytest.mark.certificate
@pytest.mark.parametrize("redelivery", [False, True], ids=["alone", "with-mover-and-reaper"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_kill_loses_and_invents_nothing(
    daemons: Processes, root: Path, seed: int, redelivery: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {seed}")
    if seed == 2:
        make_folders_tiny(monkeypatch)
    chance = random.Random(seed)
    ledger = Ledger()
    # With redelivery messages move in both directions while the kill falls.
    flags = ("--visibility", "0.5" if redelivery else "600")
    mq = await asyncio.to_thread(daemons.mq, root, *flags)
    async with aiohttp.ClientSession() as session, session.put(f"{mq.url}/orders") as made:
        assert made.status == 201
    for _ in range(ROUNDS):
        beside = []
        if redelivery:
            beside.append(await asyncio.to_thread(daemons.mover, "--root", str(root)))
            beside.append(await asyncio.to_thread(daemons.reaper, "--source", f"{root}/remove"))
        await _round(mq, root, ledger, chance)
        for daemon in beside:
            daemon.kill()
        tally("kills", 1 + len(beside))
        files = ledger.check_files(root)
        mq = await asyncio.to_thread(daemons.mq, root, *flags)
        await _serves_at_once(mq, ledger, files.ready)
    assert len(ledger.left_in_new) >= ROUNDS
    assert len(ledger.deleted) > ROUNDS
    # All that is alive comes back at once, whatever its due time, and is delivered.
    pair = ("--source", f"{root}/delay", "--destination", f"{root}/queues", "--delay", "0.001")
    await asyncio.to_thread(daemons.mover, *pair)
    await _drain(mq, root, ledger)
    assert ledger.published.keys() <= ledger.delete_asked
    mq.kill()
    ledger.check_files(root)
