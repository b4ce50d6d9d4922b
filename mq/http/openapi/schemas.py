"""Schemas of requests and answers, made from the types and bounds in the code."""

import re
from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Final, get_args, get_type_hints

from mq.broker.accounts import Totals
from mq.broker.memory import MEMORY_QUEUES_SHOWN_MAX, Holder, HolderFigures, QueueFigures
from mq.broker.readiness import Readiness
from mq.http.page.serving import assets
from mq.model.failure import (
    FAILURE_BYTES_MAX,
    FAILURE_LINE_CHARS_MAX,
    FAILURES_MAX,
    NAMES,
)
from mq.model.history import Event
from mq.model.limits import (
    BATCH_MESSAGES_MAX,
    PRIORITY_MAX,
    PROCESSES_MAX,
    RECEIVES_MAX,
    TAGS_MAX,
    VISIBILITY_S_MAX,
    VISIBILITY_S_MIN,
)
from mq.model.message import Reason
from mq.model.names import ID_PATTERN, QUEUE_PATTERN, SCHEDULE_PATTERN, SIDELINE_PATTERN
from mq.model.setting_kinds import LABELS_MAX, Kind, Labels, SidelineName, Switch, Time, Word
from mq.model.settings import FIXED_SETTINGS, SETTINGS
from mq.model.shovel import RunState, Trigger, Why
from mq.model.totals import Total
from mq.model.trends import Range
from mq.protocol import batches, schedules, sidelines
from mq.protocol.bodies import FAILURE
from mq.protocol.consume.frames import (
    CREDIT_MAX,
    FOLLOWS_MAX,
    LAST_MAX,
    REF_CHARS_MAX,
    REF_MAX,
    SUBSCRIPTIONS_MAX,
    Verb,
)
from mq.protocol.endpoints import (
    ACK_PROBLEM,
    FRAME_PROBLEM,
    LINE_PROBLEM,
    SCHEDULE_PROBLEM,
    SETTLE_PROBLEM,
)
from mq.protocol.envelopes import DUE_IN_S_MAX, PRIORITY, TAG, TTL, VISIBILITY
from mq.protocol.fetching import STATES
from mq.protocol.query import GROUP_SCHEMA, KEY_SCHEMA, Schema, reference
from mq.protocol.queues import (
    MEMBER_QUEUES_SHOWN_MAX,
    QUEUES_LISTED_MAX,
    SETTINGS_SAY,
    TREND_COUNTS,
    TREND_LEVELS,
)
from mq.store.history.read import HISTORY_EVENTS_MAX
from mq.store.members.files import MEMBERS_SHOWN_MAX
from mq.store.settings.registry import Refreshed

_TYPES: Final[dict[type, Schema]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}
# DROPPED concerns no message.
_TOLD: Final = {event.value for event in Event} - {Event.DROPPED.value}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
TEXT: Final[Schema] = {"type": "string"}
NAMED_HEADERS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
_EXAMPLE_ID: Final = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab.json"


def of_type(annotation: Any) -> Schema:
    """The JSON schema of a field's type."""
    if isinstance(annotation, UnionType):
        return {"anyOf": [of_type(each) for each in get_args(annotation)]}
    return dict(_TYPES[annotation])


def of_dataclass(kind: type) -> dict[str, Schema]:
    """The schemas of a dataclass's fields, by their names."""
    hints = get_type_hints(kind)
    return {each.name: of_type(hints[each.name]) for each in fields(kind)}


def closed(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """An object with only these members, for requests."""
    return {**opened(properties, optional), "additionalProperties": False}


def opened(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """An object with these members and perhaps others, for answers."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _many(items: Schema) -> Schema:
    """A list in a request about many messages."""
    return {"type": "array", "items": items, "minItems": 1, "maxItems": BATCH_MESSAGES_MAX}


def _settling(fields: Mapping[str, Schema], *needed: str) -> Schema:
    """The body of a request that settles many messages."""
    optional = tuple(name for name in fields if name not in ("id", *needed))
    return closed({"messages": _many(closed(dict(fields), optional))})


def _setting(name: str, setting: Kind) -> Schema:
    return {**_values(setting), "description": SETTINGS_SAY[name]}


def _values(setting: Kind) -> Schema:
    if isinstance(setting, Switch):
        return of_type(bool)
    if isinstance(setting, Word):
        return {"type": "string", "enum": list(setting.words)}
    if isinstance(setting, Time):
        return TIME
    if isinstance(setting, SidelineName):
        return {"type": "string", "pattern": f"^{SIDELINE_PATTERN}$"}
    if isinstance(setting, Labels):
        texts = {"type": "string"}
        return {"type": "object", "additionalProperties": texts, "maxProperties": LABELS_MAX}
    kind = "integer" if setting.is_whole else "number"
    return {"type": kind, "minimum": setting.least, "maximum": setting.most}


def or_null(schema: Schema) -> Schema:
    if "enum" in schema:
        found = {name: value for name, value in schema.items() if name != "type"}
        return {**found, "enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def _effective(name: str, setting: Kind) -> Schema:
    """A setting in an answer: a time, or a name, that is not set is null."""
    schema = _setting(name, setting)
    if name in FIXED_SETTINGS:
        return {**schema, "readOnly": True}
    return or_null(schema) if isinstance(setting, Time | SidelineName) else schema


_REASON: Final[Schema] = {"type": "string", "enum": [reason.name.lower() for reason in Reason]}
LINE: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": FAILURE_LINE_CHARS_MAX}
_TEXTS: Final[dict[str, Schema]] = {
    name: {"type": "string", "maxLength": FAILURE_BYTES_MAX} for name in sorted(NAMES)
}
SIDELINED: Final = opened({"reason": _REASON, "at": TIME}, optional=("at",))


def _message(more: dict[str, Schema]) -> Schema:
    """A row of a message; `more` precedes its body."""
    properties = {
        "id": reference("MessageId"),
        "receives": {**COUNT, "maximum": RECEIVES_MAX},
        "attempts": {**COUNT, "maximum": RECEIVES_MAX},
        "published": TIME,
        "due": TIME,
        "headers": NAMED_HEADERS,
        "tags": _many(TEXT),
        "sidelined": SIDELINED,
        "group": GROUP_SCHEMA,
        "reason": LINE,
        **more,
        "body": TEXT,
        "body_base64": {"type": "string", "contentEncoding": "base64"},
    }
    optional = ("attempts", "tags", "sidelined", "reason", "group", "body", "body_base64")
    return opened(properties, optional=optional)


_FIGURES: Final = (
    "ready", "delayed", "in_flight", "overdue", "removed", "leased", "sidelined", "foreign",
)  # fmt: skip
_ALL_SETTINGS: Final = {**SETTINGS, **FIXED_SETTINGS}
_RECEIVES: Final[Schema] = {**COUNT, "maximum": RECEIVES_MAX}
_OF_EVENT: Final[dict[str, Schema]] = {
    "time": TIME,
    "event": {"type": "string", "enum": sorted(_TOLD)},
    "receives": _RECEIVES,
    "due": TIME,
    "lease": TEXT,
    "reason": _REASON,
    "tags": {"type": "array", "items": TEXT, "maxItems": TAGS_MAX},
    "process": TEXT,
}
_NOT_IN_EACH: Final = ("receives", "due", "lease", "reason", "tags", "process")
_EVENT: Final = opened(_OF_EVENT, optional=_NOT_IN_EACH)
_EVENT_OF_ONE: Final = opened({"id": reference("MessageId"), **_OF_EVENT}, optional=_NOT_IN_EACH)

_REF: Final[Schema] = {
    "anyOf": [
        {"type": "string", "maxLength": REF_CHARS_MAX},
        {"type": "integer", "minimum": -REF_MAX, "maximum": REF_MAX},
        {"type": "null"},
    ]
}


def _some(items: Schema, most: int, least: int = 1) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def _whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _command(name: str, value: Schema) -> Schema:
    return closed({name: value, "ref": _REF}, optional=("ref",))


_SUBSCRIPTION: Final = closed(
    {
        "queue": TEXT,
        "priority": {**_whole(0, PRIORITY_MAX), "default": 0},
        "credit": {**_whole(0, CREDIT_MAX), "default": 1},
        "visibility_s": {
            "type": "number", "minimum": VISIBILITY_S_MIN, "maximum": VISIBILITY_S_MAX,
        },
        "select": TEXT,
        "packs": {"type": "boolean", "default": False},
    },
    optional=("priority", "credit", "visibility_s", "select", "packs"),
)  # fmt: skip
_FOLLOW: Final = closed(
    {
        "queue": TEXT,
        "select": TEXT,
        "last": {**_whole(0, LAST_MAX), "default": 0},
    },
    optional=("select", "last"),
)
_RESULT: Final = opened(
    {
        "queue": TEXT,
        "id": TEXT,
        "status": {"type": "integer"},
        "problem": reference(FRAME_PROBLEM),
    },
    optional=("queue", "id", "problem"),
)

_EVERY: Final[dict[str, Schema]] = {
    schedules.EVERY.name: {"type": "number"},
    schedules.DELAY.name: {"type": ["number", "null"]},
}
_CRON: Final[dict[str, Schema]] = {"cron": TEXT, "tz": TEXT}
_SCHEDULE: Final[dict[str, Schema]] = {
    "name": reference("ScheduleName"),
    **_EVERY,
    **_CRON,
    "next": or_null(TIME),
    "fired": COUNT,
    "skipped": COUNT,
    "last": {"anyOf": [reference("MessageId"), {"type": "null"}]},
    "waiting": {"type": "boolean"},
    "count": or_null(schedules.COUNT.schema),
    "until": or_null(TIME),
    "overlap": {"type": "string", "enum": list(schedules.OVERLAP.words)},
    "after": {"type": "string", "enum": list(schedules.AFTER.words)},
    "misfire": {"type": "string", "enum": list(schedules.MISFIRE.words)},
    "priority": or_null(PRIORITY.schema),
    "key": or_null(TEXT),
    "visibility": or_null(VISIBILITY.schema),
    "ttl": or_null(TTL.schema),
    "group": or_null(GROUP_SCHEMA),
    "tags": TAG.schema,
    "size": COUNT,
    "headers": NAMED_HEADERS,
}
_BODIES: Final[dict[str, Schema]] = {
    "body": TEXT,
    "body_base64": {"type": "string", "contentEncoding": "base64"},
}

_UNSAID: Final = (Why.GONE,)
"""Not reported."""
_UUID: Final[Schema] = {"type": "string", "format": "uuid"}
_NUMBER: Final[Schema] = {"type": "number", "minimum": 0}
_CRITERIA: Final[dict[str, Schema]] = {
    "ids": COUNT,
    "limit": sidelines.LIMIT.schema,
    "older_than_s": _NUMBER,
    "key": TEXT,
    "priority": TEXT,
    "max_receives": sidelines.MAX_RECEIVES.schema,
}
_RUN: Final[dict[str, Schema]] = {
    "id": _UUID,
    "by": {"type": "string", "enum": [each.value for each in Trigger]},
    "dry_run": {"type": "boolean"},
    "criteria": opened(_CRITERIA, optional=tuple(_CRITERIA)),
    "rate": or_null(sidelines.RATE.schema),
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
    "into": reference("QueueName"),
}
_SHOVEL_STATES: Final = [*(each.value for each in RunState), sidelines.SCHEDULED]
_SHOVEL_SCHEDULE: Final[dict[str, Schema]] = {
    "interval_s": or_null(_NUMBER),
    "next": or_null(TIME),
}


_NAME: Final = reference("QueueName")
_TREND_LEVELS: Final = {**dict.fromkeys(TREND_LEVELS, COUNT), "oldest_ready_age_s": _NUMBER}
_ACTED: Final = opened(
    {
        **dict.fromkeys(("turns", "acted", "failed"), COUNT),
        **dict.fromkeys(("last", "next"), or_null(TIME)),
    }
)
_MEMBER: Final = opened(
    {
        "member": TEXT,
        "host": TEXT,
        "pid": COUNT,
        "started": TIME,
        "told": TIME,
        "gone": of_type(bool),
        "coordinator": TEXT,
        "leads": of_type(bool),
        "connected": of_type(bool),
        "queues": opened(
            {
                "count": COUNT,
                "names": {"type": "array", "items": _NAME, "maxItems": MEMBER_QUEUES_SHOWN_MAX},
            }
        ),
        "policies": {"type": "object", "additionalProperties": _ACTED},
        "redelivery": {"type": "object", "additionalProperties": COUNT},
    }
)


SCHEMAS: Final[dict[str, Schema]] = {
    "QueueName": {
        "type": "string",
        "pattern": f"^(?:{QUEUE_PATTERN})$",
        "description": "A queue's name.",
        "examples": ["orders"],
    },
    "MessageId": {
        "type": "string",
        # JSON Schema's patterns have no named groups.
        "pattern": f"^(?:{re.sub(r'[?]P<[a-z]+>', '?:', ID_PATTERN)})$",
        "description": "A message's id. Opaque: send it back as it came.",
        "examples": [_EXAMPLE_ID],
    },
    "Key": {
        **KEY_SCHEMA,
        "description": "A lookup key. Letters, digits, _ and - count as one byte, any other byte "
        f"of its UTF-8 as three, and it has at most {KEY_SCHEMA['maxLength']} of them.",
        "examples": ["table-7"],
    },
    "Queue": opened({"name": reference("QueueName")}),
    "Description": opened(
        {
            "name": reference("QueueName"),
            **dict.fromkeys(_FIGURES, COUNT),
            "oldest_ready_age_s": {"type": ["number", "null"], "minimum": 0},
            "expired": {"type": "boolean"},
            "totals": reference("Totals"),
            "lifetime": reference("Lifetime"),
            "process": opened(
                {
                    "index": {**COUNT, "maximum": PROCESSES_MAX - 1},
                    "of": {"type": "integer", "minimum": 1, "maximum": PROCESSES_MAX},
                }
            ),
            "as_of": opened(dict.fromkeys((*_FIGURES, "oldest_ready_age_s", "totals"), TIME)),
            "settings": reference("Settings"),
        }
    ),
    "Totals": opened(dict.fromkeys(of_dataclass(Totals), COUNT)),
    "Lifetime": opened({each.value: COUNT for each in Total}),
    "Settings": opened({name: _effective(name, each) for name, each in _ALL_SETTINGS.items()}),
    "SettingsPatch": closed(
        {name: or_null(_setting(name, each)) for name, each in _ALL_SETTINGS.items()},
        optional=tuple(_ALL_SETTINGS),
    ),
    "Tagged": opened(
        {
            "entries": COUNT,
            "messages": {
                "type": "array",
                "items": opened(
                    {
                        "id": reference("MessageId"),
                        "state": {"type": "string", "enum": list(STATES)},
                    }
                ),
            },
            "after": or_null(TEXT),
        }
    ),
    "DoneTagged": opened({"done": COUNT, "failed": COUNT, "after": or_null(TEXT)}),
    "Purged": opened({"purged_before": TIME}),
    "Published": opened({"id": reference("MessageId")}),
    "PostedRow": closed(batches.row_properties(), optional=tuple(batches.row_properties())),
    "PublishedLine": {
        "oneOf": [
            opened({"id": reference("MessageId")}),
            opened({"problem": reference(LINE_PROBLEM)}),
        ]
    },
    "FetchedLine": _message({}),
    "PeekedLine": _message({"state": {"type": "string", "enum": list(STATES)}, "size": COUNT}),
    "Acks": {
        "oneOf": [
            closed({"ids": _many({"type": "string"})}),
            _settling(batches.ACKED),
        ]
    },
    "Acked": opened(
        {
            "results": {
                "type": "array",
                "items": opened(
                    {"id": TEXT, "status": {"type": "integer"}, "problem": reference(ACK_PROBLEM)},
                    optional=("problem",),
                ),
            }
        }
    ),
    "Extensions": _settling(batches.EXTENDED, "due_in_s"),
    "Releases": closed(
        {
            "messages": _many(
                {
                    "oneOf": [
                        closed(
                            {**batches.EXTENDED, "reason": FAILURE},
                            optional=("receives", "due_in_s", "reason"),
                        ),
                        closed(
                            {
                                name: schema
                                for name, schema in batches.RELEASED.items()
                                if name not in ("due_in_s", "reason")
                            }
                        ),
                    ]
                }
            )
        }
    ),
    "Sidelines": _settling(batches.SIDELINED),
    "Settled": opened(
        {
            "results": {
                "type": "array",
                "items": opened(
                    {
                        "id": TEXT,
                        "status": {"type": "integer"},
                        "problem": reference(SETTLE_PROBLEM),
                        "due": TIME,
                        "receives": _RECEIVES,
                        "queue": reference("QueueName"),
                        "reason": _REASON,
                    },
                    optional=("problem", "due", "receives", "queue", "reason"),
                ),
            }
        }
    ),
    "Reschedule": {
        "oneOf": [
            closed(
                {
                    "due_in_s": {"type": "number", "minimum": 0, "maximum": DUE_IN_S_MAX},
                    "release": {"type": "boolean", "default": False},
                },
                optional=("release",),
            ),
            closed(
                {
                    "due_in_s": {"type": "number", "minimum": 0, "maximum": DUE_IN_S_MAX},
                    "release": {"const": True},
                    "reason": FAILURE,
                }
            ),
            closed(
                {
                    "due_in_s": {"const": 0},
                    "release": {"type": "boolean", "default": False},
                    "unhandled": {"type": "boolean"},
                },
                optional=("release",),
            ),
        ]
    },
    "Sideline": closed({"reason": FAILURE}, optional=("reason",)),
    "Failures": opened(
        {
            "id": reference("MessageId"),
            "failures": {
                "type": "array",
                "maxItems": FAILURES_MAX,
                "items": opened(
                    {
                        "time": TIME,
                        "event": {"enum": ["released", "sidelined"]},
                        "queue": reference("QueueName"),
                        "id": reference("MessageId"),
                        "receives": _RECEIVES,
                        **_TEXTS,
                    },
                    optional=tuple(_TEXTS),
                ),
            },
        }
    ),
    "Rescheduled": opened(
        {
            "id": reference("MessageId"),
            "due": TIME,
            "receives": _RECEIVES,
        }
    ),
    "Sidelined": opened(
        {
            "id": reference("MessageId"),
            "queue": reference("QueueName"),
            "receives": _RECEIVES,
            "reason": _REASON,
        }
    ),
    "History": opened(
        {
            "id": reference("MessageId"),
            "recording": of_type(bool),
            "left_out": COUNT,
            "events": {"type": "array", "items": _EVENT, "maxItems": HISTORY_EVENTS_MAX},
        }
    ),
    "TagHistory": opened(
        {
            "tag": TEXT,
            "recording": of_type(bool),
            "left_out": COUNT,
            "events": {"type": "array", "items": _EVENT_OF_ONE, "maxItems": HISTORY_EVENTS_MAX},
        }
    ),
    "Root": opened(
        {
            "name": {"type": "string", "const": "mq"},
            **dict.fromkeys(("version", "page", "openapi", "livez", "readyz"), TEXT),
        }
    ),
    "Alive": opened({"alive": {"type": "boolean", "const": True}}),
    "Memory": opened(
        {
            "process": {**COUNT, "maximum": PROCESSES_MAX - 1},
            **dict.fromkeys(
                (
                    "budget_bytes",
                    "held_bytes",
                    "ids",
                    "hits",
                    "misses",
                    "evicted",
                    "refused",
                    "queues_held",
                ),
                COUNT,
            ),
            "holders": opened(
                {each.name.lower(): opened(of_dataclass(HolderFigures)) for each in Holder}
            ),
            "queues": {
                "type": "array",
                "maxItems": MEMORY_QUEUES_SHOWN_MAX,
                "items": opened(of_dataclass(QueueFigures)),
            },
        }
    ),
    "Ready": opened({"ready": {"type": "boolean", "const": True}, **of_dataclass(Readiness)}),
    "ScheduleName": {
        "type": "string",
        "pattern": f"^(?:{SCHEDULE_PATTERN})$",
        "description": "A schedule's name.",
        "examples": ["nightly"],
    },
    "Schedule": opened({**_SCHEDULE, **_BODIES}, optional=(*_EVERY, *_CRON, *_BODIES)),
    "ListedSchedule": {
        "oneOf": [
            opened(_SCHEDULE, optional=(*_EVERY, *_CRON)),
            opened({"name": reference("ScheduleName"), "problem": reference(SCHEDULE_PROBLEM)}),
        ]
    },
    "Groups": opened(
        {
            "groups": {
                "type": "array",
                "items": opened(
                    {
                        "group": GROUP_SCHEMA,
                        "id": reference("MessageId"),
                        "state": {"type": "string", "enum": ["ready", "delayed", "leased"]},
                        "receives": {**COUNT, "maximum": RECEIVES_MAX},
                        "due": TIME,
                        "since": TIME,
                    },
                    optional=("group",),
                ),
            }
        }
    ),
    "Schedules": opened({"schedules": {"type": "array", "items": reference("ListedSchedule")}}),
    "NamedSchedule": opened({"name": reference("ScheduleName")}),
    "Shovel": opened(
        {
            "queue": reference("QueueName"),
            "state": {"type": "string", "enum": _SHOVEL_STATES},
            **_RUN,
            **_SHOVEL_SCHEDULE,
        },
        optional=tuple(_RUN),
    ),
    "BegunShovel": opened({"id": _UUID}),
    "ConsumeCommand": {
        "oneOf": [
            _command("subscribe", _some(_SUBSCRIPTION, SUBSCRIPTIONS_MAX)),
            _command("unsubscribe", _some(TEXT, SUBSCRIPTIONS_MAX)),
            _command("follow", _some(_FOLLOW, FOLLOWS_MAX)),
            _command("unfollow", _some(TEXT, FOLLOWS_MAX)),
            _command(
                "credit",
                {
                    "type": "object",
                    "additionalProperties": _whole(1, CREDIT_MAX),
                    "minProperties": 1,
                    "maxProperties": SUBSCRIPTIONS_MAX,
                },
            ),
            *(_command(verb.value, _some(TEXT, BATCH_MESSAGES_MAX)) for verb in Verb),
            closed(
                {
                    "release": _some(TEXT, BATCH_MESSAGES_MAX),
                    "unhandled": {"type": "boolean"},
                    "ref": _REF,
                },
                optional=("ref",),
            ),
            *(
                closed(
                    {
                        verb.value: _some(TEXT, BATCH_MESSAGES_MAX),
                        "reason": FAILURE,
                        "ref": _REF,
                    },
                    optional=("ref",),
                )
                for verb in (Verb.RELEASE, Verb.SIDELINE)
            ),
            _command("begin", _some(TEXT, BATCH_MESSAGES_MAX, least=0)),
            _command(
                "prefetched",
                _some(
                    closed(
                        {
                            "queue": reference("QueueName"),
                            "id": reference("MessageId"),
                            "receives": _whole(1, RECEIVES_MAX),
                        }
                    ),
                    BATCH_MESSAGES_MAX,
                ),
            ),
        ]
    },
    "ConsumeFrame": {
        "oneOf": [
            reference("ConsumedMessage"),
            opened({"ref": _REF, "results": {"type": "array", "items": _RESULT}}),
            opened({"ref": _REF, "problem": reference(FRAME_PROBLEM)}),
            opened(
                {
                    "event": {"const": "message"},
                    "queue": reference("QueueName"),
                    "dropped": COUNT,
                    "message": reference("PeekedLine"),
                }
            ),
            opened(
                {
                    "event": {"const": "unsubscribed"},
                    "queue": reference("QueueName"),
                    "problem": reference(FRAME_PROBLEM),
                }
            ),
        ]
    },
    "ConsumedMessage": opened(
        {
            "queue": reference("QueueName"),
            "id": reference("MessageId"),
            "receives": {**COUNT, "maximum": RECEIVES_MAX},
            "attempts": {**COUNT, "maximum": RECEIVES_MAX},
            "published": TIME,
            "due": TIME,
            "headers": NAMED_HEADERS,
            "sidelined": SIDELINED,
            "reason": LINE,
            "group": GROUP_SCHEMA,
            "size": COUNT,
        },
        optional=("attempts", "sidelined", "reason", "group"),
    ),
    "Queues": opened(
        {
            "queues": {
                "type": "array",
                "items": opened({"name": _NAME, "sideline": of_type(bool)}),
                "maxItems": QUEUES_LISTED_MAX,
            },
            "next": {"anyOf": [_NAME, {"type": "null"}]},
        }
    ),
    "Trends": opened(
        {
            "range": {"type": "string", "enum": [*Range]},
            "step_s": COUNT,
            "queue": {"anyOf": [_NAME, {"type": "null"}]},
            "points": {
                "type": "array",
                "items": opened(
                    {
                        "time": TIME,
                        "seconds": _NUMBER,
                        **dict.fromkeys(TREND_COUNTS, COUNT),
                        **_TREND_LEVELS,
                    }
                ),
                "maxItems": max(each.points_max for each in Range),
            },
            "last": or_null(
                opened({"time": TIME, "queues": COUNT, "uncounted": COUNT, **_TREND_LEVELS})
            ),
        },
        optional=("last",),
    ),
    "Members": opened(
        {
            "leader": or_null(TEXT),
            "members": {
                "type": "array",
                "items": reference("Member"),
                "maxItems": MEMBERS_SHOWN_MAX,
            },
            "assigned": {"type": "object", "additionalProperties": or_null(TEXT)},
        },
        optional=("assigned",),
    ),
    "Member": _MEMBER,
    "ConsumerId": {"type": "string", "minLength": 1},
    "Consumers": opened(
        {
            "consumers": {"type": "array", "items": reference("Consumer")},
            "complete": of_type(bool),
        }
    ),
    "Consumer": opened(
        {
            "id": reference("ConsumerId"),
            "process": COUNT,
            "via": {"type": "string", "enum": ["websocket", "poll"]},
            "address": TEXT,
            "caller": or_null(TEXT),
            "since": TIME,
            "active": {"type": "boolean"},
            "priority": _whole(0, PRIORITY_MAX),
            "credit": COUNT,
            "in_flight": COUNT,
            "delivered": COUNT,
            "deliveries_per_s": {"type": "number", "minimum": 0},
            "select": or_null(TEXT),
        }
    ),
    "EndedConsumer": opened({"id": reference("ConsumerId")}),
    "Refreshed": opened(dict.fromkeys(of_dataclass(Refreshed), COUNT)),
    "AssetName": {"type": "string", "enum": [*assets()]},
}
