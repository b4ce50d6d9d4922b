"""`/{queue}/settings`: read and change a queue's settings."""

from collections.abc import Mapping

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.bodies import json_object
from mq.http.service import Service
from mq.model.names import QueueName
from mq.protocol.bodies import patch_of
from mq.protocol.etags import parse_tags
from mq.store.settings.configure import Configured


async def read(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: the effective values, whoever set them."""
    return _configured(await service.broker.settings(QueueName.parse(path["queue"])))


async def change(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """PATCH: 200 with the effective values once they are on stable media."""
    name = QueueName.parse(path["queue"])
    await service.broker.queue(name)  # A missing queue is told before the body is read.
    if_match = parse_tags(request.headers.getall("If-Match", []))
    patch = patch_of(await json_object(service, request))
    changed = await service.broker.change_settings(name, patch, if_match)
    await service.following.tell_of_change()
    return _configured(changed)


def _configured(found: Configured) -> Answer:
    headers = {"ETag": f'"{found.tag}"', "Cache-Control": "no-store"}
    return json_answer(found.as_json(), headers=headers)
