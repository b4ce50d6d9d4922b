"""GET and PATCH of a queue's settings, and what each of them does."""

import asyncio
import json
from typing import Any

import pytest
from harness.api import (
    Reply,
    StillClock,
    assert_problem,
    call,
    delete,
    fetch,
    make_queue,
    post,
    publish,
)
from harness.raw import raw_head, raw_request
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.settings import QueueSettings
from mq.store.core.facts import SETTINGS_AGE_S

DEFAULTS = {
    "visibility_s": 30.0,
    "priority_default": 0,
    "delay_default_s": 0.0,
    "in_flight_max": 0,
    "deliveries_per_s_max": 0.0,
    "active_consumer": "any",
    "idempotency_s": 300.0,
    "body_bytes_max": 64 * 1024 * 1024,
    "history": False,
    "history_kept_s": 7 * 24 * 3600,
    "history_bytes_max": 1 << 30,
    "max_receives": 0,
    "message_ttl_s": 0.0,
    "expired_to": "remove",
    "expires_at": None,
    "expiry_grace_s": 86400.0,
    "shovel_interval_s": 0.0,
    "shovel_concurrency": 4,
    "shovel_max_receives": 20,
    "sweep_after_s": 1200.0,
    "consumers": 0,
    "paused": "none",
    "messages_max": 0,
    "bytes_max": 0,
    "overflow": "refuse",
    "pack_messages_max": 0,
    "sideline_to": None,
    "labels": {},
    "bucket": 8,
    "shards": 1,
}
MERGE_PATCH = "application/merge-patch+json"


async def patch(server: Server, wanted: Any, queue: str = "q", **headers: str) -> Reply:
    """`headers` with underscores for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await call(
        server,
        "PATCH",
        f"/{queue}/settings",
        data=wanted if isinstance(wanted, bytes) else json.dumps(wanted).encode(),
        headers={"Content-Type": MERGE_PATCH, **named},
    )


async def read(server: Server, queue: str = "q") -> dict[str, Any]:
    reply = await call(server, "GET", f"/{queue}/settings")
    assert reply.status == 200
    return dict(reply.json())


# Reading and changing


async def test_a_queue_has_the_defaults_and_the_daemon_s_flags(serve: Serve) -> None:
    server = await serve(queue=QueueSettings(visibility_s=7, body_bytes_max=1000))
    await make_queue(server)
    assert await read(server) == {**DEFAULTS, "visibility_s": 7, "body_bytes_max": 1000}
    reply = await call(server, "HEAD", "/q/settings")
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["ETag"]


async def test_a_patch_answers_with_what_is_effective(server: Server) -> None:
    await make_queue(server)
    reply = await patch(server, {"visibility_s": 5, "priority_default": 3})
    changed = {**DEFAULTS, "visibility_s": 5, "priority_default": 3}
    assert (reply.status, reply.json()) == (200, changed)
    got = await call(server, "GET", "/q/settings")
    assert (got.json(), got.headers["ETag"]) == (changed, reply.headers["ETag"])
    assert (await call(server, "GET", "/q")).json()["settings"] == changed


async def test_json_alone_is_a_merge_patch_too(server: Server) -> None:
    await make_queue(server)
    reply = await patch(server, {"visibility_s": 5}, Content_Type="application/json; charset=utf-8")
    assert reply.json()["visibility_s"] == 5


async def test_null_restores_a_default_and_what_is_not_named_stays(server: Server) -> None:
    await make_queue(server)
    await patch(server, {"visibility_s": 5, "idempotency_s": 10})
    assert (await patch(server, {"visibility_s": None})).json() == {**DEFAULTS, "idempotency_s": 10}
    assert (await patch(server, {"idempotency_s": None})).json() == DEFAULTS
    assert not (server.root / "settings" / "q.json").exists()
    assert (await patch(server, {})).json() == DEFAULTS


async def test_settings_outlive_the_daemon_and_go_with_the_queue(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    await patch(server, {"visibility_s": 5})
    again = await serve()
    assert (await read(again))["visibility_s"] == 5
    assert (await call(again, "DELETE", "/q")).status == 200
    await make_queue(again)
    assert await read(again) == DEFAULTS
    assert await read(server) == DEFAULTS


async def test_a_shape_is_kept_beside_what_is_changed(server: Server) -> None:
    await call(server, "PUT", "/q?bucket=7&shards=2")
    reply = await patch(server, {"visibility_s": 5, "bucket": 7})
    assert reply.json() == {**DEFAULTS, "visibility_s": 5, "bucket": 7, "shards": 2}
    await patch(server, {"visibility_s": None})
    assert await read(server) == {**DEFAULTS, "bucket": 7, "shards": 2}


async def test_a_field_that_this_mq_does_not_know_is_kept(server: Server) -> None:
    await make_queue(server)
    path = server.root / "settings" / "q.json"
    path.write_bytes(b'{"max_receives": 5, "visibility_s": 9, "later": {"a": [null]}}')
    path.chmod(0o600)
    assert (await patch(server, {"visibility_s": 4})).json()["visibility_s"] == 4
    kept = json.loads(path.read_bytes())
    assert kept == {"max_receives": 5, "visibility_s": 4, "later": {"a": [None]}}
    assert not [each.name for each in path.parent.iterdir() if each != path]


async def test_no_queue_has_no_settings(server: Server) -> None:
    assert_problem(await call(server, "GET", "/q/settings"), 404, "queue-not-found")
    assert_problem(await patch(server, {"visibility_s": 5}), 404, "queue-not-found")
    assert not any((server.root / "settings").iterdir())


async def test_a_queue_that_another_process_deleted_has_none(serve: Serve) -> None:
    server, other = await serve(), await serve()
    await make_queue(server)
    assert await read(other) == DEFAULTS
    assert (await call(server, "DELETE", "/q")).status == 200
    assert_problem(await call(other, "GET", "/q/settings"), 404, "queue-not-found")
    assert_problem(await patch(other, {"visibility_s": 5}), 404, "queue-not-found")


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
async def test_other_methods_are_not_allowed(server: Server, method: str) -> None:
    await make_queue(server)
    reply = await call(server, method, "/q/settings")
    assert_problem(reply, 405, "method-not-allowed")
    assert reply.headers["Allow"] == "GET, HEAD, OPTIONS, PATCH"


# Bad input


BAD_VALUES: list[tuple[str, Any]] = [
    ("visibility_s", 0), ("visibility_s", -1), ("visibility_s", 1e9), ("visibility_s", "5"),
    ("visibility_s", True), ("visibility_s", []), ("visibility_s", {"a": 1}),
    ("visibility_s", float("nan")), ("visibility_s", float("inf")), ("visibility_s", 10**400),
    ("priority_default", 10), ("priority_default", -1), ("priority_default", 1.5),
    ("priority_default", "high"), ("delay_default_s", -1), ("delay_default_s", 1e9),
    ("sideline_to", "failed"), ("sideline_to", "a:b_SIDELINE"), ("sideline_to", True),
    ("labels", "a"), ("labels", {"a": 1}), ("labels", {"a": "b" * 32768}),
    ("labels", {"a": "\ud800"}), ("labels", {"\udfff": "a"}),
    ("in_flight_max", -1), ("in_flight_max", 10_001), ("in_flight_max", 1.5),
    ("deliveries_per_s_max", -1), ("deliveries_per_s_max", 1e7), ("deliveries_per_s_max", True),
    ("idempotency_s", -1), ("idempotency_s", 10**9),
    ("body_bytes_max", -1), ("body_bytes_max", 2**50), ("body_bytes_max", 1.5),
    ("max_receives", 999), ("max_receives", -1), ("message_ttl_s", -1), ("message_ttl_s", "1d"),
    ("expired_to", "nowhere"), ("expired_to", 1), ("expired_to", []), ("expired_to", True),
    ("expires_at", 5), ("expires_at", ""), ("expires_at", "tomorrow"), ("expires_at", True),
    ("expires_at", "2026-02-30T00:00:00Z"), ("expires_at", "2026-01-31T12:00:00"),
    ("expires_at", "1969-12-31T23:59:59Z"), ("expiry_grace_s", -1), ("expiry_grace_s", "1d"),
    ("shovel_interval_s", -1), ("shovel_concurrency", 0), ("shovel_concurrency", 33),
    ("shovel_max_receives", 1000), ("sweep_after_s", 0), ("sweep_after_s", 1e12),
    ("consumers", -1), ("consumers", 101), ("consumers", 1.5), ("consumers", "many"),
    ("bucket", 6), ("bucket", "8"), ("shards", 0), ("shards", 17),
]  # fmt: skip


_EXPECTED = (
    "number from", "one of", "a time such as", "a sideline's name, such as", "an object of at most"
)  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
async def test_a_bad_value_is_named_and_changes_nothing(
    server: Server, name: str, value: Any
) -> None:
    await make_queue(server)
    reply = await patch(server, {"visibility_s": 5, "priority_default": 1, name: value})
    members = assert_problem(reply, 422, "bad-setting")
    assert members["parameter"] == name
    assert any(word in members["detail"] for word in _EXPECTED)
    assert await read(server) == DEFAULTS
    assert not any((server.root / "settings").iterdir())


@pytest.mark.parametrize("name", ["colour", "max_recieves", "name", "", "x" * 10_000])
async def test_an_unknown_field_is_named_and_changes_nothing(server: Server, name: str) -> None:
    await make_queue(server)
    members = assert_problem(
        await patch(server, {"visibility_s": 5, name: None}), 400, "unknown-setting"
    )
    assert members["parameter"] == name[:64]
    assert await read(server) == DEFAULTS


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"5", b"null", b'"x"', b"\xff", b"[" * 60_000, b'{"a":1}{}']
)
async def test_a_body_that_is_no_object_is_told(server: Server, text: bytes) -> None:
    await make_queue(server)
    assert_problem(await patch(server, text), 400, "bad-body")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_that_is_not_said_to_be_json_is_415(server: Server, kind: str) -> None:
    await make_queue(server)
    body = b'{"visibility_s": 5}'
    header = f"Content-Type: {kind}\r\n" if kind else ""
    head = raw_head("PATCH", "/q/settings", f"{header}Content-Length: {len(body)}")
    assert_problem(await raw_request(server.port, head + body), 415, "media-type-unknown")
    assert await read(server) == DEFAULTS


@pytest.mark.parametrize("wanted", [{"bucket": 9}, {"shards": 2}, {"bucket": 8, "shards": 3}])
async def test_a_shape_stays_as_it_is(server: Server, wanted: dict[str, int]) -> None:
    await make_queue(server)
    reply = await patch(server, {"visibility_s": 5, **wanted})
    assert assert_problem(reply, 409, "settings-fixed")["queue"] == "q"
    assert await read(server) == DEFAULTS
    assert (await patch(server, {"bucket": 8, "shards": None})).status == 200


async def test_null_asks_for_a_shape_by_default(server: Server) -> None:
    await call(server, "PUT", "/q?shards=2")
    assert_problem(await patch(server, {"shards": None}), 409, "settings-fixed")
    assert (await patch(server, {"bucket": None})).json()["shards"] == 2


# If-Match


async def test_a_patch_of_older_settings_is_412(server: Server) -> None:
    await make_queue(server)
    before = (await call(server, "GET", "/q/settings")).headers["ETag"]
    reply = await patch(server, {"visibility_s": 5}, If_Match=before)
    assert reply.status == 200
    after = reply.headers["ETag"]
    assert after != before
    assert_problem(
        await patch(server, {"visibility_s": 6}, If_Match=before), 412, "settings-changed"
    )
    assert (await read(server))["visibility_s"] == 5
    assert (await patch(server, {"visibility_s": 6}, If_Match=f'"x", {after}')).status == 200
    assert (await patch(server, {"visibility_s": 7}, If_Match="*")).status == 200
    assert_problem(await patch(server, {}, If_Match="5"), 400, "bad-if-match")
    weak = (await call(server, "GET", "/q/settings")).headers["ETag"]
    assert_problem(await patch(server, {}, If_Match=f"W/{weak}"), 412, "settings-changed")


async def test_what_is_the_same_again_has_the_same_tag(server: Server) -> None:
    await make_queue(server)
    before = (await call(server, "GET", "/q/settings")).headers["ETag"]
    await patch(server, {"visibility_s": 5})
    assert (await patch(server, {"visibility_s": None})).headers["ETag"] == before


async def test_of_two_patches_at_once_with_one_tag_one_wins(serve: Serve) -> None:
    servers = [await serve(), await serve()]
    await make_queue(servers[0])
    tag = (await call(servers[0], "GET", "/q/settings")).headers["ETag"]
    patches = (
        patch(servers[number % 2], {"visibility_s": number + 1}, If_Match=tag)
        for number in range(6)
    )
    replies = await asyncio.gather(*patches)
    assert sorted(reply.status for reply in replies) == [200] + 5 * [412]


async def test_patches_at_once_do_not_lose_each_other_s(serve: Serve) -> None:
    servers = [await serve(), await serve()]
    await make_queue(servers[0])
    wanted = [{"visibility_s": 5}, {"priority_default": 2}, {"idempotency_s": 9},
              {"body_bytes_max": 77}]  # fmt: skip
    replies = await asyncio.gather(
        *(patch(servers[number % 2], each) for number, each in enumerate(wanted))
    )
    assert [reply.status for reply in replies] == [200] * 4
    for server in servers:
        assert await read(server) == {
            **DEFAULTS,
            "visibility_s": 5,
            "priority_default": 2,
            "idempotency_s": 9,
            "body_bytes_max": 77,
        }


# What they do


async def test_a_fetched_message_is_its_fetcher_s_for_the_queue_s_visibility(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    await publish(server)
    await patch(server, {"visibility_s": 90})
    assert (await fetch(server)).headers["X-Message-Due"] == "2023-11-14T22:14:50.000Z"


async def test_a_message_has_the_queue_s_priority_unless_it_says_its_own(server: Server) -> None:
    await make_queue(server)
    plain = await publish(server)
    await patch(server, {"priority_default": 4})
    fourth = await publish(server)
    reply = await call(server, "POST", "/q/messages?priority=0", data=b"own")
    assert ",p=4" in fourth
    assert ",p=" not in reply.id
    assert [(await fetch(server)).id for _ in range(3)] == [fourth, plain, reply.id]


async def test_a_queue_s_own_limit_of_bodies_holds_on_both_ways(serve: Serve) -> None:
    server = await serve(queue=QueueSettings(body_bytes_max=100))
    await make_queue(server)
    await patch(server, {"body_bytes_max": 10})
    for query in ("", "?priority=1"):  # A plain request, and one that is not.
        path = f"/q/messages{query}"
        assert (await call(server, "POST", path, data=b"x" * 10)).status == 201
        reply = await call(server, "POST", path, data=b"x" * 11)
        assert assert_problem(reply, 413, "body-too-large")["bytes_max"] == 10
    await patch(server, {"body_bytes_max": 3_000_000})  # More than the daemon's.
    assert (await post(server, b"x" * 2_000_000)).status == 201
    await patch(server, {"body_bytes_max": 0})
    assert (await post(server, b"")).status == 201


# Another process's


async def test_another_process_s_settings_are_seen_within_a_second(serve: Serve) -> None:
    clock = StillClock()
    server, other = await serve(clock=clock), await serve()
    await make_queue(server)
    await publish(server)  # The first has used the queue.
    await patch(other, {"visibility_s": 90, "priority_default": 2, "body_bytes_max": 5})
    clock.steady += SETTINGS_AGE_S
    assert_problem(await post(server, b"123456"), 413, "body-too-large")
    assert ",p=2" in await publish(server, b"12345")
    assert (await fetch(server)).headers["X-Message-Due"] == "2023-11-14T22:14:50.000Z"
    assert (await call(server, "GET", "/q")).json()["settings"]["visibility_s"] == 90


async def test_what_is_asked_for_by_itself_is_never_old(serve: Serve) -> None:
    server, other = await serve(clock=StillClock()), await serve()
    await make_queue(server)
    assert await read(server) == DEFAULTS
    await patch(other, {"visibility_s": 90})
    assert (await read(server))["visibility_s"] == 90
    await patch(other, {"visibility_s": 91})
    assert (await patch(server, {})).json()["visibility_s"] == 91


@pytest.mark.certificate
async def test_settings_written_by_hand_come_into_use(server: Server) -> None:
    await make_queue(server)
    await publish(server)
    path = server.root / "settings" / "q.json"
    written = path.with_name(".by-hand")
    written.write_bytes(b'{"priority_default": 7}')
    written.rename(path)

    async def is_used() -> bool:
        return ",p=7" in await publish(server)

    await comes_true(is_used, "the new default")


# Damage


@pytest.mark.parametrize("text", [b"{", b'{"visibility_s": -1}', b'{"priority_default": "x"}'])
async def test_what_a_damaged_file_stops_and_what_it_does_not(serve: Serve, text: bytes) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    ids = [await publish(server) for _ in range(3)]
    await patch(server, {"visibility_s": 90})
    path = server.root / "settings" / "q.json"
    path.write_bytes(text)
    clock.steady += SETTINGS_AGE_S
    for reply in (
        await post(server),
        await call(server, "GET", "/q"),
        await call(server, "GET", "/q/settings"),
        await patch(server, {"visibility_s": 5}),
    ):
        assert_problem(reply, 503, "settings-unreadable")
    assert path.read_bytes() == text
    reply = await fetch(server)  # By what was known last.
    assert (reply.id, reply.headers["X-Message-Due"]) == (ids[0], "2023-11-14T22:14:50.000Z")
    other = await serve(clock=StillClock())  # Which has never known any.
    assert (await fetch(other)).headers["X-Message-Due"] == "2023-11-14T22:13:50.000Z"
    path.unlink()
    clock.steady += SETTINGS_AGE_S
    assert await read(server) == DEFAULTS
    for message_id in (*ids, await publish(server)):
        assert (await delete(server, message_id)).status == 202


async def test_what_is_whole_may_be_written_with_a_point(server: Server) -> None:
    # JSON Schema, and who draws by it, knows 7.0 as whole.
    await make_queue(server)
    reply = await patch(server, b'{"priority_default": 7.0, "bucket": 8.0}')
    assert reply.status == 200, reply.body
    assert b'"priority_default": 7,' in reply.body
    assert (await read(server))["priority_default"] == 7
    problem = assert_problem(await patch(server, {"shards": 1.5}), 422, "bad-setting")
    assert problem["parameter"] == "shards"
