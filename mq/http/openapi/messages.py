"""Schemas of requests and answers about messages, schedules and the messages of WebSockets."""

from collections.abc import Mapping
from typing import Final

from mq.http.openapi.words import (
    BASE64,
    COUNT,
    HEADERS,
    ID,
    QUEUE,
    REASON,
    RECEIVES,
    STATE,
    TEXT,
    TIME,
    TRUTH,
    closed,
    listed,
    mapping,
    opened,
    perhaps,
    some,
    whole,
    word,
)
from mq.model.failure import FAILURE_BYTES_MAX, FAILURE_LINE_CHARS_MAX, FAILURES_MAX, NAMES
from mq.model.history import Event
from mq.model.limits import PRIORITY_MAX, RECEIVES_MAX, TAGS_MAX, VISIBILITY_S_MAX, VISIBILITY_S_MIN
from mq.protocol import batches
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
from mq.protocol.endpoints import ACK_PROBLEM, FRAME_PROBLEM, LINE_PROBLEM, SETTLE_PROBLEM
from mq.protocol.envelopes import DUE_IN_S_MAX
from mq.protocol.query import GROUP_SCHEMA, Schema, reference
from mq.store.history.read import HISTORY_EVENTS_MAX

LINE: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": FAILURE_LINE_CHARS_MAX}

SIDELINED: Final = opened({"reason": REASON, "at?": TIME})


_FACTS: Final[dict[str, Schema]] = {
    "id": ID,
    "receives": RECEIVES,
    "attempts?": RECEIVES,
    "published": TIME,
    "due": TIME,
    "headers": HEADERS,
    "sidelined?": SIDELINED,
    "group?": GROUP_SCHEMA,
    "reason?": LINE,
}


def _message(more: dict[str, Schema]) -> Schema:
    """A row of a message."""
    return opened({**_FACTS, "tags?": some(TEXT), **more, "body?": TEXT, "body_base64?": BASE64})


def _settling(members: Mapping[str, Schema], *needed: str) -> Schema:
    """The body of a request that settles many messages."""
    return closed({"messages": some(closed(perhaps(members, ("id", *needed))))})


def _without(members: Mapping[str, Schema], *names: str) -> dict[str, Schema]:
    return {name: each for name, each in members.items() if name not in names}


# DROPPED concerns no message.
_EVENT: Final[dict[str, Schema]] = {
    "time": TIME,
    "event": word(sorted({event.value for event in Event} - {Event.DROPPED.value})),
    "receives?": RECEIVES,
    "due?": TIME,
    "lease?": TEXT,
    "reason?": REASON,
    "tags?": listed(TEXT, TAGS_MAX),
    "process?": TEXT,
}


def _history(of: dict[str, Schema], event: dict[str, Schema]) -> Schema:
    events = listed(opened(event), HISTORY_EVENTS_MAX)
    return opened({**of, "recording": TRUTH, "left_out": COUNT, "events": events})


_RELEASE: Final[Schema] = {"type": "boolean", "default": False}

_DUE_IN_S: Final[Schema] = {"type": "number", "minimum": 0, "maximum": DUE_IN_S_MAX}

_REF: Final[Schema] = {
    "anyOf": [
        {"type": "string", "maxLength": REF_CHARS_MAX},
        whole(-REF_MAX, REF_MAX),
        {"type": "null"},
    ]
}


def _command(name: str, value: Schema, **more: Schema) -> Schema:
    return closed({name: value, **more, "ref?": _REF})


_SUBSCRIPTION: Final = closed(
    {
        "queue": TEXT,
        "priority?": {**whole(0, PRIORITY_MAX), "default": 0},
        "credit?": {**whole(0, CREDIT_MAX), "default": 1},
        "visibility_s?": {
            "type": "number", "minimum": VISIBILITY_S_MIN, "maximum": VISIBILITY_S_MAX,
        },
        "select?": TEXT,
        "packs?": {"type": "boolean", "default": False},
    }
)  # fmt: skip

_FOLLOW: Final = closed(
    {"queue": TEXT, "select?": TEXT, "last?": {**whole(0, LAST_MAX), "default": 0}}
)

_CREDIT: Final = mapping(whole(1, CREDIT_MAX), minProperties=1, maxProperties=SUBSCRIPTIONS_MAX)

_PREFETCHED: Final = closed({"queue": QUEUE, "id": ID, "receives": whole(1, RECEIVES_MAX)})

_RESULT: Final = opened(
    {
        "queue?": TEXT,
        "id?": TEXT,
        "status": {"type": "integer"},
        "problem?": reference(FRAME_PROBLEM),
    }
)

MESSAGES: Final[dict[str, Schema]] = {
    "Published": opened({"id": ID}),
    "PostedRow": closed(perhaps(batches.row_properties())),
    "PublishedLine": {"oneOf": [opened({"id": ID}), opened({"problem": reference(LINE_PROBLEM)})]},
    "FetchedLine": _message({}),
    "PeekedLine": _message({"state": STATE, "size": COUNT}),
    "Acks": {"oneOf": [closed({"ids": some(TEXT)}), _settling(batches.ACKED)]},
    "Acked": opened(
        {
            "results": listed(
                opened(
                    {"id": TEXT, "status": {"type": "integer"}, "problem?": reference(ACK_PROBLEM)}
                )
            )
        }
    ),
    "Extensions": _settling(batches.EXTENDED, "due_in_s"),
    "Releases": closed(
        {
            "messages": some(
                {
                    "oneOf": [
                        closed(perhaps({**batches.EXTENDED, "reason": FAILURE}, ("id",))),
                        closed(_without(batches.RELEASED, "due_in_s", "reason")),
                    ]
                }
            )
        }
    ),
    "Sidelines": _settling(batches.SIDELINED),
    "Settled": opened(
        {
            "results": listed(
                opened(
                    {
                        "id": TEXT,
                        "status": {"type": "integer"},
                        "problem?": reference(SETTLE_PROBLEM),
                        "due?": TIME,
                        "receives?": RECEIVES,
                        "queue?": QUEUE,
                        "reason?": REASON,
                    }
                )
            )
        }
    ),
    "Reschedule": {
        "oneOf": [
            closed({"due_in_s": _DUE_IN_S, "release?": _RELEASE}),
            closed({"due_in_s": _DUE_IN_S, "release": {"const": True}, "reason": FAILURE}),
            closed({"due_in_s": {"const": 0}, "release?": _RELEASE, "unhandled": TRUTH}),
        ]
    },
    "Sideline": closed({"reason?": FAILURE}),
    "Failures": opened(
        {
            "id": ID,
            "failures": listed(
                opened(
                    {
                        "time": TIME,
                        "event": {"enum": ["released", "sidelined"]},
                        "queue": QUEUE,
                        "id": ID,
                        "receives": RECEIVES,
                        **{
                            f"{name}?": {"type": "string", "maxLength": FAILURE_BYTES_MAX}
                            for name in sorted(NAMES)
                        },
                    }
                ),
                FAILURES_MAX,
            ),
        }
    ),
    "Rescheduled": opened({"id": ID, "due": TIME, "receives": RECEIVES}),
    "Sidelined": opened({"id": ID, "queue": QUEUE, "receives": RECEIVES, "reason": REASON}),
    "History": _history({"id": ID}, _EVENT),
    "TagHistory": _history({"tag": TEXT}, {"id": ID, **_EVENT}),
    "ConsumeCommand": {
        "oneOf": [
            _command("subscribe", some(_SUBSCRIPTION, SUBSCRIPTIONS_MAX)),
            _command("unsubscribe", some(TEXT, SUBSCRIPTIONS_MAX)),
            _command("follow", some(_FOLLOW, FOLLOWS_MAX)),
            _command("unfollow", some(TEXT, FOLLOWS_MAX)),
            _command("credit", _CREDIT),
            *(_command(verb.value, some(TEXT)) for verb in Verb),
            _command("release", some(TEXT), unhandled=TRUTH),
            _command("release", some(TEXT), reason=FAILURE),
            _command("sideline", some(TEXT), reason=FAILURE),
            _command("begin", some(TEXT, least=0)),
            _command("prefetched", some(_PREFETCHED)),
        ]
    },
    "ConsumeFrame": {
        "oneOf": [
            reference("ConsumedMessage"),
            opened({"ref": _REF, "results": listed(_RESULT)}),
            opened({"ref": _REF, "problem": reference(FRAME_PROBLEM)}),
            opened(
                {
                    "event": {"const": "message"},
                    "queue": QUEUE,
                    "dropped": COUNT,
                    "message": reference("PeekedLine"),
                }
            ),
            opened(
                {
                    "event": {"const": "unsubscribed"},
                    "queue": QUEUE,
                    "problem": reference(FRAME_PROBLEM),
                }
            ),
        ]
    },
    "ConsumedMessage": opened({"queue": QUEUE, **_FACTS, "size": COUNT}),
}
