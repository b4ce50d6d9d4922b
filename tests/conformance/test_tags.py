"""Tags: `?tag=` on a publish, and what is found, deleted and sidelined by one."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.server import STREAMED_BYTES, Serve, Server
from harness.upkeep import all_policies, move_due

from mq.client.client import AsyncClient
from mq.model.limits import BATCH_MESSAGES_MAX, FORGOTTEN_AFTER_S
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.history import read
from mq.store.opening import open_root


@pytest.fixture
def server(timed: Server) -> Server:
    return timed


async def post(server: Server, query: str, body: bytes = b"x", queue: str = "q") -> Reply:
    reply = await call(server, "POST", f"/{queue}/messages?{query}", data=body)
    assert reply.status in (200, 201), reply.body
    return reply


async def tagged(server: Server, tag: str, query: str = "", queue: str = "q") -> dict[str, Any]:
    reply = await call(server, "GET", f"/{queue}/tags/{tag}?{query}")
    assert reply.status == 200, reply.body
    said: dict[str, Any] = reply.json()
    return said


async def ids(server: Server, tag: str, queue: str = "q") -> list[str]:
    return [each["id"] for each in (await tagged(server, tag, queue=queue))["messages"]]


def entries(server: Server, queue: str = "q") -> list[str]:
    return sorted(path.name for path in (server.root / "tags" / queue).rglob("*-*-*-*-*"))


@pytest.mark.parametrize("size", [1, STREAMED_BYTES])
async def test_messages_are_found_by_each_of_their_tags_and_say_them(
    server: Server, size: int
) -> None:
    first = (await post(server, "tag=eu&tag=night%2Frun&key=k", b"x" * size)).id
    later = (await post(server, "tag=eu&delay=60", b"x" * size)).id
    await post(server, "", b"x" * size)
    assert ",k=k,t=2" in first
    assert await tagged(server, "eu") == {
        "entries": 2,
        "messages": [{"id": first, "state": "ready"}, {"id": later, "state": "delayed"}],
        "after": None,
    }
    assert await ids(server, "night%2Frun") == [first]
    assert await ids(server, "other") == []
    reply = await fetch(server)
    assert (reply.id, reply.headers["X-Message-Tags"]) == (first, "eu, night=2Frun")
    assert await ids(server, "eu") == [first, later]
    row = json.loads((await call(server, "GET", "/q/peek?state=delayed")).body.splitlines()[0])
    assert row["tags"] == ["eu", "night/run"]
    assert (await delete(server, first)).status == 202
    assert await ids(server, "eu") == [later]
    assert entries(server) == [later]
    assert_audits_clean(server.root)


@pytest.mark.parametrize("way", ["lines", "rows"])
async def test_a_batch_has_tags(server: Server, way: str) -> None:
    if way == "lines":
        reply = await post(server, "split=lines&tag=a&tag=b", b"1\n2\n3")
        wanted = {"a": 3, "b": 3}
    else:
        rows = [{"body": "1", "tags": ["a"]}, {"body": "2"}, {"body": "3", "tags": ["a", "b"]}]
        body = b"\n".join(json.dumps(row).encode() for row in rows)
        reply = await post(server, "split=rows", body)
        wanted = {"a": 2, "b": 1}
    assert all("id" in json.loads(line) for line in reply.body.splitlines())
    for tag, count in wanted.items():
        assert len(await ids(server, tag)) == count
    row = json.loads((await call(server, "GET", "/q/messages?count=1")).body)
    assert row["tags"] == (["a", "b"] if way == "lines" else ["a"])
    assert_audits_clean(server.root)


async def test_a_publish_that_is_refused_leaves_no_entries(server: Server) -> None:
    made = (await post(server, "tag=a&key=k")).id
    reply = await call(server, "POST", "/q/messages?tag=a&tag=b&key=k", data=b"x")
    assert_problem(reply, 409, "key-taken")
    assert entries(server) == [made]


async def test_a_page_ends_and_goes_on(server: Server) -> None:
    made = [(await post(server, "tag=a")).id for _ in range(5)]
    found, after = [], ""
    while True:
        page = await tagged(server, "a", f"count=2{after}")
        assert page["entries"] == 5
        found += [each["id"] for each in page["messages"]]
        if page["after"] is None:
            break
        after = f"&after={page['after']}"
    assert found == made


@pytest.mark.certificate
async def test_all_of_a_tag_are_deleted_and_no_others(server: Server) -> None:
    body = b"x\n" * (BATCH_MESSAGES_MAX + 5)
    await post(server, "split=lines&tag=a&tag=b", body)
    kept = (await post(server, "tag=b")).id
    first = (await call(server, "DELETE", "/q/tags/a")).json()
    assert (first["done"], first["failed"]) == (BATCH_MESSAGES_MAX, 0)
    rest = (await call(server, "DELETE", f"/q/tags/a?after={first['after']}")).json()
    assert rest == {"done": 5, "failed": 0, "after": None}
    assert (await call(server, "DELETE", "/q/tags/a")).json()["done"] == 0
    assert await ids(server, "b") == [kept]
    assert entries(server) == [kept]
    assert_audits_clean(server.root)


async def test_all_of_a_tag_are_sidelined_and_found_there(server: Server) -> None:
    made = [(await post(server, "tag=a")).id for _ in range(3)]
    other = (await post(server, "tag=b")).id
    assert (await fetch(server)).id == made[0]
    reply = await call(server, "POST", "/q/tags/a/sideline?reason=exception")
    assert reply.json() == {"done": 3, "failed": 0, "after": None}
    assert await ids(server, "a") == []
    assert await ids(server, "a", "q_SIDELINE") == made
    assert (await fetch(server)).id == other
    reply = await call(server, "POST", "/q_SIDELINE/tags/a/sideline")
    assert_problem(reply, 409, "already-sideline")
    assert (await call(server, "DELETE", "/q_SIDELINE/tags/a")).json()["done"] == 3
    assert_audits_clean(server.root)


@pytest.mark.certificate
async def test_what_is_purged_is_not_found(server: Server, clock: FakeClock) -> None:
    await post(server, "tag=a")
    clock.advance(1)
    assert (await call(server, "DELETE", "/q/messages")).status == 202
    assert await ids(server, "a") == []
    young = (await post(server, "tag=a")).id
    assert await ids(server, "a") == [young]
    assert_audits_clean(server.root)


def sweep(root: Path, clock: FakeClock) -> None:
    opened = open_root(str(root), Files(), clock)
    all_policies(opened, NoFlusher()).run_once()


async def test_entries_of_nothing_are_swept(server: Server, clock: FakeClock) -> None:
    gone, kept = [(await post(server, "tag=a&tag=b")).id for _ in range(2)]
    (server.root / "queues" / "q" / gone).unlink()
    sweep(server.root, clock)
    # Its publish may be in hand.
    assert entries(server) == [gone, gone, kept, kept]
    assert await ids(server, "a") == [kept]
    clock.advance(FORGOTTEN_AFTER_S + 1)
    sweep(server.root, clock)
    assert entries(server) == [kept, kept]
    assert_audits_clean(server.root, clock)


async def test_without_its_queue_a_sideline_keeps_its_own(server: Server, clock: FakeClock) -> None:
    kept = (await post(server, "tag=a")).id
    await post(server, "tag=a")
    await call(server, "POST", f"/q/messages/{kept}/sideline")
    assert (await call(server, "DELETE", "/q")).status == 200
    clock.advance(FORGOTTEN_AFTER_S + 1)
    sweep(server.root, clock)
    assert entries(server) == [kept]
    assert await ids(server, "a", "q_SIDELINE") == [kept]
    assert_audits_clean(server.root, clock)


async def test_a_deleted_queue_takes_its_entries_along(server: Server, clock: FakeClock) -> None:
    await post(server, "tag=a")
    assert (await call(server, "DELETE", "/q")).status == 200
    assert_problem(await call(server, "GET", "/q/tags/a"), 404, "queue-not-found")
    await make_queue(server)
    assert await ids(server, "a") == []
    await post(server, "tag=a")
    assert (await call(server, "DELETE", "/q")).status == 200
    sweep(server.root, clock)
    assert entries(server) == []
    assert [*server.root.glob("remove/q:*.t/*/a/*")]
    assert_audits_clean(server.root, clock)


@pytest.mark.parametrize(
    "query", ["tag=", f"tag={'a' * 65}", "tag=%00", "&".join(f"tag={n}" for n in range(10))]
)
async def test_a_tag_that_is_none(server: Server, query: str) -> None:
    reply = await call(server, "POST", f"/q/messages?{query}", data=b"x")
    assert_problem(reply, 400, "bad-tag")


async def test_a_tag_in_a_path_that_is_none(server: Server) -> None:
    assert_problem(await call(server, "GET", f"/q/tags/{'a' * 65}"), 400, "bad-tag")


async def test_two_processes_share_tags(serve: Serve, server: Server, clock: FakeClock) -> None:
    other = await serve(clock=clock)
    made = await asyncio.gather(
        *(post(each, "tag=a") for _ in range(20) for each in (server, other))
    )
    assert sorted(await ids(other, "a")) == sorted(each.id for each in made)
    ends = await asyncio.gather(*(call(each, "DELETE", "/q/tags/a") for each in (server, other)))
    assert sum(end.json()["done"] for end in ends) >= 40
    assert await ids(server, "a") == []
    assert_audits_clean(server.root)


async def test_the_client_s_tags(server: Server, clock: FakeClock) -> None:
    async with AsyncClient(server.url) as client:
        queue = client.queue("q")
        made = [await queue.publish(b"x", tags=["a", "b c"]) for _ in range(3)]
        page = await queue.tagged("a", count=2)
        assert [(each.id, each.state) for each in page.messages] == [(n, "ready") for n in made[:2]]
        assert (await queue.tagged("a", after=page.after)).messages[0].id == made[2]
        message = await queue.fetch()
        assert message is not None
        assert message.tags == ("a", "b c")
        assert "x-message-tags" not in message.headers
        assert (await queue.read(made[1])).tags == ("a", "b c")
        assert await queue.sideline_tagged("b c") == 3
        assert await client.queue("q_SIDELINE").delete_tagged("a") == 3
        with pytest.raises(TypeError, match="sequence of texts"):
            await queue.publish(b"x", tags="a")


async def test_the_history_of_a_tag_has_the_events_of_messages_that_are_gone(
    server: Server, clock: FakeClock
) -> None:
    await post(server, "tag=a")
    await call(server, "PATCH", "/q/settings", json={"history": True})
    one = (await post(server, "tag=a&tag=b%22%20%C3%A9&key=k")).id
    later = (await post(server, "tag=a&delay=60")).id
    lines = await post(server, "split=lines&tag=a", b"1\n2")
    rows = b'{"body": "3", "tags": ["a"]}\n{"body": "4", "tags": ["b"]}'
    rest = [json.loads(each)["id"] for each in lines.body.splitlines()]
    rest.append(json.loads((await post(server, "split=rows", rows)).body.splitlines()[0])["id"])
    await post(server, "")
    for _ in range(2):
        first = await fetch(server)
        assert (await delete(server, first.id)).status == 202
    await call(server, "POST", f"/q/messages/{rest[0]}/sideline")
    reply = await call(server, "GET", "/q/tags/a/history")
    assert reply.status == 200, reply.body
    found = reply.json()
    assert (found["tag"], found["recording"], found["left_out"]) == ("a", True, 0)
    told = [(each["id"], each["event"]) for each in found["events"]]
    assert sorted(told) == sorted([
        *((each, "published") for each in (one, later, *rest)),
        *((one, event) for event in ("fetched", "removed")),
        (rest[0], "sidelined"),
    ])  # fmt: skip
    assert found["events"][0]["tags"] == ["a", 'b" é']
    assert "due" in next(each for each in found["events"] if each["id"] == later)
    async with AsyncClient(server.url) as client:
        events = (await client.queue("q").tag_history('b" é')).events
        assert [(each.id, each.event) for each in events] == [
            (one, "published"), (one, "fetched"), (one, "removed")
        ]  # fmt: skip
        assert (await client.queue("q").tag_history("none")).events == ()
    [line] = [json.loads(each)["id"] for each in rows_of_tag(server, "b")]
    assert (await call(server, "GET", "/q/tags/b/history")).json()["events"][0]["id"] == line


def rows_of_tag(server: Server, tag: str) -> list[str]:
    """The lines of publishes with the tag."""
    files = (server.root / "history" / "q").glob("*/*.ndjson")
    lines = [line for path in files for line in path.read_text().splitlines()]
    return [line for line in lines if json.loads(line).get("tags") == [tag]]


async def test_the_history_of_a_tag_is_of_the_newest_messages(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "HISTORY_TAGGED_MAX", 3)
    monkeypatch.setattr(read, "HISTORY_EVENTS_MAX", 2)
    await call(server, "PATCH", "/q/settings", json={"history": True})
    made = [(await post(server, "tag=a")).id for _ in range(8)]
    found = (await call(server, "GET", "/q/tags/a/history")).json()
    assert [each["id"] for each in found["events"]] == made[-2:]
    assert found["left_out"] == 1


async def test_a_shovelled_message_keeps_its_tags(server: Server, clock: FakeClock) -> None:
    message_id = (await post(server, "tag=a")).id
    await call(server, "PATCH", "/q/settings", json={"max_receives": 1})
    assert (await fetch(server)).id == message_id
    clock.advance(60)
    await call(server, "PUT", "/q_SIDELINE")
    move_due(server.root, clock)
    assert await ids(server, "a", "q_SIDELINE") == [message_id]
    assert_audits_clean(server.root, clock)
