"""Whichever way a message takes, its id finds it: each way by each combination of priority, key,
delay and shards, flat, in a bucket and below one; as a file of its own, as an item of a pack, and
of a parted one. Each id is asked for by GET and DELETE, and the root is audited at the end.
"""

import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness.api import call, delete, fetch
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.consuming import consuming
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.names import ConsumerName, Key, MessageId, QueueName
from mq.spark.options import WriteOptions
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.leases.lease import claim
from mq.store.leases.releasing import release
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.full_passes import FIRST_SIGHT_S
from mq_mover.mover import Mover
from mq_mover.scheduler import Scheduler

FOLDER_MAX = 1
ROUNDS = 3
"""A batch is counted together: the first lies flat, the second in buckets, the third below."""
ROWS = 4
DELAY_S = 3600
VISIBILITY_S = 30
TTL_S = 30 * 24 * 3600
TAG = "a"
TAGGED_EVERY = 3

PRIORITIES = {"none": (0,), "one": (3,), "mixed": (0, 5, 9)}
COMBINATIONS = list(itertools.product(PRIORITIES, (False, True), (False, True), (1, 3)))


class Row(NamedTuple):
    """What is said of one message."""

    priority: int
    key: str | None
    delay_s: int
    tags: tuple[str, ...] = ()
    ttl_s: int = TTL_S

    def query(self) -> str:
        said: dict[str, object] = {"priority": self.priority, "delay": self.delay_s}
        if self.tags:
            said |= {"tag": self.tags[0], "ttl": self.ttl_s}
        if self.key is not None:
            said["key"] = self.key
        return "&".join(f"{name}={value}" for name, value in said.items())


class Place:
    """One root: its mq, what else works on it, and their time."""

    stored = "single"
    """Or `pack`, or `parted`."""

    def __init__(self, server: Server, clock: FakeClock) -> None:
        self.server = server
        self.clock = clock
        self.root: Root = open_root(str(server.root), Files(), clock, folder_max=FOLDER_MAX)
        self.jobs = itertools.count(1)

    async def call(self, method: str, path: str, **more: Any) -> Any:
        reply = await call(self.server, method, path, **more)
        assert reply.status < 300, (method, path, reply.body)
        return reply

    def move_due(self) -> None:
        """What has been due for long mq-mover brings to where it belongs."""
        mover = Mover(self.root, NoFlusher(), Timer())
        for _ in range(2):
            while mover.run_once():
                pass
            self.clock.advance(FIRST_SIGHT_S)


Way = Callable[[Place, str, list[Row]], Awaitable[list[str]]]


async def one_by_one(place: Place, queue: str, rows: list[Row]) -> list[str]:
    if place.stored != "single":
        return await in_packs(place, queue, rows)
    return [
        (await place.call("POST", f"/{queue}/messages?{row.query()}", data=b"x")).id for row in rows
    ]


async def in_packs(place: Place, queue: str, rows: list[Row]) -> list[str]:
    """As lines that share files. A spare one of each is deleted where the packs are parted."""
    ids = []
    await place.call("PATCH", f"/{queue}/settings", json={"pack_messages_max": 1000})
    is_parted = place.stored == "parted"
    for row, alike in itertools.groupby(sorted(rows)):
        count = len(list(alike))
        body = b"x\n" * (count + is_parted)
        path = f"/{queue}/messages?split=lines&pack=true&{row.query()}"
        reply = await place.call("POST", path, data=body)
        published = [json.loads(line)["id"] for line in reply.body.splitlines()]
        assert len(published) < 2 or all(",n=" in each for each in published)
        if is_parted:
            await place.call("DELETE", f"/{queue}/messages/{published.pop()}")
        ids += published
    return ids


async def by_lines(place: Place, queue: str, rows: list[Row]) -> list[str]:
    ids = []
    for row, alike in itertools.groupby(sorted(rows)):
        path, body = f"/{queue}/messages?split=lines&{row.query()}", b"x\n" * len(list(alike))
        reply = await place.call("POST", path, data=body)
        ids += [json.loads(line)["id"] for line in reply.body.splitlines()]
    return ids


async def by_rows(place: Place, queue: str, rows: list[Row]) -> list[str]:
    said = [
        row._asdict() | {"body": "x", "headers": {"ce-id": str(n)}} for n, row in enumerate(rows)
    ]
    body = "\n".join(map(json.dumps, said)).encode()
    reply = await place.call("POST", f"/{queue}/messages?split=rows", data=body)
    return [json.loads(line)["id"] for line in reply.body.splitlines()]


def bulk(place: Place, queue: str, rows: list[Row], name: str | None) -> list[str]:
    """What the sink does: two tasks, and its driver."""
    # The certificate's extra has them.
    import pyarrow as pa  # noqa: PLC0415

    from mq.spark.publishing import Task, commit_staged, stage_rows  # noqa: PLC0415

    # One syncfs would wait for all that others write to the disk.
    said = {"path": place.root.layout.root, "queue": queue, "sync": "fsync"}
    options = WriteOptions.parse(said)
    number = next(place.jobs)
    job, publish_id = f"{number:032x}", None if name is None else Key.parse(f"{name}-{number}")
    before = ids_of(place, queue)
    staged = []
    for partition in range(2):
        part = rows[partition::2]
        at = [place.clock.now_ms() + 1000 * row.delay_s if row.delay_s else None for row in part]
        columns = {
            "value": pa.array([b"x"] * len(part)),
            "priority": pa.array([row.priority for row in part]),
            "key": pa.array([row.key for row in part], pa.string()),
            "at": pa.array(at, pa.timestamp("ms", "UTC")),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        task = Task(job, partition, 0, publish_id, repeats=name is not None)
        staged.append(stage_rows(place.root, options, task, [batch]))
    commit_staged(place.root, options, job, staged, publish_id)
    return sorted(ids_of(place, queue) - before)


async def by_the_sink(place: Place, queue: str, rows: list[Row]) -> list[str]:
    return bulk(place, queue, rows, None)


async def by_a_load_or_a_replay(place: Place, queue: str, rows: list[Row]) -> list[str]:
    """A publish that has a name, whose ids follow from that."""
    return bulk(place, queue, rows, "load")


async def by_a_shovel(place: Place, queue: str, rows: list[Row]) -> list[str]:
    ids = await to_the_sideline(place, queue, rows)
    run_id = (await place.call("POST", f"/{queue}/shovel")).json()["id"]

    async def is_over() -> bool:
        said = (await place.call("GET", f"/{queue}/shovel")).json()
        return bool(said["id"] == run_id and said["state"] == "done")

    await comes_true(is_over, "the end of the shovel's run")
    return ids


async def by_schedules(place: Place, queue: str, rows: list[Row]) -> list[str]:
    before = ids_of(place, queue)
    for number, row in enumerate(rows):
        said = f"every=60&priority={row.priority}" + (f"&key={row.key}" if row.key else "")
        await place.call("PUT", f"/{queue}/schedules/s{number}?{said}", data=b"x")
    place.clock.advance(60)
    scheduler = Scheduler(place.root, NoFlusher())
    while scheduler.run_once():
        pass
    for number in range(len(rows)):
        await place.call("DELETE", f"/{queue}/schedules/s{number}")
    return sorted(ids_of(place, queue) - before)


async def to_the_sideline(place: Place, queue: str, rows: list[Row]) -> list[str]:
    ids = await one_by_one(place, queue, rows)
    if place.stored == "pack":
        await together(place, queue, "sidelines", ids)
        return ids
    for message_id in ids:
        await place.call("POST", f"/{queue}/messages/{message_id}/sideline")
    return ids


async def together(place: Place, queue: str, way: str, ids: list[str]) -> None:
    said = {"messages": [{"id": each} for each in ids]}
    results = (await place.call("POST", f"/{queue}/{way}", json=said)).json()["results"]
    assert {each["status"] for each in results} == {200}


async def fetched(place: Place, queue: str, rows: list[Row]) -> list[str]:
    """All that is ready, and these."""
    await one_by_one(place, queue, rows)
    ids: list[str] = []
    if place.stored == "pack":
        reply = await place.call("GET", f"/{queue}/messages?count=1000&packs=true")
        return [json.loads(line)["id"] for line in reply.body.splitlines()]
    while (reply := await fetch(place.server, queue)).status == 200:
        ids.append(reply.id)
    return ids


async def by_redelivery(place: Place, queue: str, rows: list[Row]) -> list[str]:
    ids = await fetched(place, queue, rows)
    place.clock.advance(VISIBILITY_S + 1)
    place.move_due()
    return ids


async def by_the_last_receive(place: Place, queue: str, rows: list[Row]) -> list[str]:
    """mq-mover brings them to the sideline."""
    await place.call("PATCH", f"/{queue}/settings", json={"max_receives": 1})
    return await by_redelivery(place, queue, rows)


async def by_release(place: Place, queue: str, rows: list[Row]) -> list[str]:
    """One by one, and many together."""
    ids = await fetched(place, queue, rows)
    many = ids if place.stored == "pack" else ids[1::2]
    for message_id in ids[::2] if place.stored != "pack" else ():
        await place.call("PATCH", f"/{queue}/messages/{message_id}", json={"due_in_s": 0})
    if many:
        await together(place, queue, "releases", many)
    return ids


async def by_a_consumer_that_goes(place: Place, queue: str, rows: list[Row]) -> list[str]:
    """What it had comes back at once, all together."""
    await one_by_one(place, queue, rows)
    count = len(ids_of(place, queue))
    packs = place.stored == "pack"
    async with consuming(place.server, queue, credit=count, packs=packs) as consumer:
        ids = [(await consumer.message()).id for _ in range(count)]

    async def are_ready() -> bool:
        ready = (await place.call("GET", f"/{queue}/peek?count=1000")).body
        return {json.loads(line)["id"] for line in ready.splitlines()} >= set(ids)

    await comes_true(are_ready, "all that the consumer had")
    return ids


async def by_a_lease(place: Place, queue: str, rows: list[Row]) -> list[str]:
    """They are leased, and given back together."""
    ids = await one_by_one(place, queue, rows)
    consumer = ConsumerName.parse(queue)
    lease = run_alone(claim(place.root, consumer, [QueueName.parse(queue)], 1000, 60), NoFlusher())
    assert lease is not None
    for message_id in ids:
        await place.call("GET", f"/{queue}/messages/{message_id}")
    run_alone(release(place.root, lease.name), NoFlusher())
    return ids


def ids_of(place: Place, queue: str) -> set[str]:
    """Those of all the queue's files, wherever they lie."""
    top = Path(place.root.layout.root)
    ready = (path.name for path in (top / "queues" / queue).rglob("*-*-*-*-*") if path.is_file())
    delayed = (path.name.partition(":")[2] for path in (top / "delay").rglob(f"{queue}:*"))
    files = map(MessageId.parse, (*ready, *delayed))
    return {one.text for each in files for one in (each.all_items() or (each,))}


class How(NamedTuple):
    """A way, which of the combinations it takes, and where messages lie at its end."""

    way: Way
    keys: bool = True
    delays: bool = True
    tags: bool = True
    sideline: bool = False


WAYS = [
    How(one_by_one),
    How(by_lines, keys=False),
    How(by_rows),
    pytest.param(How(by_the_sink, tags=False), marks=pytest.mark.certificate),
    pytest.param(How(by_a_load_or_a_replay, tags=False), marks=pytest.mark.certificate),
    How(by_a_shovel),
    How(by_schedules, delays=False, tags=False),
    How(to_the_sideline, sideline=True),
    How(by_redelivery, delays=False),
    How(by_the_last_receive, delays=False, sideline=True),
    How(by_release, delays=False),
    How(by_a_consumer_that_goes, delays=False),
    How(by_a_lease, delays=False),
]


OF_PACKS = [
    How(one_by_one),
    How(by_a_shovel),
    How(to_the_sideline, sideline=True),
    How(by_redelivery, delays=False),
    How(by_the_last_receive, delays=False, sideline=True),
    How(by_release, delays=False),
    How(by_a_consumer_that_goes, delays=False),
    How(by_a_lease, delays=False),
]


async def are_tagged(place: Place, queue: str, ids: list[str]) -> None:
    """Those that have a tag are found by it, in the order of their publishes."""
    tagged = sorted(each for each in ids if ",t=1" in each)
    said = (await place.call("GET", f"/{queue}/tags/{TAG}?count=1000")).json()
    assert [each["id"] for each in said["messages"]] == tagged


@pytest.fixture
async def place(serve: Serve) -> Place:
    clock = FakeClock()
    # Nothing here hangs on flushes.
    settings = {"folder_max": FOLDER_MAX, "durability": "none", "force": True}
    return Place(await serve(clock=clock, **settings), clock)


@pytest.mark.parametrize("how", WAYS, ids=lambda how: how.way.__name__)
async def test_an_id_finds_its_message_whichever_way_it_took(place: Place, how: How) -> None:
    await assert_found(place, how)


@pytest.mark.parametrize("stored", ["pack", "parted"])
@pytest.mark.parametrize("how", OF_PACKS, ids=lambda how: how.way.__name__)
async def test_an_id_finds_its_message_of_a_pack(place: Place, how: How, stored: str) -> None:
    place.stored = stored
    await assert_found(place, how._replace(keys=False, tags=False))


async def assert_found(place: Place, how: How) -> None:
    found: dict[str, list[str]] = {}
    depths = set()
    for number, (priority, keyed, delayed, shards) in enumerate(COMBINATIONS):
        if (keyed and not how.keys) or (delayed and not how.delays):
            continue
        queue, values = f"q{number}", itertools.cycle(PRIORITIES[priority])
        await place.call("PUT", f"/{queue}?shards={shards}")
        ids: dict[str, None] = {}
        for turn in range(ROUNDS):
            tags = (TAG,) if how.tags and number % TAGGED_EVERY else ()
            delay_s = DELAY_S if delayed else 0
            rows = [
                Row(next(values), f"{turn}-{at}" if keyed else None, delay_s, tags)
                for at in range(ROWS)
            ]
            ids |= dict.fromkeys(await how.way(place, queue, rows))
        assert len(ids) == ROUNDS * ROWS
        found[f"{queue}_SIDELINE" if how.sideline else queue] = list(ids)
    top = Path(place.root.layout.root)
    for queue in found:
        below = (top / "queues" / queue).rglob("*-*-*-*-*")
        depths |= {len(path.relative_to(top).parts) for path in below if path.is_file()}
    assert depths >= {4, 5}  # In a bucket, and below one.
    for queue, ids in found.items():
        for message_id in ids:
            await place.call("GET", f"/{queue}/messages/{message_id}")
    assert_audits_clean(top, place.clock)
    for queue, ids in found.items():
        await are_tagged(place, queue, ids)
        for message_id in ids[::2]:
            reply = await delete(place.server, message_id, queue)
            assert reply.status == 202, (queue, message_id, reply.body)
    assert_audits_clean(top, place.clock)
