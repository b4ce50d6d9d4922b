"""`GET` and `HEAD /{queue}/messages/{id}/history`: what became of a message."""

from collections.abc import Mapping

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.service import Service
from mq.model.names import MessageId, QueueName
from mq.store.history.read import read_history


async def read(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET or HEAD: 200 with its events, by their times; none where nothing was recorded."""
    name, message_id = QueueName.parse(path["queue"]), MessageId.parse(path["id"])
    broker = service.broker
    queue = await broker.queue(name)
    is_on = broker.keeper.usable(queue).history
    past = await broker.committer.call(read_history, broker.root, name, message_id)
    return json_answer(
        {
            "id": message_id.text,
            "recording": is_on,
            "left_out": past.left_out,
            "events": past.events,
        },
        headers={"Cache-Control": "no-store"},
    )
