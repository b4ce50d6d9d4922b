"""Spans of requests, by OpenTelemetry, where `mq --traces` asks for them. Imported only then.

Spans and attributes are those of OpenTelemetry's conventions for HTTP servers and for messaging
systems. A span's parent is the one that the request's `traceparent` names; a fetch's span is linked
to the one that the message was published in, which its kept `traceparent` names.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from aiohttp import web
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mq import __version__
from mq.http.app import Handle
from mq.http.routes import ROUTES
from mq.http.routing import Routes
from mq.model.errors import BadName, BadParameter


class Named(NamedTuple):
    """What a request does with messages, by mq's word for it and by OpenTelemetry's."""

    name: str
    kind: str


NAMED: Final[Mapping[tuple[str, str], Named]] = {
    ("POST", "/{queue}/messages"): Named("publish", "send"),
    ("GET", "/{queue}/messages"): Named("fetch", "receive"),
    ("DELETE", "/{queue}/messages/{id}"): Named("delete", "settle"),
    ("PATCH", "/{queue}/messages/{id}"): Named("reschedule", "settle"),
    ("POST", "/{queue}/messages/{id}/sideline"): Named("sideline", "settle"),
    ("POST", "/{queue}/acks"): Named("ack", "settle"),
    ("DELETE", "/{queue}/keys/{key}"): Named("delete", "settle"),
}
# Asked often, by machines, of no message; and a WebSocket, which lasts for hours.
UNTRACED: Final = frozenset({"/-/livez", "/-/readyz", "/-/consume"})
_FAILED_FROM: Final = 500


class TracedDispatcher:
    """Answers as another does, each request in a span of its own."""

    def __init__(self, answer: Handle, provider: TracerProvider) -> None:
        self._answer = answer
        self._routes = Routes(ROUTES)
        self._tracer = trace.get_tracer("mq.http", __version__, provider)
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The request's response. Raises as the other does."""
        pattern, path = self._route(request)
        if pattern in UNTRACED:
            return await self._answer(request)
        named = NAMED.get((request.method, pattern))
        queue = path.get("queue", "")
        with self._tracer.start_as_current_span(
            f"{request.method} {pattern}".rstrip() if named is None else f"{named.name} {queue}",
            context=self._propagator.extract(_lower(request.headers)),
            kind=SpanKind.SERVER,
            attributes=_asked(request, pattern),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            if named is not None:
                span.set_attributes(_messaging(named, queue, path.get("id")))
            try:
                response = await self._answer(request)
            except (Exception, asyncio.CancelledError) as error:
                # The client is gone: nobody was answered.
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR))
                raise
            self._answered(span, response)
            return response

    def _route(self, request: web.BaseRequest) -> tuple[str, Mapping[str, str]]:
        """The pattern and the parameters of the path; nothing of one that is none."""
        try:
            found = self._routes.find(request.rel_url.raw_path)
        except (BadName, BadParameter):
            return "", {}
        return ("", {}) if found is None else (found[0].pattern, found[1])

    def _answered(self, span: Span, response: web.StreamResponse) -> None:
        span.set_attribute("http.response.status_code", response.status)
        if response.status >= _FAILED_FROM:
            span.set_attribute("error.type", str(response.status))
            span.set_status(Status(StatusCode.ERROR))
        if message_id := response.headers.get("X-Message-Id"):
            span.set_attribute("messaging.message.id", message_id)
        published = trace.get_current_span(self._propagator.extract(_lower(response.headers)))
        # Without any it is the current one, as it is with one that cannot be understood.
        context = published.get_span_context()
        if context.is_remote and context.is_valid:
            span.add_link(context)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _asked(request: web.BaseRequest, pattern: str) -> dict[str, str]:
    attributes = {"http.request.method": request.method, "url.path": request.rel_url.raw_path}
    return {**attributes, "http.route": pattern} if pattern else attributes


def _messaging(named: Named, queue: str, message_id: str | None) -> dict[str, str]:
    attributes = {
        "messaging.system": "mq",
        "messaging.operation.name": named.name,
        "messaging.operation.type": named.kind,
        "messaging.destination.name": queue,
    }
    return attributes if message_id is None else {**attributes, "messaging.message.id": message_id}
