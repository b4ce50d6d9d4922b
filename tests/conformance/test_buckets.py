"""Over HTTP: whatever lies in buckets is served, counted and deleted like what lies flat; and how a
queue's buckets are chosen.
"""

import asyncio
import itertools
import urllib.request
from pathlib import Path

import pytest
from harness.api import assert_problem, call, delete, fetch, make_queue, post, publish
from harness.audits import assert_audits_clean
from harness.folders import files_below, message_files
from harness.processes import Processes, eventually
from harness.server import Serve, Server

TINY = 2


@pytest.fixture
async def tiny(serve: Serve) -> Server:
    """An mq whose folders hold two files."""
    server = await serve(folder_max=TINY)
    await make_queue(server)
    return server


def places(server: Server, state: str = "queues/q") -> list[int]:
    """How many folders below the state's own the messages lie."""
    top = server.root / state
    return sorted(len(path.relative_to(top).parts) - 1 for path in files_below(top))


async def test_every_message_of_a_large_backlog_in_order_and_once(tiny: Server) -> None:
    ids = [await publish(tiny, b"%d" % number) for number in range(12)]
    assert places(tiny) == [0] * TINY + [1] * TINY + [2] * (12 - 2 * TINY)
    for number, message_id in enumerate(ids):
        reply = await fetch(tiny)
        assert (reply.id, reply.body) == (message_id, b"%d" % number)
    assert (await fetch(tiny)).status == 204
    assert places(tiny, "delay") == [0] * TINY + [1] * TINY + [2] * (12 - 2 * TINY)
    for message_id in ids:
        assert (await delete(tiny, message_id)).status == 202
    assert places(tiny, "remove") == [0] * TINY + [1] * TINY + [2] * (12 - 2 * TINY)
    for message_id in ids:
        assert (await delete(tiny, message_id)).status == 202
    assert_audits_clean(tiny.root)


async def test_what_is_ready_is_deleted_by_its_id_wherever_it_lies(tiny: Server) -> None:
    ids = [await publish(tiny) for _ in range(7)]
    for message_id in reversed(ids):
        assert (await delete(tiny, message_id, headers={"If-Match": '"0"'})).status == 202
    assert (await fetch(tiny)).status == 204
    assert message_files(tiny.root)["remove"] == [f"q:{message_id}" for message_id in ids]


async def test_if_match_is_held_against_what_lies_in_a_bucket(tiny: Server) -> None:
    ids = [await publish(tiny) for _ in range(6)]
    for _ in ids:
        await fetch(tiny)
    for message_id in ids:
        reply = await delete(tiny, message_id, headers={"If-Match": '"2"'})
        assert assert_problem(reply, 412, "delivered-again")["receives"] == 1


async def test_a_description_counts_what_lies_in_buckets(tiny: Server) -> None:
    ids = [await publish(tiny) for _ in range(12)]
    for _ in range(6):
        await fetch(tiny)
    for message_id in ids[6:8]:
        await delete(tiny, message_id)
    found = (await call(tiny, "GET", "/q")).json()
    assert (found["ready"], found["in_flight"], found["removed"], found["foreign"]) == (4, 6, 2, 0)


async def test_deleting_a_queue_takes_its_buckets_and_what_it_has_in_delay(tiny: Server) -> None:
    for _ in range(12):
        await publish(tiny)
    for _ in range(6):
        await fetch(tiny)
    assert (await call(tiny, "DELETE", "/q")).status == 200
    assert (await call(tiny, "PUT", "/q")).status == 201
    assert message_files(tiny.root)["delay"] == []
    assert (await fetch(tiny)).status == 204
    assert len(message_files(tiny.root)["remove"]) == 6
    assert_audits_clean(tiny.root)


async def test_processes_that_judge_differently_serve_each_other_s_messages(serve: Serve) -> None:
    servers = [await serve(folder_max=limit) for limit in (1, 3, 10_000)]
    await make_queue(servers[0])
    ids = [await publish(servers[number % 3]) for number in range(18)]
    found = [(await fetch(servers[number % 3])).id for number in range(18)]
    assert sorted(found) == sorted(ids)
    for number, message_id in enumerate(ids):
        assert (await delete(servers[number % 2], message_id)).status == 202
    assert_audits_clean(servers[0].root)


async def test_many_clients_at_once(tiny: Server) -> None:
    await asyncio.gather(*(publish(tiny, b"%d" % number) for number in range(60)))

    async def consume() -> list[bytes]:
        bodies = []
        while (reply := await fetch(tiny)).status == 200:
            bodies.append(reply.body)
            assert (await delete(tiny, reply.id)).status == 202
        return bodies

    taken = await asyncio.gather(*(consume() for _ in range(6)))
    assert sorted(itertools.chain(*taken)) == sorted(b"%d" % number for number in range(60))


@pytest.mark.certificate
def test_the_daemons_with_tiny_folders(daemons: Processes, root: Path) -> None:
    """Redelivered from buckets, deleted and reaped, until nothing is left."""
    mq = daemons.mq(root, "--folder-max", "2")
    daemons.mover("--root", str(root), "--folder-max", "2")
    daemons.reaper("--source", str(root / "remove"))

    def ask(method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{mq.url}{path}", body, headers, method=method)
        with urllib.request.urlopen(request) as response:
            return response.status, response.headers.get("X-Message-Id", "")

    ask("PUT", "/q")
    ids = {ask("POST", "/q/messages", b"x")[1] for _ in range(12)}
    assert {ask("GET", "/q/messages")[1] for _ in range(12)} == ids
    assert any((root / "delay").glob("*/*/q:*"))

    for message_id in ids:
        assert ask("PATCH", f"/q/messages/{message_id}", b'{"due_in_s": 1}')[0] == 200
    again: set[str] = set()

    def came_back() -> bool:
        status, message_id = ask("GET", "/q/messages")
        if status == 200 and message_id not in again:
            again.add(message_id)
            assert ask("DELETE", f"/q/messages/{message_id}")[0] == 202
        return again == ids

    eventually(came_back, "every message again")
    eventually(lambda: message_files(root)["remove"] == [], "an empty remove/")


SHAPES = {"bucket=7": (7, 1), "bucket=9&shards=3": (9, 3), "shards=16": (8, 16), "": (8, 1)}


@pytest.mark.parametrize("query", SHAPES)
async def test_a_queue_s_shape_is_chosen_when_it_is_made(serve: Serve, query: str) -> None:
    server = await serve(folder_max=1)
    digits, shards = SHAPES[query]
    assert (await call(server, "PUT", f"/q?{query}")).status == 201
    for path in (f"/q?{query}", "/q"):
        assert (await call(server, "PUT", path)).status == 200
    settings = (await call(server, "GET", "/q")).json()["settings"]
    assert (settings["bucket"], settings["shards"]) == (digits, shards)
    assert (server.root / "settings" / "q.json").exists() == (query != "")
    ids = [await publish(server) for _ in range(6)]
    buckets = {path.name for path in (server.root / "queues" / "q").iterdir() if path.is_dir()}
    assert {len(name.partition("-")[0]) for name in buckets} == {digits}
    assert all(("-" in name) == (shards > 1) for name in buckets)
    other = await serve()  # Reads it from the disk.
    for message_id in ids:
        assert (await fetch(other)).id == message_id
        assert (await delete(other, message_id)).status == 202
    assert_audits_clean(server.root)


@pytest.mark.parametrize("query", ["bucket=8", "shards=2", "bucket=7&shards=3"])
async def test_another_shape_than_a_queue_has(server: Server, query: str) -> None:
    await call(server, "PUT", "/q?bucket=7&shards=2")
    reply = await call(server, "PUT", f"/q?{query}")
    expected = 200 if query == "shards=2" else 409
    assert reply.status == expected
    if expected == 409:
        assert assert_problem(reply, 409, "settings-fixed")["queue"] == "q"


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        *((f"bucket={value}", "bucket") for value in ("6", "10", "", "8.0")),
        *((f"shards={value}", "shards") for value in ("0", "17", "-1", "02", "2&shards=2")),
        ("bucket=8&shards=x", "shards"),
    ],
)
async def test_a_shape_that_no_queue_has(server: Server, query: str, parameter: str) -> None:
    reply = await call(server, "PUT", f"/q?{query}")
    assert assert_problem(reply, 400, f"bad-{parameter}")["parameter"] == parameter
    assert not (server.root / "queues" / "q").exists()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_only_making_a_queue_has_these_parameters(server: Server, method: str) -> None:
    await make_queue(server)
    reply = await call(server, method, "/q?shards=1")
    assert assert_problem(reply, 400, "unknown-parameter")["parameter"] == "shards"


@pytest.mark.certificate
async def test_a_queue_made_anew_has_the_shape_that_is_asked_for_then(serve: Serve) -> None:
    server, other = await serve(folder_max=1), await serve(folder_max=1)
    for query, digits in (("?bucket=7", 7), ("?bucket=9", 9), ("", 8)):
        assert (await call(server, "PUT", f"/q{query}")).status == 201
        # The other process meets the queue anew without having been told.
        ids = [await publish(other) for _ in range(4)]
        for message_id in ids:
            assert (await delete(server, message_id)).status == 202
        settings = (await call(server, "GET", "/q")).json()["settings"]
        assert settings["bucket"] == digits
        assert (await call(server, "DELETE", "/q")).status == 200
        assert not (server.root / "settings" / "q.json").exists()


async def test_damaged_settings_lose_nothing_and_are_no_guess(serve: Serve) -> None:
    server = await serve(folder_max=1)
    await call(server, "PUT", "/q?bucket=7&shards=2")
    ids = [await publish(server) for _ in range(4)]
    settings = server.root / "settings" / "q.json"
    whole = settings.read_bytes()
    settings.write_bytes(whole[:5])
    assert_problem(await post(server), 503, "settings-unreadable")
    assert_problem(await call(server, "GET", "/q"), 503, "settings-unreadable")
    assert_problem(await call(server, "PUT", "/q?shards=2"), 503, "settings-unreadable")
    assert (await call(server, "PUT", "/q")).status == 200
    assert (await fetch(server)).id == ids[0]
    again = await serve(folder_max=1)  # Which has never seen them whole.
    assert (await fetch(again)).id == ids[1]
    assert_problem(await delete(again, ids[3]), 503, "settings-unreadable")
    assert message_files(server.root)["new"] == []
    settings.write_bytes(whole)
    for message_id in ids:
        assert (await delete(again, message_id)).status == 202


@pytest.mark.certificate
async def test_a_queue_with_damaged_settings_is_deleted(server: Server) -> None:
    await call(server, "PUT", "/q?bucket=7")
    (server.root / "settings" / "q.json").write_bytes(b"{")
    assert (await call(server, "DELETE", "/q")).status == 200
    assert (await call(server, "PUT", "/q?bucket=9")).status == 201
    assert (await call(server, "GET", "/q")).json()["settings"]["bucket"] == 9


async def test_peers_empty_every_shard(serve: Serve) -> None:
    servers = [await serve(folder_max=1, peers=1, peer_index=start) for start in (0, 1)]
    await call(servers[0], "PUT", "/q?shards=2")
    ids = {await publish(servers[0]) for _ in range(16)}
    found = [(await fetch(servers[number % 2])).id for number in range(16)]
    assert set(found) == ids
    assert (await fetch(servers[0])).status == 204
