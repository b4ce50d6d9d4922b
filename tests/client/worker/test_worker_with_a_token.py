"""A worker of an mq that asks for tokens needs no more than the right to consume its queue."""

import logging

import pytest
from harness.access import Tokens
from harness.server import Serve
from harness.waiting import comes_true
from harness.working import becomes_empty, made, published, sidelined, working

from mq import Worker
from mq.client.client import AsyncClient
from mq.client.worker import WorkerMessage


def all_said(caplog: pytest.LogCaptureFixture) -> str:
    """The log with all that its lines have beside their text."""
    return " ".join(str(vars(record)) for record in caplog.records)


async def test_a_worker_handles_and_puts_aside_by_its_token(
    serve: Serve, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = await serve(tokens=tokens.path)

    def handle(message: WorkerMessage) -> bool:
        return message.body != b"bad"

    async with AsyncClient(server.url, token=tokens.of["root"]) as client:
        (orders,) = await made(client, "orders")
        await published(orders, ["good", "bad", "good"])
        worker = Worker(server.url, "orders", handle, token=tokens.of["consumer"])
        assert tokens.of["consumer"] not in repr(worker)
        async with working(worker):
            await becomes_empty(orders)
            (aside,) = await sidelined(orders, client)
        assert aside.body == b"bad"
        # What its rights do not cover stays as it is.
        await published(orders, ["more"])
        stranger = Worker(server.url, "orders", handle, token=tokens.of["stranger"])
        async with working(stranger):
            await comes_true(lambda: "forbidden" in all_said(caplog))
        assert len(await orders.peek()) == 1
    assert not any(tokens.of[each] in all_said(caplog) for each in ("consumer", "stranger", "root"))
