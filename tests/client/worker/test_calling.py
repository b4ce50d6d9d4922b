"""What stands around handlers: in order, logging, tracing."""

import logging
import threading
from typing import Any

import pytest
from harness.server import Server
from harness.waiting import comes_true
from harness.working import becomes_empty, published, sidelined, working
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mq import Worker
from mq.client.client import AsyncClient
from mq.client.queue import AsyncQueue
from mq.client.worker import AsyncWorkerMessage, WorkerMessage, logged
from mq.client.worker.traced import traced

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


async def test_the_first_is_outermost_and_each_may_change_what_comes(
    server: Server, client: AsyncClient, orders: AsyncQueue
) -> None:
    await published(orders, ["one"])
    steps: list[str] = []

    def step(name: str, gives: object = None) -> Any:
        async def middleware(message: AsyncWorkerMessage, call_next: Any) -> object:
            steps.append(f"{name} before")
            found = await call_next(message)
            steps.append(f"{name} after {found}")
            return gives

        return middleware

    def handle(_: WorkerMessage) -> bool:
        steps.append("handler")
        return True

    middleware = [step("outer", False), step("inner", 5)]
    async with working(Worker(server.url, "orders", handle, middleware=middleware)):
        (found,) = await sidelined(orders, client)
    assert found.sidelined == "rejected"
    assert steps == ["outer before", "inner before", "handler", "inner after True", "outer after 5"]


async def test_one_may_answer_in_the_handler_s_place(server: Server, orders: AsyncQueue) -> None:
    await published(orders, ["one"])
    handled: list[object] = []

    async def seen_before(_: AsyncWorkerMessage, __: Any) -> None:
        return None

    worker = Worker(server.url, "orders", handled.append, middleware=[seen_before])
    async with working(worker):
        await becomes_empty(orders)
    assert handled == []


async def test_each_message_is_logged(
    server: Server, client: AsyncClient, orders: AsyncQueue, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [await orders.publish(body) for body in ("good", "bad", "ugly")]

    def handle(message: WorkerMessage) -> bool:
        if message.body == b"ugly":
            raise KeyError(message.id)
        return message.body == b"good"

    caplog.set_level(logging.INFO, "mq.worker.messages")
    async with working(Worker(server.url, "orders", handle, consumers=1, middleware=[logged()])):
        await becomes_empty(orders)
    records = [each for each in caplog.records if each.name == "mq.worker.messages"]
    facts = [record.__dict__["fields"] for record in records]
    assert [each["id"] for each in facts] == ids
    assert [each.get("result") for each in facts] == [True, False, None]
    assert facts[2]["error"] == "KeyError"
    assert all(each["queue"] == "orders" and each["receives"] == 1 for each in facts)
    assert all(each["took_s"] >= 0 for each in facts)
    assert ids[0] in records[0].getMessage()


@pytest.mark.parametrize("is_async", [False, True])
async def test_each_message_is_a_consumer_s_span_of_its_publisher_s_trace(
    server: Server, client: AsyncClient, orders: AsyncQueue, is_async: bool
) -> None:
    exported = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    inner: list[tuple[int, str]] = []

    def note() -> None:
        context = trace.get_current_span().get_span_context()
        inner.append((context.span_id, threading.current_thread().name))

    def in_a_thread(message: WorkerMessage) -> bool:
        note()
        if message.body == b"ugly":
            raise KeyError("x")
        return message.body == b"good"

    async def in_the_loop(message: AsyncWorkerMessage) -> bool:
        note()
        if message.body == b"ugly":
            raise KeyError("x")
        return message.body == b"good"

    handle: Any = in_the_loop if is_async else in_a_thread
    good = await orders.publish("good", headers={"traceparent": TRACEPARENT})
    for body in ("bad", "ugly"):
        await orders.publish(body)
    middleware = [traced(provider, server.url)]
    async with working(Worker(server.url, "orders", handle, consumers=1, middleware=middleware)):
        await becomes_empty(orders)
        await comes_true(lambda: len(exported.get_finished_spans()) == 3)
    spans: tuple[ReadableSpan, ...] = exported.get_finished_spans()
    first = spans[0]
    assert first.context is not None
    assert first.parent is not None
    assert f"{first.context.trace_id:032x}" == TRACE
    assert f"{first.parent.span_id:016x}" == PARENT
    assert (first.name, first.kind) == ("process orders", SpanKind.CONSUMER)
    assert dict(first.attributes or {}) == {
        "messaging.system": "mq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.message.id": good,
        "messaging.message.body.size": 4,
        "mq.message.receives": 1,
        "server.address": "127.0.0.1",
        "server.port": server.port,
    }
    assert [span.status.status_code for span in spans] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
        StatusCode.ERROR,
    ]
    errors = [(span.attributes or {}).get("error.type") for span in spans]
    assert errors == [None, "rejected", "KeyError"]
    assert [len(span.events) for span in spans] == [0, 0, 1]
    # The handler is in the span, and may be in another thread.
    assert [span_id for span_id, _ in inner] == [
        span.context.span_id for span in spans if span.context is not None
    ]
    assert all((thread == "MainThread") == is_async for _, thread in inner)
