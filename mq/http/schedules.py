"""`/{queue}/schedules` and `/{queue}/schedules/{schedule}`: publishes that come again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast, get_args

from aiohttp import web
from multidict import CIMultiDictProxy

from mq.errors import BadParameter, ScheduleUnreadable
from mq.headers import kept
from mq.http.answers import Answer, json_answer, rfc3339
from mq.http.bodies import body_chunks
from mq.http.carried import named_headers
from mq.http.envelopes import KEY, PRIORITY, VISIBILITY
from mq.http.parameters import Query
from mq.http.problems import PROBLEMS, problem_members
from mq.http.query import Choice, Seconds, Text, Time, Whole
from mq.http.rows import body_member
from mq.http.service import Service
from mq.limits import (
    BODY_HELD_BYTES_MAX,
    CRON_CHARS_MAX,
    EVERY_S_MAX,
    EVERY_S_MIN,
    PEEK_BODY_BYTES,
    SCHEDULE_COUNT_MAX,
    SCHEDULE_DELAY_S_MAX,
)
from mq.names import QueueName, ScheduleName, content_type_of, extension_for
from mq.recurrence import UTC_NAME, Cron, Every, Recurrence
from mq.schedule import Armed, Overlap, Schedule
from mq.store.peek import cut
from mq.store.schedules import Listed

EVERY: Final = Seconds(
    "every", EVERY_S_MIN, EVERY_S_MAX,
    "A message every so many seconds. Either this or `cron`.",
)  # fmt: skip
DELAY: Final = Seconds(
    "delay", 0, SCHEDULE_DELAY_S_MAX,
    "In how many seconds the first one comes, with `every`; left out, after `every`.",
)  # fmt: skip
CRON: Final = Text(
    "cron", {"type": "string", "minLength": 1, "maxLength": CRON_CHARS_MAX},
    "A cron expression of five fields, or of six or seven as Quartz has them. Either this or "
    "`every`.",
    example="0 30 2 ? * MON-FRI",
)  # fmt: skip
ZONE: Final = Text(
    "tz", {"type": "string", "default": UTC_NAME},
    "The time zone of `cron`, by its name in the IANA database.",
    example="Europe/Berlin",
)  # fmt: skip
COUNT: Final = Whole("count", 1, SCHEDULE_COUNT_MAX, "So many messages in all, and no more.")
UNTIL: Final = Time("until", "The last moment at which a firing may be due.")
OVERLAP: Final = Choice(
    "overlap", get_args(Overlap),
    "Whether one is fired while the last one's message still lives.", "allow",
)  # fmt: skip
PUT_PARAMETERS: Final = (
    EVERY, CRON, ZONE, DELAY, COUNT, UNTIL, OVERLAP, PRIORITY, KEY, VISIBILITY,
)  # fmt: skip
_NO_STORE: Final = {"Cache-Control": "no-store"}


async def put(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """PUT: 201 once it is on stable media, 200 when one of its name was there."""
    queue, name = _named(path)
    known = await service.broker.queue(queue)  # A missing queue is told before the body is read.
    schedule = schedule_of(request.query, request.headers)
    bytes_max = min(BODY_HELD_BYTES_MAX, service.broker.keeper.usable(known).body_bytes_max)
    chunks = body_chunks(request, bytes_max, service.settings.body_idle_s)
    body = b"".join([chunk async for chunk in chunks])
    armed, created = await service.timetable.put(queue, name, replace(schedule, body=body))
    location = {"Location": f"/{queue.text}/schedules/{name.text}"}
    return json_answer(_whole(name, armed), 201 if created else 200, {**location, **_NO_STORE})


async def read(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET or HEAD: what it says, how far it is, and what is next."""
    queue, name = _named(path)
    return json_answer(_whole(name, await service.timetable.read(queue, name)), headers=_NO_STORE)


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


def schedule_of(query: Query, headers: "CIMultiDictProxy[str]") -> Schedule:
    """What a request's query and headers say of a schedule, whose body comes. Raises BadParameter,
    HeadersTooLarge.
    """
    return Schedule(
        _recurrence(query),
        count=COUNT.of(query),
        until_ms=UNTIL.of(query),
        overlap=cast(Overlap, OVERLAP.of(query) or OVERLAP.default),
        priority=PRIORITY.of(query),
        key=KEY.of(query),
        visibility_s=VISIBILITY.of(query),
        extension=extension_for(headers.get("Content-Type", "")),
        headers=kept(headers.items()),
    )


def _recurrence(query: Query) -> Recurrence:
    every_s, delay_s = EVERY.of(query), DELAY.of(query)
    expression, zone = CRON.of(query), ZONE.of(query)
    if expression is not None:
        for parameter, value in ((EVERY, every_s), (DELAY, delay_s)):
            if value is not None:
                raise BadParameter(parameter.name, f"left out where there is a {CRON.name}")
        return Cron.parse(expression, UTC_NAME if zone is None else zone)
    if every_s is None:
        raise BadParameter(EVERY.name, f"seconds, where there is no {CRON.name}")
    if zone is not None:
        raise BadParameter(ZONE.name, f"left out where there is no {CRON.name}")
    return Every.parse(every_s, delay_s)


def _whole(name: ScheduleName, armed: Armed) -> dict[str, object]:
    body = armed.schedule.body
    shown = body if len(body) <= PEEK_BODY_BYTES else cut(body[:PEEK_BODY_BYTES])
    return {**_members(name, armed, len(body)), **body_member(shown)}


def _members(name: ScheduleName, armed: Armed, size: int) -> dict[str, object]:
    """All but the body: what was left out is null, but for when it comes, which is said."""
    schedule = armed.schedule
    return {
        "name": name.text,
        **_when(schedule.recurrence),
        "next": None if armed.next_ms is None else rfc3339(armed.next_ms),
        "fired": armed.fired,
        "skipped": armed.skipped,
        "last": None if armed.last is None else armed.last.text,
        "count": schedule.count,
        "until": None if schedule.until_ms is None else rfc3339(schedule.until_ms),
        "overlap": schedule.overlap,
        "priority": schedule.priority,
        "key": None if schedule.key is None else schedule.key.text,
        "visibility": schedule.visibility_s,
        "size": size,
        "headers": named_headers(content_type_of(schedule.extension), schedule.headers),
    }


def _when(recurrence: Recurrence) -> dict[str, object]:
    if isinstance(recurrence, Cron):
        return {CRON.name: recurrence.expression, ZONE.name: recurrence.tz}
    return {EVERY.name: recurrence.every_s, DELAY.name: recurrence.delay_s}


def _listed(found: list[Listed]) -> Answer:
    """One that cannot be understood is there with its problem."""
    rows = [
        _unreadable(each.name) if each.armed is None else _members(each.name, each.armed, each.size)
        for each in found
    ]
    return json_answer({"schedules": rows}, headers=_NO_STORE)


def _unreadable(name: ScheduleName) -> dict[str, object]:
    return {"name": name.text, "problem": problem_members(PROBLEMS[ScheduleUnreadable], {})}


def _named(path: Mapping[str, str]) -> tuple[QueueName, ScheduleName]:
    return QueueName.parse(path["queue"]), ScheduleName.parse(path["schedule"])
