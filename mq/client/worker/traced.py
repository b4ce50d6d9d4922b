"""Middleware that traces each message with OpenTelemetry, by the extra `mq[tracing]`.

Spans and attributes follow OpenTelemetry's conventions for messaging systems. A span's parent is in
the message's `traceparent`, which its publisher sent.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from mq import __version__
from mq.client.worker.calling import CallNext, Middleware
from mq.client.worker.messages import AsyncWorkerMessage

_PROCESS: Final = "process"
_PORTS: Final = {"http": 80, "https": 443}


def traced(provider: TracerProvider | None = None, url: str | None = None) -> Middleware:
    """Middleware that makes a consumer span around each handler, current in the handler, also in
    its thread. An exception is recorded as the span's error; the result False is its error too.
    `provider`: else the global one. `url`: mq's, for `server.address` and `server.port`.
    """
    tracer = trace.get_tracer("mq.client.worker", __version__, provider)
    propagator = TraceContextTextMapPropagator()
    server = _server(url)

    async def trace_it(message: AsyncWorkerMessage, call_next: CallNext) -> object:
        parent = propagator.extract(dict(message.headers))
        with tracer.start_as_current_span(
            f"{_PROCESS} {message.queue}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes={**_attributes(message), **server},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                result = await call_next(message)
            except BaseException as error:
                span.record_exception(error)
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, str(error)))
                raise
            if result is False:
                span.set_attribute("error.type", "rejected")
                span.set_status(Status(StatusCode.ERROR, "rejected"))
            return result

    return trace_it


def _attributes(message: AsyncWorkerMessage) -> Mapping[str, AttributeValue]:
    return {
        "messaging.system": "mq",
        "messaging.operation.name": _PROCESS,
        "messaging.operation.type": _PROCESS,
        "messaging.destination.name": message.queue,
        "messaging.message.id": message.id,
        "messaging.message.body.size": len(message.body),
        "mq.message.receives": message.receives,
    }


def _server(url: str | None) -> Mapping[str, AttributeValue]:
    if url is None:
        return {}
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme, 0)
    return {"server.address": parts.hostname or "", "server.port": port}
