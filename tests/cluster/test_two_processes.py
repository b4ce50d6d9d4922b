"""Several mq processes over one root, with a mover and a reaper beside them."""

import asyncio
import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from harness.folders import make_folders_tiny, message_files
from harness.messages import make_body, number_in, put_entry
from harness.processes import Process, Processes
from harness.waiting import comes_true

from mq.model.clock import SystemClock

MESSAGES = 400
PUBLISHERS_EACH = 2
CONSUMERS_EACH = 3

VISIBILITY_S = 0.5


@dataclass(frozen=True)
class Delivery:
    """What a fetch was given. Times are the server's, milliseconds since the epoch; `asked`
    says how many deletes were acknowledged when it was asked for.
    """

    id: str
    number: int
    receives: int
    due_ms: int
    process: int
    asked: int


class Cluster:
    """The processes, and a client for all of them."""

    def __init__(self, processes: list[Process], session: aiohttp.ClientSession) -> None:
        self.processes = processes
        self._session = session

    def send(self, process: int, method: str, path: str, **more: Any) -> Any:
        return self._session.request(method, self.processes[process].url + path, **more)

    async def status(self, process: int, method: str, path: str, **more: Any) -> int:
        async with self.send(process, method, path, **more) as response:
            return int(response.status)

    async def publish(self, process: int, body: bytes, queue: str = "orders") -> str:
        async with self.send(process, "POST", f"/{queue}/messages", data=body) as response:
            assert response.status == 201
            return str(response.headers["X-Message-Id"])

    async def fetch(self, process: int, queue: str = "orders", asked: int = 0) -> Delivery | None:
        async with self.send(process, "GET", f"/{queue}/messages") as response:
            if response.status == 204:
                return None
            assert response.status == 200
            headers = response.headers
            return Delivery(
                headers["X-Message-Id"],
                number_in(await response.read()),
                int(headers["X-Message-Receives"]),
                round(datetime.fromisoformat(headers["X-Message-Due"]).timestamp() * 1000),
                process,
                asked,
            )


@pytest.fixture
async def session() -> Any:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def start(daemons: Processes, root: Path, session: aiohttp.ClientSession) -> Any:
    """Starts so many processes on the root."""

    async def start(count: int, *flags: str) -> Cluster:
        started = [await asyncio.to_thread(daemons.mq, root, *flags) for _ in range(count)]
        cluster = Cluster(started, session)
        assert await cluster.status(0, "PUT", "/orders") == 201
        return cluster

    return start


async def _keep_house(daemons: Processes, root: Path) -> None:
    await asyncio.to_thread(daemons.mover, "--root", str(root))
    await asyncio.to_thread(daemons.reaper, "--root", str(root))


async def _publish_all(cluster: Cluster, messages: int) -> dict[str, int]:
    """Publishes by several publishers at each process; the numbers by id."""
    published: dict[str, int] = {}
    numbers: Iterator[int] = iter(range(messages))

    async def publish(process: int) -> None:
        for number in numbers:
            published[await cluster.publish(process, make_body(number))] = number

    await asyncio.gather(
        *(
            publish(process)
            for process in range(len(cluster.processes))
            for _ in range(PUBLISHERS_EACH)
        )
    )
    return published


@pytest.mark.certificate
@pytest.mark.parametrize(
    ("count", "peers"), [(2, 0), (2, 1), (3, 2)], ids=["two", "two-peers", "three-peers"]
)
@pytest.mark.parametrize("tiny", [False, True], ids=["flat", "in-buckets"])
async def test_each_message_is_delivered_exactly_once_within_its_visibility(
    start: Any,
    daemons: Processes,
    root: Path,
    count: int,
    peers: int,
    tiny: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if tiny:
        make_folders_tiny(monkeypatch)
    chance = random.Random(count * 10 + peers)
    cluster: Cluster = await start(count, "--peers", str(peers), "--visibility", "600")
    await _keep_house(daemons, root)
    deliveries: list[Delivery] = []
    deleted: set[str] = set()

    async def consume(process: int) -> None:
        while len(deliveries) < MESSAGES:
            delivery = await cluster.fetch(process)
            if delivery is None:
                continue
            deliveries.append(delivery)
            # By whichever process: an id is good for all of them.
            by = chance.randrange(count)
            path = f"/orders/messages/{delivery.id}"
            assert await cluster.status(by, "DELETE", path) == 202
            deleted.add(delivery.id)

    published, *_ = await asyncio.gather(
        _publish_all(cluster, MESSAGES),
        *(consume(process) for process in range(count) for _ in range(CONSUMERS_EACH)),
    )
    assert {delivery.id: delivery.number for delivery in deliveries} == published
    assert len(deliveries) == MESSAGES
    assert {delivery.receives for delivery in deliveries} == {1}
    assert deleted == published.keys()
    for process in range(count):
        assert await cluster.fetch(process) is None
    nothing = {"new": [], "queues": [], "delay": [], "remove": []}
    await comes_true(lambda: message_files(root) == nothing, "the reaper's end")


@pytest.mark.certificate
@pytest.mark.parametrize(("count", "peers"), [(2, 0), (3, 2)], ids=["two", "three-peers"])
async def test_a_message_comes_back_to_whoever_asks_and_never_before_it_is_due(
    start: Any, daemons: Processes, root: Path, count: int, peers: int
) -> None:
    messages = 60
    flags = ("--peers", str(peers), "--visibility", str(VISIBILITY_S))
    cluster: Cluster = await start(count, *flags)
    await _keep_house(daemons, root)
    deliveries: dict[str, list[Delivery]] = {}
    deleted: dict[str, int] = {}

    async def consume(process: int) -> None:
        while len(deleted) < messages:
            delivery = await cluster.fetch(process, asked=len(deleted))
            if delivery is None:
                continue
            deliveries.setdefault(delivery.id, []).append(delivery)
            # The first two times nobody deletes it.
            if delivery.receives > 2:
                path = f"/orders/messages/{delivery.id}"
                assert await cluster.status(process, "DELETE", path) == 202
                deleted.setdefault(delivery.id, len(deleted))

    published, *_ = await asyncio.gather(
        _publish_all(cluster, messages),
        *(consume(process) for process in range(count) for _ in range(CONSUMERS_EACH)),
    )
    assert deliveries.keys() == published.keys() == deleted.keys()
    for message_id, several in deliveries.items():
        in_time = sorted(several, key=lambda delivery: delivery.due_ms)
        receives = [delivery.receives for delivery in in_time]
        assert receives == sorted(set(receives))
        for earlier, later in itertools.pairwise(in_time):
            claimed_ms = later.due_ms - round(VISIBILITY_S * 1000)
            assert claimed_ms >= earlier.due_ms
        # Nobody who asked after its delete was acknowledged got it.
        assert all(delivery.asked <= deleted[message_id] for delivery in several)
        assert {delivery.number for delivery in several} == {published[message_id]}


@pytest.mark.certificate
async def test_a_queue_that_one_makes_is_there_for_the_other_at_once(start: Any) -> None:
    cluster: Cluster = await start(2)
    for number in range(20):
        queue = f"orders.{number}"
        maker, user = number % 2, 1 - number % 2
        assert await cluster.status(user, "GET", f"/{queue}/messages") == 404
        assert await cluster.status(maker, "PUT", f"/{queue}") == 201
        assert await cluster.status(user, "PUT", f"/{queue}") == 200
        assert await cluster.status(user, "GET", f"/{queue}") == 200
        published = await cluster.publish(user, make_body(number), queue)
        fetched = await cluster.fetch(maker, queue)
        assert fetched is not None
        assert fetched.id == published
        path = f"/{queue}/messages/{published}"
        assert await cluster.status(user, "DELETE", path) == 202


@pytest.mark.certificate
@pytest.mark.parametrize("used", [False, True], ids=["never-used", "used"])
async def test_a_queue_that_one_deletes_is_gone_for_the_other_at_once(
    start: Any, used: bool
) -> None:
    cluster: Cluster = await start(2)
    ids = [await cluster.publish(0, make_body(number)) for number in range(5)]
    if used:
        assert await cluster.fetch(1) is not None  # And it remembers what else is there.
    assert await cluster.status(0, "DELETE", "/orders") == 200
    messages = "/orders/messages"
    assert await cluster.status(1, "GET", messages) == 404
    assert await cluster.status(1, "POST", messages, data=b"x") == 404
    for message_id in ids:
        assert await cluster.status(1, "DELETE", f"{messages}/{message_id}") == 404
    assert await cluster.status(1, "DELETE", "/orders") == 404

    async def is_forgotten() -> bool:
        return await cluster.status(1, "GET", "/orders") == 404

    await comes_true(is_forgotten)  # Counts may be a second old.


@pytest.mark.certificate
async def test_a_queue_made_again_has_none_of_its_old_messages(
    start: Any, daemons: Processes, root: Path
) -> None:
    cluster: Cluster = await start(2, "--visibility", "0.2")
    old = {await cluster.publish(number % 2, make_body(number)) for number in range(20)}
    # Some in delay/, some remembered as ready by each process.
    assert all([await cluster.fetch(number % 2) for number in range(6)])
    assert await cluster.status(0, "DELETE", "/orders") == 200
    await comes_true(lambda: not message_files(root)["delay"], "the deletion's last step")
    # One more, as a fetch leaves it that a third process had in hand meanwhile.
    due_ms = SystemClock().now_ms() + 200
    late = put_entry(root / "delay", "orders", make_body(99), due_ms, receives=1)
    assert await cluster.status(1, "PUT", "/orders") == 201
    assert not late.exists()
    old.add(late.name.partition(":")[2])
    await asyncio.to_thread(daemons.mover, "--root", str(root))
    new = {await cluster.publish(number % 2, make_body(number)) for number in range(20, 30)}
    seen: dict[str, int] = {}
    # Three times each: by then the mover has been through all of delay/ and more than once.
    while len(seen) < len(new) or min(seen.values()) < 3:
        for process in range(2):
            if (delivery := await cluster.fetch(process)) is not None:
                seen[delivery.id] = delivery.receives
    assert seen.keys() == new
    files = message_files(root)
    assert not any(name.partition(":")[2] in old for name in files["delay"] + files["queues"])


@pytest.mark.parametrize("folder", ["as-it-is", "long-unchanged"])
async def test_what_one_publishes_the_other_fetches_at_once(
    start: Any, root: Path, folder: str
) -> None:
    cluster: Cluster = await start(2, "--visibility", "600")
    queue = root / "queues" / "orders"
    for number in range(60):
        publisher, fetcher = number % 2, 1 - number % 2
        if folder == "long-unchanged":
            # Its mtime is old enough to be believed: an unchanged folder is not listed again.
            os.utime(queue, ns=(10**18 + number, 10**18 + number))
        assert await cluster.fetch(fetcher) is None
        published = await cluster.publish(publisher, make_body(number))
        delivery = await cluster.fetch(fetcher)
        assert delivery is not None
        assert delivery.id == published


@pytest.mark.certificate
async def test_a_message_fetched_by_one_is_deleted_by_the_other(start: Any, root: Path) -> None:
    cluster: Cluster = await start(2, "--visibility", "600")
    for number in range(20):
        message_id = await cluster.publish(number % 2, make_body(number))
        assert await cluster.fetch(0) is not None
        path = f"/orders/messages/{message_id}"
        assert await cluster.status(1, "DELETE", path) == 202
        assert await cluster.status(0, "DELETE", path) == 202
    assert len(message_files(root)["remove"]) == 20


@pytest.mark.certificate
def test_peers_on_one_machine_may_share_a_port(daemons: Processes, root: Path) -> None:
    first = daemons.mq(root, "--peers", "1")
    second = daemons.mq(root, "--peers", "1", port=first.port)
    assert second.port == first.port
