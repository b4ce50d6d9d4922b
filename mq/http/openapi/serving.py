"""`/-/openapi.json`: the document of a table of routes."""

import json
from collections.abc import Callable, Iterable, Mapping

from aiohttp import web

from mq.http.answers import Answer
from mq.http.openapi.described import JSON
from mq.http.openapi.document import document_of
from mq.http.routing import Handler, Route
from mq.http.service import Service


def reader_of(routes: Callable[[], Iterable[Route]]) -> Handler:
    """A handler for GET and HEAD: 200 with the document of these routes, which has the handler's
    own and is made when it is first asked for.
    """
    made: list[Answer] = []

    async def read(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
        if not made:
            body = json.dumps(document_of(routes())).encode() + b"\n"
            made.append(Answer(200, {"Content-Type": JSON}, body))
        return made[0]

    return read
