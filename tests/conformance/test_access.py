"""Who may do what: every operation, by every caller, on both ways that a request goes."""

from typing import Any

import pytest
from harness.access import CALLERS, Tokens
from harness.api import UNKNOWN_ID, assert_problem, call, fetch, publish
from harness.clock import FakeClock
from harness.raw import raw_connection, raw_head, raw_request
from harness.server import Serve, Server

from mq.access.callers import Caller, Needs, Right, is_allowed, parse_grants
from mq.access.tokens import new_token
from mq.http.access import CALLER_KNOWN_S
from mq.protocol.endpoints import ENDPOINTS

OPERATIONS = [(each.method, each.path, each.right) for each in ENDPOINTS]
# What each operation is to need: said a second time, by hand.
ANONYMOUS = (
    "GET HEAD /; GET HEAD /-/livez; GET HEAD /-/readyz; GET HEAD /-/openapi.json; "
    "GET HEAD /-/; GET HEAD /-/page/{asset}"
)
KNOWN = "GET HEAD /-/queues; GET HEAD /-/trends; GET /-/consume"
ANY = "GET HEAD /{queue}; GET HEAD /{queue}/settings; GET HEAD /-/metrics"
PUBLISH = (
    "POST /{queue}/messages; GET /{queue}/schedules; "
    "PUT GET HEAD DELETE /{queue}/schedules/{schedule}"
)
CONSUME = (
    "GET /{queue}/messages; POST /{queue}/acks; POST /{queue}/extensions; "
    "POST /{queue}/releases; POST /{queue}/sidelines; "
    "GET HEAD PATCH DELETE /{queue}/messages/{id}; "
    "POST /{queue}/messages/{id}/sideline; GET HEAD /{queue}/messages/{id}/history; "
    "GET HEAD /{queue}/messages/{id}/failures; GET /{queue}/groups; "
    "GET DELETE /{queue}/tags/{tag}; POST /{queue}/tags/{tag}/sideline; "
    "GET HEAD /{queue}/tags/{tag}/history; "
    "GET /{queue}/peek; GET /{queue}/consumers; GET HEAD DELETE /{queue}/keys/{key}"
)
ADMIN = (
    "PUT DELETE /{queue}; DELETE /{queue}/messages; DELETE /{queue}/consumers/{consumer}; "
    "PATCH /{queue}/settings; "
    "POST GET HEAD DELETE /{queue}/shovel; GET HEAD /-/memory; GET HEAD /-/members; POST /-/refresh"
)
NEEDED = {
    Needs.NOTHING: ANONYMOUS,
    Needs.CALLER: KNOWN,
    Needs.ANY: ANY,
    Right.PUBLISH: PUBLISH,
    Right.CONSUME: CONSUME,
    Right.ADMIN: ADMIN,
}


@pytest.fixture
async def guarded(serve: Serve, tokens: Tokens) -> Server:
    """An mq that asks who calls, with queues `orders` and `events`."""
    server = await serve(tokens=tokens.path)
    for queue in ("orders", "events"):
        reply = await call(server, "PUT", f"/{queue}", headers=tokens.header("root"))
        assert reply.status == 201
    return server


def path_of(pattern: str, queue: str) -> str:
    return pattern.format(
        queue=queue, id=UNKNOWN_ID, key="k", schedule="s", consumer="c", tag="t", asset="page.css"
    )


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_the_table_says_what_each_operation_needs() -> None:
    said = {
        (method, pattern): needed
        for needed, text in NEEDED.items()
        for *methods, pattern in map(str.split, text.split("; "))
        for method in methods
    }
    assert said == {(method, pattern): right for method, pattern, right in OPERATIONS}


async def test_each_operation_is_done_for_those_who_may_and_for_nobody_else(
    guarded: Server, tokens: Tokens
) -> None:
    for method, pattern, right in OPERATIONS:
        for name, grants in CALLERS.items():
            await call(guarded, "PUT", "/orders", headers=tokens.header("root"))
            path = path_of(pattern, "orders")
            reply = await call(guarded, method, path, headers=tokens.header(name))
            case = (method, pattern, name)
            queue = "orders" if "{queue}" in pattern else None
            if is_allowed(Caller(name, parse_grants(grants)), right, queue):
                assert reply.status not in (401, 403), case
                continue
            assert reply.status == 403, case
            said = reply.headers["WWW-Authenticate"]
            assert said == 'Bearer realm="mq", error="insufficient_scope"', case
            if method != "HEAD":
                assert assert_problem(reply, 403, "forbidden")["right"] == right.value, case


async def test_who_is_not_known_is_told_so_before_anything_else(guarded: Server) -> None:
    headers = [{}, {"Authorization": "Basic YTpi"}, bearer(new_token()), bearer("a b")]
    for method, pattern, right in OPERATIONS:
        bodies = set()
        for place, shown in enumerate(headers):
            for queue in ("orders", "none"):
                # Also where a parameter is none.
                path = path_of(pattern, queue) + "?nothing=1"
                reply = await call(guarded, method, path, headers=shown)
                case = (method, path, shown)
                if right is Needs.NOTHING:
                    assert reply.status == 400, case
                    continue
                assert reply.status == 401, case
                said = 'Bearer realm="mq"' + (', error="invalid_token"' if place >= 2 else "")
                assert reply.headers["WWW-Authenticate"] == said, case
                if method != "HEAD":
                    assert_problem(reply, 401, "unauthenticated")
                bodies.add(reply.body)
        # Nothing tells whether the queue is there.
        assert len(bodies) == (right is not Needs.NOTHING), (method, pattern)


async def test_who_may_not_is_not_told_whether_the_queue_is_there(
    guarded: Server, tokens: Tokens
) -> None:
    for method, pattern, _ in OPERATIONS:
        if "{queue}" not in pattern:
            continue
        replies = [
            await call(guarded, method, path_of(pattern, queue), headers=tokens.header("stranger"))
            for queue in ("orders", "none", "no%20queue")
        ]
        assert {each.status for each in replies} == {403}, (method, pattern)
        assert len({each.body for each in replies}) == 1, (method, pattern)


async def test_paths_and_methods_that_are_not_there_are_told_to_everybody(guarded: Server) -> None:
    assert_problem(await call(guarded, "GET", "/a/b/c/d/e"), 404, "path-unknown")
    assert_problem(await call(guarded, "PATCH", "/orders"), 405, "method-not-allowed")
    assert (await call(guarded, "OPTIONS", "/orders/messages")).status == 204


def plain(method: str, path: str, token: str, *more: str, body: bytes = b"") -> bytes:
    length = [f"Content-Length: {len(body)}"] if method == "POST" else []
    return raw_head(method, path, f"Authorization: Bearer {token}", *length, *more) + body


async def test_a_connection_may_be_of_several_callers(guarded: Server, tokens: Tokens) -> None:
    async with raw_connection(guarded.port) as connection:
        for name, status in (
            ("publisher", 201), ("consumer", 403), ("publisher", 201), ("stranger", 403),
            ("both", 201),
        ):  # fmt: skip
            await connection.send(plain("POST", "/orders/messages", tokens.of[name], body=b"x"))
            assert (await connection.response()).status == status, name
        await connection.send(raw_head("POST", "/orders/messages", "Content-Length: 0"))
        assert (await connection.response()).status == 401


async def test_two_tokens_in_a_request_are_none(guarded: Server, tokens: Tokens) -> None:
    header = f"Authorization: Bearer {tokens.of['root']}"
    async with raw_connection(guarded.port) as connection:
        await connection.send(raw_head("GET", "/orders", header, header))
        assert (await connection.response()).status in (400, 401)


async def test_a_body_is_refused_before_it_is_sent(guarded: Server, tokens: Tokens) -> None:
    for name, status in (("consumer", 403), ("nobody", 401)):
        async with raw_connection(guarded.port) as connection:
            token = tokens.of.get(name, "x")
            await connection.send(
                raw_head(
                    "POST",
                    "/orders/messages",
                    f"Authorization: Bearer {token}",
                    f"Content-Length: {1 << 40}",
                    "Expect: 100-continue",
                )
            )
            # No 100 before it; and before what the body's size would be refused by.
            assert (await connection.response()).status == status


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ((f"Content-Length: {1 << 40}",), 413),
        (("Content-Length: 9",), 408),
        (("Content-Length: 1", f"X-Attribute-A: {'a' * 9000}"), 431),
        (("Content-Length: 1", "Expect: tea"), 417),
    ],
)
async def test_who_asks_is_looked_at_before_what_comes(
    serve: Serve, tokens: Tokens, headers: tuple[str, ...], allowed: int
) -> None:
    server = await serve(tokens=tokens.path, body_idle_s=0.05)
    await call(server, "PUT", "/orders", headers=tokens.header("root"))
    for name, status in (("nobody", 401), ("consumer", 403), ("publisher", allowed)):
        shown = f"Authorization: Bearer {tokens.of.get(name, 'x')}"
        asked = raw_head("POST", "/orders/messages", shown, *headers)
        assert (await raw_request(server.port, asked)).status == status, name


async def test_everybody_sees_the_queues_to_which_they_have_any_right(
    guarded: Server, tokens: Tokens
) -> None:
    for queue in ("orders-a", "orders-b", "orders-c", "payments"):
        await call(guarded, "PUT", f"/{queue}", headers=tokens.header("root"))

    async def seen(name: str, query: str = "") -> Any:
        reply = await call(guarded, "GET", f"/-/queues{query}", headers=tokens.header(name))
        assert reply.status == 200
        return [each["name"] for each in reply.json()["queues"]], reply.json()["next"]

    orders = ["orders", "orders-a", "orders-b", "orders-c"]
    assert await seen("publisher") == (orders, None)
    assert await seen("stranger") == (["events"], None)
    assert await seen("everybody") == (["events", *orders, "payments"], None)
    assert await seen("publisher", "?count=3") == (orders[:3], "orders-b")
    assert await seen("publisher", "?count=3&after=orders-b") == (orders[3:], None)


async def test_a_bad_new_file_keeps_the_old_one_and_a_good_one_counts_at_once(
    guarded: Server, tokens: Tokens
) -> None:
    async with raw_connection(guarded.port) as connection:

        async def asks(name: str) -> int:
            await connection.send(plain("GET", "/orders/messages", tokens.of[name]))
            return (await connection.response()).status

        assert await asks("consumer") == 204
        tokens.damage()
        await guarded.daemon.reload()
        assert await asks("consumer") == 204
        tokens.grant("consumer", "orders:publish")
        await guarded.daemon.reload()
        assert await asks("consumer") == 403
        tokens.remove("consumer")
        await guarded.daemon.reload()
        assert await asks("consumer") == 401
        tokens.add("newcomer", "orders:consume")
        assert await asks("newcomer") == 401
        await guarded.daemon.reload()
        assert await asks("newcomer") == 204


async def test_who_is_known_is_asked_for_again_after_a_while(serve: Serve, tokens: Tokens) -> None:
    clock = FakeClock()
    server = await serve(tokens=tokens.path, clock=clock)
    await call(server, "PUT", "/orders", headers=tokens.header("root"))
    asked: list[str] = []

    class Once:
        """Knows everybody, and notes who asks."""

        def caller(self, token: str) -> Caller | None:
            asked.append(token)
            return Caller("c", parse_grants(["*:admin"])) if len(asked) < 3 else None

    assert server.daemon.service is not None
    server.daemon.service.access.replace([Once()])
    async with raw_connection(server.port) as connection:
        statuses = []
        for _ in range(3):
            for _ in range(3):
                await connection.send(plain("GET", "/orders/messages", "t"))
                statuses.append((await connection.response()).status)
            clock.advance(CALLER_KNOWN_S)
    assert statuses == [204] * 6 + [401] * 3
    # Six requests of two seconds took two looks; who is not known is looked for each time.
    assert len(asked) >= 5


async def test_without_access_control_a_token_means_nothing(server: Server) -> None:
    reply = await call(server, "PUT", "/orders", headers=bearer("x"))
    assert reply.status == 201
    await publish(server, b"x", "orders", headers={**bearer("y"), "Content-Type": "text/plain"})
    assert (await fetch(server, "orders", headers={"Authorization": "Bearer a b"})).body == b"x"
