"""What is said of the operations on a queue's shovel."""

from typing import Final

from mq.http.openapi.described import Described, Success, json_of
from mq.http.openapi.schemas import COUNT, TEXT, TIME, opened, or_null, reference
from mq.model.errors import (
    AlreadySideline,
    QueueNotFound,
    SettingsUnreadable,
    ShovelNotFound,
    ShovelRunning,
    TooManyShovels,
)
from mq.model.shovel import RunState, Trigger, Why
from mq.protocol.query import Schema
from mq.protocol.shovels import LIMIT, MAX_RECEIVES, RATE, SCHEDULED

# Of who is gone nothing is said, and no request chooses messages one by one.
_UNSAID: Final = (Why.GONE, Why.CHANGED)
_UUID: Final[Schema] = {"type": "string", "format": "uuid"}
_NUMBER: Final[Schema] = {"type": "number", "minimum": 0}
_CRITERIA: Final[dict[str, Schema]] = {
    "limit": LIMIT.schema,
    "older_than_s": _NUMBER,
    "key": TEXT,
    "priority": TEXT,
    "max_receives": MAX_RECEIVES.schema,
}
_RUN: Final[dict[str, Schema]] = {
    "id": _UUID,
    "by": {"type": "string", "enum": [each.value for each in Trigger]},
    "dry_run": {"type": "boolean"},
    "criteria": opened(_CRITERIA, optional=tuple(_CRITERIA)),
    "rate": or_null(RATE.schema),
    "concurrency": {"type": "integer", "minimum": 1},
    "began": TIME,
    "ended": or_null(TIME),
    "looked_at": COUNT,
    "moved": COUNT,
    "stayed": {
        "type": "object",
        "propertyNames": {"enum": [each.value for each in Why if each not in _UNSAID]},
        "additionalProperties": COUNT,
    },
    "failed": COUNT,
    "error": or_null(TEXT),
}
_STATES: Final = [*(each.value for each in RunState), SCHEDULED]
_SCHEDULE: Final[dict[str, Schema]] = {
    "interval_s": or_null(_NUMBER),
    "next": or_null(TIME),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Shovel": opened(
        {
            "queue": reference("QueueName"),
            "state": {"type": "string", "enum": _STATES},
            **_RUN,
            **_SCHEDULE,
        },
        optional=tuple(_RUN),
    ),
    "BegunShovel": opened({"id": _UUID}),
}

_PATH: Final = "/{queue}/shovel"

DESCRIBED: Final = {
    ("POST", _PATH): Described(
        "begin_shovel",
        "Begins to move the messages of the queue's sideline back to it, once.",
        (Success(202, "It goes on.", json_of(reference("BegunShovel")), ("Location",)),),
        (QueueNotFound, AlreadySideline, SettingsUnreadable, ShovelRunning, TooManyShovels),
        more="In the process that answers, until what was there has been looked at. A body is "
        "discarded.",
    ),
    ("GET", _PATH): Described(
        "read_shovel",
        "How far the run is that goes on, or what came of the last one, whichever process's.",
        (Success(200, "How far it is.", json_of(reference("Shovel")), ("Cache-Control",)),),
        (QueueNotFound, ShovelNotFound),
    ),
    ("DELETE", _PATH): Described(
        "stop_shovel",
        "Stops the run that goes on, whichever process's.",
        (
            Success(200, "None goes on.", json_of(reference("Shovel")), ("Cache-Control",)),
            Success(202, "It is about to stop.", json_of(reference("Shovel")), ("Cache-Control",)),
        ),
        (QueueNotFound, ShovelNotFound),
    ),
}
