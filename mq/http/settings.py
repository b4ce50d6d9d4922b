"""`/{queue}/settings`: read and change a queue's settings."""

from collections.abc import Mapping

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.bodies import json_object
from mq.http.messages import parse_tags
from mq.http.service import Service
from mq.names import QueueName
from mq.store.configure import Configured


async def read(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: the effective values, whoever set them."""
    return _configured(await service.broker.settings(QueueName.parse(path["queue"])))


async def change(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """PATCH: 200 with the effective values once they are on stable media."""
    name = QueueName.parse(path["queue"])
    await service.broker.queue(name)  # A missing queue is told before the body is read.
    if_match = parse_tags(request.headers.getall("If-Match", []))
    said = await json_object(request, service.settings.body_idle_s)
    patch = {field: _number(value) for field, value in said.items()}
    return _configured(await service.broker.change_settings(name, patch, if_match))


def _number(value: object) -> object:
    """JSON has one kind of number: 9.0 is whole, as 9 is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _configured(found: Configured) -> Answer:
    headers = {"ETag": f'"{found.tag}"', "Cache-Control": "no-store"}
    return json_answer(found.as_json(), headers=headers)
