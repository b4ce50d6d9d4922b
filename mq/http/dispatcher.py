"""Routes every request to its handler: route, right, parameters, handler, errors.

Each request is counted here, and traced if that is enabled. Errors become answers by the map in
`mq.protocol.problems`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from mq.access.callers import Needs, check
from mq.access.tokens import token_of
from mq.http import batches, messages, operations, queues, reading, schedules, sidelines, tagged
from mq.http.access import Access
from mq.http.answers import Answer, Result, problem_answer
from mq.http.consume.connection import consume
from mq.http.metering import CONSUMES, FETCHES, OF_SQS, PLAN, UNKNOWN, WAITS
from mq.http.openapi import document
from mq.http.page import serving as page
from mq.http.request import Request
from mq.http.service import Service
from mq.model.errors import ForeignOrigin, UnknownParameter
from mq.protocol import parameters, routes
from mq.protocol.problems import METHOD_NOT_ALLOWED, PATH_UNKNOWN
from mq.protocol.routes import Routes

Handler: TypeAlias = Callable[[Service, Request, Mapping[str, str]], Result]
Operation: TypeAlias = routes.Operation[Handler]
Route: TypeAlias = routes.Route[Handler]

_HANDLERS: Final[Mapping[str, Handler]] = {
    "create_queue": queues.create,
    "describe_queue": queues.describe,
    "delete_queue": queues.delete,
    "publish": batches.publish,
    "fetch": batches.fetch,
    "purge_queue": queues.purge,
    "acknowledge": batches.acknowledge,
    "extend_messages": batches.extend,
    "release_messages": batches.release,
    "sideline_messages": batches.sideline,
    "read_message": reading.read,
    "reschedule": messages.reschedule,
    "delete_message": messages.delete,
    "sideline_message": sidelines.sideline,
    "read_history": reading.read_history,
    "read_failures": reading.read_failures,
    "peek": reading.peek,
    "list_groups": reading.list_groups,
    "read_by_key": reading.read_by_key,
    "delete_by_key": messages.delete_by_key,
    "list_tagged": tagged.read_all,
    "delete_tagged": tagged.delete_all,
    "sideline_tagged": tagged.sideline_all,
    "read_tag_history": tagged.read_history,
    "read_settings": queues.read_settings,
    "change_settings": queues.change_settings,
    "put_schedule": schedules.put,
    "read_schedule": schedules.read,
    "delete_schedule": schedules.delete,
    "list_schedules": schedules.read_all,
    "begin_shovel": sidelines.begin_shovel,
    "read_shovel": sidelines.read_shovel,
    "stop_shovel": sidelines.stop_shovel,
    "consume": consume,
    "read_root": operations.read_root,
    "list_consumers": queues.list_consumers,
    "end_consumer": queues.end_consumer,
    "livez": operations.livez,
    "readyz": operations.readyz,
    "read_memory": operations.read_memory,
    "read_metrics": operations.read_metrics,
    "list_queues": queues.read_all,
    "read_trends": queues.read_trends,
    "list_members": operations.list_members,
    "refresh": operations.refresh,
    "openapi": document.read,
    "read_page": page.read,
    "read_page_asset": page.read_asset,
}

ROUTES: Final[list[Route]] = routes.bound(_HANDLERS)


Front: TypeAlias = Callable[[Service, Request, bool], Result]
"""Serves requests of another protocol; None: the request is not of it. The flag: the path is also
an endpoint's of mq, and a request that could be either is mq's.
"""

_FIRST_OF_SQS: Final = min(OF_SQS.values())


class Tracing(Protocol):
    """Makes a span of each request."""

    def begin(self, request: Request, pattern: str, path: Mapping[str, str]) -> Any:
        """The span of a request at this route; `pattern` is "" if there is none."""

    def named(self, span: Any, name: str) -> None:
        """The request is of another protocol, and is its operation of this name."""

    def ended(self, span: Any, status: int | None, headers: Mapping[str, str]) -> None:
        """The request was answered; `status` is None if its client had gone."""


class Dispatcher:
    """Answers every request of a service."""

    def __init__(
        self, service: Service, tracing: Tracing | None = None, front: Front | None = None
    ) -> None:
        """`front`: another protocol, at the root and below paths of twelve digits, an account."""
        self.access = service.access
        self._service = service
        self._presence = service.broker.root.presence
        self._routes = Routes(ROUTES)
        self._meter = service.meter
        self._tracing = tracing
        self._front = front

    def begin(self, request: Request) -> Result:
        """The result of the request's handler, or the problem that it raises."""
        if self._meter is not None:
            request.began_s = self._meter.steady_s()
        try:
            tracing = self._tracing
            if tracing is None:
                found = self._routes.find(request.path)
            else:
                found = self._find_traced(request, tracing)
            if found is None:
                return self._other(request) or problem_answer(PATH_UNKNOWN)
            route, path = found
            raw = request.path
            if (raw == "/" or raw[1:13].isdigit()) and (other := self._other(request, True)):
                return other
            operation = route.operations.get(request.method)
            if operation is None:
                return self._other(request) or _not_allowed(request, route)
            self._admit(request, operation, path)
            return operation.handler(self._service, request, path)
        except Exception as error:
            return self.failed(request, error)

    def _other(self, request: Request, is_taken: bool = False) -> Result:
        return None if self._front is None else self._front(self._service, request, is_taken)

    def failed(self, request: Request, error: BaseException) -> Answer:
        """The answer to a request that ended with an error."""
        return self._service.error_responses.answer(error, request.method, request.target)

    def ended(self, request: Request, status: int | None, headers: Mapping[str, str]) -> None:
        """A request was answered; `status` is None if its client had gone."""
        if self._meter is not None:
            number = UNKNOWN if request.operation is None else request.operation
            # A WebSocket ends with its connection.
            counted = 101 if status is None and number == CONSUMES else status
            self._meter.request(number, counted, self._meter.steady_s() - request.began_s)
        if self._tracing is not None and request.span is not None:
            if request.operation is not None and request.operation >= _FIRST_OF_SQS:
                self._tracing.named(request.span, PLAN.operations[request.operation])
            self._tracing.ended(request.span, status, headers)

    def _admit(self, request: Request, operation: Operation, path: Mapping[str, str]) -> None:
        """Raises the error of a request that its head alone shows to be wrong."""
        endpoint, number = operation.endpoint, operation.number
        waits = number == FETCHES and ("wait=" in request.raw_query or "Prefer" in request.headers)
        request.operation = WAITS if waits else number
        # First, so that a caller without rights learns nothing about the queue.
        if self.access.is_on and endpoint.right is not Needs.NOTHING:
            check(request.caller(), endpoint.right, path.get("queue"))
        if endpoint.is_stored:
            self._presence.refuse_away()
        if endpoint.changes and request.head.names_origin:
            refuse_foreign(self.access, request)
        if request.raw_query:
            for parameter in request.query:
                if parameter not in endpoint.names:
                    raise UnknownParameter(parameter, endpoint.names)
            parameters.check_utf8(request.raw_query)

    def _find_traced(
        self, request: Request, tracing: Tracing
    ) -> tuple[Route, Mapping[str, str]] | None:
        pattern: str = ""
        path: Mapping[str, str] = {}
        try:
            if (found := self._routes.find(request.path)) is not None:
                pattern, path = found[0].pattern, found[1]
            return found
        finally:
            request.span = tracing.begin(request, pattern, path)


def refuse_foreign(access: Access, request: Request) -> None:
    """Rejects changes that a web page of another origin has a browser send (CSRF). Raises
    ForeignOrigin.

    Browsers say where a request comes from; other clients do not. A request with a token is exempt
    where tokens are in use: browsers add passwords (`Basic`) and certificates by themselves, but no
    token.
    """
    headers = request.headers
    site = headers.get("Sec-Fetch-Site")
    if site is None and "Origin" not in headers:
        return
    if access.is_on and token_of(headers.getall("Authorization", ())) is not None:
        return
    # "none": a person typed the address.
    if request.is_foreign if site is None else site not in ("same-origin", "none"):
        raise ForeignOrigin


def _not_allowed(request: Request, route: Route) -> Answer:
    if request.method == "OPTIONS":
        return Answer(204, {"Allow": route.allow})
    return problem_answer(METHOD_NOT_ALLOWED, {"allow": route.allow})
