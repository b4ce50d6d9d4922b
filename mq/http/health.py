"""`/-/livez` and `/-/readyz`."""

from collections.abc import Mapping
from dataclasses import asdict

from aiohttp import web

from mq.http.responses import json_response
from mq.http.service import Service


async def livez(
    service: Service, request: web.BaseRequest, path: Mapping[str, str]
) -> web.StreamResponse:
    """GET: 200 while the event loop turns."""
    return json_response({"alive": True})


async def readyz(
    service: Service, request: web.BaseRequest, path: Mapping[str, str]
) -> web.StreamResponse:
    """GET: 200 when a file was just written and fsynced; else 503, with the reason's type."""
    readiness = await service.readiness.check()
    return json_response({"ready": True, **asdict(readiness)})
