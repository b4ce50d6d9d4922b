"""Schemas of requests and answers about queues, schedules, shovels, processes and the root."""

import re
from typing import Final

from mq.broker.accounts import Totals
from mq.broker.memory import MEMORY_QUEUES_SHOWN_MAX, Holder, HolderFigures, QueueFigures
from mq.broker.readiness import Readiness
from mq.http.openapi.words import (
    BASE64,
    COUNT,
    HEADERS,
    ID,
    NUMBER,
    QUEUE,
    RECEIVES,
    STATE,
    TEXT,
    TIME,
    TRUTH,
    UUID,
    closed,
    listed,
    mapping,
    of_dataclass,
    opened,
    or_null,
    perhaps,
    whole,
    word,
)
from mq.http.page.serving import assets
from mq.model.limits import PRIORITY_MAX, PROCESSES_MAX
from mq.model.names import ID_PATTERN, QUEUE_PATTERN, SCHEDULE_PATTERN, SIDELINE_PATTERN
from mq.model.setting_kinds import LABELS_MAX, Kind, Labels, SidelineName, Switch, Time, Word
from mq.model.settings import FIXED_SETTINGS, SETTINGS
from mq.model.shovel import RunState, Trigger, Why
from mq.model.totals import Total
from mq.model.trends import Range
from mq.protocol import schedules, sidelines
from mq.protocol.endpoints import SCHEDULE_PROBLEM
from mq.protocol.envelopes import PRIORITY, TAG, TTL, VISIBILITY
from mq.protocol.query import GROUP_SCHEMA, KEY_SCHEMA, Schema, reference
from mq.protocol.queues import (
    MEMBER_QUEUES_SHOWN_MAX,
    QUEUES_LISTED_MAX,
    SETTINGS_SAY,
    TREND_COUNTS,
    TREND_LEVELS,
)
from mq.store.members.files import MEMBERS_SHOWN_MAX
from mq.store.settings.registry import Refreshed


def _values(setting: Kind) -> Schema:
    if isinstance(setting, Switch):
        return TRUTH
    if isinstance(setting, Word):
        return word(setting.words)
    if isinstance(setting, Time):
        return TIME
    if isinstance(setting, SidelineName):
        return {"type": "string", "pattern": f"^{SIDELINE_PATTERN}$"}
    if isinstance(setting, Labels):
        return mapping(TEXT, maxProperties=LABELS_MAX)
    kind = "integer" if setting.is_whole else "number"
    return {"type": kind, "minimum": setting.least, "maximum": setting.most}


def _setting(name: str, setting: Kind) -> Schema:
    return {**_values(setting), "description": SETTINGS_SAY[name]}


def _effective(name: str, setting: Kind) -> Schema:
    """A setting in an answer: a time, or a name, that is not set is null."""
    schema = _setting(name, setting)
    if name in FIXED_SETTINGS:
        return {**schema, "readOnly": True}
    return or_null(schema) if isinstance(setting, Time | SidelineName) else schema


_ALL_SETTINGS: Final = {**SETTINGS, **FIXED_SETTINGS}

_FIGURES: Final = (
    "ready", "delayed", "in_flight", "overdue", "removed", "leased", "sidelined", "foreign",
)  # fmt: skip

_PROCESS_INDEX: Final[Schema] = {**COUNT, "maximum": PROCESSES_MAX - 1}

_SCHEDULE: Final[dict[str, Schema]] = {
    "name": reference("ScheduleName"),
    f"{schedules.EVERY.name}?": {"type": "number"},
    f"{schedules.DELAY.name}?": {"type": ["number", "null"]},
    "cron?": TEXT,
    "tz?": TEXT,
    "next": or_null(TIME),
    "fired": COUNT,
    "skipped": COUNT,
    "last": or_null(ID),
    "waiting": TRUTH,
    "count": or_null(schedules.COUNT.schema),
    "until": or_null(TIME),
    "overlap": word(schedules.OVERLAP.words),
    "after": word(schedules.AFTER.words),
    "misfire": word(schedules.MISFIRE.words),
    "priority": or_null(PRIORITY.schema),
    "key": or_null(TEXT),
    "visibility": or_null(VISIBILITY.schema),
    "ttl": or_null(TTL.schema),
    "group": or_null(GROUP_SCHEMA),
    "tags": TAG.schema,
    "size": COUNT,
    "headers": HEADERS,
}

_CRITERIA: Final[dict[str, Schema]] = {
    "ids": COUNT,
    "limit": sidelines.LIMIT.schema,
    "older_than_s": NUMBER,
    "key": TEXT,
    "priority": TEXT,
    "max_receives": sidelines.MAX_RECEIVES.schema,
}

_RUN: Final[dict[str, Schema]] = {
    "id": UUID,
    "by": word(each.value for each in Trigger),
    "dry_run": TRUTH,
    "criteria": opened(perhaps(_CRITERIA)),
    "rate": or_null(sidelines.RATE.schema),
    "concurrency": {"type": "integer", "minimum": 1},
    "began": TIME,
    "ended": or_null(TIME),
    "looked_at": COUNT,
    "moved": COUNT,
    # What has gone by itself is not reported.
    "stayed": {
        "type": "object",
        "propertyNames": {"enum": [each.value for each in Why if each is not Why.GONE]},
        "additionalProperties": COUNT,
    },
    "failed": COUNT,
    "error": or_null(TEXT),
    "into": QUEUE,
}

_TREND_LEVELS: Final = {**dict.fromkeys(TREND_LEVELS, COUNT), "oldest_ready_age_s": NUMBER}

_ACTED: Final = opened(
    {
        **dict.fromkeys(("turns", "acted", "failed"), COUNT),
        **dict.fromkeys(("last", "next"), or_null(TIME)),
    }
)

_EXAMPLE_ID: Final = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab.json"

QUEUES: Final[dict[str, Schema]] = {
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
    "Queue": opened({"name": QUEUE}),
    "Description": opened(
        {
            "name": QUEUE,
            **dict.fromkeys(_FIGURES, COUNT),
            "oldest_ready_age_s": {"type": ["number", "null"], "minimum": 0},
            "expired": TRUTH,
            "totals": reference("Totals"),
            "lifetime": reference("Lifetime"),
            "process": opened({"index": _PROCESS_INDEX, "of": whole(1, PROCESSES_MAX)}),
            "as_of": opened(dict.fromkeys((*_FIGURES, "oldest_ready_age_s", "totals"), TIME)),
            "settings": reference("Settings"),
        }
    ),
    "Totals": opened(dict.fromkeys(of_dataclass(Totals), COUNT)),
    "Lifetime": opened({each.value: COUNT for each in Total}),
    "Settings": opened({name: _effective(name, each) for name, each in _ALL_SETTINGS.items()}),
    "SettingsPatch": closed(
        perhaps({name: or_null(_setting(name, each)) for name, each in _ALL_SETTINGS.items()})
    ),
    "Tagged": opened(
        {
            "entries": COUNT,
            "messages": listed(opened({"id": ID, "state": STATE})),
            "after": or_null(TEXT),
        }
    ),
    "DoneTagged": opened({"done": COUNT, "failed": COUNT, "after": or_null(TEXT)}),
    "Purged": opened({"purged_before": TIME}),
    "ScheduleName": {
        "type": "string",
        "pattern": f"^(?:{SCHEDULE_PATTERN})$",
        "description": "A schedule's name.",
        "examples": ["nightly"],
    },
    "Schedule": opened({**_SCHEDULE, "body?": TEXT, "body_base64?": BASE64}),
    "ListedSchedule": {
        "oneOf": [
            opened(_SCHEDULE),
            opened({"name": reference("ScheduleName"), "problem": reference(SCHEDULE_PROBLEM)}),
        ]
    },
    "Groups": opened(
        {
            "groups": listed(
                opened(
                    {
                        "group?": GROUP_SCHEMA,
                        "id": ID,
                        "state": word(("ready", "delayed", "leased")),
                        "receives": RECEIVES,
                        "due": TIME,
                        "since": TIME,
                    }
                )
            )
        }
    ),
    "Schedules": opened({"schedules": listed(reference("ListedSchedule"))}),
    "NamedSchedule": opened({"name": reference("ScheduleName")}),
    "Shovel": opened(
        {
            "queue": QUEUE,
            "state": word((*(each.value for each in RunState), sidelines.SCHEDULED)),
            **perhaps(_RUN),
            "interval_s": or_null(NUMBER),
            "next": or_null(TIME),
        }
    ),
    "BegunShovel": opened({"id": UUID}),
    "Root": opened(
        {
            "name": {"type": "string", "const": "mq"},
            **dict.fromkeys(("version", "page", "openapi", "livez", "readyz"), TEXT),
        }
    ),
    "Alive": opened({"alive": {"type": "boolean", "const": True}}),
    "Memory": opened(
        {
            "process": _PROCESS_INDEX,
            **dict.fromkeys(
                (
                    *("budget_bytes", "held_bytes", "ids", "hits", "misses", "evicted"),
                    *("refused", "queues_held"),
                ),
                COUNT,
            ),
            "holders": opened(
                {each.name.lower(): opened(of_dataclass(HolderFigures)) for each in Holder}
            ),
            "queues": listed(opened(of_dataclass(QueueFigures)), MEMORY_QUEUES_SHOWN_MAX),
        }
    ),
    "Ready": opened({"ready": {"type": "boolean", "const": True}, **of_dataclass(Readiness)}),
    "Queues": opened(
        {
            "queues": listed(opened({"name": QUEUE, "sideline": TRUTH}), QUEUES_LISTED_MAX),
            "next": or_null(QUEUE),
        }
    ),
    "Trends": opened(
        {
            "range": word(Range),
            "step_s": COUNT,
            "queue": or_null(QUEUE),
            "points": listed(
                opened(
                    {
                        "time": TIME,
                        "seconds": NUMBER,
                        **dict.fromkeys(TREND_COUNTS, COUNT),
                        **_TREND_LEVELS,
                    }
                ),
                max(each.points_max for each in Range),
            ),
            "last?": or_null(
                opened({"time": TIME, "queues": COUNT, "uncounted": COUNT, **_TREND_LEVELS})
            ),
        }
    ),
    "Members": opened(
        {
            "leader": or_null(TEXT),
            "members": listed(reference("Member"), MEMBERS_SHOWN_MAX),
            "assigned?": mapping(or_null(TEXT)),
        }
    ),
    "Member": opened(
        {
            "member": TEXT,
            "host": TEXT,
            "pid": COUNT,
            "started": TIME,
            "told": TIME,
            "gone": TRUTH,
            "coordinator": TEXT,
            "leads": TRUTH,
            "connected": TRUTH,
            "queues": opened({"count": COUNT, "names": listed(QUEUE, MEMBER_QUEUES_SHOWN_MAX)}),
            "policies": mapping(_ACTED),
            "redelivery": mapping(COUNT),
        }
    ),
    "ConsumerId": {"type": "string", "minLength": 1},
    "Consumers": opened({"consumers": listed(reference("Consumer")), "complete": TRUTH}),
    "Consumer": opened(
        {
            "id": reference("ConsumerId"),
            "process": COUNT,
            "via": word(("websocket", "poll")),
            "address": TEXT,
            "caller": or_null(TEXT),
            "since": TIME,
            "active": TRUTH,
            "priority": whole(0, PRIORITY_MAX),
            "credit": COUNT,
            "in_flight": COUNT,
            "delivered": COUNT,
            "deliveries_per_s": NUMBER,
            "select": or_null(TEXT),
        }
    ),
    "EndedConsumer": opened({"id": reference("ConsumerId")}),
    "Refreshed": opened(dict.fromkeys(of_dataclass(Refreshed), COUNT)),
    "AssetName": word(assets()),
}
