"""All queues of a root, who does their upkeep, and following what other processes do to them."""

import asyncio
import errno
from typing import Any

import pytest
from harness.api import assert_problem, call, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.consuming import consuming
from harness.faults import FaultyFiles
from harness.internals import consumers, in_use, queue_of
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.clock import rfc3339
from mq.model.members import TOLD_GONE_S, Acted, Doing
from mq.model.names import QueueName
from mq.protocol.queues import MEMBER_QUEUES_SHOWN_MAX, QUEUES_LISTED_DEFAULT
from mq.store.disk.files import Files
from mq.store.members.files import MemberFile
from mq.store.opening import open_root
from mq.store.settings.registry import REFRESH_FIRST_S


async def listed(server: Server, query: str = "") -> dict[str, Any]:
    reply = await call(server, "GET", f"/-/queues{query}")
    assert reply.status == 200
    found: dict[str, Any] = reply.json()
    return found


async def members(server: Server, query: str = "") -> dict[str, Any]:
    reply = await call(server, "GET", f"/-/members{query}")
    assert (reply.status, reply.headers["Cache-Control"]) == (200, "no-store")
    found: dict[str, Any] = reply.json()
    return found


async def refreshed(server: Server) -> dict[str, int]:
    reply = await call(server, "POST", "/-/refresh", data=b"whatever")
    assert reply.status == 200
    found: dict[str, int] = reply.json()
    return found


# The list.


async def test_queues_are_listed_by_name_with_their_sidelines(server: Server) -> None:
    assert await listed(server) == {"queues": [], "next": None}
    for name in ("b", "a", "B"):
        await make_queue(server, name)
    message_id = await publish(server, queue="a")
    await call(server, "POST", f"/a/messages/{message_id}/sideline")
    names = [(each["name"], each["sideline"]) for each in (await listed(server))["queues"]]
    assert names == [("B", False), ("a", False), ("a_SIDELINE", True), ("b", False)]


async def test_a_page_of_queues_goes_on_behind_the_last(server: Server) -> None:
    many = [f"q{n:03d}" for n in range(QUEUES_LISTED_DEFAULT + 1)]
    for name in many:
        (server.root / "queues" / name).mkdir()
    first = await listed(server)
    assert [each["name"] for each in first["queues"]] == many[:QUEUES_LISTED_DEFAULT]
    assert first["next"] == many[QUEUES_LISTED_DEFAULT - 1]
    second = await listed(server, f"?after={first['next']}")
    assert second == {"queues": [{"name": many[-1], "sideline": False}], "next": None}
    # A page that is just full is the last one all the same; a name of no queue is one to begin at.
    assert (await listed(server, "?after=q097a&count=3"))["next"] is None
    assert len((await listed(server, "?after=q097a&count=2"))["queues"]) == 2


@pytest.mark.parametrize("path", ["/-/queues", "/-/members", "/-/trends"])
async def test_a_head_says_that_there_is_an_answer(server: Server, path: str) -> None:
    reply = await call(server, "HEAD", path)
    assert (reply.status, reply.body) == (200, b"")


@pytest.mark.parametrize(
    ("query", "slug"),
    [
        ("/-/queues?after=.a", "bad-after"),
        ("/-/queues?after=", "bad-after"),
        ("/-/queues?count=0", "bad-count"),
        ("/-/queues?count=1001", "bad-count"),
        ("/-/trends?queue=a/b", "bad-queue"),
        ("/-/trends?range=month", "bad-range"),
        ("/-/members?queue=a/b", "bad-queue"),
        ("/-/members?queue=a&queue=b", "bad-queue"),
        ("/-/members?member=a", "unknown-parameter"),
    ],
)
async def test_what_is_malformed_is_told(server: Server, query: str, slug: str) -> None:
    assert_problem(await call(server, "GET", query), 400, slug)


# Members.


async def test_without_members_nobody_leads(server: Server) -> None:
    assert await members(server) == {"leader": None, "members": []}
    assert (await members(server, "?queue=q"))["assigned"] == {"q": None}


async def test_a_member_is_shown_as_it_told_of_itself_until_it_is_gone(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    root = open_root(str(server.root), Files(), clock)
    many = tuple(QueueName.parse(f"q{n:03d}") for n in range(MEMBER_QUEUES_SHOWN_MAX + 1))
    last_ms = clock.now_ms() - 5000
    policies = {"shovel": Acted(7, 3, 1, last_ms, None), "purges": Acted()}
    told = MemberFile(root, "alpha")
    told.tell(Doing("file", "alpha", True, many, policies, {"moved": 17}))
    MemberFile(root, "beta").tell(Doing("file", "alpha", True, (QueueName.parse("x"),)))

    found = await members(server, f"?queue={many[-1].text}")
    assert found["leader"] == "alpha"
    assert found["assigned"] == {many[-1].text: "alpha"}
    alpha, beta = found["members"]
    assert (alpha["member"], alpha["leads"], alpha["connected"], alpha["gone"]) == (
        ("alpha", True, True, False)
    )
    assert alpha["told"] == rfc3339(clock.now_ms())
    assert alpha["queues"] == {
        "count": len(many),
        "names": [each.text for each in many[:MEMBER_QUEUES_SHOWN_MAX]],
    }
    assert alpha["policies"]["shovel"] == {
        "turns": 7, "acted": 3, "failed": 1, "last": rfc3339(last_ms), "next": None,
    }  # fmt: skip
    assert alpha["redelivery"] == {"moved": 17}
    assert (beta["leads"], beta["queues"]["names"]) == (False, ["x"])

    clock.advance(TOLD_GONE_S + 1)
    found = await members(server, "?queue=x")
    assert (found["leader"], found["assigned"]) == (None, {"x": None})
    assert [(each["gone"], each["leads"]) for each in found["members"]] == [(True, False)] * 2
    told.leave()
    assert [each["member"] for each in (await members(server))["members"]] == ["beta"]


# Following what others do.


async def test_a_refresh_tells_what_there_is_to_the_process_that_is_asked(serve: Serve) -> None:
    one, other = await serve(), await serve()
    await make_queue(one, "a")
    assert await refreshed(other) == {"queues": 1, "new": 1, "changed": 0, "gone": 0}
    await make_queue(one, "b")
    (one.root / "settings" / "a.json").write_text('{"max_receives": 3}')
    assert await refreshed(other) == {"queues": 2, "new": 1, "changed": 1, "gone": 0}
    await call(one, "DELETE", "/a")
    assert await refreshed(other) == {"queues": 1, "new": 0, "changed": 0, "gone": 1}
    assert await refreshed(other) == {"queues": 1, "new": 0, "changed": 0, "gone": 0}


async def test_a_change_of_settings_asks_all_processes_to_look(server: Server) -> None:
    await make_queue(server)
    mark = server.root / "members" / "refresh"
    assert not mark.exists()
    await call(server, "PATCH", "/q/settings", json={"shovel_interval_s": 9})
    asked = mark.stat().st_mtime_ns
    await call(server, "PATCH", "/q/settings", json={"shovel_interval_s": -1})
    assert mark.stat().st_mtime_ns == asked
    await call(server, "PATCH", "/q/settings", json={"shovel_interval_s": None})
    assert mark.stat().st_mtime_ns > asked


@pytest.mark.certificate
async def test_a_process_lets_go_of_a_queue_that_another_deleted(serve: Serve) -> None:
    one, other = await serve(), await serve()
    for name in ("a", "b"):
        await make_queue(one, name)
        await publish(other, queue=name)
    await call(one, "DELETE", "/a")
    # Nobody asks the other for it; it is asked to look by one that is asked.
    await refreshed(one)
    await comes_true(lambda: in_use(other) == {"b"})
    assert_problem(await fetch(other, "a"), 404, "queue-not-found")
    assert (await fetch(other, "b")).status == 200


@pytest.mark.certificate
async def test_who_waits_for_a_queue_that_another_deleted_hears_so(serve: Serve) -> None:
    one, other = await serve(), await serve(inotify=False)
    for name in ("a", "b"):
        await make_queue(one, name)
    # Without credit it is interested in nothing, so that nothing looks for it.
    async with consuming(other, "a", "b", credit=0) as idle:
        polling = asyncio.create_task(call(other, "GET", "/a/messages?wait=30"))
        await comes_true(lambda: consumers(other, "a") == 2)
        await call(one, "DELETE", "/a")
        await refreshed(one)
        assert_problem(await polling, 404, "queue-not-found")
        event = await idle.event()
        assert (event["event"], event["queue"]) == ("unsubscribed", "a")
        assert event["problem"]["type"] == "urn:mq:problem:queue-not-found"
        await idle.credit("b", 1)


async def test_a_queue_that_another_made_again_is_used_on(serve: Serve) -> None:
    one, other = await serve(), await serve()
    await make_queue(one)
    await publish(other)
    await call(one, "DELETE", "/q")
    await make_queue(one)
    assert (await refreshed(other))["gone"] == 0
    message_id = await publish(one, b"new")
    assert (await fetch(other)).id == message_id


@pytest.mark.certificate
async def test_all_queues_are_looked_at_by_and_by_also_when_nobody_asks(serve: Serve) -> None:
    clock = FakeClock()
    one, other = await serve(), await serve(clock=clock)
    await make_queue(one)
    await publish(other)
    await call(one, "DELETE", "/q")
    clock.advance(REFRESH_FIRST_S - 1)
    assert in_use(other) == {"q"}
    clock.advance(1)
    await comes_true(lambda: not in_use(other))


async def test_what_is_looked_at_more_often_is_so_from_the_start(serve: Serve) -> None:
    one, other = await serve(), await serve(refresh_s=0.05)
    await make_queue(one)
    await publish(other)
    await call(one, "DELETE", "/q")
    await comes_true(lambda: not in_use(other))


async def test_a_queue_that_comes_into_use_while_all_are_looked_at_stays(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    (server.root / "queues" / "old").mkdir()
    # The folder of queues is listed by then.
    gate = files.hold("status", where="settings/old.json")
    looking = asyncio.create_task(refreshed(server))
    await asyncio.to_thread(gate.reached.wait)
    await make_queue(server, "meanwhile")
    message_id = await publish(server, queue="meanwhile")
    gate.open()
    await looking
    assert in_use(server) == {"meanwhile"}
    assert (await fetch(server, "meanwhile")).id == message_id


async def test_a_root_that_cannot_be_looked_at_is_said_so_and_looked_at_later(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    fault = files.fail("entries", errno.EIO, where="queues")
    assert_problem(await call(server, "POST", "/-/refresh"), 503, "storage-failed")
    assert_problem(await call(server, "GET", "/-/queues"), 503, "storage-failed")
    assert fault.hits == 2
    files.heal()
    files.fail("open_kept", errno.EROFS, where="members/refresh", times=1)
    assert_problem(await call(server, "POST", "/-/refresh"), 503, "read-only")
    assert (await refreshed(server))["queues"] == 1


@pytest.mark.certificate
async def test_settings_that_another_changed_are_taken_where_a_queue_is_in_use(
    serve: Serve,
) -> None:
    one, other = await serve(), await serve()
    await make_queue(one)
    await publish(other)
    await call(one, "PATCH", "/q/settings", json={"visibility_s": 77})

    async def is_taken() -> bool:
        await refreshed(one)
        return queue_of(other, "q").settings.visibility_s == 77

    await comes_true(is_taken)


async def test_a_description_of_a_queue_that_another_process_deleted_ends_in_half_a_second(
    serve: Serve,
) -> None:
    clock = FakeClock()
    one, other = await serve(), await serve(clock=clock)
    await make_queue(one)
    assert (await call(other, "GET", "/q")).status == 200
    assert (await call(one, "DELETE", "/q")).status == 200
    clock.advance(0.5)
    assert (await call(other, "GET", "/q")).status == 404
