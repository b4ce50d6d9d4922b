"""Spans of requests: what they say, whose children they are, what they are linked to; and that they
come to a receiver.
"""

import asyncio
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from harness.api import call, delete, fetch, make_queue, publish
from harness.internals import interested
from harness.pages import section
from harness.processes import Processes
from harness.raw import raw_connection, raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from pytest_aiohttp import AiohttpServer

from mq.http.traces import UNTRACED
from mq.protocol.endpoints import ENDPOINTS

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@dataclass
class Receiver:
    """A real OTLP receiver over HTTP, and what came to it."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    async def receive(self, request: web.Request) -> web.Response:
        said = ExportTraceServiceRequest.FromString(await request.read())
        for of_resource in said.resource_spans:
            for attribute in of_resource.resource.attributes:
                if attribute.key == "service.name":
                    self.services.add(attribute.value.string_value)
            for of_scope in of_resource.scope_spans:
                self.spans += of_scope.spans
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    async def named(self, name: str) -> Span:
        """The span of this name, once it came."""

        def found() -> Span | None:
            return next((span for span in self.spans if span.name == name), None)

        span = await comes_true(found, f"the span {name}")
        assert span is not None
        return span


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch, aiohttp_server: AiohttpServer) -> Receiver:
    made = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", made.receive)
    server = await aiohttp_server(app)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", str(server.make_url("")).rstrip("/"))
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    return made


@pytest.fixture
async def traced(receiver: Receiver, serve: Serve) -> Server:
    return await serve(traces=True)


def attributes(span: Span) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


async def test_a_message_s_life_in_spans(traced: Server, receiver: Receiver) -> None:
    await make_queue(traced)
    message_id = await publish(traced, headers={"traceparent": TRACEPARENT})
    reply = await fetch(traced)
    assert reply.headers["traceparent"] == TRACEPARENT
    assert (await delete(traced, message_id)).status == 202
    published, fetched, deleted = [
        await receiver.named(f"{name} q") for name in ("publish", "fetch", "delete")
    ]
    assert receiver.services == {"mq"}
    assert (published.trace_id.hex(), published.parent_span_id.hex()) == (TRACE, PARENT)
    assert published.kind == Span.SPAN_KIND_SERVER
    assert attributes(published) == {
        "http.request.method": "POST",
        "http.route": "/{queue}/messages",
        "http.response.status_code": 201,
        "url.path": "/q/messages",
        "messaging.system": "mq",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "q",
        "messaging.message.id": message_id,
    }
    # Whoever fetches goes on with a trace of its own, linked to the publisher's.
    assert fetched.trace_id.hex() != TRACE
    links = [(link.trace_id.hex(), link.span_id.hex()) for link in fetched.links]
    assert links == [(TRACE, PARENT)]
    assert attributes(fetched)["messaging.message.id"] == message_id
    assert attributes(deleted)["messaging.message.id"] == message_id
    assert attributes(deleted)["http.response.status_code"] == 202
    assert not published.links
    assert not deleted.links


async def test_a_message_without_a_trace_has_no_link(traced: Server, receiver: Receiver) -> None:
    await make_queue(traced)
    await publish(traced, headers={"traceparent": "nothing that is one"})
    assert (await fetch(traced, headers={"traceparent": TRACEPARENT})).status == 200
    fetched = await receiver.named("fetch q")
    assert fetched.trace_id.hex() == TRACE
    assert not fetched.links


async def test_a_request_of_sqs_has_the_name_of_its_operation(
    traced: Server, receiver: Receiver
) -> None:
    headers = {"X-Amz-Target": "AmazonSQS.GetQueueUrl"}
    assert (await call(traced, "POST", "/", headers=headers)).status == 400
    span = await receiver.named("sqs_GetQueueUrl")
    assert attributes(span)["http.response.status_code"] == 400


async def test_what_is_refused_is_no_error_and_what_fails_is_one(
    traced: Server, receiver: Receiver
) -> None:
    assert (await fetch(traced, queue="none")).status == 404
    assert (await call(traced, "GET", "/none/at/all/of/it")).status == 404
    assert (await call(traced, "GET", "/a%2Fb")).status == 400
    assert (await call(traced, "GET", "/-/livez")).status == 200
    await make_queue(traced)
    (traced.root / "new").rename(traced.root / "aside")
    assert (await call(traced, "POST", "/q/messages", data=b"x")).status == 503
    (traced.root / "aside").rename(traced.root / "new")
    failed = await receiver.named("publish q")
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert attributes(failed)["error.type"] == "503"
    refused = await receiver.named("fetch none")
    assert refused.status.code == Status.STATUS_CODE_UNSET
    assert attributes(refused)["http.response.status_code"] == 404
    await comes_true(lambda: len(named(receiver, "GET")) == 1, "the span of no path")
    assert attributes(await receiver.named("GET /{queue}"))["http.response.status_code"] == 400
    assert not [span for span in receiver.spans if "livez" in span.name]


async def test_who_hangs_up_ends_its_span(traced: Server, receiver: Receiver) -> None:
    await make_queue(traced)
    assert (await fetch(traced)).status == 204
    async with raw_connection(traced.port) as connection:
        await connection.send(raw_head("GET", "/q/messages?wait=60"))
        await comes_true(lambda: interested(traced, "q") == 1, "the wait")
        connection.abort()
    await comes_true(lambda: len(named(receiver, "fetch q")) == 2, "both spans")
    statuses = [span.status.code for span in named(receiver, "fetch q")]
    assert sorted(statuses) == [Status.STATUS_CODE_UNSET, Status.STATUS_CODE_ERROR]


def named(receiver: Receiver, name: str) -> list[Span]:
    return [span for span in receiver.spans if span.name == name]


async def test_what_is_left_is_sent_at_the_end(
    receiver: Receiver, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders-mq")
    server = await serve(traces=True)
    await make_queue(server)
    assert receiver.spans == []
    await server.session.close()
    await server.daemon.drain()
    assert [span.name for span in receiver.spans] == ["PUT /{queue}"]
    assert receiver.services == {"orders-mq"}


PAGE = section("deploy/OBSERVE.md", "Traces")


@pytest.mark.certificate
async def test_the_page_s_command(
    receiver: Receiver, daemons: Processes, root: Path, traced: Server
) -> None:
    assert "mq --root $root --port $port --traces" in PAGE
    process = daemons.mq(root / "of-its-own", "--traces")
    async with traced.session.put(f"{process.url}/q") as response:
        assert response.status == 201
    assert (await receiver.named("PUT /{queue}")).kind == Span.SPAN_KIND_SERVER
    assert await asyncio.to_thread(process.terminate) == 0


def test_the_page_has_every_operation() -> None:
    row = r"^\| `([A-Z]+) (\S+)` \| `(\w+) \{queue\}` \| `(\w+)` \|$"
    rows = re.findall(row, PAGE, re.MULTILINE)
    said = {(method, pattern): (name, kind) for method, pattern, name, kind in rows}
    assert said == {
        (each.method, each.path): each.messaging for each in ENDPOINTS if each.messaging
    }
    assert all(f"`{path}`" in PAGE for path in UNTRACED)


@pytest.mark.certificate
def test_without_the_extra_it_says_what_is_missing(root: Path) -> None:
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = None; "
        "from mq.daemon.cli import main; main()"
    )
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            "--root",
            str(root),
            "--port",
            "0",
            "--processes",
            "1",
            "--traces",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    assert "pip install 'mq[tracing]'" in ended.stderr
    assert "Traceback" not in ended.stderr
