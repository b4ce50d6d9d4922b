"""`/{queue}/messages/{id}/sideline`: what a consumer cannot handle goes out of its queue's way."""

from collections.abc import Mapping

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.service import Service
from mq.model.names import MessageId, QueueName
from mq.protocol.etags import etag, parse_if_match
from mq.protocol.sidelines import reason_of, sidelined


async def sideline(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """POST: 200 once the message is in the queue's sideline for good, also when it was before. A
    body is discarded.
    """
    name = QueueName.parse(path["queue"])
    message_id = MessageId.parse(path["id"])
    reason = reason_of(request.query)
    if_receives = parse_if_match(request.headers.getall("If-Match", []))
    stamp = await service.broker.sideline(name, message_id, reason, if_receives)
    into = name.sideline()
    return json_answer(
        sidelined(message_id, into, stamp),
        headers={
            "ETag": etag(stamp.receives),
            "Location": f"/{into.text}/messages/{message_id.text}",
        },
    )
