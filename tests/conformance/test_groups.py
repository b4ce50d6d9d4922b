"""Groups: the messages of one are delivered one at a time and in order, by all processes of a root,
whatever becomes of each; other groups go on.
"""

import asyncio
import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pytest
from harness.api import assert_problem, call, delete, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.server import Serve, Server
from harness.upkeep import move_due

from mq.store.disk.files import Files
from mq.store.format.walk import LOOK_SHARE

GROUP = "customer/\u03b1"
QUOTED = quote(GROUP, safe="")
LISTING_S = 0.1
DIGITS = sha256(GROUP.encode()).hexdigest()[:16]


@pytest.fixture(autouse=True)
def audited(root: Path) -> Iterator[None]:
    """A root is in order after whatever a test did to it."""
    yield
    assert_audits_clean(root)


async def publish_in(server: Server, group: str, body: bytes = b"hello", more: str = "") -> str:
    reply = await call(server, "POST", f"/q/messages?group={group}{more}", data=body)
    assert reply.status == 201, reply.body
    return reply.id


async def nothing(server: Server) -> bool:
    return (await fetch(server)).status == 204


async def settle(server: Server, message_id: str, how: str) -> None:
    """Ends a delivery: `delete`, `release`, or the sideline."""
    path = f"/q/messages/{message_id}"
    if how == "delete":
        assert (await delete(server, message_id)).status == 202
    elif how == "release":
        assert (await call(server, "PATCH", path, json={"due_in_s": 0})).status == 200
    else:
        assert (await call(server, "POST", f"{path}/sideline")).status in (200, 201, 202)


def links(root: Path) -> dict[str, str]:
    """What the links of the groups of queue q say."""
    folders = (root / "queues" / "q" / ".groups").glob("*/*")
    return {each.name: os.readlink(each) for each in folders if each.is_symlink()}


async def test_a_group_is_in_the_id_and_in_what_is_said_of_the_message(server: Server) -> None:
    await make_queue(server)
    message_id = await publish_in(server, QUOTED, more="&key=k&visibility=60")
    assert message_id[36:].startswith(f",k=k,g={DIGITS},v=60,h=")
    peeked = (await call(server, "GET", "/q/peek")).json()
    assert (peeked["group"], peeked["headers"]) == (
        GROUP,
        {"content-type": peeked["headers"]["content-type"]},
    )
    assert links(server.root) == {}
    read = await call(server, "GET", f"/q/messages/{message_id}")
    fetched = await fetch(server)
    for reply in (read, fetched):
        assert reply.headers["X-Message-Group"] == GROUP
        assert reply.body == b"hello"
    assert links(server.root) == {DIGITS: message_id}
    assert (await delete(server, message_id)).status == 202
    assert links(server.root) == {}


@pytest.mark.parametrize("group", ["", "a%20b", "x" * 129, "%00", "a&group=b"])
async def test_what_is_no_group_is_refused(server: Server, group: str) -> None:
    await make_queue(server)
    reply = await call(server, "POST", f"/q/messages?group={group}", data=b"hello")
    assert_problem(reply, 400, "bad-group")


async def test_a_clients_own_header_makes_no_group(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server, headers={"X-Message-Group": "g"})
    assert ",g=" not in message_id
    assert "X-Message-Group" not in (await fetch(server)).headers


async def test_the_messages_of_a_group_go_one_by_one_and_others_go_on(server: Server) -> None:
    await make_queue(server)
    first, second = [await publish_in(server, "a", b"a%d" % n) for n in range(2)]
    other, plain = await publish_in(server, "b"), await publish(server)
    assert [(await fetch(server)).id for _ in range(3)] == [first, other, plain]
    assert await nothing(server)
    assert (await delete(server, first)).status == 202
    assert (await fetch(server)).id == second
    assert await nothing(server)


async def test_a_batch_takes_one_message_of_a_group(server: Server) -> None:
    await make_queue(server)
    body = b"\n".join(b"%d" % n for n in range(5))
    assert (await call(server, "POST", "/q/messages?split=lines&group=g", data=body)).status == 200
    [row] = (await call(server, "GET", "/q/messages?count=10")).body.splitlines()
    assert (json.loads(row)["group"], json.loads(row)["body"]) == ("g", "0")


async def test_each_row_of_a_batch_says_its_own_group(server: Server) -> None:
    await make_queue(server)
    rows = [{"body": "a", "group": "g"}, {"body": "b", "group": GROUP}, {"body": "c", "group": "g"}]
    body = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    reply = await call(server, "POST", "/q/messages?split=rows", data=body)
    assert all("id" in json.loads(row) for row in reply.body.splitlines())
    found = [await fetch(server) for _ in range(3)]
    assert [(each.status, each.headers.get("X-Message-Group")) for each in found] == [
        (200, "g"), (200, GROUP), (204, None),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["delete", "release", "sideline"])
@pytest.mark.parametrize("others", [False, True], ids=["one-process", "two-processes"])
async def test_what_becomes_of_the_first_decides_who_is_next(
    serve: Serve, how: str, others: bool
) -> None:
    server = await serve()
    other = await serve() if others else server
    await make_queue(server)
    ids = [await publish_in(each, "g") for each in (other, server, other)]
    assert (await fetch(server)).id == ids[0]
    assert await nothing(other)
    assert await nothing(server)
    await settle(other, ids[0], how)
    expected = [ids[0], *ids[1:]] if how == "release" else ids[1:]
    for message_id in expected:
        assert (await fetch(other)).id == message_id
        assert await nothing(server)
        assert (await delete(server, message_id)).status == 202
    assert await nothing(other)
    assert links(server.root) == {}


async def test_no_list_passes_over_a_message_whose_claim_by_another_list_failed(
    serve: Serve,
) -> None:
    """Fetches with a selection and without have a list each; the claim is of a message that waits
    for a head of another process.
    """
    clock = FakeClock()
    server, other = await serve(clock=clock), await serve(clock=clock)
    await make_queue(server)
    head = await publish_in(other, "g")
    assert (await fetch(other)).id == head
    alone = await publish(server)
    ids = [await publish_in(server, "g") for _ in range(2)]
    clock.advance(1)
    assert (await fetch(server)).id == alone
    assert (await fetch(server, params={"select": "priority:0"})).status == 204
    assert await nothing(server)
    assert (await delete(server, head)).status == 202
    for message_id in ids:
        assert (await fetch(server)).id == message_id
        assert (await delete(server, message_id)).status == 202


@pytest.mark.parametrize("others", [False, True], ids=["one-process", "two-processes"])
async def test_who_waits_gets_the_next_one_once_it_may_go(serve: Serve, others: bool) -> None:
    server = await serve()
    other = await serve() if others else server
    await make_queue(server)
    ids = [await publish_in(server, "g") for _ in range(2)]
    assert (await fetch(server)).id == ids[0]
    waiting = asyncio.ensure_future(fetch(server, params={"wait": "20"}))
    await asyncio.sleep(0)
    await settle(other, ids[0], "delete")
    assert (await waiting).id == ids[1]


async def test_redelivery_keeps_the_order(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    first, second = [await publish_in(server, "g", more="&visibility=10") for _ in range(2)]
    assert (await fetch(server)).id == first
    clock.advance(11)
    assert await nothing(server)  # It is due, and not back yet.
    assert move_due(server.root, clock) == 1
    again = await fetch(server)
    assert (again.id, again.headers["X-Message-Receives"]) == (first, "2")
    assert await nothing(server)
    assert (await delete(server, first)).status == 202
    assert (await fetch(server)).id == second


async def test_a_head_put_off_holds_its_group(server: Server) -> None:
    await make_queue(server)
    first, second = [await publish_in(server, "g") for _ in range(2)]
    assert (await fetch(server)).id == first
    path = f"/q/messages/{first}"
    assert (await call(server, "PATCH", path, json={"due_in_s": 3600})).status == 200
    assert await nothing(server)
    assert (await call(server, "PATCH", path, json={"due_in_s": 0})).status == 200
    assert (await fetch(server)).id == first
    assert (await delete(server, first)).status == 202
    assert (await fetch(server)).id == second


async def test_a_more_urgent_one_and_one_that_is_due_take_their_places(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    later = await publish_in(server, "g", more="&delay=10")
    first, second = [await publish_in(server, "g") for _ in range(2)]
    assert (await fetch(server)).id == first
    urgent = await publish_in(server, "g", more="&priority=9")
    clock.advance(11)
    assert move_due(server.root, clock) == 1
    assert await nothing(server)
    before = first
    for message_id in (urgent, later, second):
        assert (await delete(server, before)).status == 202
        assert (await fetch(server)).id == message_id
        before = message_id


async def test_what_groups_wait_for_is_listed(serve: Serve) -> None:
    server, other = await serve(), await serve()
    await make_queue(server)
    assert (await call(server, "GET", "/q/groups")).json() == {"groups": []}
    ids = [await publish_in(server, group) for group in ("a", QUOTED, "a", "c", "d")]
    for message_id in (ids[0], ids[1], ids[3]):
        assert (await fetch(server)).id == message_id
    await settle(server, ids[0], "release")
    await settle(server, ids[3], "delete")
    rows = (await call(other, "GET", "/q/groups")).json()["groups"]
    assert [(row["group"], row["id"], row["state"], row["receives"]) for row in rows] == [
        ("a", ids[0], "ready", 1), (GROUP, ids[1], "delayed", 1),
    ]  # fmt: skip
    assert rows[0]["since"] <= rows[1]["since"] < rows[1]["due"]
    [row] = (await call(other, "GET", "/q/groups?count=1")).json()["groups"]
    assert row == rows[0]
    for path in ("/q/groups?count=0", "/q/groups?count=1001"):
        assert_problem(await call(server, "GET", path), 400, "bad-count")
    assert_problem(await call(server, "GET", "/other/groups"), 404, "queue-not-found")


@pytest.mark.certificate
async def test_a_purge_lets_the_next_one_go(server: Server) -> None:
    await make_queue(server)
    first, _ = [await publish_in(server, "g") for _ in range(2)]
    assert (await fetch(server)).id == first
    assert (await call(server, "DELETE", "/q/messages")).status == 202
    third = await publish_in(server, "g")
    assert (await fetch(server)).id == third


async def test_a_queue_that_is_made_again_has_no_heads(server: Server) -> None:
    await make_queue(server)
    await publish_in(server, "g")
    assert (await fetch(server)).status == 200
    assert (await call(server, "DELETE", "/q")).status == 200
    assert links(server.root) == {}
    await make_queue(server)
    message_id = await publish_in(server, "g")
    assert (await fetch(server)).id == message_id


@pytest.mark.parametrize("folder_max", [0, 10, 10_000], ids=["in-buckets", "some", "flat"])
async def test_a_blocked_group_starves_no_other(serve: Serve, folder_max: int) -> None:
    server = await serve(folder_max=folder_max)
    await make_queue(server)
    body = b"\n".join(b"%d" % n for n in range(200))
    reply = await call(server, "POST", "/q/messages?split=lines&group=g", data=body)
    ids = [json.loads(line)["id"] for line in reply.body.splitlines()]
    other, plain = await publish_in(server, "h"), await publish(server)
    assert [(await fetch(server)).id for _ in range(3)] == [ids[0], other, plain]
    assert await nothing(server)
    assert (await delete(server, ids[0])).status == 202
    assert (await fetch(server)).id == ids[1]


class SlowFiles(Files):
    """Listing the queue takes a while."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.listings = 0

    def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        if folder.endswith("/queues/q"):
            self.listings += 1
            self.clock.advance(LISTING_S)
        return super().entries(folder)


async def test_what_waits_is_not_listed_for_each_that_asks(serve: Serve) -> None:
    clock = FakeClock()
    files = SlowFiles(clock)
    server = await serve(files=files, clock=clock, inotify=False)
    await make_queue(server)
    ids = [await publish_in(server, "g") for _ in range(3)]
    assert (await fetch(server)).id == ids[0]
    assert await nothing(server)
    listings = files.listings
    for _ in range(5):
        assert await nothing(server)
    assert files.listings == listings
    assert (await delete(server, ids[0])).status == 202
    assert (await fetch(server)).id == ids[1]
    assert await nothing(server)
    # Another process may have published to another group by then.
    clock.advance(2 * LISTING_S / LOOK_SHARE)
    listings = files.listings
    assert await nothing(server)
    assert files.listings > listings


@pytest.mark.certificate
@pytest.mark.parametrize("shards", [1, 4])
async def test_processes_that_race_keep_every_group_in_order(serve: Serve, shards: int) -> None:
    """Publishers and consumers at two processes, each step at one by chance. Every message is
    published once its predecessor was, and handled in that order, one at a time.
    """
    servers = [await serve(), await serve()]
    chance = random.Random(shards)
    assert (await call(servers[0], "PUT", f"/q?shards={shards}")).status == 201
    groups = [f"g{n}" for n in range(5)]
    published: dict[str, list[str]] = defaultdict(list)
    handled: dict[str, list[str]] = defaultdict(list)
    out: dict[str, str] = {}
    each, total = 12, 5 * 12

    async def publishes(group: str) -> None:
        for _ in range(each):
            published[group].append(await publish_in(chance.choice(servers), group))

    async def consumes() -> None:
        while sum(map(len, handled.values())) < total:
            reply = await fetch(chance.choice(servers), params={"wait": "0.2"})
            if reply.status == 204:
                continue
            group = reply.headers["X-Message-Group"]
            assert group not in out, "two at a time"
            out[group] = reply.id
            await asyncio.sleep(0)
            if chance.random() < 0.3:
                del out[group]
                await settle(chance.choice(servers), reply.id, "release")
                continue
            handled[group].append(reply.id)
            del out[group]
            assert (await delete(chance.choice(servers), reply.id)).status == 202

    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            tasks.create_task(publishes(group))
        for _ in range(4):
            tasks.create_task(consumes())
    assert handled == published
