"""`/{queue}/schedules` and `/{queue}/schedules/{schedule}`: publishes that come again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.bodies import held_body
from mq.http.service import Service
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.names import QueueName, ScheduleName
from mq.protocol.schedules import schedule_of, summary, unreadable, whole
from mq.store.schedules.schedules import Listed

_NO_STORE: Final = {"Cache-Control": "no-store"}


async def put(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """PUT: 201 once it is on stable media, 200 when one of its name was there."""
    queue, name = _named(path)
    known = await service.broker.queue(queue)  # A missing queue is told before the body is read.
    schedule = schedule_of(request.query, request.headers)
    bytes_max = min(BODY_HELD_BYTES_MAX, service.broker.keeper.usable(known).body_bytes_max)
    hand = service.broker.memory.receive()
    body = bytes(await held_body(service, request, bytes_max, hand))
    armed, created = await service.timetable.put(queue, name, replace(schedule, body=body))
    location = {"Location": f"/{queue.text}/schedules/{name.text}"}
    return json_answer(whole(name, armed), 201 if created else 200, {**location, **_NO_STORE})


async def read(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET or HEAD: what it says, how far it is, and what is next."""
    queue, name = _named(path)
    return json_answer(whole(name, await service.timetable.read(queue, name)), headers=_NO_STORE)


async def delete(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """DELETE: 200 once it fires no more; its messages stay."""
    queue, name = _named(path)
    await service.timetable.delete(queue, name)
    return json_answer({"name": name.text})


async def read_all(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: all of the queue's, by name, without their bodies."""
    found = await service.timetable.all_of(QueueName.parse(path["queue"]))
    # In a thread: a thousand may have some megabytes of headers.
    return await service.broker.committer.call(_listed, found)


def _listed(found: list[Listed]) -> Answer:
    """One that cannot be understood is there with its problem."""
    rows = [
        unreadable(each.name) if each.armed is None else summary(each.name, each.armed, each.size)
        for each in found
    ]
    return json_answer({"schedules": rows}, headers=_NO_STORE)


def _named(path: Mapping[str, str]) -> tuple[QueueName, ScheduleName]:
    return QueueName.parse(path["queue"]), ScheduleName.parse(path["schedule"])
