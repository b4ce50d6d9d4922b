"""The document: paths, and the components that they refer to, put together."""

from collections.abc import Iterable
from typing import Any, Final

from mq import __version__
from mq.http.openapi import consuming, messages, page, schedules, shovels, upkeep
from mq.http.openapi.operations import SCHEME, STORAGE, described, malformed_of, path_of
from mq.http.openapi.problems import (
    base_schema,
    item_schema,
    problem_answers,
    problem_name,
    problem_schemas,
    slug_of,
)
from mq.http.openapi.schemas import SCHEMAS, TIME, reference
from mq.http.routing import Route
from mq.model.errors import BadParameter, MqError
from mq.model.limits import RECEIVES_MAX
from mq.model.message import Reason
from mq.protocol.fetching import SELECT
from mq.protocol.peeking import STATES
from mq.protocol.problems import INTERNAL, METHOD_NOT_ALLOWED
from mq.protocol.query import Schema

VERSION: Final = "3.1.1"
_INFO: Final = (
    "A durable message queue whose broker is a file system. An answer of 2xx to a change means "
    "that it is on stable media. Every path answers OPTIONS with 204 and Allow, and a method that "
    "is not here with 405; a query parameter that is not here is refused."
)
_TOKENS: Final = (
    "A daemon without access control asks for none. x-mq-right is the right that an operation "
    "needs: publish, consume or admin, which includes the others, to the path's queue, or to all "
    "where there is none; any of them; or caller: that it is known who asks."
)
_TAG: Final[Schema] = {"type": "string", "pattern": '^"[^"]*"$'}
HEADERS: Final[dict[str, Schema]] = {
    "Accept-Ranges": {"const": "bytes"},
    "Allow": {"type": "string"},
    "Cache-Control": {"enum": ["no-store", "no-cache"]},
    "Content-Security-Policy": {"const": "sandbox"},
    "Cross-Origin-Resource-Policy": {"const": "same-origin"},
    "Content-Range": {"type": "string", "pattern": r"^bytes (?:[0-9]+-[0-9]+|[*])/[0-9]+$"},
    "ETag": _TAG,
    "Location": {"type": "string", "format": "uri-reference"},
    "Retry-After": {"type": "integer", "minimum": 1},
    "Sec-WebSocket-Version": {"const": "13"},
    "Upgrade": {"const": "websocket"},
    "WWW-Authenticate": {"type": "string", "pattern": '^Bearer realm="mq"'},
    "X-Content-Type-Options": {"const": "nosniff"},
    "X-Message-Due": TIME,
    "X-Message-Id": reference("MessageId"),
    "X-Message-Published": TIME,
    "X-Message-Receives": {"type": "integer", "minimum": 0, "maximum": RECEIVES_MAX},
    "X-Message-Sidelined": {"type": "string", "enum": [each.name.lower() for each in Reason]},
    "X-Message-State": {"type": "string", "enum": list(STATES)},
}


def document_of(routes: Iterable[Route]) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    routes = list(routes)
    return {
        "openapi": VERSION,
        "info": {"title": "mq", "version": __version__, "description": _INFO},
        "servers": [{"url": "/"}],
        "paths": {route.pattern: path_of(route, routes) for route in routes},
        "components": {
            "schemas": {
                **SCHEMAS,
                **schedules.SCHEMAS,
                **shovels.SCHEMAS,
                **consuming.SCHEMAS,
                **upkeep.SCHEMAS,
                **page.SCHEMAS,
                **{name: _item(errors) for name, errors in messages.ITEMS.items()},
                consuming.FRAME_PROBLEM: _frame_problem(),
                **{name: item_schema(errors, ()) for name, errors in schedules.ITEMS.items()},
                "Problem": base_schema(),
                **problem_schemas(sorted(_malformed(routes))),
            },
            "securitySchemes": {
                SCHEME: {"type": "http", "scheme": "bearer", "description": _TOKENS}
            },
            "headers": {name: {"schema": schema} for name, schema in HEADERS.items()},
            "responses": {
                "MethodNotAllowed": problem_answers((), (METHOD_NOT_ALLOWED,), ())["405"],
            },
        },
    }


def _item(errors: Iterable[type[MqError]]) -> Schema:
    return item_schema((*errors, *STORAGE), (INTERNAL,))


def _frame_problem() -> Schema:
    malformed = reference(problem_name(slug_of(BadParameter, SELECT.name)))
    return {"oneOf": [*_item(consuming.RAISES)["oneOf"], malformed]}


def _malformed(routes: Iterable[Route]) -> set[str]:
    """Whatever a BadParameter may tell of."""
    return {
        name
        for route in routes
        for method, operation in route.operations.items()
        for name in malformed_of(route, operation, described(route, method))
    }
