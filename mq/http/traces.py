"""OpenTelemetry spans of requests. Imported only with `mq --traces`.

Spans and attributes follow OpenTelemetry's conventions for HTTP servers and messaging systems. The
request's `traceparent` names a span's parent; a fetch's span is linked to the span of the publish,
which the message's kept `traceparent` names.
"""

from collections.abc import Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mq import __version__
from mq.http.request import Request
from mq.protocol.endpoint import Endpoint
from mq.protocol.endpoints import ENDPOINTS, TABLE

UNTRACED: Final = frozenset(each.path for each in ENDPOINTS if not each.is_traced)
_NO_METHODS: Final[Mapping[str, Endpoint]] = {}
_FAILED_FROM: Final = 500
_GONE: Final = "client_gone"


class Traces:
    """Makes a span of each request."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = trace.get_tracer("mq.http", __version__, provider)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, request: Request, pattern: str, path: Mapping[str, str]) -> Span | None:
        if pattern in UNTRACED:
            return None
        endpoint = TABLE.get(pattern, _NO_METHODS).get(request.method)
        messaging = None if endpoint is None else endpoint.messaging
        queue = path.get("queue", "")
        name = f"{request.method} {pattern}".rstrip()
        span = self._tracer.start_span(
            name if messaging is None else f"{messaging[0]} {queue}",
            context=self._propagator.extract(_lower(request.headers)),
            kind=SpanKind.SERVER,
            attributes=_asked(request, pattern),
        )
        if messaging is not None:
            span.set_attributes(_messaging(messaging, queue, path.get("id")))
        return span

    def named(self, span: Span, name: str) -> None:
        span.update_name(name)

    def ended(self, span: Span, status: int | None, headers: Mapping[str, str]) -> None:
        if status is None:
            span.set_attribute("error.type", _GONE)
            span.set_status(Status(StatusCode.ERROR))
        else:
            self._answered(span, status, headers)
        span.end()

    def _answered(self, span: Span, status: int, headers: Mapping[str, str]) -> None:
        span.set_attribute("http.response.status_code", status)
        if status >= _FAILED_FROM:
            span.set_attribute("error.type", str(status))
            span.set_status(Status(StatusCode.ERROR))
        if message_id := headers.get("X-Message-Id"):
            span.set_attribute("messaging.message.id", message_id)
        published = trace.get_current_span(self._propagator.extract(_lower(headers)))
        # A context that cannot be understood is left out.
        context = published.get_span_context()
        if context.is_remote and context.is_valid:
            span.add_link(context)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _asked(request: Request, pattern: str) -> dict[str, str]:
    attributes = {"http.request.method": request.method, "url.path": request.path}
    return {**attributes, "http.route": pattern} if pattern else attributes


def _messaging(messaging: tuple[str, str], queue: str, message_id: str | None) -> dict[str, str]:
    name, kind = messaging
    attributes = {
        "messaging.system": "mq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }
    return attributes if message_id is None else {**attributes, "messaging.message.id": message_id}
