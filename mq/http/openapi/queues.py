"""What is said of the operations on a queue as a whole, and of the daemon's own."""

from typing import Final

from mq.http.openapi.described import JSON, MERGE_PATCH, Content, Described, Success, json_of
from mq.http.openapi.schemas import reference
from mq.model.errors import (
    BadSetting,
    Busy,
    NameTaken,
    QueueExpired,
    QueueNotFound,
    SettingsChanged,
    SettingsUnreadable,
    ShapeFixed,
    TooManyQueues,
    UnknownSetting,
)

_QUEUE: Final = {"queue": "$response.body#/name"}
_SETTINGS: Final = Success(
    200, "What is effective.", json_of(reference("Settings")), ("ETag", "Cache-Control")
)
_PATCH: Final = Content(reference("SettingsPatch"), example={"visibility_s": 60})

DESCRIBED: Final = {
    ("PUT", "/{queue}"): Described(
        "create_queue",
        "Makes a queue.",
        (
            Success(200, "It was there.", json_of(reference("Queue")), ("Location",), _QUEUE),
            Success(201, "It was made.", json_of(reference("Queue")), ("Location",), _QUEUE),
        ),
        (NameTaken, ShapeFixed, SettingsUnreadable, QueueExpired, TooManyQueues, Busy),
        more="A body is discarded.",
    ),
    ("GET", "/{queue}"): Described(
        "describe_queue",
        "Counts, totals and settings of a queue.",
        (Success(200, "The description.", json_of(reference("Description"))),),
        (QueueNotFound, SettingsUnreadable),
    ),
    ("DELETE", "/{queue}"): Described(
        "delete_queue",
        "Deletes a queue and its messages in every state.",
        (Success(200, "It is gone.", json_of(reference("Queue"))),),
        (QueueNotFound, Busy),
    ),
    ("DELETE", "/{queue}/messages"): Described(
        "purge_queue",
        "Has no message served any more that was published until now.",
        (Success(202, "Until when what was published is gone.", json_of(reference("Purged"))),),
        (QueueNotFound, Busy),
    ),
    ("GET", "/{queue}/settings"): Described(
        "read_settings",
        "A queue's settings.",
        (_SETTINGS,),
        (QueueNotFound, SettingsUnreadable),
    ),
    ("PATCH", "/{queue}/settings"): Described(
        "change_settings",
        "Changes a queue's settings, by a merge patch (RFC 7396).",
        (_SETTINGS,),
        (
            QueueNotFound,
            SettingsUnreadable,
            UnknownSetting,
            BadSetting,
            ShapeFixed,
            SettingsChanged,
            Busy,
        ),
        body={MERGE_PATCH: _PATCH, JSON: _PATCH},
    ),
    ("GET", "/"): Described(
        "read_root",
        "What this is, and the paths to go on with.",
        (Success(200, "An mq.", json_of(reference("Root"))),),
        is_stored=False,
    ),
    ("GET", "/-/livez"): Described(
        "livez",
        "Whether the daemon turns.",
        (Success(200, "It does.", json_of(reference("Alive"))),),
        is_stored=False,
    ),
    ("GET", "/-/readyz"): Described(
        "readyz",
        "Whether the daemon can store, and what it promises then.",
        (Success(200, "It can.", json_of(reference("Ready"))),),
    ),
    ("GET", "/-/memory"): Described(
        "read_memory",
        "What the process that answers holds in memory of messages, and for whom.",
        (Success(200, "It holds so much.", json_of(reference("Memory")), ("Cache-Control",)),),
        is_stored=False,
    ),
    ("GET", "/-/metrics"): Described(
        "read_metrics",
        "What all processes of this mq did and hold, for Prometheus.",
        (
            Success(
                200,
                "Samples, in the form that was asked for.",
                {
                    "text/plain": Content(),
                    "application/openmetrics-text": Content(),
                },
                ("Cache-Control",),
            ),
        ),
        is_stored=False,
    ),
    ("GET", "/-/openapi.json"): Described(
        "openapi",
        "This document.",
        (Success(200, "An OpenAPI document, version 3.1.", json_of({"type": "object"})),),
        is_stored=False,
    ),
}
