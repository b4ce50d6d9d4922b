"""The OpenAPI document, made from the declared endpoints and problems."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, get_type_hints

from mq import __version__
from mq.access.callers import Needs
from mq.http import answers
from mq.http.openapi.messages import LINE, MESSAGES
from mq.http.openapi.queues import QUEUES
from mq.http.openapi.words import TIME, of_type, opened
from mq.http.request import Request
from mq.http.service import Service
from mq.model.errors import BadParameter, MqError
from mq.model.limits import RECEIVES_MAX
from mq.model.message import Reason
from mq.protocol.endpoint import JSON, STORAGE, Answer, Content, Endpoint
from mq.protocol.endpoints import ENDPOINTS, FRAME_PROBLEM, TABLE
from mq.protocol.fetching import SELECT, STATES
from mq.protocol.problems import (
    INTERNAL,
    MEDIA_TYPE,
    MEMBERS,
    METHOD_NOT_ALLOWED,
    OTHERS,
    PROBLEMS,
    TYPE_PREFIX,
    Problem,
    problem_of,
    slug_of,
)
from mq.protocol.query import GROUP_SCHEMA, Header, Ids, KeyTexts, Parameter, Schema, reference

VERSION: Final = "3.1.1"
_INFO: Final = (
    "A durable message queue whose broker is a file system. An answer of 2xx to a change means "
    "that it is on stable media. Every path answers OPTIONS with 204 and Allow, and an unlisted "
    "method with 405; unlisted query parameters are refused."
)
_SCHEME: Final = "bearer"
_TOKENS: Final = (
    "A daemon without access control needs none. x-mq-right is the right that an operation needs: "
    "publish, consume or admin, which includes the others, to the path's queue, or without one to "
    "all; any of these; or caller, which is a valid token."
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
    "Vary": {"const": "Accept"},
    "WWW-Authenticate": {"type": "string", "pattern": '^Bearer realm="mq"'},
    "X-Content-Type-Options": {"const": "nosniff"},
    "X-Message-Attempts": {"type": "integer", "minimum": 0, "maximum": RECEIVES_MAX},
    "X-Message-Due": TIME,
    "X-Message-Group": GROUP_SCHEMA,
    "X-Message-Id": reference("MessageId"),
    "X-Message-Published": TIME,
    "X-Message-Reason": LINE,
    "X-Message-Receives": {"type": "integer", "minimum": 0, "maximum": RECEIVES_MAX},
    "X-Message-Schedule": {
        "type": "string",
        "pattern": r'^name="[0-9A-Za-z][0-9A-Za-z_-]*", due="[^"]*", number=[0-9]+$',
    },
    "X-Message-Sidelined": {"type": "string", "enum": [each.name.lower() for each in Reason]},
    "X-Message-State": {"type": "string", "enum": list(STATES)},
    "X-Peek-After": reference("MessageId"),
    "X-Message-Tags": {"type": "string", "pattern": "^[0-9A-Za-z_=-]+(, [0-9A-Za-z_=-]+)*$"},
}
_IN_PATH: Final = {
    "queue": "QueueName",
    "id": "MessageId",
    "key": "Key",
    "tag": "Key",
    "schedule": "ScheduleName",
    "asset": "AssetName",
    "consumer": "ConsumerId",
}
_SLUG: Final = "[a-z0-9]+(?:-[a-z0-9]+)*"


@cache
def document() -> dict[str, Any]:
    """The document. Callers must not change it."""
    malformed = sorted({name for each in ENDPOINTS for name in each.malformed()})
    return {
        "openapi": VERSION,
        "info": {"title": "mq", "version": __version__, "description": _INFO},
        "servers": [{"url": "/"}],
        "paths": {path: _path(methods) for path, methods in TABLE.items()},
        "components": {
            "schemas": {
                **QUEUES,
                **MESSAGES,
                **{
                    name: _item(name, errors, sorted(each.malformed()))
                    for each in ENDPOINTS
                    for name, errors in each.items.items()
                },
                "Problem": _any_problem(),
                **_problems(malformed),
            },
            "securitySchemes": {
                _SCHEME: {"type": "http", "scheme": "bearer", "description": _TOKENS}
            },
            "headers": {name: {"schema": schema} for name, schema in HEADERS.items()},
            "responses": {"MethodNotAllowed": answers_of((), (METHOD_NOT_ALLOWED,), ())["405"]},
        },
    }


@cache
def _encoded() -> answers.Answer:
    return answers.Answer(200, {"Content-Type": JSON}, json.dumps(document()).encode() + b"\n")


def read(service: Service, request: Request, path: Mapping[str, str]) -> answers.Answer:
    """GET or HEAD of `/-/openapi.json`: 200 with the document, made at the first request."""
    return _encoded()


def _path(methods: Mapping[str, Endpoint]) -> dict[str, Any]:
    in_path = next(iter(methods.values())).in_path
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": reference(_IN_PATH[name])}
        for name in in_path
    ]
    operations = {method.lower(): _operation(each) for method, each in methods.items()}
    return {"parameters": parameters, **operations} if parameters else operations


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": endpoint.name, "summary": endpoint.says}
    # An empty list marks an open operation.
    made["security"] = [] if endpoint.right is Needs.NOTHING else [{_SCHEME: []}]
    made["x-mq-right"] = endpoint.right.value
    if endpoint.more:
        made["description"] = endpoint.more
    parameters = [*map(_parameter, endpoint.parameters), *map(_header, endpoint.headers)]
    if parameters:
        made["parameters"] = parameters
    if endpoint.body:
        made["requestBody"] = {
            "required": endpoint.body_is_required,
            "content": {kind: _content(each) for kind, each in endpoint.body.items()},
        }
    made["responses"] = {
        **{str(each.status): _answer(each) for each in endpoint.answers},
        **answers_of(endpoint.errors(), endpoint.other_problems(), sorted(endpoint.malformed())),
    }
    if endpoint.frames:
        made["x-text-frames"] = {side: reference(name) for side, name in endpoint.frames.items()}
    if endpoint.method == "HEAD":
        for answer in made["responses"].values():
            answer.pop("content", None)
    return made


def _parameter(parameter: Parameter) -> dict[str, Any]:
    made = {"name": parameter.name, "in": "query", "description": parameter.says}
    # A list is one value, separated by commas, or a parameter for each of its values.
    is_list = parameter.schema.get("type") == "array"
    style = {"style": "form", "explode": isinstance(parameter, KeyTexts | Ids)} if is_list else {}
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


def _answer(answer: Answer) -> dict[str, Any]:
    made: dict[str, Any] = {"description": answer.says}
    if answer.headers:
        made["headers"] = _header_references(answer.headers)
    if answer.content:
        made["content"] = {kind: _content(each) for kind, each in answer.content.items()}
    if links := dict(_links(answer)):
        made["links"] = links
    return made


def _links(answer: Answer) -> Iterator[tuple[str, Any]]:
    """Next requests that take the values that an answer gives."""
    for each in ENDPOINTS:
        names = set(each.in_path)
        if not names or not names <= answer.gives.keys():
            continue
        if names == {"queue"} and len(answer.gives) > 1:
            continue
        values = {name: answer.gives[name] for name in each.in_path}
        yield each.name, {"operationId": each.name, "parameters": values}


def answers_of(
    errors: Iterable[type[MqError]], others: Iterable[Problem], malformed: Iterable[str]
) -> dict[str, Any]:
    """The answers to these errors, by status; `malformed` are the parameters that a BadParameter
    may name.
    """
    by_status: dict[int, dict[str, Problem]] = {}
    for error in errors:
        problem = problem_of(error)
        for slug in slugs_of(problem, malformed):
            by_status.setdefault(problem.status, {})[slug] = problem
    for problem in others:
        by_status.setdefault(problem.status, {})[problem.slug] = problem
    return {str(status): _problem_answer(by_status[status]) for status in sorted(by_status)}


def _problem_answer(found: Mapping[str, Problem]) -> dict[str, Any]:
    titles = sorted({problem.title for problem in found.values()})
    answer: dict[str, Any] = {
        "description": f"{'; '.join(titles)}.",
        "content": {MEDIA_TYPE: {"schema": _one_of(found)}},
    }
    names = sorted({name for problem in found.values() for name in problem.headers})
    return {**answer, "headers": _header_references(names)} if names else answer


def slugs_of(problem: Problem, malformed: Iterable[str]) -> Iterator[str]:
    """The problem's slugs: one, or one for each parameter that may be malformed."""
    if "{parameter}" not in problem.slug:
        yield problem.slug
        return
    for parameter in malformed:
        yield slug_of(problem, {"parameter": parameter})


def _any_problem() -> Schema:
    return opened(
        {
            "type": {"type": "string", "pattern": f"^{re.escape(TYPE_PREFIX)}{_SLUG}$"},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string"},
            "retryable": {"type": "boolean"},
        }
    )


def _problems(malformed: Iterable[str]) -> dict[str, Schema]:
    """The schemas of all problems by name, of BadParameter one for each parameter."""
    found = {
        _name(slug): _problem(problem, slug, _facts(error))
        for error, problem in PROBLEMS.items()
        for slug in slugs_of(problem, malformed)
    }
    others = {_name(each.slug): _problem(each, each.slug, {}) for each in OTHERS}
    return dict(sorted((found | others).items()))


def _problem(problem: Problem, slug: str, facts: dict[str, Schema]) -> Schema:
    said: dict[str, object] = {
        "type": TYPE_PREFIX + slug,
        "title": problem.title,
        "status": problem.status,
        "retryable": problem.retryable,
    }
    properties: dict[str, Schema] = {name: {"const": value} for name, value in said.items()}
    return opened({**properties, "detail": {"type": "string"}, **facts})


def _facts(error: type[MqError]) -> dict[str, Schema]:
    """The schemas of the error's fields that are members of its problem."""
    hints = get_type_hints(error)
    names = getattr(error, "__dataclass_fields__", ())
    return {name: of_type(hints[name]) for name in names if name in MEMBERS}


def _item(name: str, errors: Iterable[type[MqError]], malformed: Sequence[str]) -> Schema:
    """The schema of the problem of an item."""
    slugs = [slug for each in errors for slug in slugs_of(problem_of(each), malformed)]
    if PROBLEMS[STORAGE[0]].slug in slugs:
        slugs.append(INTERNAL.slug)
    if name == FRAME_PROBLEM:
        slugs.append(slug_of(problem_of(BadParameter), {"parameter": SELECT.name}))
    return _one_of(slugs)


def _one_of(slugs: Iterable[str]) -> Schema:
    references = [reference(_name(slug)) for slug in sorted(slugs)]
    return references[0] if len(references) == 1 else {"oneOf": references}


def _name(slug: str) -> str:
    return f"problem-{slug}"


def _header_references(names: Iterable[str]) -> dict[str, Schema]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
