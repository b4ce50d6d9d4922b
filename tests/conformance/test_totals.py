"""`lifetime` of a queue's description: what was done with its messages since it was made, by all
processes, whichever of them are gone.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from harness.api import call, delete, fetch, make_queue, publish, publish_lines
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.internals import background_work
from harness.scraped import Scraped
from harness.server import Serve, Server
from harness.upkeep import work_of
from harness.waiting import comes_true

from mq.broker.describing import DESCRIBE_AGE_S
from mq.model.limits import SWEEP_EVERY_S
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.mover import Mover
from mq_mover.policies.expiry import MessageExpiry
from mq_mover.policies.overflow import Overflow
from mq_mover.policies.sweeps import Purges, Totals
from mq_mover.policy import Policies


class Place:
    """A root whose mq and mq-mover are others each time, and what they are to have counted."""

    def __init__(self, serve: Serve, root: Path) -> None:
        self.serve, self.top = serve, root
        self.clock = FakeClock()
        self.expected: dict[str, Counter[str]] = {"q": Counter(), "q_SIDELINE": Counter()}

    async def begin(self) -> None:
        self.server = await self.serve(clock=self.clock)

    async def restart(self) -> None:
        await self.server.daemon.drain()
        await self.begin()

    def upkeep(self) -> None:
        """A mover that starts, does all that is due, and ends."""
        root = open_root(str(self.top), Files(), self.clock)
        mover = Mover(root, NoFlusher(), Timer(), first_sight_s=0)
        while mover.run_once():
            pass
        work = work_of(root, NoFlusher())
        policies = Policies(root, [kind(work) for kind in (Purges, MessageExpiry, Overflow)])
        while policies.run_once():
            pass
        Totals(work).stop()

    def fold(self) -> None:
        root = open_root(str(self.top), Files(), self.clock)
        Totals(work_of(root, NoFlusher())).act()

    async def set(self, **settings: object) -> None:
        reply = await call(self.server, "PATCH", "/q/settings", json=settings)
        assert reply.status == 200, reply.body
        self.clock.advance(1)

    async def check(self) -> None:
        self.clock.advance(DESCRIBE_AGE_S)
        for queue, expected in self.expected.items():
            assert await lifetime(self.server, queue) == expected, queue


async def lifetime(server: Server, queue: str = "q") -> dict[str, int]:
    """Those that are not 0."""
    reply = await call(server, "GET", f"/{queue}")
    assert reply.status == 200
    return {name: count for name, count in reply.json()["lifetime"].items() if count}


@pytest.fixture
async def place(serve: Serve, root: Path) -> Place:
    made = Place(serve, root)
    await made.begin()
    await make_queue(made.server)
    await make_queue(made.server, "q_SIDELINE")
    return made


@pytest.mark.certificate
@pytest.mark.parametrize("history", [False, True])
async def test_all_that_is_done_by_all_processes_is_counted(place: Place, history: bool) -> None:
    of, ours = place.server, place.expected["q"]
    await place.set(history=history)

    # Every way in; what is not published is not counted.
    ids = [await publish(of), *await publish_lines(of, [b"a", b"b"])]
    rows = b'{"body": "c", "key": "k"}\n{"body": "d", "delay_s": 5}\n{"body": "e", "key": "k"}'
    answers = (await call(of, "POST", "/q/messages?split=rows", data=rows)).body.splitlines()
    ids += [said["id"] for line in answers if "id" in (said := json.loads(line))]
    for _ in range(2):
        headers = {"Idempotency-Key": "one"}
        ids.append((await call(of, "POST", "/q/messages", data=b"f", headers=headers)).id)
    ours["published"] += 6
    await place.check()

    # Deliveries, and what comes of them.
    assert {(await fetch(of)).id for _ in range(4)} < set(ids)
    ours["fetched"] += 4
    acks = {"ids": ids[:2]}
    assert (await call(of, "POST", "/q/acks", json=acks)).status == 200
    assert (await delete(of, ids[0])).status in (202, 404)
    ours["deleted"] += 2
    for due_in_s, what in ((9, "extended"), (0, "released")):
        path = f"/q/messages/{ids[2]}"
        assert (await call(of, "PATCH", path, json={"due_in_s": due_in_s})).status == 200
        ours[what] += 1
    assert (await fetch(of)).id == ids[2]
    ours.update({"fetched": 1, "redelivered": 1})
    await place.restart()
    of = place.server
    await place.check()

    # The sideline and back.
    for _ in range(2):
        assert (await call(of, "POST", f"/q/messages/{ids[2]}/sideline")).status in (200, 202)
    ours["sidelined"] += 1
    assert (await call(of, "POST", "/q/shovel")).status == 202

    async def is_back() -> bool:
        reply = await call(of, "GET", "/q/shovel")
        return bool(reply.json()["state"] == "done")

    await comes_true(is_back)
    ours["shovelled"] += 1
    await place.check()

    # Upkeep, by other processes: what was delayed comes back, and is no other delivery.
    place.clock.advance(40)
    place.upkeep()
    await place.check()
    await place.set(message_ttl_s=60, expired_to="sideline")
    place.clock.advance(60)
    place.upkeep()
    ours.update({"expired": 4, "sidelined": 4})
    await place.check()
    place.fold()
    await place.check()

    # Room, made by this process and by mq-mover.
    await place.set(message_ttl_s=None, expired_to=None)
    for _ in range(3):
        await publish(of)
    await place.set(messages_max=2, overflow="drop-oldest")
    place.upkeep()
    await publish(of)
    await comes_true(lambda: not background_work(of))
    place.upkeep()
    ours.update({"published": 4, "dropped": 2})
    await place.restart()
    of = place.server
    await place.check()

    # A purge.
    assert (await call(of, "DELETE", "/q/messages")).status == 202
    await comes_true(lambda: not background_work(of))
    place.upkeep()
    ours["purged"] += 2
    await place.restart()
    place.fold()
    await place.check()
    assert_audits_clean(place.top)
    assert {path.suffix for path in (place.top / "totals").glob("[!.]*")} == {".sums"}


async def test_a_queue_that_is_made_again_begins_anew(place: Place) -> None:
    other = await place.serve(clock=place.clock)
    await publish(place.server)
    for fold in (True, False):
        if fold:
            await place.restart()
            place.fold()
        await publish(place.server)
        await publish(other)
        place.clock.advance(1)
        assert (await call(place.server, "DELETE", "/q")).status == 200
        place.clock.advance(1)
        await make_queue(place.server)
        place.expected["q"].clear()
        await place.check()
        place.clock.advance(1)
        await publish(place.server)
        place.expected["q"]["published"] = 1
        await place.check()
    # What the other wrote is of the queue that was.
    await other.daemon.drain()
    await place.check()
    await place.restart()
    place.clock.advance(SWEEP_EVERY_S)
    place.fold()
    await place.check()


async def test_a_scrape_says_what_all_processes_have_written(place: Place) -> None:
    for each in (place.server, other := await place.serve(clock=place.clock)):
        await publish(each)
        await fetch(each)
    await other.daemon.drain()
    await place.restart()
    page = Scraped.of((await call(place.server, "GET", "/-/metrics")).body.decode())
    for event, count in (("published", 2), ("fetched", 2), ("expired", 0)):
        assert page("mq_queue_messages_total", queue="q", event=event) == count
