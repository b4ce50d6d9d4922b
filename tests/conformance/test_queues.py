"""`/{queue}`: made, described, deleted; and what is left of it, which is nothing."""

import asyncio
import os
import re
from pathlib import Path

import pytest
from harness.api import (
    STILL_MS,
    UNKNOWN_ID,
    StillClock,
    assert_problem,
    call,
    delete,
    fetch,
    id_at,
    make_queue,
    publish,
)
from harness.folders import message_files
from harness.server import Serve, Server
from harness.waiting import comes_true

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

ROUTES = {
    "/q": {"PUT", "GET", "HEAD", "DELETE", "OPTIONS"},
    "/q/messages": {"POST", "GET", "OPTIONS"},
    f"/q/messages/{UNKNOWN_ID}": {"DELETE", "OPTIONS"},
    "/-/livez": {"GET", "HEAD", "OPTIONS"},
    "/-/readyz": {"GET", "HEAD", "OPTIONS"},
}


def allowed(header: str) -> set[str]:
    return {method.strip() for method in header.split(",")}


# PUT


async def test_put_makes_the_queue_once(server: Server, root: Path) -> None:
    assert (await call(server, "PUT", "/q")).status == 201
    assert (root / "queues" / "q").is_dir()
    assert (await call(server, "PUT", "/q")).status == 200


async def test_put_of_a_queue_that_is_there_keeps_its_messages(server: Server) -> None:
    await make_queue(server)
    await publish(server, b"kept")
    await make_queue(server)
    assert (await fetch(server)).body == b"kept"


@pytest.mark.parametrize("size", [1, 1000, 8 * 1024 * 1024])
async def test_put_discards_its_body(server: Server, root: Path, size: int) -> None:
    assert (await call(server, "PUT", "/q", data=b"x" * size)).status == 201
    assert (await call(server, "PUT", "/q", data=b"x" * size)).status == 200
    assert list((root / "queues" / "q").iterdir()) == []
    assert list((root / "new").iterdir()) == []


async def test_of_concurrent_puts_one_makes_the_queue(server: Server) -> None:
    replies = await asyncio.gather(*(call(server, "PUT", "/q") for _ in range(10)))
    assert sorted(reply.status for reply in replies) == [200] * 9 + [201]


async def test_put_finds_a_queue_that_another_process_made(server: Server, root: Path) -> None:
    (root / "queues" / "q").mkdir()
    assert (await call(server, "PUT", "/q")).status == 200


async def test_a_symbolic_link_is_no_queue(server: Server, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / "queues" / "q").symlink_to(elsewhere)
    assert_problem(await call(server, "GET", "/q"), 404, "queue-not-found")
    assert (await call(server, "POST", "/q/messages", data=b"x")).status == 404
    assert_problem(await call(server, "PUT", "/q"), 409, "name-taken")
    assert list(elsewhere.iterdir()) == []


# GET, HEAD


async def test_describe_counts_every_state(server: Server, root: Path) -> None:
    await make_queue(server)
    await make_queue(server, "q_SIDELINE")
    for _ in range(2):
        await publish(server, queue="q_SIDELINE")
    ids = [await publish(server) for _ in range(4)]
    assert (await fetch(server)).id == ids[0]
    assert (await delete(server, ids[1])).status == 202
    scheduled = root / "delay" / f"q:{id_at()}"
    scheduled.touch()
    os.utime(scheduled, ns=(STILL_MS * 1_000_000,) * 2)

    reply = await call(server, "GET", "/q")
    assert reply.status == 200
    assert reply.headers["Content-Type"].partition(";")[0] == "application/json"
    description = reply.json()
    counts = ("name", "ready", "delayed", "in_flight", "removed", "sidelined")
    assert {name: description[name] for name in counts} == {
        "name": "q",
        "ready": 2,
        "delayed": 1,
        "in_flight": 1,
        "removed": 1,
        "sidelined": 2,
    }
    totals = description["totals"]
    assert (totals["published"], totals["fetched"], totals["deleted"]) == (4, 1, 1)
    assert description["as_of"]
    assert all(RFC3339.fullmatch(when) for when in description["as_of"].values())
    assert description["settings"]["visibility_s"] == 30
    assert description["settings"]["body_bytes_max"] > 0


async def test_describe_tells_the_age_of_the_oldest_ready_message(serve: Serve, root: Path) -> None:
    server = await serve(clock=StillClock())
    await make_queue(server)
    for age_s in (60, 3600, 5):
        (root / "queues" / "q" / id_at(STILL_MS - age_s * 1000)).touch()
    description = (await call(server, "GET", "/q")).json()
    assert description["oldest_ready_age_s"] == 3600


async def test_describe_of_an_empty_queue_has_no_age(server: Server) -> None:
    await make_queue(server)
    assert (await call(server, "GET", "/q")).json()["oldest_ready_age_s"] is None


async def test_describe_counts_no_foreign_file_as_a_message(server: Server, root: Path) -> None:
    await make_queue(server)
    (root / "queues" / "q" / "notes").touch()
    (root / "delay" / "q:notes").touch()
    (root / "remove" / "q:notes").touch()
    description = (await call(server, "GET", "/q")).json()
    states = ("ready", "delayed", "in_flight", "removed")
    assert {state: description[state] for state in states} == dict.fromkeys(states, 0)


async def test_describe_counts_nothing_of_queues_with_like_names(server: Server) -> None:
    for name in ("q", "q.q", "qq"):
        await make_queue(server, name)
    for name in ("q.q", "qq"):
        for _ in range(3):
            await publish(server, queue=name)
        await delete(server, (await fetch(server, name)).id, name)
        await fetch(server, name)
    description = (await call(server, "GET", "/q")).json()
    states = ("ready", "delayed", "in_flight", "removed", "sidelined")
    assert {state: description[state] for state in states} == dict.fromkeys(states, 0)


async def test_describe_is_at_most_a_second_old(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    assert (await call(server, "GET", "/q")).json()["ready"] == 0
    await publish(server)
    clock.steady += 1.0
    assert (await call(server, "GET", "/q")).json()["ready"] == 1


async def test_describe_of_an_unknown_queue_is_404(server: Server) -> None:
    assert_problem(await call(server, "GET", "/q"), 404, "queue-not-found")


async def test_head_answers_as_get_without_the_body(server: Server) -> None:
    assert (await call(server, "HEAD", "/q")).status == 404
    await make_queue(server)
    reply = await call(server, "HEAD", "/q")
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["Content-Type"].partition(";")[0] == "application/json"


# OPTIONS, and methods that are not there


@pytest.mark.parametrize("path", ROUTES)
async def test_options_tells_what_is_allowed(server: Server, path: str) -> None:
    reply = await call(server, "OPTIONS", path)
    assert (reply.status, reply.body) == (204, b"")
    assert allowed(reply.headers["Allow"]) >= ROUTES[path]


@pytest.mark.parametrize("path", ROUTES)
async def test_a_method_that_is_not_there_is_405_with_allow(server: Server, path: str) -> None:
    reply = await call(server, "PROPFIND", path)
    assert_problem(reply, 405, "method-not-allowed")
    assert allowed(reply.headers["Allow"]) >= ROUTES[path]
    assert "PROPFIND" not in reply.headers["Allow"]


@pytest.mark.parametrize(
    "path", ["//", "/q/", "/q/unknown", "/-", "/-/unknown", "//q", "/q/messages/"]
)
async def test_a_path_that_is_not_there_is_404(server: Server, path: str) -> None:
    await make_queue(server)
    assert_problem(await call(server, "GET", path), 404, "path-unknown")


# DELETE


async def test_delete_of_an_unknown_queue_is_404(server: Server, root: Path) -> None:
    assert_problem(await call(server, "DELETE", "/q"), 404, "queue-not-found")
    assert not (root / "deleted" / "q").exists()


async def test_a_deleted_queues_messages_all_come_to_remove(server: Server, root: Path) -> None:
    await make_queue(server)
    bodies = {await publish(server, f"body {n}".encode()): f"body {n}" for n in range(4)}
    fetched = (await fetch(server)).id
    removed = (await fetch(server)).id
    await delete(server, removed)

    assert (await call(server, "DELETE", "/q")).status == 200
    assert not (root / "queues" / "q").exists()
    await comes_true(lambda: not message_files(root)["delay"], "delay/ is empty")

    found = {
        path.name.removeprefix("q:"): path.read_text()
        for path in (root / "remove").rglob("*")
        if path.is_file()
    }
    assert found == bodies
    assert fetched in found


async def test_every_operation_on_a_deleted_queue_is_404(server: Server) -> None:
    await make_queue(server)
    ready, delayed = await publish(server), await publish(server)
    delayed, ready = (await fetch(server)).id, delayed
    assert (await call(server, "DELETE", "/q")).status == 200
    for reply in (
        await call(server, "GET", "/q"),
        await call(server, "DELETE", "/q"),
        await call(server, "POST", "/q/messages", data=b"x"),
        await fetch(server),
        await delete(server, ready),
        await delete(server, delayed),
    ):
        assert_problem(reply, 404, "queue-not-found")


async def test_a_queue_made_again_shows_nothing_of_the_old_one(server: Server, root: Path) -> None:
    await make_queue(server)
    for _ in range(3):
        await publish(server, b"old")
    await fetch(server)
    assert (await call(server, "DELETE", "/q")).status == 200
    assert (await call(server, "PUT", "/q")).status == 201
    # Nothing is left in delay/ that a mover could bring into the new queue.
    assert message_files(root)["delay"] == []
    assert (await fetch(server)).status == 204
    await publish(server, b"new")
    assert (await fetch(server)).body == b"new"


async def test_what_a_crash_left_in_delay_is_gone_before_the_queue_is_made_again(
    server: Server, root: Path
) -> None:
    # A crash after the folder's rename: the tombstone stands, delay/ was not looked through.
    (root / "deleted" / "q").touch()
    (root / "delay" / f"q:{id_at()}").write_bytes(b"old")
    (root / "delay" / f"qq:{id_at()}").write_bytes(b"another queue's")
    assert (await call(server, "PUT", "/q")).status == 201
    assert not (root / "deleted" / "q").exists()
    files = message_files(root)
    assert files["delay"] == [f"qq:{id_at()}"]
    assert files["remove"] == [f"q:{id_at()}"]


async def test_a_tombstone_stands_from_delete_to_put(server: Server, root: Path) -> None:
    tombstone = root / "deleted" / "q"
    await make_queue(server)
    assert not tombstone.exists()
    await call(server, "DELETE", "/q")
    assert tombstone.is_file()
    await make_queue(server)
    assert not tombstone.exists()


async def test_a_tombstone_beside_the_folder_means_nothing(server: Server, root: Path) -> None:
    # A crash between the two steps of a delete that was never answered.
    await make_queue(server)
    await publish(server, b"kept")
    (root / "deleted" / "q").touch()
    assert (await call(server, "PUT", "/q")).status == 200
    assert (await fetch(server)).body == b"kept"


async def test_delete_leaves_queues_with_like_names_alone(server: Server, root: Path) -> None:
    others = ("qq", "q.q", "q_SIDELINE")
    for name in ("q", *others):
        await make_queue(server, name)
        await publish(server, queue=name)
        await publish(server, queue=name)
        await fetch(server, name)
    assert (await call(server, "DELETE", "/q")).status == 200
    await comes_true(
        lambda: not any(name.startswith("q:") for name in message_files(root)["delay"])
    )
    files = message_files(root)
    assert {name.partition(":")[0] for name in files["delay"]} == set(others)
    assert {name.partition(":")[0] for name in files["queues"]} == set(others)


async def test_of_concurrent_deletes_one_deletes(server: Server) -> None:
    await make_queue(server)
    replies = await asyncio.gather(*(call(server, "DELETE", "/q") for _ in range(6)))
    assert sorted(reply.status for reply in replies) == [200] + [404] * 5


async def test_a_queue_is_made_and_deleted_again_and_again(server: Server, root: Path) -> None:
    for n in range(5):
        assert (await call(server, "PUT", "/q")).status == 201
        await publish(server, f"{n}".encode())
        await publish(server, b"never fetched")
        assert (await fetch(server)).body == f"{n}".encode()
        assert (await call(server, "DELETE", "/q")).status == 200


async def test_a_queue_deleted_through_another_mq_is_gone_here(serve: Serve) -> None:
    here, there = await serve(), await serve()
    await make_queue(here)
    await publish(here)
    assert (await call(there, "DELETE", "/q")).status == 200
    assert (await fetch(here)).status == 404
    assert (await call(here, "POST", "/q/messages", data=b"x")).status == 404
