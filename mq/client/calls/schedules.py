"""Calls that make, read, list and delete a queue's schedules."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from mq.client.bodies import GivenBody, body_of
from mq.client.calls.call import Call, done_after
from mq.client.errors import ScheduleNotFound
from mq.client.transport import Answer, Request
from mq.client.values import Absent, Schedule
from mq.client.wire import reading, rows, writing
from mq.client.wire.reading import Members

_OK: Final = 200
_CREATED: Final = 201


def put(
    queue: str,
    name: str,
    body: GivenBody,
    json: Any,
    *,
    every_s: float | None,
    delay_s: float | None,
    cron: str | None,
    tz: str | None,
    count: int | None,
    until: datetime | None,
    overlap: str | None,
    priority: int | None,
    key: str | None,
    visibility_s: int | None,
    headers: Mapping[str, str] | None,
    content_type: str | None,
) -> Call[Schedule]:
    """Makes the schedule, or replaces what is there. Raises ValueError for a body and a json."""
    default = writing.TEXT if isinstance(body, str) else None
    if not isinstance(json, Absent):
        if body != b"":
            raise ValueError("a schedule has a body or a json, not both")
        body, default = writing.json_body(json), writing.JSON
    said = writing.query(
        {
            "every": writing.seconds(every_s),
            "delay": writing.seconds(delay_s),
            "cron": cron,
            "tz": tz,
            "count": writing.whole(count),
            "until": writing.time(until),
            "overlap": overlap,
            "priority": writing.whole(priority),
            "key": key,
            "visibility": writing.whole(visibility_s),
        }
    )
    kept = writing.headers(content_type, headers, default)
    path = writing.path(queue, "schedules", name)
    return Call(Request("PUT", path, said, kept, body_of(body)), _put)


def _put(answer: Answer) -> Schedule:
    reading.checked(answer, _OK, _CREATED)
    return _schedule(answer, Members.of(answer), is_new=answer.status == _CREATED)


def read(queue: str, name: str) -> Call[Schedule]:
    """What it says, and how far it is."""
    return Call(Request("GET", writing.path(queue, "schedules", name)), _read)


def _read(answer: Answer) -> Schedule:
    return _schedule(answer, Members.of(reading.checked(answer, _OK)))


def read_all(queue: str) -> Call[list[Schedule]]:
    """All of a queue, by name, without bodies."""
    return Call(Request("GET", writing.path(queue, "schedules")), _read_all)


def _read_all(answer: Answer) -> list[Schedule]:
    said = Members.of(reading.checked(answer, _OK))
    return [_listed(answer, each) for each in said.each("schedules")]


def _listed(answer: Answer, said: Members) -> Schedule:
    problem = said.problem("problem")
    if problem is None:
        return _schedule(answer, said)
    return Schedule(
        *(said.text("name"), None, None, None, None, None, 0, 0, None, None, None, ""),
        *(None, None, None, 0, {}, b""),
        problem=problem,
    )


def _schedule(answer: Answer, said: Members, is_new: bool | None = None) -> Schedule:
    return Schedule(
        name=said.text("name"),
        every_s=said.number_or_none("every"),
        delay_s=said.number_or_none("delay"),
        cron=said.text_or_none("cron"),
        tz=said.text_or_none("tz"),
        next=said.time_or_none("next"),
        fired=said.whole("fired"),
        skipped=said.whole("skipped"),
        last=said.text_or_none("last"),
        count=said.whole_or_none("count"),
        until=said.time_or_none("until"),
        overlap=said.text("overlap"),
        priority=said.whole_or_none("priority"),
        key=said.text_or_none("key"),
        visibility_s=said.whole_or_none("visibility"),
        size=said.whole("size"),
        headers=said.texts("headers"),
        body=rows.body_of(answer, said),
        is_new=is_new,
    )


def delete(queue: str, name: str) -> Call[None]:
    """Has it fire no more."""
    request = Request("DELETE", writing.path(queue, "schedules", name))
    return Call(request, _nothing, when_repeated=done_after(ScheduleNotFound))


def _nothing(answer: Answer) -> None:
    reading.checked(answer, _OK)
