"""`/{queue}/messages/{id}/sideline`: what a consumer cannot handle goes out of its queue's way."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.messages import parse_if_match
from mq.http.query import Choice
from mq.http.service import Service
from mq.message import Reason
from mq.names import MessageId, QueueName

_REASONS: Final = {reason.name.lower(): reason for reason in Reason if reason is not Reason.UNKNOWN}

REASON: Final = Choice(
    "reason", tuple(_REASONS), "Why: its consumer does not want it, or failed over it.", "rejected"
)  # fmt: skip


async def sideline(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """POST: 200 once the message is in the queue's sideline for good, also when it was before. A
    body is discarded.
    """
    name = QueueName.parse(path["queue"])
    message_id = MessageId.parse(path["id"])
    reason = _REASONS[REASON.of(request.query) or "rejected"]
    if_receives = parse_if_match(request.headers.getall("If-Match", []))
    stamp = await service.broker.sideline(name, message_id, reason, if_receives)
    into = name.sideline().text
    return json_answer(
        {
            "id": message_id.text,
            "queue": into,
            "receives": stamp.receives,
            "reason": Reason(stamp.reason).name.lower(),
        },
        headers={
            "ETag": f'"{stamp.receives}"',
            "Location": f"/{into}/messages/{message_id.text}",
        },
    )
