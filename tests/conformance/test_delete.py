"""`DELETE /{queue}/messages/{id}`: gone for good, from wherever it is."""

import asyncio
from pathlib import Path

import pytest
from harness.api import UNKNOWN_ID, assert_problem, call, delete, fetch, make_queue, publish
from harness.folders import message_files, tree
from harness.raw import raw_head, raw_request
from harness.server import Serve, Server


async def deliver_again(server: Server, message_id: str) -> None:
    """Makes a delayed message ready as redelivery does, and fetches it."""
    delayed = server.root / "delay" / f"q:{message_id}"
    delayed.rename(server.root / "queues" / "q" / message_id)
    assert (await fetch(server)).id == message_id


async def fetched(server: Server, times: int = 1) -> str:
    """A message that was delivered so many times."""
    await make_queue(server)
    message_id = await publish(server)
    assert (await fetch(server)).id == message_id
    for _ in range(times - 1):
        await deliver_again(server, message_id)
    return message_id


def only_in_remove(server: Server, message_id: str) -> bool:
    files = message_files(server.root)
    return files == {"new": [], "queues": [], "delay": [], "remove": [f"q:{message_id}"]}


# From every state


async def test_a_ready_message_is_deleted(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    reply = await delete(server, message_id)
    assert (reply.status, reply.body) == (202, b"")
    assert only_in_remove(server, message_id)
    assert (await fetch(server)).status == 204


async def test_a_fetched_message_is_deleted(server: Server) -> None:
    message_id = await fetched(server)
    assert (await delete(server, message_id)).status == 202
    assert only_in_remove(server, message_id)


async def test_a_delete_can_be_said_again(server: Server) -> None:
    message_id = await fetched(server)
    for _ in range(3):
        assert (await delete(server, message_id)).status == 202
    assert only_in_remove(server, message_id)


async def test_concurrent_deletes_of_a_message_all_succeed(server: Server) -> None:
    message_id = await fetched(server)
    replies = await asyncio.gather(*(delete(server, message_id) for _ in range(8)))
    assert {reply.status for reply in replies} == {202}
    assert only_in_remove(server, message_id)


async def test_a_delete_through_another_mq_works(serve: Serve) -> None:
    here, there = await serve(), await serve()
    message_id = await fetched(here)
    assert (await delete(there, message_id)).status == 202
    assert only_in_remove(here, message_id)


async def test_a_deleted_body_stays_until_it_is_reaped(server: Server, root: Path) -> None:
    message_id = await fetched(server)
    await delete(server, message_id)
    assert (root / "remove" / f"q:{message_id}").read_bytes() == b"hello"


# What is not there


async def test_a_message_that_was_never_there_is_404(server: Server) -> None:
    await make_queue(server)
    assert_problem(await delete(server, UNKNOWN_ID), 404, "message-not-found")


async def test_a_reaped_message_is_404(server: Server, root: Path) -> None:
    message_id = await fetched(server)
    await delete(server, message_id)
    (root / "remove" / f"q:{message_id}").unlink()
    assert_problem(await delete(server, message_id), 404, "message-not-found")


async def test_an_unknown_queue_is_404(server: Server) -> None:
    assert_problem(await delete(server, UNKNOWN_ID), 404, "queue-not-found")


async def test_another_queues_message_is_404(server: Server) -> None:
    await make_queue(server)
    await make_queue(server, "other")
    message_id = await publish(server, queue="other")
    assert_problem(await delete(server, message_id), 404, "message-not-found")
    assert (await fetch(server, "other")).id == message_id


async def test_the_whole_id_names_a_message(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server, headers={"Content-Type": "application/json"})
    bare = message_id.removesuffix(".json")
    assert_problem(await delete(server, bare), 404, "message-not-found")
    assert_problem(await delete(server, f"{bare}.txt"), 404, "message-not-found")
    assert (await delete(server, message_id)).status == 202


# Names


BAD_IDS = {
    "dot": ".",
    "dot dot": "..",
    "escaped dots": "%2e%2e",
    "climbing": "%2e%2e%2fformat",
    "climbing far": "..%2f..%2f..%2fetc%2fpasswd",
    "slash": "%2F",
    "an id behind a slash": f"%2F{UNKNOWN_ID}",
    "an id with a slash behind it": f"{UNKNOWN_ID}%2F",
    "an id with a slash in it": f"{UNKNOWN_ID[:8]}%2F{UNKNOWN_ID[8:]}",
    "a queue before it": f"q:{UNKNOWN_ID}",
    "nul": "%00",
    "an id and nul": f"{UNKNOWN_ID}%00",
    "an id and newline": f"{UNKNOWN_ID}%0a",
    "an id and space": f"{UNKNOWN_ID}%20",
    "300 bytes": "a" * 300,
    "an id of 300 bytes": f"{UNKNOWN_ID},k=" + "a" * 261,
    "letter with accent": "%C3%A9",
    "digits of another script": "%D9%A1" * 8 + UNKNOWN_ID[8:],
    "invalid UTF-8": "%ff",
    "capitals": UNKNOWN_ID.upper(),
    "no dashes": UNKNOWN_ID.replace("-", ""),
    "another version": UNKNOWN_ID.replace("-7", "-4"),
    "unknown extension": f"{UNKNOWN_ID}.exe",
    "no extension": f"{UNKNOWN_ID}.",
    "priority of nought": f"{UNKNOWN_ID},p=0",
    "priority of ten": f"{UNKNOWN_ID},p=10",
    "attributes in another order": f"{UNKNOWN_ID},v=9,p=1",
    "unknown attribute": f"{UNKNOWN_ID},z=1",
    "leading nought": f"{UNKNOWN_ID},v=09",
    "too long a header block": f"{UNKNOWN_ID},h=9999",
    "key that needs no escape": f"{UNKNOWN_ID},k==41",
    "key that is no UTF-8": f"{UNKNOWN_ID},k==FF",
    "a probe's name": ".probe",
}


@pytest.mark.parametrize("message_id", BAD_IDS.values(), ids=BAD_IDS.keys())
async def test_a_malformed_id_is_400(server: Server, tmp_path: Path, message_id: str) -> None:
    await make_queue(server)
    await publish(server)
    before = tree(tmp_path)
    reply = await raw_request(server.port, raw_head("DELETE", f"/q/messages/{message_id}"))
    assert assert_problem(reply, 400, "bad-name")["parameter"] == "id"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("path", ["/q/messages/", "/q/messages/../format", "/q/messages//x"])
async def test_a_path_with_too_few_or_many_segments_is_404(server: Server, path: str) -> None:
    await make_queue(server)
    before = tree(server.root)
    reply = await raw_request(server.port, raw_head("DELETE", path))
    assert_problem(reply, 404, "path-unknown")
    assert tree(server.root) == before


# If-Match


@pytest.mark.parametrize(
    "value", ['"2"', "*", ' "2" ', '"1", "2"', '"7","2","x"', 'W/"1", "2"', " * "]
)
async def test_if_match_with_the_last_receives_deletes(server: Server, value: str) -> None:
    message_id = await fetched(server, times=2)
    reply = await delete(server, message_id, headers={"If-Match": value})
    assert reply.status == 202, reply.body
    assert only_in_remove(server, message_id)


@pytest.mark.parametrize(
    "value", ['"1"', '"3"', '"1", "3"', '"02"', '" 2"', '""', '"x"', 'W/"2"', 'W/"2", W/"2"']
)
async def test_if_match_with_anything_else_is_412(server: Server, value: str) -> None:
    message_id = await fetched(server, times=2)
    reply = await delete(server, message_id, headers={"If-Match": value})
    assert assert_problem(reply, 412, "delivered-again")["receives"] == 2
    assert message_files(server.root)["delay"] == [f"q:{message_id}"]
    assert (await delete(server, message_id, headers={"If-Match": '"2"'})).status == 202


@pytest.mark.parametrize(
    "value", ["", "2", '"2', '2"', "'2'", '"2" "3"', '*, "2"', '"2", *', 'w/"2"', "**", '"2";']
)
async def test_a_malformed_if_match_is_400(server: Server, value: str) -> None:
    message_id = await fetched(server, times=2)
    reply = await raw_request(
        server.port, raw_head("DELETE", f"/q/messages/{message_id}", f"If-Match: {value}")
    )
    assert_problem(reply, 400, "bad-if-match")
    assert message_files(server.root)["delay"] == [f"q:{message_id}"]


async def test_if_match_in_two_lines_is_one_list(server: Server) -> None:
    message_id = await fetched(server, times=2)
    head = raw_head("DELETE", f"/q/messages/{message_id}", 'If-Match: "1"', 'If-Match: "2"')
    assert (await raw_request(server.port, head)).status == 202


async def test_a_consumer_that_was_too_slow_cannot_delete_the_next_ones_message(
    server: Server,
) -> None:
    await make_queue(server)
    await publish(server)
    slow = await fetch(server)
    await deliver_again(server, slow.id)
    reply = await delete(server, slow.id, headers={"If-Match": slow.headers["ETag"]})
    assert_problem(reply, 412, "delivered-again")


async def test_if_match_of_a_message_that_was_never_fetched(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    reply = await delete(server, message_id, headers={"If-Match": '"1"'})
    problem = assert_problem(reply, 412, "delivered-again")
    assert problem["receives"] == 0
    assert problem["detail"].startswith("If-Match names another delivery")
    assert (await delete(server, message_id, headers={"If-Match": '"0"'})).status == 202


async def test_if_match_of_a_removed_message_is_202(server: Server) -> None:
    message_id = await fetched(server)
    await delete(server, message_id)
    assert (await delete(server, message_id, headers={"If-Match": '"1"'})).status == 202


async def test_if_match_of_an_unknown_message_is_404(server: Server) -> None:
    await make_queue(server)
    reply = await delete(server, UNKNOWN_ID, headers={"If-Match": '"1"'})
    assert_problem(reply, 404, "message-not-found")


async def test_an_unknown_query_parameter_is_400(server: Server) -> None:
    message_id = await fetched(server)
    reply = await call(server, "DELETE", f"/q/messages/{message_id}?colour=red")
    assert assert_problem(reply, 400, "unknown-parameter")["parameter"] == "colour"
    assert message_files(server.root)["remove"] == []
