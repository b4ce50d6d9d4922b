"""The document: routes and what is said of them, put together."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from mq import __version__
from mq.errors import (
    BadBody,
    BadName,
    BadParameter,
    BadPrecondition,
    BodyTooLarge,
    BodyTooSlow,
    BodyUnreadable,
    ExpectationUnknown,
    HeadersTooLarge,
    MediaTypeUnknown,
    MqError,
    NoDescriptors,
    NoInodes,
    NoSpace,
    QuotaExceeded,
    RangeUnsatisfiable,
    ReadOnly,
    StorageFailed,
    Unavailable,
    UnknownParameter,
)
from mq.http.envelopes import IDEMPOTENCY
from mq.http.messages import IF_MATCH
from mq.http.openapi import messages, queues
from mq.http.openapi.described import ANY, Content, Described, Success
from mq.http.openapi.problems import (
    base_schema,
    header_references,
    item_schema,
    problem_answers,
    problem_schemas,
)
from mq.http.openapi.schemas import SCHEMAS, TIME, reference
from mq.http.problems import BAD_REQUEST, INTERNAL, METHOD_NOT_ALLOWED, PATH_UNKNOWN, Problem
from mq.http.query import Header, Parameter, Schema
from mq.http.routing import Operation, Route
from mq.limits import RECEIVES_MAX

VERSION: Final = "3.1.1"
DESCRIBED: Final[Mapping[tuple[str, str], Described]] = {**queues.DESCRIBED, **messages.DESCRIBED}

_INFO: Final = (
    "A durable message queue whose broker is a file system. An answer of 2xx to a change means "
    "that it is on stable media. Every path answers OPTIONS with 204 and Allow, and a method that "
    "is not here with 405; a query parameter that is not here is refused."
)
_STORAGE: Final = (
    Unavailable, NoSpace, NoInodes, QuotaExceeded, NoDescriptors, ReadOnly, StorageFailed,
)  # fmt: skip
_BODY: Final = (BodyTooLarge, BodyTooSlow, BodyUnreadable, ExpectationUnknown)
_PATH_SCHEMAS: Final = {"queue": "QueueName", "id": "MessageId", "key": "Key"}
# Parsed as what it names; its problem is a parameter's.
_KEY: Final = "key"
_KEPT: Final = "headers"
_TAG: Final[Schema] = {"type": "string", "pattern": '^"[^"]*"$'}
HEADERS: Final[dict[str, Schema]] = {
    "Accept-Ranges": {"const": "bytes"},
    "Allow": {"type": "string"},
    "Cache-Control": {"const": "no-store"},
    "Content-Range": {"type": "string", "pattern": r"^bytes (?:[0-9]+-[0-9]+|[*])/[0-9]+$"},
    "ETag": _TAG,
    "Location": {"type": "string", "format": "uri-reference"},
    "Retry-After": {"type": "integer", "minimum": 1},
    "X-Content-Type-Options": {"const": "nosniff"},
    "X-Message-Due": TIME,
    "X-Message-Id": reference("MessageId"),
    "X-Message-Published": TIME,
    "X-Message-Receives": {"type": "integer", "minimum": 0, "maximum": RECEIVES_MAX},
    "X-Message-State": {"type": "string"},
}


def document_of(routes: Iterable[Route]) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    routes = list(routes)
    return {
        "openapi": VERSION,
        "info": {"title": "mq", "version": __version__, "description": _INFO},
        "servers": [{"url": "/"}],
        "paths": {route.pattern: _path(route, routes) for route in routes},
        "components": {
            "schemas": {
                **SCHEMAS,
                **{name: _item(errors) for name, errors in messages.ITEMS.items()},
                "Problem": base_schema(),
                **problem_schemas(sorted(_malformed(routes))),
            },
            "headers": {name: {"schema": schema} for name, schema in HEADERS.items()},
            "responses": {
                "MethodNotAllowed": problem_answers((), (METHOD_NOT_ALLOWED,), ())["405"],
            },
        },
    }


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


def _item(errors: Iterable[type[MqError]]) -> Schema:
    return item_schema((*errors, *_STORAGE), (INTERNAL,))


def _malformed(routes: Iterable[Route]) -> set[str]:
    """Whatever a BadParameter may tell of."""
    return {
        name
        for route in routes
        for method, operation in route.operations.items()
        for name in _malformed_of(route, operation, described(route, method))
    }


def _malformed_of(route: Route, operation: Operation, said: Described) -> Iterator[str]:
    yield from operation.names
    if _KEY in route.parameters:
        yield _KEY
    if IDEMPOTENCY in operation.headers:
        yield IDEMPOTENCY.name.lower()
    if ANY in said.body:
        yield _KEPT


def _path(route: Route, routes: list[Route]) -> dict[str, Any]:
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
            _errors(route, operation, said),
            _others(route),
            sorted(_malformed_of(route, operation, said)),
        ),
    }
    if method == "HEAD":
        for answer in made["responses"].values():
            answer.pop("content", None)
    return made


def _errors(route: Route, operation: Operation, said: Described) -> Iterator[type[MqError]]:
    """All that an operation may end with."""
    yield UnknownParameter
    yield HeadersTooLarge
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
        yield from _STORAGE
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
