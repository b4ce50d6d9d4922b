"""`GET /{queue}/messages`: the next message, to one client only, in publish order."""

import asyncio
import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.api import (
    STILL_MS,
    StillClock,
    assert_problem,
    call,
    delete,
    fetch,
    id_at,
    make_queue,
    publish,
)
from harness.faults import FaultyFiles
from harness.folders import message_files, mtime_ns
from harness.internals import connections, fetches_waiting
from harness.raw import raw_connection, raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true

MIB = 1024 * 1024


def put_back(root: Path, message_id: str, queue: str = "q") -> None:
    """Makes a delayed message ready, as redelivery does."""
    (root / "delay" / f"{queue}:{message_id}").rename(root / "queues" / queue / message_id)


def put_by_hand(root: Path, message_id: str, body: bytes = b"by hand") -> Path:
    """A message that another process delivered: written elsewhere, then renamed."""
    staged = root / "new" / f"q:{message_id}"
    staged.write_bytes(body)
    return staged.rename(root / "queues" / "q" / message_id)


# The answer


async def test_a_fetch_answers_with_all_that_is_known(serve: Serve, root: Path) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    message_id = await publish(server, b"{}", headers={"Content-Type": "application/json"})
    clock.now += 1234
    reply = await fetch(server)
    assert (reply.status, reply.body) == (200, b"{}")
    expected = {
        "X-Message-Id": message_id,
        "X-Message-Receives": "1",
        "X-Message-Published": "2023-11-14T22:13:20.000Z",
        "X-Message-Due": "2023-11-14T22:13:51.234Z",
        "ETag": '"1"',
        "Content-Type": "application/json",
        "Content-Length": "2",
        "Cache-Control": "no-store",
    }
    assert {name: reply.headers[name] for name in expected} == expected


@pytest.mark.parametrize("size", [5, 2 * MIB], ids=["held", "streamed"])
async def test_a_fetched_files_time_says_when_it_is_due_and_how_often_it_was_received(
    serve: Serve, root: Path, size: int
) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    message_id = await publish(server, b"x" * size)
    for receives in (1, 2, 3):
        clock.now += 77
        reply = await fetch(server)
        assert reply.headers["X-Message-Receives"] == str(receives)
        assert reply.headers["ETag"] == f'"{receives}"'
        file = root / "delay" / f"q:{message_id}"
        assert mtime_ns(file) == (clock.now + 30_000) * 1_000_000 + receives * 1000
        assert file.stat().st_size == size
        put_back(root, message_id)


async def test_receives_stop_counting_at_999(server: Server, root: Path) -> None:
    await make_queue(server)
    file = put_by_hand(root, id_at())
    os.utime(file, ns=(0, STILL_MS * 1_000_000 + 998_000))
    assert (await fetch(server)).headers["X-Message-Receives"] == "999"
    put_back(root, id_at())
    assert (await fetch(server)).headers["X-Message-Receives"] == "999"


async def test_a_time_that_mq_did_not_set_says_nothing_of_receives(
    server: Server, root: Path
) -> None:
    await make_queue(server)
    os.utime(put_by_hand(root, id_at()), ns=(0, STILL_MS * 1_000_000 + 456_789))
    assert (await fetch(server)).headers["X-Message-Receives"] == "1"


async def test_an_empty_queue_is_204(server: Server) -> None:
    await make_queue(server)
    reply = await fetch(server)
    assert (reply.status, reply.body) == (204, b"")
    assert reply.headers["Cache-Control"] == "no-store"
    assert "X-Message-Id" not in reply.headers


async def test_an_unknown_queue_is_404(server: Server) -> None:
    assert_problem(await fetch(server), 404, "queue-not-found")


async def test_a_fetched_message_is_not_fetched_again_before_it_is_due(server: Server) -> None:
    await make_queue(server)
    await publish(server)
    assert (await fetch(server)).status == 200
    assert (await fetch(server)).status == 204


@pytest.mark.parametrize("query", ["?colour=red", "?COUNT=1", "?colour"])
async def test_an_unknown_query_parameter_is_400_and_fetches_nothing(
    server: Server, query: str
) -> None:
    await make_queue(server)
    await publish(server)
    reply = await call(server, "GET", f"/q/messages{query}")
    name = query[1:].partition("=")[0]
    assert assert_problem(reply, 400, "unknown-parameter")["parameter"] == name
    assert (await fetch(server)).headers["X-Message-Receives"] == "1"


async def test_head_never_fetches(server: Server) -> None:
    await make_queue(server)
    await publish(server)
    reply = await call(server, "HEAD", "/q/messages")
    assert (reply.status, reply.body) == (405, b"")
    assert "GET" in reply.headers["Allow"]
    assert (await fetch(server)).headers["X-Message-Receives"] == "1"


# Order


@pytest.mark.certificate
async def test_messages_come_in_the_order_of_their_publishing(server: Server) -> None:
    await make_queue(server)
    published = []

    async def publish_some(publisher: int) -> None:
        published.append([await publish(server, f"{publisher}".encode()) for _ in range(30)])

    await asyncio.gather(*(publish_some(publisher) for publisher in range(10)))
    fetched = [await fetch(server) for _ in range(300)]
    ids = [reply.id for reply in fetched]
    assert ids == sorted(message_id for some in published for message_id in some)
    for some in published:
        assert [message_id for message_id in ids if message_id in set(some)] == some
    assert (await fetch(server)).status == 204


async def test_a_redelivered_message_comes_back_at_its_own_place(
    server: Server, root: Path
) -> None:
    await make_queue(server)
    ids = [await publish(server) for _ in range(3)]
    assert (await fetch(server)).id == ids[0]
    put_back(root, ids[0])
    # The two others are known already; the first is found when the folder is looked at again.
    fetched = {(await fetch(server)).id for _ in range(3)}
    assert fetched == set(ids)


async def test_what_is_there_at_the_start_is_served_in_order(serve: Serve, root: Path) -> None:
    await make_queue(await serve())
    ids = [id_at(STILL_MS + n // 7, n) for n in range(50)]
    for message_id in random.Random(7).sample(ids, len(ids)):
        put_by_hand(root, message_id)
    server = await serve()
    assert [(await fetch(server)).id for _ in ids] == ids


async def test_a_higher_priority_comes_first(server: Server, root: Path) -> None:
    await make_queue(server)
    ids = [
        f"{id_at(n=4)},p=9",
        f"{id_at(n=5)},p=9",
        f"{id_at(n=3)},p=1",
        id_at(n=1),
        f"{id_at(n=2)}.json",
    ]
    for message_id in reversed(ids):
        put_by_hand(root, message_id)
    assert [(await fetch(server)).id for _ in ids] == ids


# What others put there


async def test_a_file_that_another_process_put_there_is_served(server: Server, root: Path) -> None:
    await make_queue(server)
    assert (await fetch(server)).status == 204
    put_by_hand(root, f"{id_at()}.xml", b"<a/>")
    reply = await fetch(server)
    assert (reply.body, reply.id) == (b"<a/>", f"{id_at()}.xml")
    assert reply.headers["Content-Type"] == "application/xml"
    assert reply.headers["X-Message-Published"] == "2023-11-14T22:13:20.000Z"
    assert (await delete(server, reply.id)).status == 202


async def test_what_a_name_says_of_visibility_and_header_block_holds(
    serve: Serve, root: Path
) -> None:
    server = await serve(clock=StillClock())
    await make_queue(server)
    put_by_hand(root, f"{id_at()},k=a=20b,v=120,h=7.txt", b"x: y\r\n\nbody")
    reply = await fetch(server)
    assert reply.body == b"body"
    assert reply.headers["X-Message-Due"] == "2023-11-14T22:15:20.000Z"


async def test_another_mqs_messages_are_found(serve: Serve) -> None:
    here, there = await serve(), await serve()
    await make_queue(here)
    for n in range(3):
        await publish(here, f"{n}".encode())
        assert (await fetch(there)).body == f"{n}".encode()
        assert (await fetch(there)).status == 204


def make_symlink(path: Path) -> None:
    target = path.parents[2] / "new" / ".target"
    target.write_bytes(b"secret")
    path.symlink_to(target)


FOREIGN: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a foreign name": ("notes.txt", Path.touch),
    "an id with more behind it": (f"{id_at()}~", Path.touch),
    "an id in capitals": (id_at(0xABCDEF).upper(), Path.touch),
    "a UUID of another version": (id_at().replace("-7", "-4", 1), Path.touch),
    "an unknown extension": (f"{id_at()}.exe", Path.touch),
    "an entry of another folder": (f"q:{id_at()}", Path.touch),
    "a priority of nought": (f"{id_at()},p=0", Path.touch),
    "a dotfile": (f".{id_at()}", Path.touch),
    "a file that NFS keeps": (".nfs000000000001", Path.touch),
    "a name that is not UTF-8": ("\udcff\udcfe", Path.touch),
    "a symbolic link": (id_at(), make_symlink),
    "a broken symbolic link": (id_at(), lambda path: path.symlink_to("nowhere")),
    "a folder": (id_at(), Path.mkdir),
    "a FIFO": (id_at(), os.mkfifo),
}


@pytest.mark.parametrize(("name", "make"), FOREIGN.values(), ids=FOREIGN.keys())
async def test_what_is_no_message_is_left_alone(
    server: Server, root: Path, name: str, make: Callable[[Path], None]
) -> None:
    await make_queue(server)
    foreign = root / "queues" / "q" / name
    make(foreign)
    before = foreign.lstat()
    assert (await fetch(server)).status == 204
    message_id = await publish(server, b"a message")
    assert (await fetch(server)).id == message_id
    assert (await fetch(server)).status == 204
    assert (await call(server, "GET", "/q")).json()["ready"] == 0
    after = foreign.lstat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_mtime_ns,
    )


# Races


async def test_of_concurrent_fetches_each_gets_a_message_of_its_own(server: Server) -> None:
    await make_queue(server)
    ids = [await publish(server) for _ in range(10)]
    replies = await asyncio.gather(*(fetch(server) for _ in range(25)))
    assert sorted(reply.id for reply in replies if reply.status == 200) == ids
    assert [reply.status for reply in replies].count(204) == 15


@pytest.mark.parametrize("peers", [0, 3])
async def test_peers_never_serve_a_message_twice(serve: Serve, peers: int) -> None:
    servers = [await serve(peers=peers) for _ in range(3)]
    await make_queue(servers[0])
    ids = await asyncio.gather(*(publish(servers[n % 3]) for n in range(60)))
    fetched: list[str] = []

    async def drain(server: Server) -> None:
        while (reply := await fetch(server)).status == 200:
            fetched.append(reply.id)

    await asyncio.gather(*(drain(server) for server in servers for _ in range(3)))
    assert sorted(fetched) == sorted(ids)


async def test_a_race_that_was_lost_is_no_error(server: Server, root: Path) -> None:
    await make_queue(server)
    ids = [await publish(server) for _ in range(4)]
    (root / "queues" / "q" / ids[0]).unlink()
    (root / "queues" / "q" / ids[1]).rename(root / "delay" / f"q:{ids[1]}")
    assert (await fetch(server)).id == ids[2]
    (root / "queues" / "q" / ids[3]).unlink()
    assert (await fetch(server)).status == 204


async def test_a_file_gone_just_after_it_was_listed_is_no_error(serve: Serve, root: Path) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    ids = [await publish(server) for _ in range(2)]
    gate = files.hold("rename", f"/delay/q:{ids[0]}")
    fetching = asyncio.create_task(fetch(server))
    await comes_true(gate.reached.is_set)
    (root / "queues" / "q" / ids[0]).unlink()
    gate.open()
    assert (await fetching).id == ids[1]


# Large bodies, and clients that go


async def test_a_large_body_streams_and_its_file_is_closed(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    body = random.Random(1).randbytes(5 * MIB + 1)
    await publish(server, body)
    reply = await fetch(server)
    assert hashlib.sha256(reply.body).digest() == hashlib.sha256(body).digest()
    assert reply.headers["Content-Length"] == str(len(body))
    assert reply.headers["X-Message-Receives"] == "1"
    assert reply.headers["Cache-Control"] == "no-store"
    await comes_true(lambda: not files.open_paths("/q"), "the file is closed")


@pytest.mark.certificate
async def test_a_client_that_goes_in_the_middle_of_a_body_leaves_no_file_open(
    serve: Serve, root: Path
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    # More than sockets hold, so that the daemon is still writing.
    message_id = await publish(server, b"x" * (32 * MIB))
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/q/messages"))
        assert (await connection.response(head_only=True)).status == 200
    await comes_true(lambda: not files.open_paths("/q"), "the file is closed")
    assert message_files(root)["delay"] == [f"q:{message_id}"]


@pytest.mark.parametrize("size", [5, 2 * MIB], ids=["held", "streamed"])
async def test_a_message_claimed_for_a_client_that_went_is_ready_again(
    serve: Serve, root: Path, size: int
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server, b"x" * size)
    gate = files.hold("rename", "/delay/q:")
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/q/messages"))
        await comes_true(gate.reached.is_set)
    await comes_true(lambda: connections(server) <= 1, "the connection is gone")
    gate.open()
    await comes_true(lambda: files.count("rename", f"/delay/q:{message_id}"), "its release")
    await comes_true(lambda: message_files(root)["queues"], "the message is ready")
    reply = await fetch(server)
    assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, "2")
    assert not files.open_paths("/queues/q/") or size > MIB


async def test_a_client_that_went_does_not_take_a_message_from_one_who_waits(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    ids = [await publish(server) for _ in range(2)]
    gate = files.hold("rename", f"/delay/q:{ids[0]}")
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/q/messages"))
        await comes_true(gate.reached.is_set)
        waiting = asyncio.create_task(fetch(server))
    await comes_true(lambda: connections(server) <= 2, "the connection is gone")
    gate.open()
    assert (await waiting).status == 200
    # Either got the first one's, or waited for its turn; nothing is lost for the next.
    assert (await comes_true(lambda: fetched_one(server))) in ids


async def test_a_fetch_gets_no_claim_that_is_older_than_itself(serve: Serve) -> None:
    """The message may have been deleted since: the claim was for a client that went."""
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    message_id = await publish(server)
    gate = files.hold("sync", f"/queues/q/{message_id}")
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/q/messages"))
        await comes_true(gate.reached.is_set)
    await comes_true(lambda: connections(server) <= 1, "the connection is gone")
    other = await serve()  # What is held in the first holds up its own deletes too.
    assert (await delete(other, message_id)).status == 202
    asking = asyncio.create_task(fetch(server))
    await comes_true(lambda: fetches_waiting(server, "q"), "a fetch that waits")
    gate.open()
    assert (await asking).status == 204


async def fetched_one(server: Server) -> str:
    reply = await fetch(server)
    return reply.id if reply.status == 200 else ""
