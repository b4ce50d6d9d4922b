"""`GET /{queue}`: after whatever was done by whomever, the counts are what lies in the folders."""

import asyncio
import itertools
import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from harness.api import call, delete, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.folders import leased_files, message_files
from harness.internals import background_work, broker
from harness.server import Serve, Server
from harness.ticking import TickingFiles
from harness.upkeep import work_of
from harness.waiting import comes_true

from mq.broker.describing import DESCRIBE_AGE_S
from mq.model.message import Stamp
from mq.model.names import ConsumerName, QueueName
from mq.model.totals import Total
from mq.store.core.unserved import PurgeMark
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import split_entry
from mq.store.leases.lease import Lease, acknowledge, claim
from mq.store.leases.releasing import release
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq.store.scan.tally import OVERDUE_AFTER_S
from mq.store.totals.folding import fold_totals
from mq.store.totals.ledger import Ledger
from mq.store.totals.writing import write_totals
from mq_mover.mover import Mover
from mq_mover.policies.sweeps import Purges

QUEUES = ("a", "b", "a_SIDELINE")
CONSUMER = ConsumerName.parse("c")
TINY = 3
ROUNDS = 12
STEPS_PER_ROUND = 25
FIGURES = {
    "ready", "delayed", "in_flight", "leased", "overdue", "removed", "sidelined", "foreign",
    "oldest_ready_age_s", "totals",
}  # fmt: skip


class Place:
    """A root that two processes serve, a mover, and a consumer of leases; what they do by chance,
    and what is to come of it.
    """

    def __init__(self, top: Path, clock: FakeClock, servers: list[Server], seed: int) -> None:
        self.top, self.clock, self.servers = top, clock, servers
        self.chance = random.Random(seed)
        self.root = open_root(str(top), TickingFiles(clock), clock, folder_max=TINY)
        self.mover = Mover(self.root, NoFlusher(), Timer())
        self.ids: dict[str, list[str]] = {queue: [] for queue in QUEUES}
        self.leases: list[Lease] = []
        self.leased: Counter[str] = Counter()
        """How many messages of each queue leases have taken."""
        self.done: dict[tuple[int, str], Counter[str]] = {
            (index, queue): Counter() for index in range(len(servers)) for queue in QUEUES
        }
        self.marks: dict[str, PurgeMark] = {}

    async def act(self) -> None:
        """One thing, by chance."""
        actions = [
            self.publish, self.publish, self.publish, self.fetch, self.fetch, self.delete,
            self.change, self.change, self.claim, self.end_lease, self.pass_time, self.move_due,
        ]  # fmt: skip
        index, queue = self.chance.randrange(len(self.servers)), self.chance.choice(QUEUES)
        await self.chance.choice(actions)(index, queue)

    async def publish(self, index: int, queue: str) -> None:
        delay = self.chance.choice(["", "", "", "&delay=9", "&delay=500"])
        priority = self.chance.choice([0, 0, 4])
        path = f"/{queue}/messages?priority={priority}{delay}"
        reply = await call(self.servers[index], "POST", path, data=b"x")
        assert reply.status == 201
        self.ids[queue].append(reply.id)
        self.done[index, queue]["published"] += 1

    async def fetch(self, index: int, queue: str) -> None:
        reply = await fetch(self.servers[index], queue)
        if reply.status == 200:
            self.done[index, queue]["fetched"] += 1
            self.done[index, queue]["redelivered"] += int(reply.headers["X-Message-Receives"]) > 1

    async def delete(self, index: int, queue: str) -> None:
        if self.ids[queue]:
            message_id = self.ids[queue].pop(self.chance.randrange(len(self.ids[queue])))
            reply = await delete(self.servers[index], message_id, queue)
            assert reply.status in (202, 404)
            self.done[index, queue]["deleted"] += reply.status == 202

    async def change(self, index: int, queue: str) -> None:
        if self.ids[queue]:
            due_in_s = self.chance.choice([0, 1, 8, 400])
            reply = await call(
                self.servers[index],
                "PATCH",
                f"/{queue}/messages/{self.chance.choice(self.ids[queue])}",
                json={"due_in_s": due_in_s},
            )
            assert reply.status in (200, 404, 409)
            what = "extended" if due_in_s else "released"
            self.done[index, queue][what] += reply.status == 200

    async def claim(self, index: int, queue: str) -> None:
        operation = claim(self.root, CONSUMER, [QueueName.parse(queue)], 4, 10_000)
        if (lease := run_alone(operation, NoFlusher())) is not None:
            self.leases.append(lease)
            self.leased[queue] += lease.messages

    async def end_lease(self, index: int, queue: str) -> None:
        if self.leases:
            lease = self.leases.pop()
            if self.chance.random() < 0.5:
                run_alone(release(self.root, lease.name), NoFlusher())
            else:
                run_alone(acknowledge(self.root, lease.name), NoFlusher())

    def settle(self) -> None:
        """Every lease ends, what was purged goes, and all write what they have counted."""
        for lease in self.leases:
            run_alone(release(self.root, lease.name), NoFlusher())
        Purges(work_of(self.root, NoFlusher())).act()
        for root in (self.root, *(broker(server).root for server in self.servers)):
            write_totals(root)
        run_alone(fold_totals(self.root), NoFlusher())

    async def pass_time(self, index: int, queue: str) -> None:
        self.clock.advance(self.chance.choice([0.5, 3, 20, 70]))

    async def move_due(self, index: int, queue: str) -> None:
        self.clock.advance(2)
        while self.mover.run_once():
            pass

    async def purge(self, queue: str) -> None:
        """Purges it, and waits for what that goes on with in the background."""
        server = self.chance.choice(self.servers)
        reply = await call(server, "DELETE", f"/{queue}/messages")
        assert reply.status == 202
        moment = datetime.fromisoformat(reply.json()["purged_before"])
        self.marks[queue] = PurgeMark(round(moment.timestamp() * 1000))
        await comes_true(lambda: not background_work(server), "what was purged went")
        self.clock.advance(1)

    async def describe(self, index: int, queue: str) -> dict[str, Any]:
        reply = await call(self.servers[index], "GET", f"/{queue}")
        assert reply.status == 200
        said: dict[str, Any] = reply.json()
        return said

    def in_folders(self, queue: str) -> dict[str, int]:
        """What lies in the folders, looked at by itself."""
        found = message_files(self.top)
        ready = self._of(queue, found["queues"])
        delayed = self._of(queue, found["delay"])
        stamps = {
            path.name: Stamp.from_mtime_ns(path.stat().st_mtime_ns)
            for path in (self.top / "delay").rglob(f"{queue}:*")
        }
        of_delayed = [stamps[f"{queue}:{name}"] for name in delayed]
        late_ms = self.clock.now_ms() - OVERDUE_AFTER_S * 1000
        sideline = f"{queue}_SIDELINE"
        removed = [name for name in found["remove"] if name.startswith(f"{queue}:")]
        return {
            "ready": len(ready),
            "in_flight": sum(stamp.receives > 0 for stamp in of_delayed),
            "delayed": sum(stamp.receives == 0 for stamp in of_delayed),
            "overdue": sum(stamp.due_ms < late_ms for stamp in of_delayed),
            "leased": len(self._of(queue, leased_files(self.top))),
            "removed": len(removed),
            "sidelined": len(self._of(sideline, found["queues"])),
            "foreign": 0,
        }

    def _of(self, queue: str, names: list[str]) -> list[str]:
        """The ids of those that are the queue's and not purged."""
        mark = self.marks.get(queue)
        ids = (split_entry(name) for name in names)
        return [each for of, each in ids if of == queue and not (mark and mark.covers(each))]


@pytest.mark.certificate
@pytest.mark.parametrize("seed", range(2))
async def test_the_counts_are_what_lies_in_the_folders(serve: Serve, root: Path, seed: int) -> None:
    clock = FakeClock()
    # Ahead of every ctime: whatever was stamped was stamped for later than that.
    clock.advance(24 * 3600)
    servers = [
        await serve(clock=clock, files=TickingFiles(clock), folder_max=TINY) for _ in range(2)
    ]
    for queue in QUEUES:
        await make_queue(servers[0], queue)
    place = Place(root, clock, servers, seed)
    purged_in = {ROUNDS // 3: "a", ROUNDS // 2: "a_SIDELINE", 2 * ROUNDS // 3: "a"}
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        for _ in range(STEPS_PER_ROUND):
            await place.act()
        if number in purged_in:
            await place.purge(purged_in[number])
        # More than once: what has not changed since is not listed then.
        for _, queue in itertools.product(range(2), QUEUES):
            clock.advance(DESCRIBE_AGE_S + place.chance.choice([0.1, 3]))
            expected = place.in_folders(queue)
            for index in range(len(servers)):
                said = await place.describe(index, queue)
                assert {figure: said[figure] for figure in expected} == expected, (number, queue)
                done = place.done[index, queue]
                assert {what: said["totals"][what] for what in done} == dict(done)
            seen.update(expected)
    assert all(seen[figure] for figure in expected if figure != "foreign"), seen
    place.settle()
    for queue in QUEUES:
        totals = Ledger(place.root).of(QueueName(queue))
        done = sum((place.done[index, queue] for index in range(len(servers))), Counter())
        assert totals[Total.PUBLISHED] == done["published"]
        assert totals[Total.EXTENDED] == done["extended"]
        assert totals[Total.FETCHED] == done["fetched"] + place.leased[queue]
        gone, left = totals[Total.DELETED] + totals[Total.PURGED], place.in_folders(queue)
        stays = left["ready"] + left["delayed"] + left["in_flight"]
        assert (totals[Total.PUBLISHED], left["leased"]) == (gone + stays, 0), totals


async def test_each_figure_says_of_when_it_is(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    first = (await call(server, "GET", "/q")).json()
    assert set(first["as_of"]) == FIGURES
    clock.advance(0.5)
    second = (await call(server, "GET", "/q")).json()
    was, then = first["as_of"].pop("totals"), second["as_of"].pop("totals")
    assert second["as_of"] == first["as_of"]
    assert datetime.fromisoformat(then) > datetime.fromisoformat(was)
    clock.advance(0.5)
    third = (await call(server, "GET", "/q")).json()
    assert set(third["as_of"].values()) == {third["as_of"]["totals"]}


async def test_the_totals_are_of_what_was_done(server: Server) -> None:
    await make_queue(server)
    ids = [await publish(server) for _ in range(3)]
    for due_in_s in (0, 30):
        await fetch(server)
        patch = {"json": {"due_in_s": due_in_s}}
        assert (await call(server, "PATCH", f"/q/messages/{ids[0]}", **patch)).status == 200
    await delete(server, ids[0])
    assert (
        await call(server, "PATCH", f"/q/messages/{ids[0]}", json={"due_in_s": 1})
    ).status == 404
    assert (await call(server, "GET", "/q")).json()["totals"] == {
        "published": 3,
        "fetched": 2,
        "redelivered": 1,
        "deleted": 1,
        "extended": 1,
        "released": 1,
        "sidelined": 0,
        "expired": 0,
        "dropped": 0,
        "lost_races": 0,
    }


async def test_many_who_ask_at_once_are_answered_by_one_count(serve: Serve) -> None:
    files = TickingFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.listed.clear()
    replies = await asyncio.gather(*(call(server, "GET", "/q") for _ in range(20)))
    assert {reply.status for reply in replies} == {200}
    assert len([path for path in files.listed if path.endswith("/queues/q")]) == 1
