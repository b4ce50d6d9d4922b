"""That an answer is one that the OpenAPI document tells of: its status, and what it carries."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from jsonschema_rs import Draft202012Validator

from mq.http.dispatcher import ROUTES
from mq.http.openapi.document import document
from mq.model.errors import BadName, BadParameter
from mq.protocol.routes import Routes
from mq.protocol.rows import MEDIA_TYPE as ROWS

DOCUMENT = document()
PATHS = Routes(ROUTES)
LINES_MAX = 20


def assert_documented(
    method: str, path: str, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    """For a request of an operation that there is; of what has no schema, the status alone."""
    raw_path = path.partition("?")[0]
    try:
        found = PATHS.find(raw_path)
    except (BadName, BadParameter):
        return
    if found is None or method not in found[0].operations:
        return
    pattern = found[0].pattern
    answers = DOCUMENT["paths"][pattern][method.lower()]["responses"]
    assert str(status) in answers, f"{method} {pattern} is answered with {status}"
    kind = headers.get("Content-Type", "").partition(";")[0]
    validator = validator_of(pattern, method.lower(), str(status), kind)
    # A message may itself be lines.
    if validator is None or not body or (kind == ROWS and "X-Message-Id" in headers):
        return
    for each in body.splitlines()[:LINES_MAX] if kind == ROWS else [body]:
        validator.validate(json.loads(each))


@functools.cache
def validator_of(pattern: str, method: str, status: str, kind: str) -> Any:
    """Of the body, or of each of its lines; None where it has no schema of its own."""
    answer = DOCUMENT["paths"][pattern][method]["responses"][status]
    content = answer.get("content", {}).get(kind)
    schema = None if content is None else content.get("x-each-line" if kind == ROWS else "schema")
    if schema is None:
        return None
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})
