"""Histories: clients at several mq processes, movers and a reaper on one root, while processes are
killed, stopped for longer than the visibility and started again; afterwards the rules hold.

One queue stays; another is deleted and made again all the time. Clients publish, fetch, delete,
release and extend, give up, and hang up in the middle of a body. In the end one server alone hands
out all that is left.

A history's faults come from its seed, which is printed. These variables say more:

MQ_HISTORY_SEED      the first history's seed; the next ones count on from it
MQ_TIMES             how many histories of each kind; a long run has hundreds
MQ_HISTORY_FAULTS    how many faults each; five times as many where daemons stop themselves
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from harness.chance import TIMES, drawn_seed
from harness.clients import QUEUE, allow_packs, once_session
from harness.folders import make_folders_tiny
from harness.herd import OWNED_QUEUE, Cluster
from harness.history import US_PER_MS, History, Operation
from harness.process_faults import Member, schedule, torment
from harness.processes import Processes
from harness.rules import ALWAYS, WITHOUT_FAULTS
from harness.siblings import Sibling
from harness.stopping import stalls
from harness.waiting import comes_true

SERVERS = 3
CLIENTS_EACH = 4
STOP_S = (1.3, 2.5)
OPERATIONS_BETWEEN_FAULTS = (60, 260)

SEED = drawn_seed("MQ_HISTORY_SEED")
HISTORIES = 2 * TIMES
FAULTS = int(os.environ.get("MQ_HISTORY_FAULTS", "8"))


def _slowest(history: History, members: list[Member]) -> Operation | None:
    """The longest operation that a process answered which suffered nothing meanwhile."""
    ill_ms = {member.name: member.ill_ms for member in members}
    well = (
        each
        for each in history.operations
        if each.status is not None
        and not any(
            began_ms * US_PER_MS <= each.ended_us and each.began_us <= ended_ms * US_PER_MS
            for began_ms, ended_ms in ill_ms[each.process]
        )
    )
    return max(well, key=lambda each: each.ended_us - each.began_us, default=None)


def _tell(cluster: Cluster) -> None:
    """Prints the histories' figures."""
    for queue in (QUEUE, OWNED_QUEUE):
        history = cluster.history(queue)
        print(
            f"{queue}: {len(history.operations)} operations, {len(history.acknowledged)} messages, "
            f"{sum(map(len, history.deliveries.values()))} deliveries of "
            f"{len(history.deliveries)}, "
            f"{sum(each.is_acknowledged for each in history.deletes)} deletes, "
            f"{sum(each.status is None for each in history.operations)} without an answer, "
            f"{sum(each.is_acknowledged for each in history.drops)} drops"
        )
    slowest = _slowest(cluster.history(), cluster.servers)
    if slowest is not None:
        print(f"the slowest: {(slowest.ended_us - slowest.began_us) / US_PER_MS:.0f} ms, {slowest}")
    for member in cluster.members:
        places = Counter(stall.place for stall in stalls(member.logs()))
        print(f"{member.name}: {len(member.ill_ms)} faults; stopped itself at {dict(places)}")


async def _make_queues(cluster: Cluster, session: aiohttp.ClientSession) -> None:
    async with session.put(f"{cluster.servers[0].url}/{QUEUE}") as made:
        assert made.status == 201
    await allow_packs(session, cluster.servers[0].url)
    assert await cluster.owner(session, 0).create()


def _begin(
    cluster: Cluster,
    session: aiohttp.ClientSession,
    seed: int,
    prompt: float,
    is_over: Callable[[], bool],
    takers: list[Member] | None = None,
) -> "asyncio.Future[list[None]]":
    """Clients at the queue that stays, fewer at the one that its owners delete. Those at home at
    the `takers` publish little: what there is comes from the others.
    """
    takers = takers or []
    givers = [server for server in cluster.servers if server not in takers]
    clients = [
        *cluster.clients(session, seed, CLIENTS_EACH, hasty=0.3, prompt=prompt, homes=givers),
        *(
            client
            for home in takers
            for client in cluster.clients(
                session, seed, CLIENTS_EACH, 0.3, prompt=prompt, homes=[home], giving=0.05
            )
        ),
        *cluster.clients(session, seed, 1, hasty=0.3, queue=OWNED_QUEUE, prompt=prompt),
        *(cluster.owner(session, seed, number) for number in range(2)),
    ]
    return asyncio.gather(*(client.run(is_over) for client in clients))


async def _drain(cluster: Cluster, session: aiohttp.ClientSession, seed: int) -> None:
    """By one server alone, whichever: none has forgotten a message that is there."""
    await cluster.owner(session, seed).renew()
    homes = [random.Random(seed).choice(cluster.servers)]
    await cluster.drain(
        cluster.clients(session, seed + 1, 4, homes=homes)
        + cluster.clients(session, seed + 1, 1, queue=OWNED_QUEUE, homes=homes)
    )


@pytest.mark.certificate
@pytest.mark.timeout(120 + FAULTS * 10)
@pytest.mark.parametrize("seed", range(SEED, SEED + HISTORIES))
async def test_a_history_with_faults(
    daemons: Processes, root: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"MQ_HISTORY_SEED={seed} MQ_HISTORY_FAULTS={FAULTS}")
    if seed % 2:
        make_folders_tiny(monkeypatch)
    peers = str(random.Random(seed).choice([0, SERVERS - 1]))
    cluster = await asyncio.to_thread(Cluster, daemons, root, SERVERS, "--peers", peers)
    # The servers twice: clients feel their faults most.
    targets = [member.name for member in (*cluster.servers, *cluster.members)]
    faults = schedule(seed, FAULTS, targets, STOP_S, OPERATIONS_BETWEEN_FAULTS)
    over = asyncio.Event()
    async with once_session() as session:
        await _make_queues(cluster, session)
        running = _begin(cluster, session, seed, 0.6, over.is_set)
        await torment(cluster.members, faults, cluster.recorder.count)
        over.set()
        await running
        await _drain(cluster, session, seed)
    _tell(cluster)
    cluster.assert_it_holds(seed, ALWAYS)


@pytest.mark.certificate
@pytest.mark.timeout(120 + FAULTS * 20)
@pytest.mark.parametrize("seed", range(SEED, SEED + HISTORIES))
async def test_a_history_of_several_on_one_port(daemons: Processes, root: Path, seed: int) -> None:
    """Clients never know which of them answers; each of them suffers, and their supervisor."""
    print(f"MQ_HISTORY_SEED={seed} MQ_HISTORY_FAULTS={FAULTS}")
    flags = ("--processes", "2", "--peers", str(random.Random(seed).choice([0, 1])))
    cluster = await asyncio.to_thread(Cluster, daemons, root, 1, *flags)
    siblings = [Sibling(cluster.servers[0], index) for index in range(2)]
    targets = [each.name for each in (*siblings, *siblings, *cluster.members)]
    faults = schedule(seed, FAULTS, targets, STOP_S, OPERATIONS_BETWEEN_FAULTS)
    over = asyncio.Event()
    async with once_session() as session:
        await _make_queues(cluster, session)
        running = _begin(cluster, session, seed, 0.6, over.is_set)
        await torment([*siblings, *cluster.members], faults, cluster.recorder.count)
        over.set()
        await running
        await _drain(cluster, session, seed)
    _tell(cluster)
    cluster.assert_it_holds(seed, ALWAYS)


@pytest.mark.certificate
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(SEED, SEED + HISTORIES))
async def test_a_history_of_daemons_that_stop_between_two_calls_on_files(
    daemons: Processes, root: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a fault from outside seldom hits: between a lock and its rename, in a listing."""
    print(f"MQ_HISTORY_SEED={seed} MQ_HISTORY_FAULTS={FAULTS}")
    if seed % 2:
        make_folders_tiny(monkeypatch)
    chance = random.Random(seed)
    cluster = await asyncio.to_thread(Cluster, daemons, root, SERVERS + 2)
    over, drained = asyncio.Event(), asyncio.Event()
    async with once_session() as session:
        await _make_queues(cluster, session)
        armed = await asyncio.to_thread(cluster.arm, chance)
        keeping = [
            asyncio.create_task(member.keep(lambda: chance.uniform(*STOP_S), drained.is_set))
            for member in armed
        ]
        for member in armed:
            member.process.popen.kill()  # It comes back as one that stops itself.
        running = _begin(cluster, session, seed, 0.15, over.is_set, cluster.servers[-1:])
        await comes_true(
            lambda: sum(len(member.ill_ms) for member in cluster.servers) >= 5 * FAULTS,
            "so many faults",
            patience_s=240,
        )
        over.set()
        cluster.heal()
        await running
        await _drain(cluster, session, seed)
        drained.set()
        await asyncio.gather(*keeping)
    _tell(cluster)
    cluster.assert_it_holds(seed, ALWAYS)


@pytest.mark.parametrize("tiny", [False, True], ids=["flat", "in-buckets"])
async def test_first_in_first_out_with_one_process_and_no_peers(
    daemons: Processes, root: Path, tiny: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tiny:
        make_folders_tiny(monkeypatch)
    cluster = await asyncio.to_thread(Cluster, daemons, root, 1)
    async with once_session() as session:
        await _make_queues(cluster, session)
        clients = cluster.clients(session, SEED, 8)
        enough = cluster.recorder.count
        await asyncio.gather(*(client.run(lambda: enough() > 1500) for client in clients))
        await cluster.drain(clients[:4])
    cluster.assert_it_holds(SEED, WITHOUT_FAULTS)
