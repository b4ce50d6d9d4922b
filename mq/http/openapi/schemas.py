"""The schemas of what requests and answers carry, from the types and bounds that the code uses."""

import re
from dataclasses import fields
from types import UnionType
from typing import Any, Final, get_args, get_type_hints

from mq.broker.accounts import Totals
from mq.broker.memory_figures import HolderFigures, ShelfFigures
from mq.broker.readiness import Readiness
from mq.broker.shelf import Holder
from mq.model.history import Event
from mq.model.limits import (
    BATCH_MESSAGES_MAX,
    DUE_IN_S_MAX,
    HISTORY_EVENTS_MAX,
    MEMORY_QUEUES_SHOWN_MAX,
    PROCESSES_MAX,
    RECEIVES_MAX,
)
from mq.model.message import Reason
from mq.model.names import ID_PATTERN, QUEUE_PATTERN
from mq.model.setting_kinds import Kind, Switch, Time, Word
from mq.model.settings import FIXED_SETTINGS, SETTINGS
from mq.protocol.peeking import STATES
from mq.protocol.query import KEY_SCHEMA, Schema

_TYPES: Final[dict[type, Schema]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}
# DROPPED is of no message.
_TOLD: Final = {event.value for event in Event} - {Event.DROPPED.value}
LINE_PROBLEM: Final = "LineProblem"
ACK_PROBLEM: Final = "AckProblem"
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
TEXT: Final[Schema] = {"type": "string"}
NAMED_HEADERS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
_EXAMPLE_ID: Final = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab.json"


def reference(name: str) -> Schema:
    """A schema of this document by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def of_type(annotation: Any) -> Schema:
    """The schema of what a field of this type is in JSON."""
    if isinstance(annotation, UnionType):
        return {"anyOf": [of_type(each) for each in get_args(annotation)]}
    return dict(_TYPES[annotation])


def of_dataclass(kind: type) -> dict[str, Schema]:
    """The schemas of a dataclass's fields, by their names."""
    hints = get_type_hints(kind)
    return {each.name: of_type(hints[each.name]) for each in fields(kind)}


def closed(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """An object with these members and no other: what a request carries."""
    return {**opened(properties, optional), "additionalProperties": False}


def opened(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """An object with these members: what an answer carries, to which others may come."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _setting(setting: Kind) -> Schema:
    if isinstance(setting, Switch):
        return of_type(bool)
    if isinstance(setting, Word):
        return {"type": "string", "enum": list(setting.words)}
    if isinstance(setting, Time):
        return TIME
    kind = "integer" if setting.is_whole else "number"
    return {"type": kind, "minimum": setting.least, "maximum": setting.most}


def or_null(schema: Schema) -> Schema:
    """The schema, or null."""
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def _effective(setting: Kind) -> Schema:
    """A setting as an answer has it: a time that is not set is null."""
    return or_null(TIME) if isinstance(setting, Time) else _setting(setting)


_REASON: Final[Schema] = {"type": "string", "enum": [reason.name.lower() for reason in Reason]}
SIDELINED: Final = opened({"reason": _REASON, "at": TIME}, optional=("at",))


def _message(more: dict[str, Schema]) -> Schema:
    """A row of a message; `more` stands before what its body is said in."""
    properties = {
        "id": reference("MessageId"),
        "receives": {**COUNT, "maximum": RECEIVES_MAX},
        "published": TIME,
        "due": TIME,
        "headers": NAMED_HEADERS,
        "sidelined": SIDELINED,
        **more,
        "body": TEXT,
        "body_base64": {"type": "string", "contentEncoding": "base64"},
    }
    return opened(properties, optional=("sidelined", "body", "body_base64"))


_FIGURES: Final = (
    "ready", "delayed", "in_flight", "overdue", "removed", "leased", "sidelined", "foreign",
)  # fmt: skip
_ALL_SETTINGS: Final = {**SETTINGS, **FIXED_SETTINGS}
_RECEIVES: Final[Schema] = {**COUNT, "maximum": RECEIVES_MAX}
_EVENT: Final = opened(
    {
        "time": TIME,
        "event": {"type": "string", "enum": sorted(_TOLD)},
        "receives": _RECEIVES,
        "due": TIME,
        "lease": TEXT,
        "reason": _REASON,
        "process": TEXT,
    },
    optional=("receives", "due", "lease", "reason", "process"),
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
        "description": "A message's id. Opaque: it is given back as it came.",
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
    "Settings": opened({name: _effective(each) for name, each in _ALL_SETTINGS.items()}),
    "SettingsPatch": closed(
        {name: or_null(_setting(each)) for name, each in _ALL_SETTINGS.items()},
        optional=tuple(_ALL_SETTINGS),
    ),
    "Purged": opened({"purged_before": TIME}),
    "Published": opened({"id": reference("MessageId")}),
    "PublishedLine": {
        "oneOf": [
            opened({"id": reference("MessageId")}),
            opened({"problem": reference(LINE_PROBLEM)}),
        ]
    },
    "FetchedLine": _message({}),
    "PeekedLine": _message({"state": {"type": "string", "enum": list(STATES)}, "size": COUNT}),
    "Acks": closed(
        {
            "ids": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": BATCH_MESSAGES_MAX,
            }
        }
    ),
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
                    "due_in_s": {"const": 0},
                    "release": {"type": "boolean", "default": False},
                    "unhandled": {"type": "boolean"},
                },
                optional=("release",),
            ),
        ]
    },
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
                ("budget_bytes", "held_bytes", "ids", "hits", "misses", "refused", "queues_held"),
                COUNT,
            ),
            "holders": opened(
                {each.name.lower(): opened(of_dataclass(HolderFigures)) for each in Holder}
            ),
            "queues": {
                "type": "array",
                "maxItems": MEMORY_QUEUES_SHOWN_MAX,
                "items": opened(of_dataclass(ShelfFigures)),
            },
        }
    ),
    "Ready": opened({"ready": {"type": "boolean", "const": True}, **of_dataclass(Readiness)}),
}
