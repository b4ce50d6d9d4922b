"""What is said of the operations on schedules."""

from typing import Final

from mq.http.openapi.described import ANY, Content, Described, Success, json_of
from mq.http.openapi.schemas import (
    COUNT,
    NAMED_HEADERS,
    TEXT,
    TIME,
    opened,
    or_null,
    reference,
)
from mq.model.errors import (
    Busy,
    DueTooFar,
    QueueNotFound,
    ScheduleNotFound,
    ScheduleUnreadable,
    SettingsUnreadable,
    TooManySchedules,
)
from mq.model.names import SCHEDULE_PATTERN
from mq.protocol.envelopes import PRIORITY, VISIBILITY
from mq.protocol.query import Schema
from mq.protocol.schedules import COUNT as FIRINGS
from mq.protocol.schedules import DELAY, EVERY, OVERLAP

SCHEDULE_PROBLEM: Final = "ScheduleProblem"
_NAME: Final = "ScheduleName"
_EVERY: Final[dict[str, Schema]] = {
    EVERY.name: {"type": "number"},
    DELAY.name: {"type": ["number", "null"]},
}
_CRON: Final[dict[str, Schema]] = {"cron": TEXT, "tz": TEXT}
_MEMBERS: Final[dict[str, Schema]] = {
    "name": reference(_NAME),
    **_EVERY,
    **_CRON,
    "next": or_null(TIME),
    "fired": COUNT,
    "skipped": COUNT,
    "last": {"anyOf": [reference("MessageId"), {"type": "null"}]},
    "count": or_null(FIRINGS.schema),
    "until": or_null(TIME),
    "overlap": {"type": "string", "enum": list(OVERLAP.words)},
    "priority": or_null(PRIORITY.schema),
    "key": or_null(TEXT),
    "visibility": or_null(VISIBILITY.schema),
    "size": COUNT,
    "headers": NAMED_HEADERS,
}
_BODIES: Final[dict[str, Schema]] = {
    "body": TEXT,
    "body_base64": {"type": "string", "contentEncoding": "base64"},
}
_OPTIONAL: Final = (*_EVERY, *_CRON)

SCHEMAS: Final[dict[str, Schema]] = {
    _NAME: {
        "type": "string",
        "pattern": f"^(?:{SCHEDULE_PATTERN})$",
        "description": "A schedule's name.",
        "examples": ["nightly"],
    },
    "Schedule": opened({**_MEMBERS, **_BODIES}, optional=(*_OPTIONAL, *_BODIES)),
    "ListedSchedule": {
        "oneOf": [
            opened(_MEMBERS, optional=_OPTIONAL),
            opened({"name": reference(_NAME), "problem": reference(SCHEDULE_PROBLEM)}),
        ]
    },
    "Schedules": opened({"schedules": {"type": "array", "items": reference("ListedSchedule")}}),
    "NamedSchedule": opened({"name": reference(_NAME)}),
}
ITEMS: Final = {SCHEDULE_PROBLEM: (ScheduleUnreadable,)}

_HEADERS: Final = ("Location", "Cache-Control")
_GIVES: Final = {"queue": "$request.path.queue", "schedule": "$response.body#/name"}
_PATH: Final = "/{queue}/schedules/{schedule}"

DESCRIBED: Final = {
    ("PUT", _PATH): Described(
        "put_schedule",
        "Has the body published again and again, by mq-mover.",
        (
            Success(200, "It was there.", json_of(reference("Schedule")), _HEADERS, _GIVES),
            Success(201, "It was made.", json_of(reference("Schedule")), _HEADERS, _GIVES),
        ),
        (QueueNotFound, SettingsUnreadable, TooManySchedules, DueTooFar, Busy),
        body={ANY: Content()},
        body_is_required=False,
        more="Either `every`, with or without `delay`, or `cron`, with or without `tz`. What says "
        "the same as what is there changes nothing. The headers that a publish keeps are kept.",
    ),
    ("GET", _PATH): Described(
        "read_schedule",
        "What a schedule says, how far it is, and what is next.",
        (Success(200, "The schedule.", json_of(reference("Schedule")), ("Cache-Control",)),),
        (QueueNotFound, ScheduleNotFound, ScheduleUnreadable),
    ),
    ("DELETE", _PATH): Described(
        "delete_schedule",
        "Deletes a schedule; its messages stay.",
        (Success(200, "It fires no more.", json_of(reference("NamedSchedule"))),),
        (QueueNotFound, ScheduleNotFound, Busy),
    ),
    ("GET", "/{queue}/schedules"): Described(
        "list_schedules",
        "A queue's schedules, by name, without their bodies.",
        (Success(200, "All of them.", json_of(reference("Schedules")), ("Cache-Control",)),),
        (QueueNotFound,),
    ),
}
