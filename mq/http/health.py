"""`/`, `/-/livez` and `/-/readyz`: entry points and health, without a token."""

from collections.abc import Mapping
from dataclasses import asdict

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.service import Service
from mq.protocol.routes import ABOUT


async def read_root(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET or HEAD of `/`: 200 with name, version and entry points."""
    return json_answer(ABOUT)


async def livez(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: 200 while the event loop turns."""
    return json_answer({"alive": True})


async def readyz(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: 200 when a file was just written and fsynced; else 503, with the reason's type."""
    readiness = await service.readiness.check()
    return json_answer({"ready": True, **asdict(readiness)})
