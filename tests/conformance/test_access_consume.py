"""Who may consume by a WebSocket: each queue by itself, for as long as that is so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from harness.access import Tokens
from harness.api import call
from harness.consuming import PATH, Consumer
from harness.server import Serve, Server

from mq.client.client import AsyncClient
from mq.client.errors import Forbidden, Unauthenticated
from mq.client.values import Subscription
from mq.testing import FakeMq

QUEUES = ("orders", "events")


@pytest.fixture
async def guarded(serve: Serve, tokens: Tokens) -> Server:
    server = await serve(tokens=tokens.path)
    for queue in QUEUES:
        await call(server, "PUT", f"/{queue}", headers=tokens.header("root"))
    return server


async def publish(server: Server, tokens: Tokens, queue: str, body: bytes = b"x") -> str:
    reply = await call(
        server, "POST", f"/{queue}/messages", data=body, headers=tokens.header("root")
    )
    assert reply.status == 201
    return reply.id


@asynccontextmanager
async def as_caller(server: Server, headers: dict[str, str]) -> AsyncIterator[Consumer]:
    async with server.session.ws_connect(server.url + PATH, headers=headers) as socket:
        yield Consumer(socket)


async def test_a_handshake_needs_a_token(guarded: Server, tokens: Tokens) -> None:
    for headers in ({}, {"Authorization": "Bearer x"}):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with as_caller(guarded, headers):
                pass
        assert refused.value.status == 401


async def test_each_subscription_needs_the_right_to_its_queue(
    guarded: Server, tokens: Tokens
) -> None:
    await publish(guarded, tokens, "events")
    await publish(guarded, tokens, "orders")
    async with as_caller(guarded, tokens.header("consumer")) as consumer:
        wanted = [{"queue": each} for each in ("events", "orders", "none", "no queue")]
        results = await consumer.results(subscribe=wanted)
        assert [each["status"] for each in results] == [403, 200, 403, 403]
        # Nothing tells which of them are there.
        problems = [dict(results[each]["problem"]) for each in (0, 2, 3)]
        assert problems[0]["type"] == "urn:mq:problem:forbidden"
        assert problems[0] == problems[1] == problems[2]
        message = await consumer.message()
        assert message.queue == "orders"
        assert await consumer.statuses(ack=[message.id]) == [202]
    async with as_caller(guarded, tokens.header("publisher")) as consumer:
        assert await consumer.statuses(subscribe=[{"queue": "orders"}]) == [403]


async def test_a_right_that_is_taken_away_ends_the_subscription(
    guarded: Server, tokens: Tokens
) -> None:
    tokens.add("two", "orders:consume", "events:consume")
    await guarded.daemon.reload()
    ids = {queue: await publish(guarded, tokens, queue) for queue in QUEUES}
    async with as_caller(guarded, tokens.header("two")) as consumer:
        await consumer.subscribe(*QUEUES)
        for _ in QUEUES:
            await consumer.message()
        tokens.grant("two", "events:consume")
        await guarded.daemon.reload()
        results = await consumer.results(ack=[ids["orders"], ids["events"]])
        assert [each["status"] for each in results] == [403, 202]
        event = await consumer.event()
        assert (event["event"], event["queue"]) == ("unsubscribed", "orders")
        assert event["problem"]["right"] == "consume"
        assert await consumer.statuses(credit={"orders": 1, "events": 1}) == [404, 200]
        await publish(guarded, tokens, "orders")
        await publish(guarded, tokens, "events")
        assert (await consumer.message()).queue == "events"
        assert not consumer.messages
    # What it held is another's again.
    with_wait = "/orders/messages?wait=30"
    reply = await call(guarded, "GET", with_wait, headers=tokens.header("root"))
    assert reply.status == 200


async def test_a_token_that_is_taken_away_ends_the_connection(
    guarded: Server, tokens: Tokens
) -> None:
    message_id = await publish(guarded, tokens, "orders")
    async with as_caller(guarded, tokens.header("consumer")) as consumer:
        await consumer.subscribe("orders")
        await consumer.message()
        tokens.remove("consumer")
        await guarded.daemon.reload()
        await consumer.send(ack=[message_id])
        assert await consumer.close_code() == 1008
    # It was not acked, and is another's again.
    with_wait = "/orders/messages?wait=30"
    reply = await call(guarded, "GET", with_wait, headers=tokens.header("root"))
    assert reply.id == message_id


async def test_who_says_nothing_is_ended_too(serve: Serve, tokens: Tokens) -> None:
    server = await serve(tokens=tokens.path, ping_s=0.05)
    async with as_caller(server, tokens.header("consumer")) as consumer:
        tokens.remove("consumer")
        await server.daemon.reload()
        assert await consumer.close_code() == 1008


@pytest.mark.parametrize("via", ["auto", "websocket", "poll"])
async def test_the_client_s_consumers_show_their_token(
    guarded: Server, tokens: Tokens, via: str
) -> None:
    await publish(guarded, tokens, "orders")
    async with AsyncClient(guarded.url, token=tokens.of["consumer"]) as client:
        async with client.consume("orders", via=via) as consumer:
            message = await anext(aiter(consumer))
            await message.delete()
        with pytest.raises(Forbidden) as refused:
            async with client.consume(Subscription("events"), via=via) as consumer:
                await anext(aiter(consumer))
        assert refused.value.right == "consume"


async def test_the_client_tells_what_it_may_not(guarded: Server, tokens: Tokens) -> None:
    async with AsyncClient(guarded.url) as client:
        with pytest.raises(Unauthenticated):
            await client.queue("orders").fetch()
        with pytest.raises(Unauthenticated):
            async with client.consume("orders") as consumer:
                await anext(aiter(consumer))
    secret = tokens.of["publisher"]
    async with AsyncClient(guarded.url, token=secret) as client:
        with pytest.raises(Forbidden) as refused:
            await client.queue("orders").fetch()
        said = f"{refused.value!r} {refused.value} {client!r} {vars(refused.value)}"
        assert secret not in said
        assert refused.value.right == "consume"
        assert [each.name async for each in client.queues()] == ["orders"]


async def test_a_consumer_whose_token_is_taken_away_hears_of_it(
    serve: Serve, tokens: Tokens
) -> None:
    server = await serve(tokens=tokens.path, ping_s=0.05)
    await call(server, "PUT", "/orders", headers=tokens.header("root"))
    await publish(server, tokens, "orders")
    async with (
        AsyncClient(server.url, token=tokens.of["consumer"]) as client,
        client.consume("orders", via="websocket") as consumer,
    ):
        await (await anext(aiter(consumer))).delete()
        tokens.remove("consumer")
        await server.daemon.reload()
        with pytest.raises(Unauthenticated):
            await anext(aiter(consumer))


async def test_the_fake_takes_a_token_and_asks_for_none() -> None:
    fake = FakeMq()
    async with fake.async_client(token="anything") as client:
        await client.queue("orders").create()
        assert [each.name async for each in client.queues()] == ["orders"]
