"""The ZooKeeper coordinator: what it makes there, and what may become of that."""

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.members import ZooKeeperBench, many_queues, queues_named
from harness.processes import eventually
from harness.zookeeper import SESSION_S, ZooKeeper, zookeeper
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from mq.coordination.opening import open_coordinator
from mq.coordination.telling import parse_told
from mq.coordination.zookeeper import ZooKeeperCoordinator
from mq.coordination.zookeeper_address import Nodes
from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.store.opening import open_root

pytestmark = pytest.mark.certificate


@pytest.fixture
def own_server(tmp_path: Path, root: Path) -> Iterator[ZooKeeperBench]:
    """Members at a server that the test may stop."""
    with zookeeper(tmp_path / "zookeeper") as server:
        bench = ZooKeeperBench(server, root)
        yield bench
        bench.end()


def nodes(bench: ZooKeeperBench) -> Nodes:
    return Nodes.of("/tests", bench.client)


def test_nodes_are_there_as_long_as_their_member(zookeeper_bench: ZooKeeperBench) -> None:
    bench = zookeeper_bench
    bench.queues = many_queues(4)
    bench.join("a", "b")
    bench.settle()
    at = nodes(bench)
    with bench.server.client() as client:
        assert sorted(client.get_children(at.members)) == ["a", "b"]
        assert len(client.get_children(at.leader)) == 2
        follows = ({"a", "b"} - {bench.leader()}).pop()
        told = parse_told(client.get(at.told(follows))[0])
        assert told.leader == bench.leader()
        mine = {queue.text for queue in bench.queues if bench.members[follows].has(queue)}
        assert told.queues == {name for name in mine if not name.endswith("_SIDELINE")}
        for name in ("a", "b"):
            bench.leave(name)
        assert client.get_children(at.members) == []
        assert client.get_children(at.leader) == []
        assert client.get_children(at.communicator) == []


def warned(caplog: pytest.LogCaptureFixture, text: str) -> list[logging.LogRecord]:
    return [
        record
        for record in caplog.records
        if record.levelno == logging.WARNING and text in record.message
    ]


def test_the_server_stops_and_comes_back(
    own_server: ZooKeeperBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = own_server
    bench.queues = many_queues(4)
    bench.join("a", "b")
    bench.settle()
    assert not warned(caplog, "connection")
    bench.server.stop()
    bench.until(lambda: not any(map(bench.owners, bench.queues)), "everybody's giving up")
    assert bench.leader() is None
    assert warned(caplog, "the connection to ZooKeeper changed")
    bench.server.start()
    bench.settle()
    caplog.clear()
    bench.leave("a")
    assert not warned(caplog, "connection")  # What it ends itself is not missed.


def test_a_server_that_is_not_there_at_the_start_is_waited_for(
    tmp_path: Path, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = ZooKeeper(tmp_path / "zookeeper")
    server.start()
    server.stop()
    bench = ZooKeeperBench(server, root)
    bench.queues = many_queues(2)
    try:
        bench.join("a")
        bench.turn()
        assert not bench.all_are_owned()
        assert not bench.members["a"].view().is_connected
        bench.until(lambda: bool(warned(caplog, "does not answer")), "a word of it")
        server.start()
        bench.settle()
    finally:
        bench.end()
        server.stop()


def test_a_server_that_hangs_is_as_one_that_is_gone(own_server: ZooKeeperBench) -> None:
    bench = own_server
    bench.queues = many_queues(2)
    bench.join("a")
    bench.settle()
    bench.server.signal(signal.SIGSTOP)
    bench.until(lambda: not any(map(bench.owners, bench.queues)), "its giving up")
    bench.server.signal(signal.SIGCONT)
    bench.settle()


def session_of(bench: ZooKeeperBench, name: str) -> tuple[int, bytes]:
    member = bench.members[name]
    assert isinstance(member, ZooKeeperCoordinator)
    # Only the session's own client knows its password.
    identity: tuple[int, bytes] = member._client.client_id  # noqa: SLF001
    return identity


def expire(bench: ZooKeeperBench, name: str) -> None:
    """Ends the member's session at the server, by another connection of the same session."""
    identity = session_of(bench, name)
    client = KazooClient(f"127.0.0.1:{bench.server.port}", client_id=identity, timeout=SESSION_S)
    client.start()
    client.stop()
    client.close()
    bench.until(
        lambda: session_of(bench, name) not in (None, identity), "a session of the member's after"
    )


@pytest.mark.parametrize("leads", [True, False])
def test_a_session_that_expires_is_followed_by_another(
    zookeeper_bench: ZooKeeperBench, leads: bool
) -> None:
    bench = zookeeper_bench
    bench.queues = many_queues(4)
    bench.join("a", "b")
    bench.settle()
    leader = bench.leader()
    assert leader is not None
    expires = leader if leads else ({"a", "b"} - {leader}).pop()
    expire(bench, expires)
    bench.settle()
    assert bench.leader() != expires
    bench.until(lambda: all(bench.shares().values()), "a part for each")


def test_a_short_cut_keeps_the_session_and_the_lead(zookeeper_bench: ZooKeeperBench) -> None:
    bench = zookeeper_bench
    bench.queues = many_queues(2)
    (only,) = bench.join("a")
    bench.settle()
    before = session_of(bench, "a")
    bench.cut_off("a")
    bench.until(lambda: not only.view().is_connected, "its knowing")
    assert not only.has(bench.queues[0])
    bench.mend("a")
    bench.settle()
    assert session_of(bench, "a") == before


@pytest.mark.parametrize("what", ["member", "told", "leader"])
def test_what_somebody_takes_away_is_made_again(zookeeper_bench: ZooKeeperBench, what: str) -> None:
    bench = zookeeper_bench
    bench.queues = many_queues(4)
    bench.join("a", "b")
    bench.settle()
    leader = bench.leader()
    assert leader is not None
    at = nodes(bench)
    with bench.server.client() as client:
        if what == "leader":
            first = next(
                each
                for each in client.get_children(at.leader)
                if client.get(f"{at.leader}/{each}")[0] == leader.encode()
            )
            client.delete(f"{at.leader}/{first}")
            bench.until(lambda: bench.leader() not in (None, leader), "another leader")
            bench.until(lambda: len(client.get_children(at.leader)) == 2, "its standing again")
        else:
            name = ({"a", "b"} - {leader}).pop()
            path = at.member(name) if what == "member" else at.told(name)
            client.delete(path)
            # By this the leader is told that it has gone; at that moment it is told so itself.
            eventually(lambda: client.exists(path) is not None, "its being there again")
    bench.settle()


def test_no_two_processes_are_one_member(
    zookeeper_bench: ZooKeeperBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = zookeeper_bench
    bench.queues = queues_named("orders")
    bench.join("a")
    bench.settle()
    second = open_coordinator(bench.address("a"), bench.root, "a")
    second.start()
    try:
        second.run_once(bench.queues)
        with bench.server.client() as client:
            # It has come by, and was told so.
            at = nodes(bench)
            eventually(lambda: warned(caplog, "a request to ZooKeeper failed"), "its trying")
            assert client.exists(at.member("a")).ephemeralOwner == session_of(bench, "a")[0]
        assert not second.has(bench.queues[0])
        assert bench.owners(bench.queues[0]) == ["a"]
        bench.leave("a")
        bench.members["a"] = second
        bench.settle()
    finally:
        bench.members.pop("a", None)
        second.stop()


def test_roots_do_not_meet_unless_they_are_told_to(
    zookeeper_server: ZooKeeper, tmp_path: Path
) -> None:
    address = f"zookeeper://127.0.0.1:{zookeeper_server.port}?timeout={SESSION_S}"
    queues = queues_named("orders")
    roots = [open_root(str(tmp_path / name), Files(), SystemClock()) for name in ("r1", "r2")]
    members = [open_coordinator(address, root, "a") for root in roots]
    try:
        for member in members:
            member.start()

        def both_lead() -> bool:
            for member in members:
                member.run_once(queues)
            return all(member.has(queues[0]) for member in members)

        eventually(both_lead, "each root's own leader")
    finally:
        for member in members:
            member.stop()


def test_nodes_made_with_a_password_are_its_users_alone(
    zookeeper_server: ZooKeeper, root: Path
) -> None:
    opened = open_root(str(root), Files(), SystemClock())
    address = (
        f"zookeeper://127.0.0.1:{zookeeper_server.port}/guarded"
        f"?client=shop&auth=digest:user:word&timeout={SESSION_S}"
    )
    member = open_coordinator(address, opened, "a")
    member.start()
    queues = queues_named("orders")
    try:

        def leads() -> bool:
            member.run_once(queues)
            return member.has(queues[0])

        eventually(leads, "its leading")
        with zookeeper_server.client() as client:
            path = Nodes.of("/guarded", "shop").member("a")
            with pytest.raises(NoAuthError):
                client.get(path)
            client.add_auth("digest", "user:word")
            assert client.get(path)[1].ephemeralOwner
    finally:
        member.stop()


def test_a_client_that_kazoo_gives_up_is_begun_anew(zookeeper_bench: ZooKeeperBench) -> None:
    """As after an authentication that the server refuses."""
    bench = zookeeper_bench
    bench.queues = many_queues(2)
    (member,) = bench.join("a")
    bench.settle()
    assert isinstance(member, ZooKeeperCoordinator)
    # A server refuses no digest, and kazoo ends by itself only where one refuses.
    member._client.stop()  # noqa: SLF001
    bench.until(lambda: not member.view().is_connected, "its knowing")
    bench.settle()
