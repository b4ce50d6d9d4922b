"""`/{queue}/schedules` and `/{queue}/schedules/{schedule}`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mq.http.answers import Answer, json_answer
from mq.http.bodies import held_body
from mq.http.request import Request
from mq.http.service import Service
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.names import QueueName, ScheduleName
from mq.protocol.schedules import schedule_of, summary, unreadable, whole
from mq.store.schedules.schedules import Listed

_NO_STORE: Final = {"Cache-Control": "no-store"}


async def put(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """PUT: 201 once the schedule is on stable media, 200 if one of the name existed."""
    queue, name = _named(path)
    known = await service.broker.queue(queue)  # A missing queue is refused before the body is read.
    schedule = schedule_of(request.query, request.headers)
    bytes_max = min(BODY_HELD_BYTES_MAX, service.broker.refresher.usable(known).body_bytes_max)
    reservation = service.broker.memory.receive()
    body = bytes(await held_body(service, request, bytes_max, reservation))
    armed, created = await service.timetable.put(queue, name, replace(schedule, body=body))
    location = {"Location": f"/{queue.text}/schedules/{name.text}"}
    return json_answer(whole(name, armed), 201 if created else 200, {**location, **_NO_STORE})


async def read(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET or HEAD: the schedule, its counts, and its next firing."""
    queue, name = _named(path)
    return json_answer(whole(name, await service.timetable.read(queue, name)), headers=_NO_STORE)


async def delete(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """DELETE: 200 once the deletion is on stable media. The schedule's messages stay."""
    queue, name = _named(path)
    await service.timetable.delete(queue, name)
    return json_answer({"name": name.text})


async def read_all(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET: the queue's schedules by name, without bodies."""
    found = await service.timetable.all_of(QueueName.parse(path["queue"]))
    # In a thread: a thousand schedules may have megabytes of headers.
    return await service.broker.committer.call(_listed, found)


def _listed(found: list[Listed]) -> Answer:
    """A damaged schedule is listed with its problem."""
    rows = [
        unreadable(each.name) if each.armed is None else summary(each.name, each.armed, each.size)
        for each in found
    ]
    return json_answer({"schedules": rows}, headers=_NO_STORE)


def _named(path: Mapping[str, str]) -> tuple[QueueName, ScheduleName]:
    return QueueName.parse(path["queue"]), ScheduleName.parse(path["schedule"])
