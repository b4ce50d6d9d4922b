"""Problems as schemas and answers: from the map of errors to statuses, and the errors' fields."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, get_type_hints

from mq.access.errors import Forbidden
from mq.http.openapi.schemas import of_type, opened, reference
from mq.model.errors import KeyTaken, MqError
from mq.protocol.problems import (
    MEDIA_TYPE,
    MEMBERS,
    METHOD_NOT_ALLOWED,
    OTHERS,
    PROBLEMS,
    TYPE_PREFIX,
    Problem,
    problem_of,
)
from mq.protocol.problems import slug_of as problem_slug
from mq.protocol.query import Schema

_SLUG: Final = "[a-z0-9]+(?:-[a-z0-9]+)*"
# What says more than a problem can, by status.
_MORE_HEADERS: Final = {
    401: ("WWW-Authenticate",),
    416: ("Content-Range",),
    426: ("Upgrade", "Sec-WebSocket-Version"),
    503: ("Retry-After",),
}


def problem_name(slug: str) -> str:
    """The name of a problem's schema."""
    return f"problem-{slug}"


def slug_of(error: type[MqError], parameter: str = "") -> str:
    """The end of the type of an error's problem."""
    return problem_slug(problem_of(error), {"parameter": parameter})


def base_schema() -> Schema:
    """What every problem has."""
    return opened(
        {
            "type": {"type": "string", "pattern": f"^{re.escape(TYPE_PREFIX)}{_SLUG}$"},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string"},
            "retryable": {"type": "boolean"},
        }
    )


def problem_schemas(parameters: Iterable[str]) -> dict[str, Schema]:
    """The schemas of all problems by their names, of what is malformed one for each parameter."""
    found = {
        problem_name(slug): _schema(problem, slug, _facts(error))
        for error, problem in PROBLEMS.items()
        for slug in _slugs(problem, parameters)
    }
    others = {problem_name(each.slug): _schema(each, each.slug, {}) for each in OTHERS}
    return dict(sorted((found | others).items()))


def _slugs(problem: Problem, parameters: Iterable[str]) -> Iterator[str]:
    if "{parameter}" not in problem.slug:
        yield problem.slug
        return
    for parameter in parameters:
        yield problem_slug(problem, {"parameter": parameter})


def _facts(error: type[MqError]) -> dict[str, Schema]:
    """The schemas of those of an error's fields that its problem has as members."""
    hints = get_type_hints(error)
    names = getattr(error, "__dataclass_fields__", ())
    return {name: of_type(hints[name]) for name in names if name in MEMBERS}


def _schema(problem: Problem, slug: str, facts: dict[str, Schema]) -> Schema:
    said: dict[str, object] = {
        "type": TYPE_PREFIX + slug,
        "title": problem.title,
        "status": problem.status,
        "retryable": problem.retryable,
    }
    properties: dict[str, Schema] = {name: {"const": value} for name, value in said.items()}
    return opened({**properties, "detail": {"type": "string"}, **facts})


def problem_answers(
    errors: Iterable[type[MqError]], others: Iterable[Problem], parameters: Iterable[str]
) -> dict[str, object]:
    """The answers, by status, of what may end with these; `parameters` are those of which a
    BadParameter may tell.
    """
    by_status: dict[int, dict[str, Problem]] = {}
    for error in errors:
        problem = problem_of(error)
        for slug in _slugs(problem, parameters):
            by_status.setdefault(problem.status, {})[slug] = problem
    for problem in others:
        by_status.setdefault(problem.status, {})[problem.slug] = problem
    return {str(status): _answer(status, found) for status, found in sorted(by_status.items())}


def _answer(status: int, found: dict[str, Problem]) -> dict[str, object]:
    schema = _one_of(found)
    titles = sorted({problem.title for problem in found.values()})
    answer: dict[str, object] = {
        "description": f"{'; '.join(titles)}.",
        "content": {MEDIA_TYPE: {"schema": schema}},
    }
    names = list(_MORE_HEADERS.get(status, ()))
    if slug_of(KeyTaken) in found:
        names.append("X-Message-Id")
    if slug_of(Forbidden) in found:
        names.append("WWW-Authenticate")
    if METHOD_NOT_ALLOWED.slug in found:
        names.append("Allow")
    return {**answer, "headers": header_references(names)} if names else answer


def item_schema(errors: Iterable[type[MqError]], others: Iterable[Problem]) -> Schema:
    """The schema of what an item of an answer may have as its problem, none of a parameter."""
    problems = [*(problem_of(each) for each in errors), *others]
    return _one_of(each.slug for each in problems)


def _one_of(slugs: Iterable[str]) -> Schema:
    references = [reference(problem_name(slug)) for slug in sorted(slugs)]
    return references[0] if len(references) == 1 else {"oneOf": references}


def header_references(names: Iterable[str]) -> dict[str, Schema]:
    """References to headers of this document."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
