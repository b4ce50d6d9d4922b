"""What is said of the operations on all queues of a root, and on those who do the upkeep."""

from typing import Final

from mq.http.openapi.described import Described, Success, json_of
from mq.http.openapi.schemas import (
    COUNT,
    TEXT,
    TIME,
    of_dataclass,
    of_type,
    opened,
    or_null,
    reference,
)
from mq.model.upkeep_limits import MEMBER_QUEUES_SHOWN_MAX, MEMBERS_SHOWN_MAX, QUEUES_LISTED_MAX
from mq.protocol.query import Schema
from mq.store.settings.registry import Refreshed

_NAME: Final = reference("QueueName")
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
    "Refreshed": opened(dict.fromkeys(of_dataclass(Refreshed), COUNT)),
}

DESCRIBED: Final = {
    ("GET", "/-/queues"): Described(
        "list_queues",
        "The queues that there are, in the order of their names.",
        (Success(200, "A page of them.", json_of(reference("Queues")), ("Cache-Control",)),),
    ),
    ("GET", "/-/members"): Described(
        "list_members",
        "The processes that share the upkeep of queues: what each told last of what it does.",
        (Success(200, "What they told.", json_of(reference("Members")), ("Cache-Control",)),),
    ),
    ("POST", "/-/refresh"): Described(
        "refresh",
        "Has every process of the root look at all queues now.",
        (
            Success(
                200, "What this one found.", json_of(reference("Refreshed")), ("Cache-Control",)
            ),
        ),
        more="A body is discarded.",
    ),
}
