"""Two machines with Linux's own NFS client, each with an mq, on one export of a real server.

One boot for all of it, which takes a minute or two. MQ_NFS_SEED says which history.
"""

import asyncio
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from harness.audits import audit
from harness.chance import drawn_seed
from harness.clients import QUEUE, Client, Recorder, once_session
from harness.folders import message_files
from harness.herd import CLOCKS_APART_US, OWNED_QUEUE
from harness.history import US_PER_MS, History
from harness.owners import Owner
from harness.queue_rules import OVER_A_NETWORK
from harness.rules import ALWAYS, check, report
from harness.tally import tally
from harness.waiting import comes_true
from nfs.machines import BOOT_S, VISIBILITY_S, Machine, Machines, machines

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.store.opening import open_root

SEED = drawn_seed("MQ_NFS_SEED")
TURNS = 40
# Of clients, between two faults.
OPERATIONS = 60

pytestmark = [pytest.mark.certificate, pytest.mark.needs_root, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("machines")) as made:
        yield made


@pytest.fixture
async def ask() -> Any:
    """Asks a machine, again while it is busy: its status, body and headers."""
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout) as session:

        async def once(machine: Machine, method: str, path: str, **more: Any) -> Any:
            async with session.request(method, machine.url + path, **more) as response:
                body = await response.read()
            if response.status == 503:
                return None
            return SimpleNamespace(status=response.status, body=body, headers=response.headers)

        async def asked(machine: Machine, method: str, path: str, **more: Any) -> Any:
            what = f"an answer to {method} {path} but 503"
            return await comes_true(lambda: once(machine, method, path, **more), what, 120)

        yield asked


def lies(both: Machines, message_id: str) -> list[str]:
    """Where a message's file is, below the root."""

    def is_of(name: str) -> bool:
        return name.endswith(message_id)

    # Not by rglob, which fails where mq-reaper takes a folder away meanwhile.
    found = (folder for folder, _, names in os.walk(both.root) for name in names if is_of(name))
    return [str(Path(folder).relative_to(both.root)) for folder in found]


async def test_what_is_published_while_the_other_makes_the_queue_again_is_there(
    both: Machines, ask: Any
) -> None:
    lost = []
    for turn in range(TURNS):
        queue = f"t{turn % 5}"
        one, other = both.both[:: 1 if turn % 2 else -1]
        await ask(one, "PUT", f"/{queue}")
        warm = await ask(other, "POST", f"/{queue}/messages", data=b"warm")
        assert warm.status == 201, warm.body
        await _delete(both, ask, one, queue)
        maker = other if turn % 4 < 2 else one
        made = await ask(maker, "PUT", f"/{queue}")
        assert made.status == 201, f"turn {turn}: {made.body}"
        published = await ask(other, "POST", f"/{queue}/messages", data=b"mine")
        assert published.status == 201, published.body
        message_id = published.headers["X-Message-Id"]
        if lies(both, message_id) != [f"queues/{queue}"]:
            lost.append((turn, lies(both, message_id)))
        tally("publishes beside a queue made again", 1)
    assert not lost, f"{len(lost)} of {TURNS}: {lost}"
    for number in range(5):
        await _delete(both, ask, both.both[0], f"t{number}")


async def _delete(both: Machines, ask: Any, machine: Machine, queue: str) -> None:
    """Its mount may remember for a while that this machine deleted the queue before. A deletion
    that was answered with 503 may have been done.
    """

    async def is_deleted() -> bool:
        status = (await ask(machine, "DELETE", f"/{queue}")).status
        return status == 200 or not (both.root / "queues" / queue).exists()

    await comes_true(is_deleted, "the queue that the other made is deleted", patience_s=60)


async def test_every_operation_at_one_machine_is_seen_at_the_other(
    both: Machines, ask: Any
) -> None:
    for one, other in (both.both, both.both[::-1]):
        await _use(ask, one, other)


async def _use(ask: Any, one: Machine, other: Machine) -> None:
    """Whatever one does the other goes on with, within what a mount's cache may hide."""

    async def sees(method: str, path: str, is_right: Callable[[Any], bool], **more: Any) -> Any:
        last = None

        async def found() -> bool:
            nonlocal last
            last = await ask(other, method, path, **more)
            return is_right(last)

        try:
            await comes_true(found, f"{method} {path} at the other", patience_s=60)
        except AssertionError:
            raise AssertionError(f"{method} {path}: {last}") from None
        return last

    async def publish(machine: Machine, body: bytes, how: str = "", **more: Any) -> str:
        reply = await ask(machine, "POST", f"/all/messages{how}", data=body, **more)
        assert reply.status == 201, reply.body
        return str(reply.headers["X-Message-Id"])

    def told(status: int) -> Callable[[Any], bool]:
        return lambda reply: reply.status == status

    assert (await ask(one, "PUT", "/all")).status == 201
    assert (await ask(other, "PUT", "/all")).status == 200
    await sees("GET", "/all", told(200))
    await sees("GET", "/-/queues", lambda reply: b'"all"' in reply.body)
    # A message, by its id and in order.
    first = await publish(one, b"first")
    read = await sees("GET", f"/all/messages/{first}", told(200))
    assert read.body == b"first"
    await sees("GET", "/all/peek", lambda reply: b"first" in reply.body)
    fetched = await sees("GET", "/all/messages", told(200))
    assert fetched.headers["X-Message-Id"] == first
    extended = await ask(one, "PATCH", f"/all/messages/{first}", json={"due_in_s": 300})
    assert extended.status == 200, extended.body
    again = await ask(other, "PATCH", f"/all/messages/{first}", json={"due_in_s": 0})
    assert again.status == 200, again.body
    fetched = await sees("GET", "/all/messages", told(200))
    stale = {"If-Match": '"1"'}
    assert (await ask(one, "DELETE", f"/all/messages/{first}", headers=stale)).status == 412
    right = {"If-Match": f'"{fetched.headers["X-Message-Receives"]}"'}
    assert (await ask(one, "DELETE", f"/all/messages/{first}", headers=right)).status == 202
    assert (await ask(other, "GET", "/all/messages")).status == 204
    # Priorities, keys, idempotency, delays, batches.
    low = await publish(one, b"low")
    high = await publish(one, b"high", "?priority=9")
    for wanted in (high, low):
        fetched = await sees("GET", "/all/messages", told(200))
        assert fetched.headers["X-Message-Id"] == wanted
        assert (await ask(one, "DELETE", f"/all/messages/{wanted}")).status == 202
    keyed = await publish(one, b"keyed", "?key=k")
    taken = await ask(other, "POST", "/all/messages?key=k", data=b"x")
    assert taken.status == 409, taken.body
    assert (await sees("GET", "/all/keys/k", told(200))).body == b"keyed"
    assert (await ask(other, "DELETE", "/all/keys/k")).status == 202
    assert (await ask(one, "DELETE", f"/all/messages/{keyed}")).status in (202, 404)
    alike = {"headers": {"Idempotency-Key": "i"}}
    once = await publish(one, b"once", **alike)
    assert await publish(other, b"once", **alike) == once
    assert (await ask(other, "DELETE", f"/all/messages/{once}")).status == 202
    later = await publish(one, b"later", "?delay=2")
    fetched = await sees("GET", "/all/messages", told(200))
    assert fetched.headers["X-Message-Id"] == later
    acked = await ask(one, "POST", "/all/acks", json={"ids": [later]})
    assert acked.status == 200, acked.body
    assert b"202" in acked.body
    lines = await ask(one, "POST", "/all/messages?split=lines", data=b"a\nb\nc")
    assert lines.status == 200, lines.body
    await sees(
        "GET", "/all", lambda reply: b'"ready": 3' in reply.body or b'"ready":3' in reply.body
    )
    assert (await ask(other, "DELETE", "/all/messages")).status == 202
    await sees("GET", "/all/messages", told(204))
    # Settings, schedules, sidelines and shovels, the deletion.
    changed = await ask(one, "PATCH", "/all/settings", json={"max_receives": 3})
    assert changed.status == 200, changed.body
    await sees("GET", "/all/settings", lambda reply: json.loads(reply.body)["max_receives"] == 3)
    put = await ask(one, "PUT", "/all/schedules/s?every=3600", data=b"tick")
    assert put.status == 201, put.body
    await sees("GET", "/all/schedules/s", told(200))
    await sees("GET", "/all/schedules", lambda reply: b'"s"' in reply.body)
    assert (await ask(other, "DELETE", "/all/schedules/s")).status == 200
    aside = await publish(one, b"aside")
    put_aside = await ask(other, "POST", f"/all/messages/{aside}/sideline")
    assert put_aside.status == 200, put_aside.body
    await sees("GET", "/all_SIDELINE/peek", lambda reply: b"aside" in reply.body)
    shovel = await ask(one, "POST", "/all/shovel")
    assert shovel.status == 202, shovel.body
    fetched = await sees("GET", "/all/messages", told(200))
    assert fetched.headers["X-Message-Id"] == aside
    for queue in ("all", "all_SIDELINE"):
        assert (await ask(other, "DELETE", f"/{queue}")).status == 200
        assert (await ask(one, "DELETE", f"/{queue}")).status == 404


async def test_a_history_in_which_both_machines_and_the_server_are_killed(both: Machines) -> None:
    print(f"MQ_NFS_SEED={SEED}")
    recorders = {QUEUE: Recorder(), OWNED_QUEUE: Recorder()}
    for machine in both.both:
        machine.is_up = asyncio.Event()
        machine.is_up.set()
    over = asyncio.Event()
    session = once_session()

    def clients(seed: int, queue: str, each: int) -> list[Client]:
        return [
            Client(
                *(recorders[queue], session, list(both.both), home),
                random.Random(f"{seed} {queue} {home.name} {number}"),
                queue=queue,
            )
            for home in both.both
            for number in range(each)
        ]

    def count() -> int:
        return sum(recorder.count() for recorder in recorders.values())

    async def some_operations() -> None:
        until = count() + OPERATIONS
        await comes_true(lambda: count() > until, "some operations", patience_s=300)

    async def kill(machine: Machine) -> None:
        """And the server, once the other has gone on for a while."""
        machine.is_up.clear()
        await asyncio.to_thread(machine.kill)
        await asyncio.to_thread(machine.start)
        await some_operations()
        await kill_server()
        await comes_true(
            lambda: asyncio.to_thread(machine.answers), machine.name, patience_s=BOOT_S
        )
        machine.is_up.set()
        tally("kills of a machine", 1)

    async def kill_server() -> None:
        await asyncio.to_thread(both.kill_server)
        await asyncio.to_thread(both.start_server)
        tally("kills of an NFS server", 1)

    owner = Owner(
        recorders[OWNED_QUEUE], session, list(both.both), random.Random(SEED), OWNED_QUEUE
    )
    async with session:
        async with session.put(f"{both.both[0].url}/{QUEUE}") as made:
            assert made.status == 201
        assert await owner.create()
        running = [*clients(SEED, QUEUE, 2), *clients(SEED, OWNED_QUEUE, 1), owner]
        living = asyncio.gather(*(each.run(over.is_set) for each in running))
        try:
            for machine in both.both:
                await some_operations()
                await kill(machine)
            await some_operations()
        finally:
            over.set()
        await living
        await owner.renew()
        await _drain(both.root, [*clients(SEED + 1, QUEUE, 1), *clients(SEED + 1, OWNED_QUEUE, 1)])
    visibility_us = round(VISIBILITY_S * 1000) * US_PER_MS
    for queue, rules in ((QUEUE, ALWAYS), (OWNED_QUEUE, (*ALWAYS, *OVER_A_NETWORK))):
        history = History(
            recorders[queue].operations, frozenset(), visibility_us, clocks_apart_us=CLOCKS_APART_US
        )
        print(f"{queue}: {len(history.operations)} operations, {len(history.drops)} deletions")
        breaches = check(history, rules)
        assert not breaches, f"seed {SEED}, {queue}: {report(history, breaches)}"
    found = audit(open_root(str(both.root), Files(), SystemClock()))
    assert found.is_clean, f"seed {SEED}: {found.violations}"


async def _drain(root: Path, draining: list[Client]) -> None:
    """Fetches and deletes until nothing is there."""

    def is_empty() -> bool:
        files = message_files(root)
        left = (*files["queues"], *files["delay"])
        return not any(name.startswith((f"{QUEUE}:", f"{OWNED_QUEUE}:")) for name in left)

    async def consume(client: Client) -> None:
        while not is_empty():
            if (fetched := await client.fetch()) is not None:
                await comes_true(
                    lambda: client.delete(fetched, client.home, surely=True),
                    f"the delete of {fetched.id}",
                    patience_s=120,
                )

    await asyncio.wait_for(asyncio.gather(*(consume(client) for client in draining)), 240)
