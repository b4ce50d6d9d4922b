"""The HTTP application: one dispatcher over the table of routes, on aiohttp's low-level server.

Errors become problems here, by the map in `problems`; nothing else in the package makes one.
"""

import logging
from typing import Any, Final

from aiohttp import ClientPayloadError, web
from aiohttp.http_parser import RawRequestMessage

from mq.errors import MqError, Unavailable, UnknownParameter
from mq.http import health, messages, queues
from mq.http.problems import (
    BAD_REQUEST,
    INTERNAL,
    METHOD_NOT_ALLOWED,
    PATH_UNKNOWN,
    error_response,
    problem_for,
    problem_response,
)
from mq.http.responses import SERVER
from mq.http.routing import Route, Routes
from mq.http.service import Service
from mq.limits import COMPLAINT_EVERY_S, KEEPALIVE_S, LINGERING_S

_log = logging.getLogger("mq.http")

ROUTES: Final = [
    Route(
        "/{queue}",
        {
            "PUT": queues.create,
            "GET": queues.describe,
            "HEAD": queues.describe,
            "DELETE": queues.delete,
        },
        {"PUT": queues.CREATE_PARAMETERS},
    ),
    Route("/{queue}/messages", {"POST": messages.publish, "GET": messages.fetch}),
    Route("/{queue}/messages/{id}", {"DELETE": messages.delete}),
    Route("/-/livez", {"GET": health.livez, "HEAD": health.livez}),
    Route("/-/readyz", {"GET": health.readyz, "HEAD": health.readyz}),
]


class Dispatcher:
    """Answers every request of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._routes = Routes(ROUTES)
        self._complained: dict[type[MqError], tuple[float, int]] = {}

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The request's response; problems for everything that goes wrong."""
        try:
            response = await self._answer(request)
        except MqError as error:
            if isinstance(error, Unavailable):
                self._complain(error, request)
            response = error_response(error)
        except ConnectionError:
            raise  # The client is gone: nobody to answer.
        except Exception:
            _log.exception(
                "a request failed",
                extra={"fields": {"method": request.method, "path": request.raw_path}},
            )
            response = problem_response(INTERNAL)
        if not response.prepared:
            response.headers["Server"] = SERVER
            if "Expect" in request.headers and not request.content.is_eof():
                # Whether its body comes all the same is the client's choice: nobody can tell
                # the next request from it.
                response.force_close()
        return response

    def _complain(self, error: Unavailable, request: web.BaseRequest) -> None:
        """Tells the log, which alone may know, why a request was answered 503: the first of a
        kind, and then one a second with how many there were.
        """
        now_s = self._service.broker.root.clock.steady_s()
        said_s, more = self._complained.get(type(error), (float("-inf"), 0))
        if now_s - said_s < COMPLAINT_EVERY_S:
            self._complained[type(error)] = (said_s, more + 1)
            return
        self._complained[type(error)] = (now_s, 0)
        _log.warning(
            "unavailable",
            extra={
                "fields": {
                    "problem": problem_for(error).slug,
                    "method": request.method,
                    "path": request.raw_path,
                    "error": str(error),
                    "more_since": more,
                }
            },
        )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        found = self._routes.find(request.rel_url.raw_path)
        if found is None:
            return problem_response(PATH_UNKNOWN)
        route, path = found
        handler = route.handlers.get(request.method)
        if handler is None:
            allow = {"Allow": route.allow}
            if request.method == "OPTIONS":
                return web.Response(status=204, headers=allow)
            return problem_response(METHOD_NOT_ALLOWED, headers=allow)
        if request.query_string:
            for parameter in request.query:
                if parameter not in route.parameters.get(request.method, ()):
                    raise UnknownParameter(parameter)
        return await handler(self._service, request, path)


class _ProblemProtocol(web.RequestHandler):
    """A connection that answers what is not even HTTP with a problem, too."""

    def data_received(self, data: bytes) -> None:
        """Also takes the rest of a body while the server drains, which aiohttp would drop, and
        ends a body whose transfer coding broke, which aiohttp would wait for.
        """
        current = self._current_request
        closing, forced = self._close, self._force_close
        if current is not None and not current.content.is_eof():
            self._close = self._force_close = False
        super().data_received(data)
        self._close, self._force_close = self._close or closing, self._force_close or forced
        broken = any(not isinstance(message, RawRequestMessage) for message, _ in self._messages)
        if broken and current is not None and not current.content.is_eof():
            current.content.set_exception(ClientPayloadError())
            current.content.feed_eof()  # Nothing more of it is worth waiting for.

    def close(self) -> None:
        """Ends the connection after the request in hand. A handler that has not begun to wait for
        its first request yet would wait for ever, since aiohttp cancels only a wait that is there:
        such a connection, from which nothing was read, ends at once.
        """
        super().close()
        if self._current_request is None and self._waiter is None and not self._messages:
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A problem without the parser's text, and the connection's end."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun")
        _log.debug("malformed request", extra={"fields": {"error": repr(exc)}})
        response = problem_response(BAD_REQUEST if status < 500 else INTERNAL)
        response.headers["Server"] = SERVER
        response.force_close()
        return response


class _ProblemServer(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _ProblemProtocol(self, loop=self._loop, **self._kwargs)


def make_runner(service: Service, drain_s: float) -> web.ServerRunner:
    """A runner of the service's server; its cleanup waits `drain_s` for requests in hand.

    A handler is cancelled when its client hangs up; bodies are byte-exact, never decompressed.
    """
    options: dict[str, Any] = {
        "auto_decompress": False,
        "keepalive_timeout": KEEPALIVE_S,
        "lingering_time": LINGERING_S,
        "access_log": None,
    }
    server = _ProblemServer(Dispatcher(service), handler_cancellation=True, **options)
    return web.ServerRunner(server, shutdown_timeout=drain_s)
