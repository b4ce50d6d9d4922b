"""Sidelining a message, and shovels that move a sideline's messages back."""

from collections.abc import Mapping
from typing import Final

from mq.broker.settling import Sideline, settle
from mq.http.answers import Answer, json_answer
from mq.http.bodies import json_object
from mq.http.request import Request
from mq.http.service import Service
from mq.model.names import QueueName
from mq.protocol import parameters
from mq.protocol.bodies import sideline_of
from mq.protocol.conditions import etag, parse_if_match
from mq.protocol.sidelines import progress, reason_of, sidelined, wanted_of

_NO_STORE: Final = {"Cache-Control": "no-store"}


async def sideline(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """POST: 200 once the message is in the sideline on stable media, also if it was earlier."""
    name = QueueName.parse(path["queue"])
    message_id = parameters.message_id(path["id"])
    reason = reason_of(request.query)
    if_receives = parse_if_match(request.headers.getall("If-Match", []))
    has_body = request.body.size or not request.body.is_whole
    failure = sideline_of(await json_object(service, request)) if has_body else None
    how = Sideline(reason, if_receives, failure)
    moved = await settle(service.broker, name, message_id, how)
    return json_answer(
        sidelined(message_id, *moved),
        headers={
            "ETag": etag(moved.stamp.receives),
            "Location": f"/{moved.into.text}/messages/{message_id.text}",
        },
    )


async def begin_shovel(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """POST: 202 with the run's id once it has begun."""
    name = QueueName.parse(path["queue"])
    wanted = wanted_of(request.query)
    run_id = await service.shovels.begin(name, wanted)
    return json_answer({"id": run_id}, 202, {"Location": f"/{name.text}/shovel"})


async def read_shovel(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET or HEAD: the current or last run, of any process, and the next scheduled one."""
    name = QueueName.parse(path["queue"])
    return json_answer(progress(name, await service.shovels.read(name)), headers=_NO_STORE)


async def stop_shovel(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """DELETE: 200 if no run goes on, 202 if one is stopping."""
    name = QueueName.parse(path["queue"])
    shown = await service.shovels.stop(name)
    is_over = shown.run is None or not shown.run.state.is_under_way
    return json_answer(progress(name, shown), 200 if is_over else 202, _NO_STORE)
