"""Histories: clients at two mq processes, each with an NFS mount of its own, a mover and a reaper,
while replies are lost and handles go stale; afterwards the rules hold.

A history's faults come from its seed, which is printed. These variables say more:

MQ_NFS_SEED         the first history's seed; the next ones count on from it
MQ_TIMES            how many histories of each kind
MQ_NFS_OPERATIONS   how many operations of clients each
"""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from harness.chance import TIMES, drawn_seed
from harness.clients import QUEUE, allow_packs
from harness.folders import make_folders_tiny
from harness.herd import OWNED_QUEUE, Cluster
from harness.processes import Processes
from harness.queue_rules import OVER_A_NETWORK
from harness.rules import ALWAYS, Rule, denied
from nfs.faults import STALE_CALLS
from nfs.mounts import Mount, nfs_mount

SERVERS = 2
CLIENTS_EACH = 5

SEED = drawn_seed("MQ_NFS_SEED")
HISTORIES = TIMES
OPERATIONS = int(os.environ.get("MQ_NFS_OPERATIONS", "3000"))

seeds = pytest.mark.parametrize("seed", range(SEED, SEED + HISTORIES))


async def _live(
    daemons: Processes, clients: tuple[Mount, Mount], seed: int, owners: int = 0, **rates: Any
) -> Cluster:
    """A history with wrong answers at these rates, healed and drained in the end. `owners`: how
    many delete and make a second queue meanwhile.
    """
    print(f"MQ_NFS_SEED={seed} MQ_NFS_OPERATIONS={OPERATIONS}")
    roots = tuple(client.where / "root" for client in clients)
    cluster = await asyncio.to_thread(Cluster, daemons, roots[0], SERVERS, mounts=roots)
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.put(f"{cluster.servers[0].url}/{QUEUE}") as made:
            assert made.status == 201
        await allow_packs(session, cluster.servers[0].url)
        of_owned = [cluster.owner(session, seed, number) for number in range(owners)]
        if owners:
            assert await of_owned[0].create()
        for number, client in enumerate(clients):
            client.tell("at_rates", seed=seed + number, **rates)
        enough = cluster.recorder.count
        running = cluster.clients(session, seed, CLIENTS_EACH, hasty=0.1)
        if owners:
            running += cluster.clients(session, seed, CLIENTS_EACH, hasty=0.1, queue=OWNED_QUEUE)
        parts = (*running, *of_owned)
        await asyncio.gather(*(each.run(lambda: enough() > OPERATIONS) for each in parts))
        for client in clients:
            client.heal()
        draining = cluster.clients(session, seed + 1, 2)
        if owners:
            await of_owned[0].renew()
            draining += cluster.clients(session, seed + 1, 1, queue=OWNED_QUEUE)
        await cluster.drain(draining)
    return cluster


def _judge(
    cluster: Cluster, clients: tuple[Mount, Mount], seed: int, rules: tuple[Rule, ...]
) -> "Counter[str]":
    """The rules hold; how often was answered wrongly, by kind."""
    hits = sum((Counter(client.hits()) for client in clients), Counter[str]())
    history = cluster.history()
    print(
        f"{len(history.operations)} operations: {len(history.acknowledged)} messages, "
        f"{sum(map(len, history.deliveries.values()))} deliveries, "
        f"{sum(each.is_acknowledged for each in history.deletes)} deletes; {dict(hits)}"
    )
    cluster.assert_it_holds(seed, rules)
    return hits


@pytest.mark.certificate
@seeds
@pytest.mark.parametrize("tiny", [False, True], ids=["flat", "in-buckets"])
async def test_a_history_of_lost_replies_and_stale_handles(
    clients: tuple[Mount, Mount],
    daemons: Processes,
    seed: int,
    tiny: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if tiny:
        make_folders_tiny(monkeypatch)
    cluster = await _live(daemons, clients, seed, lost=0.1, stale=0.05)
    hits = _judge(cluster, clients, seed, ALWAYS)
    assert {f"ESTALE {call}" for call in STALE_CALLS} <= set(hits)
    assert {"lost rename", "lost unlink"} <= set(hits)


@pytest.mark.certificate
@seeds
@pytest.mark.parametrize("trusts_parents", [False, True], ids=["asks again", "cannot tell"])
async def test_a_history_of_a_queue_that_is_deleted_and_made_again(
    tmp_path: Path, daemons: Processes, seed: int, trusts_parents: bool
) -> None:
    """By clients for which a folder's name goes on to lead where it led."""
    kept = {"keeps_entries": True, "trusts_parents": trusts_parents}
    with nfs_mount(tmp_path, "one", **kept) as one, nfs_mount(tmp_path, "other", **kept) as other:
        cluster = await _live(daemons, (one, other), seed, owners=2)
        cluster.assert_it_holds(seed, ALWAYS, (*ALWAYS, *OVER_A_NETWORK))
        daemons.end_all()


@pytest.mark.certificate
@seeds
async def test_a_history_with_caches_of_names_that_are_not_there(
    caching_clients: tuple[Mount, Mount], daemons: Processes, seed: int
) -> None:
    """As mounted without lookupcache=positive: a delete may say in vain that nothing is there."""
    cluster = await _live(daemons, caching_clients, seed, lost=0.1)
    rules = tuple(rule for rule in ALWAYS if rule is not denied)
    _judge(cluster, caching_clients, seed, rules)


@pytest.fixture
def caching_clients(tmp_path: Path) -> Iterator[tuple[Mount, Mount]]:
    with (
        nfs_mount(tmp_path, "one", negative_s=2) as one,
        nfs_mount(tmp_path, "other", negative_s=2) as other,
    ):
        yield one, other
