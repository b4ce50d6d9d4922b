"""Schedules over HTTP: what they say, when they are next, and what their messages are."""

import asyncio
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.processes import Processes
from harness.server import Serve, Server
from harness.upkeep import fire_due
from harness.waiting import comes_true
from yarl import URL

import mq.store.schedules.schedules
from mq.model.clock import rfc3339
from mq.model.limits import BODY_HELD_BYTES_MAX, PEEK_BODY_BYTES
from mq.model.settings import QueueSettings

SCHEDULE = "/q/schedules/nightly"


def ms(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1000)


async def put(
    server: Server, body: bytes = b"again", path: str = SCHEDULE, more: Any = None, **said: str
) -> Reply:
    """PUTs a schedule that says these."""
    url = str(URL(path).with_query(said))
    return await call(server, "PUT", url, data=body, headers=dict(more or {}))


async def read(server: Server, path: str = SCHEDULE) -> Any:
    reply = await call(server, "GET", path)
    assert reply.status == 200, reply.body
    return reply.json()


async def fetched(server: Server) -> list[bytes]:
    """All that is ready."""
    bodies = []
    while (reply := await fetch(server)).status == 200:
        bodies.append(reply.body)
    return bodies


@pytest.fixture
def server(timed: Server) -> Server:
    return timed


# What is said and told


async def test_a_schedule_is_made_and_told(server: Server, clock: FakeClock) -> None:
    reply = await put(server, every="60", delay="2.5")
    assert (reply.status, reply.headers["Location"]) == (201, SCHEDULE)
    assert reply.json() == {
        "name": "nightly",
        "every": 60.0,
        "delay": 2.5,
        "next": rfc3339(clock.now_ms() + 2500),
        "fired": 0,
        "skipped": 0,
        "last": None,
        "waiting": False,
        "count": None,
        "until": None,
        "overlap": "allow",
        "after": "due",
        "misfire": "once",
        "priority": None,
        "key": None,
        "visibility": None,
        "ttl": None,
        "group": None,
        "tags": [],
        "size": 5,
        "headers": {"content-type": "application/octet-stream"},
        "body": "again",
    }
    found = await call(server, "GET", SCHEDULE)
    assert (found.status, found.body) == (200, reply.body)
    assert found.headers["Cache-Control"] == "no-store"
    head = await call(server, "HEAD", SCHEDULE)
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(reply.body))


async def test_all_that_may_be_said_is_told_again(server: Server) -> None:
    more = {"Content-Type": "text/plain; charset=utf-8", "x-attribute-shop": "north"}
    said = {
        "cron": "0 30 2 ? * mon-fri",
        "tz": "Europe/Berlin",
        "count": "7",
        "until": "2099-12-31T23:59:59+01:00",
        "overlap": "skip",
        "after": "done",
        "misfire": "all",
        "priority": "9",
        "key": "night/run",
        "visibility": "600",
        "ttl": "86400",
        "group": "store/7",
    }
    assert (await put(server, more=more, **said)).status == 201
    found = await read(server)
    assert found == {
        **found,
        "cron": "0 30 2 ? * MON-FRI",
        "tz": "Europe/Berlin",
        "count": 7,
        "until": "2099-12-31T22:59:59.000Z",
        "overlap": "skip",
        "after": "done",
        "misfire": "all",
        "priority": 9,
        "key": "night/run",
        "visibility": 600,
        "ttl": 86400,
        "group": "store/7",
        "headers": {"content-type": "text/plain; charset=utf-8", "x-attribute-shop": "north"},
    }


async def test_its_messages_have_its_group_tags_and_time_to_live(
    server: Server, root: Path, clock: FakeClock
) -> None:
    query = "every=60&delay=0&ttl=100&group=stove&tag=caf%C3%A9&tag=a,+b&tag=a,+b"
    path = f"{SCHEDULE}?{query}"
    more = {"headers": {"x-attribute-shop": "north"}}
    assert (await call(server, "PUT", path, data=b"again", **more)).status == 201
    said = await read(server)
    assert (said["ttl"], said["group"], said["tags"]) == (100, "stove", ["café", "a, b"])
    assert "x-message-group" not in said["headers"]
    assert fire_due(root, clock) == 1
    clock.advance(60)
    assert fire_due(root, clock) == 1
    assert (await call(server, "PUT", path, data=b"again", **more)).status == 200
    first = await fetch(server)
    assert first.headers["X-Message-Group"] == "stove"
    assert first.headers["X-Attribute-Shop"] == "north"
    assert "number=1" in first.headers["X-Message-Schedule"]
    found = (await call(server, "GET", "/q/tags/a,%20b")).json()["messages"]
    assert [each["id"] for each in found] == [first.id, (await read(server))["last"]]
    # The second one waits for the first of its group, which expires once it was given back.
    assert (await fetch(server)).status == 204
    assert (await delete(server, first.id)).status == 202
    second = await fetch(server)
    assert (second.id, second.headers["X-Message-Tags"]) == (
        found[1]["id"],
        first.headers["X-Message-Tags"],
    )
    assert (
        await call(server, "PATCH", f"/q/messages/{second.id}", json={"due_in_s": 0})
    ).status == 200
    clock.advance(100)
    assert (await fetch(server)).status == 204
    assert_audits_clean(root, clock)


@pytest.mark.parametrize(
    ("query", "slug"), [("group=", "bad-group"), ("ttl=0", "bad-ttl"), ("tag=", "bad-tag")]
)
async def test_what_no_message_may_have_no_schedule_has(
    server: Server, query: str, slug: str
) -> None:
    reply = await call(server, "PUT", f"{SCHEDULE}?every=60&{query}", data=b"again")
    assert_problem(reply, 400, slug)


async def test_the_same_said_again_changes_nothing(
    server: Server, root: Path, clock: FakeClock
) -> None:
    await put(server, every="60", delay="0")
    assert fire_due(root, clock) == 1
    clock.advance(10)
    before = await read(server)
    assert before["fired"] == 1
    reply = await put(server, every="60.000", delay="0")
    assert (reply.status, reply.json()) == (200, before)


@pytest.mark.parametrize(
    "said", [{"every": "61"}, {"every": "60", "count": "9"}, {"cron": "* * * * *"}]
)
async def test_another_takes_its_place_as_a_whole(
    server: Server, root: Path, clock: FakeClock, said: dict[str, str]
) -> None:
    await put(server, every="60", delay="0", overlap="skip")
    assert fire_due(root, clock) == 1
    reply = await put(server, b"other", **said)
    assert reply.status == 200
    found = reply.json()
    assert (found["fired"], found["last"], found["overlap"]) == (0, None, "allow")
    assert found["body"] == "other"
    assert found == await read(server)
    clock.advance(61)
    assert fire_due(root, clock) == 1
    assert (await fetched(server)) == [b"again", b"other"]


async def test_the_list_has_all_of_the_queue_by_name(server: Server) -> None:
    await make_queue(server, "other")
    for path in ("/q/schedules/b", "/q/schedules/a-1", "/q/schedules/B", "/other/schedules/z"):
        await put(server, path=path, every="60")
    found = (await call(server, "GET", "/q/schedules")).json()["schedules"]
    assert [each["name"] for each in found] == ["B", "a-1", "b"]
    whole = await read(server, "/q/schedules/b")
    assert whole.pop("body") == "again"
    assert found[2] == whole
    await make_queue(server, "none")
    assert (await call(server, "GET", "/none/schedules")).json() == {"schedules": []}


async def test_one_that_is_deleted_fires_no_more(
    server: Server, root: Path, clock: FakeClock
) -> None:
    await put(server, every="60", delay="0")
    assert fire_due(root, clock) == 1
    reply = await call(server, "DELETE", SCHEDULE)
    assert (reply.status, reply.json()) == (200, {"name": "nightly"})
    clock.advance(600)
    assert fire_due(root, clock) == 0
    assert await fetched(server) == [b"again"]
    for method in ("GET", "DELETE"):
        members = assert_problem(await call(server, method, SCHEDULE), 404, "schedule-not-found")
        assert members["schedule"] == "nightly"
    assert (await call(server, "HEAD", SCHEDULE)).status == 404
    assert (await put(server, every="60")).status == 201


@pytest.mark.parametrize(
    ("body", "member", "shown"),
    [
        (b"", "body", ""),
        ("süß".encode(), "body", "süß"),
        (b"\xff\x00", "body_base64", "/wA="),
        ("ü".encode() * PEEK_BODY_BYTES, "body", "ü" * (PEEK_BODY_BYTES // 2)),
        (b"a" + "ü".encode() * PEEK_BODY_BYTES, "body", "a" + "ü" * (PEEK_BODY_BYTES // 2 - 1)),
    ],
)
async def test_the_body_is_told_as_in_a_peek(
    server: Server, root: Path, clock: FakeClock, body: bytes, member: str, shown: str
) -> None:
    reply = await put(server, body, every="60", delay="0")
    found = reply.json()
    assert (found["size"], found[member]) == (len(body), shown)
    assert fire_due(root, clock) == 1
    assert await fetched(server) == [body]


async def test_a_body_has_its_bounds(serve: Serve, clock: FakeClock, root: Path) -> None:
    server = await serve(clock=clock, queue=QueueSettings(body_bytes_max=2 * BODY_HELD_BYTES_MAX))
    await make_queue(server)
    most = b"x" * BODY_HELD_BYTES_MAX
    assert (await put(server, most, every="60", delay="0")).status == 201
    members = assert_problem(await put(server, most + b"x", every="60"), 413, "body-too-large")
    assert members["bytes_max"] == BODY_HELD_BYTES_MAX
    assert fire_due(root, clock) == 1
    assert await fetched(server) == [most]
    small = await serve(clock=clock, queue=QueueSettings(body_bytes_max=4))
    members = assert_problem(await put(small, every="60"), 413, "body-too-large")
    assert members["bytes_max"] == 4


# What is refused


@pytest.mark.parametrize(
    ("said", "slug"),
    [
        ({}, "bad-every"),
        ({"delay": "5"}, "bad-every"),
        ({"every": "0.999"}, "bad-every"),
        ({"every": "1.0001"}, "bad-every"),
        ({"every": "-1"}, "bad-every"),
        ({"every": "316224001"}, "bad-every"),
        ({"every": "60", "cron": "* * * * *"}, "bad-every"),
        ({"cron": "* * * * *", "delay": "1"}, "bad-delay"),
        ({"every": "60", "delay": "x"}, "bad-delay"),
        ({"every": "60", "tz": "UTC"}, "bad-tz"),
        ({"cron": "* * * * *", "tz": "Mars"}, "bad-tz"),
        ({"cron": "* * * * *", "tz": "../UTC"}, "bad-tz"),
        ({"cron": ""}, "bad-cron"),
        ({"cron": "* * * *"}, "bad-cron"),
        ({"cron": "0 0 30 2 *"}, "bad-cron"),
        ({"cron": "0 0 32W * *"}, "bad-cron"),
        ({"every": "60", "count": "0"}, "bad-count"),
        ({"every": "60", "until": "tomorrow"}, "bad-until"),
        ({"every": "60", "overlap": "no"}, "bad-overlap"),
        ({"every": "60", "after": "ack"}, "bad-after"),
        ({"every": "60", "misfire": "twice"}, "bad-misfire"),
        ({"every": "60", "priority": "10"}, "bad-priority"),
        ({"every": "60", "key": ""}, "bad-key"),
        ({"every": "60", "visibility": "0"}, "bad-visibility"),
        ({"every": "60", "at": "2099-01-01T00:00:00Z"}, "unknown-parameter"),
    ],
)
async def test_what_is_malformed_is_told_and_makes_nothing(
    server: Server, said: dict[str, str], slug: str
) -> None:
    members = assert_problem(await put(server, **said), 400, slug)
    assert members["parameter"] == ("at" if slug == "unknown-parameter" else slug[4:])
    assert (await call(server, "GET", "/q/schedules")).json() == {"schedules": []}


async def test_a_parameter_is_said_once(server: Server) -> None:
    for query, slug in (("every=60&every=61", "bad-every"), ("cron=0&cron=1", "bad-cron")):
        assert_problem(await call(server, "PUT", f"{SCHEDULE}?{query}"), 400, slug)


@pytest.mark.parametrize("name", [".x", "-x", "a.b", "a%2Fb", "a" * 41, "%C3%A9", "a:b", "%FF"])
async def test_a_name_has_its_bounds(server: Server, name: str) -> None:
    url = URL(f"{server.url}/q/schedules/{name}?every=60", encoded=True)
    async with server.session.put(url) as response:
        reply = Reply(response.status, response.headers, await response.read())
    assert assert_problem(reply, 400, "bad-name")["parameter"] == "schedule"


async def test_a_queue_that_is_not_there_has_none(server: Server) -> None:
    for method, path in (
        ("PUT", "/none/schedules/a?every=60"),
        ("GET", "/none/schedules/a"),
        ("DELETE", "/none/schedules/a"),
        ("GET", "/none/schedules"),
    ):
        assert_problem(await call(server, method, path), 404, "queue-not-found")


async def test_other_methods_are_told_what_there_is(server: Server) -> None:
    for method, path, allow in (
        ("POST", SCHEDULE, "DELETE, GET, HEAD, OPTIONS, PUT"),
        ("PUT", "/q/schedules", "GET, OPTIONS"),
    ):
        reply = await call(server, method, path)
        assert_problem(reply, 405, "method-not-allowed")
        assert reply.headers["Allow"] == allow


async def test_a_queue_has_so_many(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mq.store.schedules.schedules, "SCHEDULES_PER_QUEUE_MAX", 2)
    for name in ("a", "b"):
        assert (await put(server, path=f"/q/schedules/{name}", every="60")).status == 201
    reply = await put(server, path="/q/schedules/c", every="60")
    assert assert_problem(reply, 409, "too-many-schedules")["schedules_max"] == 2
    assert (await put(server, path="/q/schedules/a", every="61")).status == 200


async def test_headers_have_their_bounds(server: Server) -> None:
    more = {f"x-attribute-{number}": "v" for number in range(65)}
    assert_problem(await put(server, more=more, every="60"), 431, "headers-too-large")


# Its messages


async def test_a_message_is_what_its_schedule_says(
    server: Server, root: Path, clock: FakeClock
) -> None:
    more = {"Content-Type": "application/json", "ce-id": "1", "X-Attribute-A": "b", "X-Other": "c"}
    said = {"priority": "4", "key": "k", "visibility": "90"}
    await put(server, b"{}", more=more, every="60", delay="0", **said)
    # No publish writes what a firing does.
    plain = await publish(server, headers={"X-Message-Schedule": 'name="x", due="", number=1'})
    due_ms = clock.now_ms()
    clock.advance(1)
    assert fire_due(root, clock) == 1
    row = json.loads((await call(server, "GET", "/q/peek")).body.splitlines()[0])
    fired = f'name="nightly", due="{rfc3339(due_ms)}", number=1'
    assert row["headers"]["x-message-schedule"] == fired
    reply = await fetch(server)
    assert reply.body == b"{}"
    assert reply.headers["X-Message-Schedule"] == fired
    assert (",p=4" in reply.id, reply.headers["Content-Type"]) == (True, "application/json")
    assert (reply.headers["ce-id"], reply.headers["X-Attribute-A"]) == ("1", "b")
    assert "X-Other" not in reply.headers
    assert reply.headers["X-Message-Receives"] == "1"
    assert reply.headers["X-Message-Due"] == rfc3339(clock.now_ms() + 90_000)
    assert (await call(server, "GET", "/q/keys/k")).id == reply.id
    assert (await read(server))["last"] == reply.id
    reply = await fetch(server)
    assert reply.id == plain
    assert "X-Message-Schedule" not in reply.headers


async def test_each_firing_is_a_message_of_its_own(
    server: Server, root: Path, clock: FakeClock
) -> None:
    began_ms = clock.now_ms()
    await put(server, every="60", delay="5")
    assert fire_due(root, clock) == 0
    ids = []
    for number, wait_s in enumerate((5, 60, 60), 1):
        clock.advance(wait_s)
        assert fire_due(root, clock) == 1
        found = await read(server)
        assert (found["fired"], found["next"]) == (
            number,
            rfc3339(began_ms + 5000 + number * 60_000),
        )
        ids.append(found["last"])
    assert len(set(ids)) == 3
    assert [(await fetch(server)).id for _ in ids] == ids


async def test_missed_firings_are_one(server: Server, root: Path, clock: FakeClock) -> None:
    began_ms = clock.now_ms()
    await put(server, every="60")
    clock.advance(60 * 60 * 24 * 400 + 7)
    assert fire_due(root, clock) == 1
    found = await read(server)
    assert found["fired"] == 1
    assert found["next"] == rfc3339(began_ms + 60_000 * (60 * 24 * 400 + 1))
    assert await fetched(server) == [b"again"]


async def test_the_count_ends_it(server: Server, root: Path, clock: FakeClock) -> None:
    await put(server, every="60", delay="0", count="2")
    for fired in (1, 1, 0, 0):
        assert fire_due(root, clock) == fired
        clock.advance(60)
    found = await read(server)
    assert (found["fired"], found["next"], found["count"]) == (2, None, 2)
    again = await put(server, every="60", delay="0", count="2")
    assert (again.status, again.json()) == (200, found)
    assert len(await fetched(server)) == 2


async def test_what_is_due_by_its_end_is_fired_late_and_then_it_has_ended(
    server: Server, root: Path, clock: FakeClock
) -> None:
    until = rfc3339(clock.now_ms() + 60_000)
    await put(server, every="60", delay="60", until=until)
    clock.advance(600)
    assert fire_due(root, clock) == 1
    assert (await read(server))["next"] is None
    # One that has ended when it is made.
    reply = await put(server, path="/q/schedules/late", every="60", until=until)
    assert (reply.status, reply.json()["next"]) == (201, None)
    clock.advance(600)
    assert fire_due(root, clock) == 0


async def test_a_cron_expression_is_of_its_zone_and_its_clocks(
    server: Server, root: Path, clock: FakeClock
) -> None:
    clock.set_ms(ms("2027-03-27T12:00:00+01:00"))
    await put(server, cron="30 2 * * *", tz="Europe/Berlin")
    nexts = []
    for _ in range(3):
        told = (await read(server))["next"]
        nexts.append(told)
        clock.set_ms(ms(told))
        assert fire_due(root, clock) == 1
    assert nexts == [
        "2027-03-28T01:00:00.000Z",
        "2027-03-29T00:30:00.000Z",
        "2027-03-30T00:30:00.000Z",
    ]


async def test_with_skip_none_is_fired_while_the_last_one_lives(
    server: Server, root: Path, clock: FakeClock
) -> None:
    await put(server, every="60", delay="0", overlap="skip")
    assert fire_due(root, clock) == 1
    clock.advance(60)
    assert fire_due(root, clock) == 0  # It is ready.
    reply = await fetch(server, params={"visibility": "1000"})
    clock.advance(60)
    assert fire_due(root, clock) == 0  # It is fetched.
    found = await read(server)
    assert (found["fired"], found["skipped"], found["last"]) == (1, 2, reply.id)
    assert (await delete(server, reply.id)).status == 202
    clock.advance(60)
    assert fire_due(root, clock) == 1
    found = await read(server)
    assert (found["fired"], found["skipped"]) == (2, 2)
    assert found["last"] != reply.id


async def test_while_another_message_has_its_key_none_is_fired(
    server: Server, root: Path, clock: FakeClock
) -> None:
    reply = await call(server, "POST", "/q/messages?key=k", data=b"own")
    await put(server, every="60", delay="0", key="k")
    assert fire_due(root, clock) == 0
    assert (await read(server))["skipped"] == 1
    assert (await delete(server, reply.id)).status == 202
    clock.advance(60)
    assert fire_due(root, clock) == 1
    assert (await call(server, "GET", "/q/keys/k")).body == b"again"


# Queues, other processes, damage


@pytest.mark.certificate
async def test_schedules_go_with_their_queue_and_stay_when_it_is_purged(
    serve: Serve, root: Path, clock: FakeClock
) -> None:
    server = await serve()
    await make_queue(server)
    await put(server, every="60", delay="0")
    await publish(server)
    assert (await call(server, "DELETE", "/q/messages")).status == 202
    clock.advance(61)
    assert fire_due(root, clock) == 1
    assert await fetched(server) == [b"again"]
    assert (await call(server, "DELETE", "/q")).status == 200
    await make_queue(server)
    assert (await call(server, "GET", "/q/schedules")).json() == {"schedules": []}
    clock.advance(600)
    assert fire_due(root, clock) == 0


async def test_another_process_sees_them_at_once_and_a_restart_loses_none(
    serve: Serve, server: Server, clock: FakeClock
) -> None:
    other = await serve(clock=clock)
    made = (await put(server, every="60")).json()
    assert await read(other) == made
    changed = (await put(other, b"changed", every="60")).json()
    assert await read(server) == changed
    third = await serve(clock=clock)
    assert await read(third) == changed


async def test_of_many_at_once_one_has_made_it(serve: Serve, server: Server) -> None:
    servers = [server, await serve()]
    replies = await asyncio.gather(
        *(put(servers[number % 2], b"%d" % number, every="60") for number in range(8))
    )
    assert sorted(reply.status for reply in replies) == [200] * 7 + [201]
    assert (await read(server))["body"] in {str(number) for number in range(8)}


async def test_a_damaged_one_is_told_replaced_or_deleted(
    server: Server, root: Path, clock: FakeClock
) -> None:
    await put(server, every="60", delay="0")
    await put(server, path="/q/schedules/well", every="60", delay="0")
    path = root / "schedules" / "q:nightly"
    path.write_bytes(b'{"version": 1, "every_s": "often"}\n')
    os.utime(path, (1, 1))
    for method in ("GET", "HEAD"):
        assert (await call(server, method, SCHEDULE)).status == 503
    members = assert_problem(await call(server, "GET", SCHEDULE), 503, "schedule-unreadable")
    first, second = (await call(server, "GET", "/q/schedules")).json()["schedules"]
    assert first == {"name": "nightly", "problem": members}
    assert second["name"] == "well"
    assert fire_due(root, clock) == 1  # The other one.
    assert (await put(server, every="60", delay="0")).status == 200
    assert fire_due(root, clock) == 1
    path.write_bytes(b"\xff")
    assert (await call(server, "DELETE", SCHEDULE)).status == 200
    assert not path.exists()


# By mq-mover


@pytest.mark.certificate
async def test_a_mover_fires_whatever_dies_and_however_many_there_are(
    serve: Serve, daemons: Processes, root: Path
) -> None:
    server = await serve()
    await make_queue(server)
    movers = [daemons.mover("--root", str(root)) for _ in range(2)]
    for number in range(5):
        reply = await put(
            server, b"%d" % number, f"/q/schedules/s{number}", every="1", delay="0", count="3"
        )
        assert reply.status == 201

    def fired() -> int:
        return len(list((root / "queues" / "q").iterdir()))

    await comes_true(lambda: fired() >= 5, "the first firings")
    for mover in movers:
        mover.kill()
    daemons.mover("--root", str(root))

    async def ended() -> bool:
        found = (await call(server, "GET", "/q/schedules")).json()["schedules"]
        return all(each["next"] is None for each in found)

    await comes_true(ended, "the end of all")
    found = (await call(server, "GET", "/q/schedules")).json()["schedules"]
    assert [each["fired"] for each in found] == [3] * 5
    bodies = await fetched(server)
    assert sorted(bodies) == sorted(b"%d" % number for number in range(5) for _ in range(3))


@pytest.mark.certificate
async def test_a_hand_s_touch_fires_within_a_moment(
    serve: Serve, daemons: Processes, root: Path
) -> None:
    server = await serve()
    await make_queue(server)
    daemons.mover("--root", str(root))
    await put(server, cron="0 0 1 1 *", tz="Asia/Tokyo")
    before = await read(server)
    os.utime(root / "schedules" / "q:nightly")
    reply = await fetch(server, params={"wait": "30"})
    assert (reply.status, reply.body) == (200, b"again")

    async def gone_on() -> Any:
        found = await read(server)
        return found if found["fired"] else None

    found = await comes_true(gone_on)
    assert (found["next"], found["last"]) == (before["next"], reply.id)
