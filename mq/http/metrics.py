"""`/-/metrics`: what all processes of this mq did and hold, for Prometheus."""

from collections.abc import Mapping

from aiohttp import web

from mq.http.answers import Answer
from mq.http.service import Service


async def read(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: 200 with a page in the form that Accept asks for, also where the disk does not answer:
    then without what only that knows.
    """
    body, media_type = await service.scrapes.page(request.headers.get("Accept", ""))
    return Answer(200, {"Cache-Control": "no-store", "Content-Type": media_type}, body)
