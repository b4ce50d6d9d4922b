"""What a request's handler is, and the routes to those."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from aiohttp import web

from mq.http.answers import Answer
from mq.http.service import Service
from mq.protocol import routes

Handler: TypeAlias = Callable[
    [Service, web.BaseRequest, Mapping[str, str]], Awaitable[Answer | web.StreamResponse]
]
Operation: TypeAlias = routes.Operation[Handler]
Route: TypeAlias = routes.Route[Handler]
Routes: TypeAlias = routes.Routes[Handler]
