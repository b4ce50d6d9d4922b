"""What is said of `/-/consume`: its handshake, and the frames of both sides."""

from typing import Final

from mq.access.errors import Forbidden
from mq.http.openapi.described import Described, Success
from mq.http.openapi.schemas import (
    COUNT,
    NAMED_HEADERS,
    SIDELINED,
    TEXT,
    TIME,
    closed,
    opened,
    reference,
)
from mq.model.errors import (
    AlreadySideline,
    BadName,
    Busy,
    DeliveredAgain,
    MessageLeased,
    MessageNotFound,
    MqError,
    QueueExpired,
    QueueNotFound,
    SettingsUnreadable,
    SidelinePurged,
    TooManySelections,
    TooManyWaiters,
)
from mq.model.limits import (
    BATCH_MESSAGES_MAX,
    PRIORITY_MAX,
    RECEIVES_MAX,
    VISIBILITY_S_MAX,
    VISIBILITY_S_MIN,
)
from mq.protocol.consume.errors import (
    AlreadySubscribed,
    BadFrame,
    ForeignOrigin,
    NotSubscribed,
    NoWebSocket,
    TooManySubscriptions,
    TooMuchCredit,
)
from mq.protocol.consume.frames import Verb
from mq.protocol.consume.limits import CREDIT_MAX, REF_CHARS_MAX, REF_MAX, SUBSCRIPTIONS_MAX
from mq.protocol.query import Schema

FRAME_PROBLEM: Final = "FrameProblem"

RAISES: Final[tuple[type[MqError], ...]] = (
    BadFrame,
    Forbidden,
    BadName,
    QueueNotFound,
    QueueExpired,
    SettingsUnreadable,
    AlreadySubscribed,
    NotSubscribed,
    TooManySubscriptions,
    TooManySelections,
    TooManyWaiters,
    TooMuchCredit,
    MessageNotFound,
    MessageLeased,
    DeliveredAgain,
    AlreadySideline,
    SidelinePurged,
    Busy,
)
"""What an answer's frame may have as a problem, beside what the storage says and `bad-select`."""

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
    },
    optional=("priority", "credit", "visibility_s", "select"),
)  # fmt: skip
_RESULT: Final = opened(
    {
        "queue": TEXT,
        "id": TEXT,
        "status": {"type": "integer"},
        "problem": reference(FRAME_PROBLEM),
    },
    optional=("queue", "id", "problem"),
)
SCHEMAS: Final[dict[str, Schema]] = {
    "ConsumeCommand": {
        "oneOf": [
            _command("subscribe", _some(_SUBSCRIPTION, SUBSCRIPTIONS_MAX)),
            _command("unsubscribe", _some(TEXT, SUBSCRIPTIONS_MAX)),
            _command(
                "credit",
                {
                    "type": "object",
                    "additionalProperties": _whole(1, CREDIT_MAX),
                    "minProperties": 1,
                    "maxProperties": SUBSCRIPTIONS_MAX,
                },
            ),
            *(
                _command(verb.value, _some(TEXT, BATCH_MESSAGES_MAX))
                for verb in Verb
                if verb is not Verb.RELEASE
            ),
            closed(
                {
                    "release": _some(TEXT, BATCH_MESSAGES_MAX),
                    "unhandled": {"type": "boolean", "default": False},
                    "ref": _REF,
                },
                optional=("unhandled", "ref"),
            ),
            _command("begin", _some(TEXT, BATCH_MESSAGES_MAX, least=0)),
        ]
    },
    "ConsumeFrame": {
        "oneOf": [
            reference("ConsumedMessage"),
            opened({"ref": _REF, "results": {"type": "array", "items": _RESULT}}),
            opened({"ref": _REF, "problem": reference(FRAME_PROBLEM)}),
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
            "published": TIME,
            "due": TIME,
            "headers": NAMED_HEADERS,
            "sidelined": SIDELINED,
            "size": COUNT,
        },
        optional=("sidelined",),
    ),
}

DESCRIBED: Final = {
    ("GET", "/-/consume"): Described(
        "consume",
        "A WebSocket whose client takes messages of many queues.",
        (Success(101, "The connection is a WebSocket from here on."),),
        (NoWebSocket, ForeignOrigin),
        more="The client sends commands as text frames. The server sends a text frame for each "
        "message, then its body as one binary message; and text frames that answer commands.",
        is_stored=False,
        frames={
            "client": reference("ConsumeCommand"),
            "server": reference("ConsumeFrame"),
        },
    ),
}
