"""Paths and operations: of the table of routes and of what is said of each of them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from mq.access.errors import Forbidden, Unauthenticated
from mq.access.rules import Needs
from mq.http.openapi import consuming, messages, page, queues, schedules, shovels, upkeep
from mq.http.openapi.described import ANY, Content, Described, Success
from mq.http.openapi.problems import (
    header_references,
    problem_answers,
)
from mq.http.openapi.schemas import reference
from mq.http.routing import Operation, Route
from mq.model.errors import (
    BadBody,
    BadName,
    BadParameter,
    BadPrecondition,
    BodyTooLarge,
    BodyTooSlow,
    BodyUnreadable,
    ExpectationUnknown,
    HeadersTooLarge,
    HeadTooSlow,
    MediaTypeUnknown,
    MqError,
    NoDescriptors,
    NoInodes,
    NoMemory,
    NoSpace,
    QuotaExceeded,
    RangeUnsatisfiable,
    ReadOnly,
    StorageFailed,
    TooManyConnections,
    Unavailable,
    UnknownParameter,
)
from mq.protocol.consume.errors import ForeignOrigin
from mq.protocol.envelopes import IDEMPOTENCY
from mq.protocol.etags import IF_MATCH
from mq.protocol.problems import BAD_REQUEST, INTERNAL, PATH_UNKNOWN, Problem
from mq.protocol.query import Header, Parameter
from mq.protocol.routes import changes

DESCRIBED: Final[Mapping[tuple[str, str], Described]] = {
    **queues.DESCRIBED,
    **messages.DESCRIBED,
    **schedules.DESCRIBED,
    **shovels.DESCRIBED,
    **consuming.DESCRIBED,
    **upkeep.DESCRIBED,
    **page.DESCRIBED,
}

SCHEME: Final = "bearer"
"""What the document calls the tokens that are shown."""
STORAGE: Final = (
    Unavailable, NoSpace, NoInodes, QuotaExceeded, NoDescriptors, ReadOnly, StorageFailed,
)  # fmt: skip
_BODY: Final = (BodyTooLarge, BodyTooSlow, BodyUnreadable, ExpectationUnknown)
_PATH_SCHEMAS: Final = {
    "queue": "QueueName",
    "id": "MessageId",
    "key": "Key",
    "schedule": "ScheduleName",
    "asset": "AssetName",
}
# Parsed as what it names; its problem is a parameter's.
_KEY: Final = "key"
_KEPT: Final = "headers"


def described(route: Route, method: str) -> Described:
    """What is said of an operation; of a HEAD, what its GET answers without the bodies."""
    if method != "HEAD":
        return DESCRIBED[method, route.pattern]
    said = DESCRIBED["GET", route.pattern]
    return replace(
        said,
        name=f"{said.name}_head",
        says=f"The head of: {said.says}",
        successes=tuple(replace(each, content={}) for each in said.successes if each.status != 206),
        raises=tuple(each for each in said.raises if each is not RangeUnsatisfiable),
    )


def malformed_of(route: Route, operation: Operation, said: Described) -> Iterator[str]:
    """Whatever a BadParameter may tell of."""
    yield from operation.names
    if _KEY in route.parameters:
        yield _KEY
    if IDEMPOTENCY in operation.headers:
        yield IDEMPOTENCY.name.lower()
    if ANY in said.body:
        yield _KEPT


def path_of(route: Route, routes: list[Route]) -> dict[str, Any]:
    """A path item: its operations, each with links to all that take what it gives."""
    path: dict[str, Any] = {}
    if route.parameters:
        path["parameters"] = [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": reference(_PATH_SCHEMAS[name]),
            }
            for name in route.parameters
        ]
    for method, operation in route.operations.items():
        path[method.lower()] = _operation(route, method, operation, routes)
    return path


def _operation(
    route: Route, method: str, operation: Operation, routes: list[Route]
) -> dict[str, Any]:
    said = described(route, method)
    made: dict[str, Any] = {"operationId": said.name, "summary": said.says}
    # Of none that is open: an empty list says so, whatever holds for the others.
    made["security"] = [] if operation.right is Needs.NOTHING else [{SCHEME: []}]
    made["x-mq-right"] = operation.right.value
    if said.more:
        made["description"] = said.more
    parameters = [
        *(_parameter(each) for each in operation.parameters),
        *(_header(each) for each in operation.headers),
    ]
    if parameters:
        made["parameters"] = parameters
    if said.body:
        made["requestBody"] = {
            "required": said.body_is_required,
            "content": {kind: _content(each) for kind, each in said.body.items()},
        }
    made["responses"] = {
        **{str(each.status): _success(each, routes) for each in said.successes},
        **problem_answers(
            _errors(route, method, operation, said),
            _others(route),
            sorted(malformed_of(route, operation, said)),
        ),
    }
    if said.frames:
        made["x-text-frames"] = dict(said.frames)
    if method == "HEAD":
        for answer in made["responses"].values():
            answer.pop("content", None)
    return made


def _errors(
    route: Route, method: str, operation: Operation, said: Described
) -> Iterator[type[MqError]]:
    """All that an operation may end with."""
    if operation.right is not Needs.NOTHING:
        yield Unauthenticated
    if operation.right not in (Needs.NOTHING, Needs.CALLER):
        yield Forbidden
    if changes(method, route.pattern):
        yield ForeignOrigin
    yield UnknownParameter
    yield HeadersTooLarge
    yield from (HeadTooSlow, NoMemory, TooManyConnections)
    yield BadParameter
    if route.parameters:
        yield BadName
    if IF_MATCH in operation.headers:
        yield BadPrecondition
    if said.body:
        yield from _BODY
        if ANY not in said.body:
            yield from (BadBody, MediaTypeUnknown)
    if said.is_stored:
        yield from STORAGE
    yield from said.raises


def _others(route: Route) -> Iterator[Problem]:
    yield from (BAD_REQUEST, INTERNAL)
    if route.parameters:
        yield PATH_UNKNOWN


def _parameter(parameter: Parameter) -> dict[str, Any]:
    made = {"name": parameter.name, "in": "query", "description": parameter.says}
    # A list is one value, with commas.
    style = {"style": "form", "explode": False} if parameter.schema.get("type") == "array" else {}
    return {**made, **style, "schema": parameter.schema}


def _header(header: Header) -> dict[str, Any]:
    return {
        "name": header.name,
        "in": "header",
        "description": header.says,
        "schema": header.schema,
        "example": header.example,
    }


def _content(content: Content) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if content.schema is not None:
        made["schema"] = content.schema
    if content.each_line:
        made["x-each-line"] = reference(content.each_line)
    if content.example is not None:
        made["example"] = content.example
    return made


def _success(success: Success, routes: list[Route]) -> dict[str, Any]:
    made: dict[str, Any] = {"description": success.says}
    if success.headers:
        made["headers"] = header_references(success.headers)
    if success.content:
        made["content"] = {kind: _content(each) for kind, each in success.content.items()}
    if links := dict(_links(success, routes)):
        made["links"] = links
    return made


def _links(success: Success, routes: list[Route]) -> Iterator[tuple[str, Any]]:
    """Requests that take what an answer gives: all of it, but for what they have no place for."""
    for route in routes:
        names = set(route.parameters)
        if not names or not names <= success.gives.keys():
            continue
        if names == {"queue"} and len(success.gives) > 1:
            continue
        for method in route.operations:
            name = described(route, method).name
            values = {each: success.gives[each] for each in route.parameters}
            yield name, {"operationId": name, "parameters": values}
