"""`/-/livez` and `/-/readyz`."""

from collections.abc import Mapping
from dataclasses import asdict

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.service import Service


async def livez(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: 200 while the event loop turns."""
    return json_answer({"alive": True})


async def readyz(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: 200 when a file was just written and fsynced; else 503, with the reason's type."""
    readiness = await service.readiness.check()
    return json_answer({"ready": True, **asdict(readiness)})
