"""The HTTP application: one dispatcher over the table of routes, on aiohttp's low-level server.

Errors become problems here, by the map in `problems`; nothing else in the package makes one.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

from mq.http.access import admit
from mq.http.answers import Answer
from mq.http.complaints import Complaints
from mq.http.connection import ConnectionServer
from mq.http.direct import DirectWay, LongWay
from mq.http.doors import bounds_of
from mq.http.metering import OPERATION, Measured, number_of
from mq.http.origins import refuse_foreign
from mq.http.problems import problem_answer
from mq.http.routes import ROUTES
from mq.http.routing import Routes
from mq.http.service import Service
from mq.model.errors import UnknownParameter
from mq.model.limits import (
    FIELD_BYTES_MAX,
    FIELDS_MAX,
    KEEPALIVE_S,
    LINGERING_S,
    REQUEST_LINE_BYTES_MAX,
)
from mq.protocol import parameters
from mq.protocol.problems import METHOD_NOT_ALLOWED, PATH_UNKNOWN
from mq.protocol.routes import changes


class Dispatcher:
    """Answers every request of a service."""

    def __init__(self, service: Service, complaints: Complaints) -> None:
        self._service = service
        self._routes = Routes(ROUTES)
        self._complaints = complaints
        self._meter = service.meter

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The request's response; problems for everything that goes wrong."""
        if self._meter is None:
            return await self._respond(request)
        measured = Measured(self._meter, request)
        try:
            response = await self._respond(request)
        except BaseException as error:
            measured.failed(error)
            raise
        measured.ended(response.status)
        return response

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            answer = await self._answer(request)
        except ConnectionError:
            raise  # The client is gone: nobody to answer.
        except Exception as error:
            answer = self._complaints.answer(error, request.method, request.raw_path)
        response = answer.response() if isinstance(answer, Answer) else answer
        expects = "Expect" in request.headers and not request.content.is_eof()
        if expects and not response.prepared:
            # Whether its body comes all the same is the client's choice: nobody can tell the next
            # request from it.
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> Answer | web.StreamResponse:
        found = self._routes.find(request.rel_url.raw_path)
        if found is None:
            return problem_answer(PATH_UNKNOWN)
        route, path = found
        operation = route.operations.get(request.method)
        if operation is None:
            allow = {"Allow": route.allow}
            if request.method == "OPTIONS":
                return Answer(204, allow)
            return problem_answer(METHOD_NOT_ALLOWED, headers=allow)
        request[OPERATION] = number_of(request, request.method, route.pattern)
        # Before anything else is looked at: nothing is told of queues to those who may not know.
        admit(self._service.access, request, operation.right, path.get("queue"))
        if changes(request.method, route.pattern):
            refuse_foreign(self._service.access, request)
        if request.query_string:
            for parameter in request.query:
                if parameter not in operation.names:
                    raise UnknownParameter(parameter)
            parameters.check_utf8(request.rel_url.raw_query_string)
        return await operation.handler(self._service, request, path)


Handle: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def make_runner(
    service: Service, drain_s: float, traced: Callable[[Handle], Handle] | None = None
) -> web.ServerRunner:
    """A runner of the service's server; its cleanup waits `drain_s` for requests in hand. `traced`:
    what stands around each request; then none goes the direct way.

    A handler is cancelled when its client hangs up; bodies are byte-exact, never decompressed.
    """
    complaints = service.complaints
    dispatcher = Dispatcher(service, complaints)
    direct = DirectWay if traced is None else LongWay
    server = ConnectionServer(
        dispatcher if traced is None else traced(dispatcher),
        direct(service, complaints),
        handler_cancellation=True,
        auto_decompress=False,
        keepalive_timeout=KEEPALIVE_S,
        lingering_time=LINGERING_S,
        max_line_size=REQUEST_LINE_BYTES_MAX,
        max_field_size=FIELD_BYTES_MAX,
        max_headers=FIELDS_MAX,
        access_log=None,
        bounds=bounds_of(service.settings),
    )
    service.scrapes.connections = server.counts
    return web.ServerRunner(server, shutdown_timeout=drain_s)
