"""What clients see of messages that lie in leases, and what they may do to them."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from harness.api import assert_problem, call, delete, fetch, make_queue, publish
from harness.audits import looked_at
from harness.faults import FaultyFiles
from harness.folders import make_old
from harness.server import Serve, Server

from mq.model.names import ConsumerName, MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Steps, T
from mq.store.leases.lease import Lease, acknowledge, claim
from mq.store.leases.releasing import release

QUEUE = QueueName.parse("q")
CONSUMER = ConsumerName.parse("c")


class Consumer:
    """What a Spark job does to the root of a daemon."""

    def __init__(self, top: Path) -> None:
        self.root: Root = looked_at(top)

    def run(self, operation: Steps[T]) -> T:
        return run_alone(operation, NoFlusher())

    def claim(self, limit: int = 100) -> Lease:
        lease = self.run(claim(self.root, CONSUMER, [QUEUE], limit, 60))
        assert lease is not None
        return lease


@pytest.fixture
async def server(serve: Serve) -> Server:
    started = await serve()
    await make_queue(started)
    return started


@pytest.fixture
def consumer(server: Server) -> Consumer:
    return Consumer(server.root)


async def leased(server: Server, consumer: Consumer, body: bytes = b"hello") -> tuple[str, Lease]:
    message_id = await publish(server, body)
    return message_id, consumer.claim()


async def described(server: Server) -> dict[str, Any]:
    said: dict[str, Any] = (await call(server, "GET", "/q")).json()
    return said


async def test_a_leased_message_is_not_fetched(server: Server, consumer: Consumer) -> None:
    await leased(server, consumer)
    assert (await fetch(server)).status == 204
    other = await publish(server)
    assert (await fetch(server)).id == other


async def test_it_is_read_where_it_is(server: Server, consumer: Consumer) -> None:
    message_id, lease = await leased(server, consumer, b"body")
    for method, body in (("GET", b"body"), ("HEAD", b"")):
        reply = await call(server, method, f"/q/messages/{message_id}")
        assert (reply.status, reply.body) == (200, body)
        assert reply.headers["X-Message-State"] == "leased"
        assert reply.headers["X-Message-Receives"] == "0"
    consumer.run(release(consumer.root, lease.name))
    reply = await call(server, "GET", f"/q/messages/{message_id}")
    assert reply.headers["X-Message-State"] == "ready"
    assert (await fetch(server)).headers["X-Message-Receives"] == "2"


async def test_it_is_counted(server: Server, consumer: Consumer) -> None:
    await leased(server, consumer)
    await publish(server)
    said = await described(server)
    assert (said["ready"], said["leased"], said["delayed"], said["in_flight"]) == (1, 1, 0, 0)


async def test_it_is_peeked_at(server: Server, consumer: Consumer) -> None:
    ids = [await publish(server, b"%d" % n) for n in range(5)]
    for _ in range(2):
        consumer.claim(2)

    async def peek(query: str) -> list[str]:
        reply = await call(server, "GET", f"/q/peek?{query}")
        rows = [json.loads(line) for line in reply.body.splitlines()]
        assert {row["state"] for row in rows} <= {"leased", "ready"}
        return [row["id"] for row in rows]

    assert await peek("state=leased") == ids[:4]
    assert await peek("state=leased&count=3") == ids[:3]
    assert await peek(f"state=leased&after={ids[1]}") == ids[2:4]
    assert await peek("state=ready,leased") == [ids[4], *ids[:4]]


async def test_it_cannot_be_rescheduled(server: Server, consumer: Consumer) -> None:
    message_id, lease = await leased(server, consumer)
    for due_in_s in (0, 60):
        reply = await call(
            server, "PATCH", f"/q/messages/{message_id}", json={"due_in_s": due_in_s}
        )
        problem = assert_problem(reply, 409, "message-leased")
        assert problem["lease"] == lease.name.text
    assert (await call(server, "GET", f"/q/messages/{message_id}")).status == 200


async def test_it_is_deleted_by_its_id(server: Server, consumer: Consumer) -> None:
    message_id, lease = await leased(server, consumer)
    kept = await publish(server)
    consumer.claim()
    assert (await delete(server, message_id, headers={"If-Match": '"1"'})).status == 412
    assert (await delete(server, message_id, headers={"If-Match": '"0"'})).status == 202
    assert (await delete(server, message_id)).status == 202
    assert list(Path(lease.folder).iterdir()) == []
    assert (server.root / "remove" / f"q:{message_id}").exists()
    consumer.run(acknowledge(consumer.root, lease.name))
    assert (await call(server, "GET", f"/q/messages/{kept}")).status == 200


async def test_it_is_deleted_by_its_key(server: Server, consumer: Consumer) -> None:
    reply = await call(server, "POST", "/q/messages?key=night", data=b"x")
    consumer.claim()
    taken = await call(server, "POST", "/q/messages?key=night", data=b"x")
    assert_problem(taken, 409, "key-taken")
    assert (await call(server, "GET", "/q/keys/night")).headers["X-Message-Id"] == reply.id
    assert (await call(server, "DELETE", "/q/keys/night")).status == 202
    assert (await call(server, "POST", "/q/messages?key=night", data=b"x")).status == 201


async def test_what_was_acknowledged_is_not_found(server: Server, consumer: Consumer) -> None:
    """Its name says nothing of the folder in remove/ that it lies in."""
    message_id, lease = await leased(server, consumer)
    consumer.run(acknowledge(consumer.root, lease.name))
    path = f"/q/messages/{message_id}"
    assert_problem(await call(server, "DELETE", path), 404, "message-not-found")
    assert_problem(await call(server, "GET", path), 404, "message-not-found")
    assert_problem(
        await call(server, "PATCH", path, json={"due_in_s": 1}), 404, "message-not-found"
    )
    assert (await described(server))["leased"] == 0


@pytest.mark.certificate
async def test_it_is_purged_with_its_queue(server: Server, consumer: Consumer) -> None:
    message_id, lease = await leased(server, consumer)
    assert (await call(server, "DELETE", "/q/messages")).status == 202
    assert (await call(server, "GET", f"/q/messages/{message_id}")).status == 404
    assert (await described(server))["leased"] == 0
    assert (await call(server, "GET", "/q/peek?state=leased")).body == b""
    consumer.run(release(consumer.root, lease.name))
    assert (await fetch(server)).status == 204


async def test_it_goes_with_its_queue(server: Server, consumer: Consumer) -> None:
    message_id, lease = await leased(server, consumer)
    assert (await call(server, "DELETE", "/q")).status == 200
    await make_queue(server)
    assert (await call(server, "GET", f"/q/messages/{message_id}")).status in (200, 404)
    consumer.run(release(consumer.root, lease.name))
    assert (await fetch(server)).status == 204
    assert (server.root / "remove" / f"q:{message_id}").exists()


async def test_a_look_that_misses_costs_a_stat_and_one_that_hits_nothing(serve: Serve) -> None:
    """Where no lease is open: what is looked at below leases/, and what is flushed."""

    class Watching(FaultyFiles):
        def __init__(self) -> None:
            super().__init__()
            self.looks: list[str] = []

        def status(self, path: str) -> Any:
            if "/leases" in path:
                self.looks.append("status")
            return super().status(path)

        def entries(self, folder: str) -> Any:
            if "/leases" in folder:
                self.looks.append("list")
            return super().entries(folder)

    files = Watching()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    make_old(server.root / "leases")
    message_id = await publish(server)
    assert (await delete(server, message_id)).status == 202
    files.looks.clear()
    for act in HITS:
        await act(server)
    assert files.looks == []
    before = files.count("sync_folder", "/leases")
    assert (await delete(server, message_id)).status == 202  # Again.
    missing = MessageId(message_id[:-1] + ("0" if message_id[-1] != "0" else "1"))
    assert (await delete(server, missing.text)).status == 404
    assert files.looks.count("list") == 1
    assert files.looks.count("status") <= 6
    assert files.count("sync_folder", "/leases") == before


async def _publish_fetch_delete(server: Server) -> None:
    await publish(server)
    fetched = await fetch(server)
    assert (await delete(server, fetched.id)).status == 202


async def _publish_read_delete(server: Server) -> None:
    message_id = await publish(server)
    assert (await call(server, "GET", f"/q/messages/{message_id}")).status == 200
    assert (await delete(server, message_id)).status == 202


async def _publish_with_a_key(server: Server) -> None:
    for status in (201, 409):
        reply = await call(server, "POST", "/q/messages?key=night", data=b"x")
        assert reply.status == status


HITS: list[Callable[[Server], Awaitable[None]]] = [
    _publish_fetch_delete,
    _publish_read_delete,
    _publish_with_a_key,
]
