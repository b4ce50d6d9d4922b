"""Three mq-movers that share the shovels of some queues, by each kind of coordinator: whichever of
them is killed, stopped, or cut off from the others, each message that is sidelined comes back, and
once.
"""

import asyncio
import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from harness.api import call, make_queue, publish
from harness.audits import assert_audits_clean
from harness.processes import Process, Processes
from harness.server import Serve, Server
from harness.waiting import comes_true
from harness.zookeeper import Way, ZooKeeper, zookeeper

from mq.coordination.zookeeper_address import Nodes

pytestmark = pytest.mark.certificate

ASSIGN_S = 3.0
SESSION_S = 3.0
PATIENCE_S = 60.0
QUEUES = [f"q{at}" for at in range(6)]
EACH = 3
NODES = Nodes.of("/cluster", "shop")


@dataclass
class Cluster:
    """Movers, an mq, and queues whose shovels run each second."""

    root: Path
    server: Server
    daemons: Processes
    keeper: ZooKeeper | None
    movers: dict[str, Process] = field(default_factory=dict)
    ways: dict[str, Way] = field(default_factory=dict)
    ids: dict[str, list[str]] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)
    """How often each message was sidelined."""

    async def begin(self) -> None:
        """Its queues with a few messages each, and three movers that have shared them."""
        for queue in QUEUES:
            await make_queue(self.server, queue)
            settings = {"shovel_interval_s": 1, "history": True}
            reply = await call(self.server, "PATCH", f"/{queue}/settings", json=settings)
            assert reply.status == 200
            self.ids[queue] = [await publish(self.server, queue=queue) for _ in range(EACH)]
        await asyncio.gather(*(asyncio.to_thread(self.start, name) for name in "abc"))
        await comes_true(lambda: self.leader() in self.movers, "a leader", PATIENCE_S)
        await self.wave()

    def start(self, name: str) -> None:
        """A mover of this name."""
        coordinator = "file"
        if self.keeper is not None:
            way = self.ways.setdefault(name, Way(self.keeper.port))
            coordinator = (
                f"zookeeper://127.0.0.1:{way.port}/cluster?client=shop&timeout={SESSION_S}"
            )
        self.movers[name] = self.daemons.mover(
            *("--root", str(self.root), "--member", name, "--coordinator", coordinator),
            *("--assign-every", str(ASSIGN_S)),
        )

    def kill(self, name: str) -> None:
        self.movers.pop(name).kill()

    def leader(self) -> str | None:
        """Who leads by what they themselves go by."""
        if self.keeper is None:
            with contextlib.suppress(OSError, ValueError):
                leader = json.loads((self.root / "members" / "leader").read_bytes())["leader"]
                return str(leader)
            return None
        with self.keeper.client() as client:
            contenders = client.Election(NODES.leader).contenders()
            return str(contenders[0]) if contenders else None

    def follower(self) -> str:
        return min(set(self.movers) - {self.leader()})

    async def sideline(self, stopped: Process | None = None) -> None:
        """All messages go to the sidelines, but for those that are in a stopped mover's hands."""
        for queue in QUEUES:
            for message_id in self.ids[queue]:
                await comes_true(
                    lambda queue=queue, message_id=message_id: self._send(
                        queue, message_id, stopped
                    ),
                    "its sidelining",
                )

    async def _send(self, queue: str, message_id: str, stopped: Process | None) -> bool:
        if message_id in self.in_hand(stopped):
            # In its queue nobody could move it; in the sideline it would not be sidelined again.
            return True
        path = f"/{queue}/messages/{message_id}/sideline"
        reply = await call(self.server, "POST", path)
        if reply.status == 503:  # Who shovelled it a moment ago has not let go of it yet.
            return False
        assert reply.status == 200
        self.sent[message_id] += 1
        return True

    async def are_back(self, stopped: Process | None = None) -> None:
        """Waits until all are back in their queues, but for those."""
        await comes_true(
            lambda: not set(self.sidelined()) - self.in_hand(stopped),
            "an end of what is sidelined",
            PATIENCE_S,
        )

    def in_hand(self, stopped: Process | None) -> set[str]:
        """The messages whose files this process has locked: nobody else may move them."""
        if stopped is None:
            return set()
        pid = str(stopped.popen.pid)
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        held = {int(fields[5].split(":")[2]) for fields in locks if fields[4] == pid}
        ids = {message_id for each in self.ids.values() for message_id in each}
        found = set()
        for path in (self.root / "queues").rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # It goes on: nobody has it.
                if path.name in ids and path.stat().st_ino in held:
                    found.add(path.name)
        return found

    async def wave(self) -> None:
        await self.sideline()
        await self.are_back()

    def sidelined(self) -> list[str]:
        return sorted(each.name for queue in QUEUES for each in self.files(f"{queue}_SIDELINE"))

    def files(self, queue: str) -> list[Path]:
        folder = self.root / "queues" / queue
        return list(folder.iterdir()) if folder.is_dir() else []

    def events(self) -> Counter[tuple[str, str]]:
        """How often each message's history says sidelined, and shovelled."""
        found: Counter[tuple[str, str]] = Counter()
        for path in (self.root / "history").glob("*/*/*.ndjson"):
            for line in path.read_text().splitlines():
                said = json.loads(line)
                if said["event"] in ("sidelined", "shovelled"):
                    found[said["event"], said["id"]] += 1
        return found

    async def nothing_happened_twice(self, lines_lost: bool = False) -> None:
        """Each message is in one place, its queue, and was shovelled as often as sidelined.
        `lines_lost`: who was killed may have shovelled what it could not write down.
        """
        ids = {message_id for each in self.ids.values() for message_id in each}

        def all_told() -> bool:
            events = self.events()
            return all(events["shovelled", each] >= self.sent[each] for each in ids)

        if not lines_lost:
            await comes_true(all_told, "each one's history", PATIENCE_S)
        events = self.events()
        for queue in QUEUES:
            assert sorted(each.name for each in self.files(queue)) == sorted(self.ids[queue])
            for message_id in self.ids[queue]:
                assert events["shovelled", message_id] <= self.sent[message_id]
                reply = await call(self.server, "GET", f"/{queue}/messages/{message_id}")
                assert reply.headers["X-Message-Receives"] == "0"
        places = Counter(path.name for path in self.root.rglob("*") if path.name in ids)
        assert places == Counter(dict.fromkeys(ids, 1))
        assert_audits_clean(self.root)


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


async def cluster_of(
    serve: Serve, root: Path, daemons: Processes, keeper: ZooKeeper | None
) -> AsyncIterator[Cluster]:
    made = Cluster(root, await serve(), daemons, keeper)
    try:
        await made.begin()
        yield made
    finally:
        daemons.end_all()
        for way in made.ways.values():
            way.close()


@pytest.fixture(params=["file", "zookeeper"])
async def cluster(
    request: pytest.FixtureRequest, serve: Serve, root: Path, daemons: Processes
) -> AsyncIterator[Cluster]:
    by_zookeeper = request.param == "zookeeper"
    found = request.getfixturevalue("keeper") if by_zookeeper else None
    async for made in cluster_of(serve, root, daemons, found):
        yield made


@pytest.fixture
async def by_zookeeper(
    serve: Serve, root: Path, daemons: Processes, tmp_path: Path
) -> AsyncIterator[Cluster]:
    """By a ZooKeeper of the test's own, which it may stop."""
    with zookeeper(tmp_path / "zookeeper") as server:
        async for made in cluster_of(serve, root, daemons, server):
            yield made


async def another_leads(cluster: Cluster, before: str) -> str:
    def leads() -> str | None:
        leader = cluster.leader()
        return leader if leader in set(cluster.movers) - {before} else None

    leader = await comes_true(lambda: asyncio.to_thread(leads), "another leader", PATIENCE_S)
    assert leader is not None
    return leader


async def test_a_leader_that_is_killed_is_followed(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    await cluster.sideline()
    cluster.kill(leader)
    await cluster.are_back()
    await another_leads(cluster, leader)
    await cluster.wave()
    await cluster.nothing_happened_twice(lines_lost=True)


async def test_a_member_that_is_killed_is_missed(cluster: Cluster) -> None:
    leader = cluster.leader()
    await cluster.sideline()
    cluster.kill(cluster.follower())
    await cluster.are_back()
    assert cluster.leader() == leader
    await cluster.wave()
    await cluster.nothing_happened_twice(lines_lost=True)


async def test_all_are_killed_and_begin_again(cluster: Cluster) -> None:
    for name in "abc":
        cluster.kill(name)
    await cluster.sideline()
    for name in "abc":
        await asyncio.to_thread(cluster.start, name)
    await cluster.are_back()
    await cluster.nothing_happened_twice(lines_lost=True)


async def test_a_stopped_leader_that_wakes_up_late_does_nothing_twice(cluster: Cluster) -> None:
    """It is stopped while it shovels, at another moment each time."""
    for turn in range(3):
        leader = await comes_true(lambda: asyncio.to_thread(cluster.leader), "a leader", PATIENCE_S)
        assert leader is not None
        await cluster.sideline()
        stopped = cluster.movers[leader]
        before = len(cluster.sidelined())
        if turn:
            await comes_true(
                lambda before=before: len(cluster.sidelined()) < before, "a first one's return"
            )
        stopped.popen.send_signal(signal.SIGSTOP)
        try:
            await another_leads(cluster, leader)
            await cluster.are_back(stopped)
            await cluster.sideline(stopped)
        finally:
            stopped.popen.send_signal(signal.SIGCONT)
        await cluster.are_back()
    await cluster.wave()
    await cluster.nothing_happened_twice()


async def test_what_a_leader_had_goes_on_within_two_refreshes(cluster: Cluster) -> None:
    """And what the shovel itself takes, and who makes the wave. (By the clock of a test, to the
    second: tests/coordination/test_file.py.)
    """
    leader = cluster.leader()
    assert leader is not None
    cluster.kill(leader)
    await cluster.wave()


async def all_said(cluster: Cluster, pattern: str, names: str = "abc") -> None:
    def so() -> bool:
        return all(cluster.movers[name].logged(pattern) for name in names)

    await comes_true(so, f"a line with {pattern!r} of each", PATIENCE_S)


async def test_zookeeper_stops_and_comes_back(by_zookeeper: Cluster) -> None:
    cluster = by_zookeeper
    assert cluster.keeper is not None
    cluster.keeper.stop()
    await all_said(cluster, "state=suspended")
    await cluster.sideline()
    # Who needs no leader goes on: what comes back so takes longer than a shovel's interval.
    reply = await call(cluster.server, "POST", "/q0/messages?delay=3", data=b"later")
    later = reply.headers["X-Message-Id"]
    folder = cluster.root / "queues" / "q0"
    await comes_true((folder / later).exists, "a redelivery", PATIENCE_S)
    assert len(cluster.sidelined()) == len(QUEUES) * EACH
    await asyncio.to_thread(cluster.keeper.start)
    await cluster.are_back()
    assert (await call(cluster.server, "DELETE", f"/q0/messages/{later}")).status == 202
    await cluster.wave()
    await cluster.nothing_happened_twice()


async def test_a_session_expires_and_its_member_comes_back(by_zookeeper: Cluster) -> None:
    """The leader's, while it cannot reach the ZooKeeper and yet goes on."""
    cluster = by_zookeeper
    leader = cluster.leader()
    assert leader is not None
    await cluster.sideline()
    cluster.ways[leader].cut()
    await another_leads(cluster, leader)
    await cluster.are_back()
    await cluster.wave()
    cluster.ways[leader].mend()
    await all_said(cluster, "state=lost", names=leader)
    has = told(cluster, leader)
    await comes_true(has, "queues of its own again", PATIENCE_S)
    await cluster.wave()
    await cluster.nothing_happened_twice()


def told(cluster: Cluster, member: str) -> Callable[[], bool]:
    """Whether the member has told, since, that it has queues and does not lead."""
    path = cluster.root / "members" / f"{member}.json"
    began_ns = time.time_ns()

    def has_queues() -> bool:
        with contextlib.suppress(OSError, ValueError):
            said = json.loads(path.read_bytes())
            is_since = path.stat().st_mtime_ns > began_ns
            return bool(is_since and said["connected"] and said["queues"]["count"])
        return False

    return has_queues
