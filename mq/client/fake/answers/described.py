"""`/-/openapi.json`: what may be asked, out of the table of routes; what comes of it is for the
server to describe. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

from mq import __version__
from mq.client.fake.asked import Asked, Reply, json_reply, problem_reply
from mq.client.fake.world import World
from mq.model.names import ID_PATTERN, QUEUE_PATTERN
from mq.protocol.problems import PATH_UNKNOWN
from mq.protocol.query import Header, Parameter
from mq.protocol.routes import TABLE, Told

_VERSION: Final = "3.1.1"
_TEXT: Final = {"type": "string"}
_IN_PATHS: Final = ("queue", "id", "key", "schedule", "asset")
_PAGE: Final = b"<!doctype html>\n<title>mq (a fake)</title>\n"


def read(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: an OpenAPI document of the requests alone."""
    return json_reply(_document())


def page(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: that it is there; nobody looks at a fake."""
    return Reply(200, {"Content-Type": "text/html; charset=utf-8"}, _PAGE)


def asset(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: a fake's page is made of nothing else."""
    return problem_reply(PATH_UNKNOWN)


def _document() -> dict[str, Any]:
    return {
        "openapi": _VERSION,
        "info": {"title": "mq (a fake)", "version": __version__},
        "paths": {
            pattern: {method.lower(): _operation(pattern, told) for method, told in methods.items()}
            for pattern, methods in TABLE.items()
        },
        "components": {
            "schemas": {
                "QueueName": {**_TEXT, "pattern": f"^{QUEUE_PATTERN}$"},
                "MessageId": {**_TEXT, "pattern": f"^{ID_PATTERN.replace('?P<', '?<')}$"},
            }
        },
    }


def _operation(pattern: str, told: Told) -> dict[str, Any]:
    in_path = [
        {"name": each, "in": "path", "required": True, "schema": _TEXT}
        for each in _IN_PATHS
        if f"{{{each}}}" in pattern
    ]
    queries = [_parameter(each, "query") for each in told.parameters]
    return {
        "parameters": [*in_path, *queries, *(_parameter(each, "header") for each in told.headers)]
    }


def _parameter(each: Parameter | Header, where: str) -> dict[str, Any]:
    return {"name": each.name, "in": where, "description": each.says, "schema": each.schema}
