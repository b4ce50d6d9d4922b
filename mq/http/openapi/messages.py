"""What is said of the operations on messages."""

from typing import Final

from mq.http.openapi.described import (
    ANY,
    JSON,
    MERGE_PATCH,
    MESSAGE_HEADERS,
    Content,
    Described,
    Success,
    json_of,
    rows_of,
)
from mq.http.openapi.schemas import ACK_PROBLEM, LINE_PROBLEM, reference
from mq.model.errors import (
    AlreadySideline,
    BadName,
    BatchTooLarge,
    BodyTooLarge,
    Busy,
    DeliveredAgain,
    DueTooFar,
    KeyNotFound,
    KeyTaken,
    MessageLeased,
    MessageNotFound,
    MqError,
    PublishPurged,
    QueueExpired,
    QueueNotFound,
    RangeUnsatisfiable,
    SettingsUnreadable,
    SidelinePurged,
    StagedFileGone,
    TooManySelections,
    TooManyWaiters,
)

_BYTES: Final = {ANY: Content()}
_QUEUE: Final = "$request.path.queue"
_BY_HEADER: Final = {"queue": _QUEUE, "id": "$response.header.X-Message-Id"}
_NOTHING: Final = Success(204, "There is nothing to fetch.", headers=("Cache-Control",))
_REMOVED: Final = Success(202, "It is gone for good, or was before.")
_READ_HEADERS: Final = (*MESSAGE_HEADERS, "X-Message-State", "Accept-Ranges")
_READ: Final = (
    Success(200, "The message, whole.", _BYTES, _READ_HEADERS, _BY_HEADER),
    Success(206, "A range of it.", _BYTES, (*_READ_HEADERS, "Content-Range")),
)
_DUE_IN: Final = Content(reference("Reschedule"), example={"due_in_s": 60})

ITEMS: Final[dict[str, tuple[type[MqError], ...]]] = {
    LINE_PROBLEM: (
        BodyTooLarge,
        DueTooFar,
        QueueExpired,
        SettingsUnreadable,
        StagedFileGone,
        PublishPurged,
        Busy,
    ),
    ACK_PROBLEM: (BadName, MessageNotFound, SettingsUnreadable, Busy),
}
"""What an item of an answer may have as its problem, beside what the storage says."""

DESCRIBED: Final = {
    ("POST", "/{queue}/messages"): Described(
        "publish",
        "Publishes the body as a message, or each of its lines as one.",
        (
            Success(
                200,
                "With `split`: a line for each line of the body.",
                rows_of("PublishedLine"),
                ("Cache-Control",),
            ),
            Success(
                201,
                "The message is on stable media.",
                json_of(reference("Published")),
                ("X-Message-Id", "Location"),
                _BY_HEADER,
            ),
        ),
        (
            QueueNotFound,
            QueueExpired,
            SettingsUnreadable,
            KeyTaken,
            BatchTooLarge,
            DueTooFar,
            StagedFileGone,
            PublishPurged,
            Busy,
        ),
        body=_BYTES,
        body_is_required=False,
        more="The headers Content-Type, Content-Encoding, ce-*, traceparent, tracestate and "
        "x-attribute-* come back with the message. With `split`, a `key` or an `Idempotency-Key` "
        "is refused: it would be one message's.",
    ),
    ("GET", "/{queue}/messages"): Described(
        "fetch",
        "Fetches the next message, or several, and hides them for their visibility.",
        (
            Success(
                200,
                "The message, with the headers that it was published with; with `count`, a line "
                "for each.",
                {**_BYTES, **rows_of("FetchedLine")},
                ("Cache-Control", "Cross-Origin-Resource-Policy"),
                _BY_HEADER,
            ),
            _NOTHING,
        ),
        (QueueNotFound, QueueExpired, SettingsUnreadable, TooManySelections, TooManyWaiters, Busy),
    ),
    ("POST", "/{queue}/acks"): Described(
        "acknowledge",
        "Deletes many messages.",
        (Success(200, "A result for each, in their order.", json_of(reference("Acked"))),),
        (QueueNotFound, SettingsUnreadable),
        body={
            JSON: Content(
                reference("Acks"), example={"ids": ["0192f3a2-7c4e-7d2a-9b1e-0123456789ab"]}
            ),
            MERGE_PATCH: Content(reference("Acks")),
        },
    ),
    ("GET", "/{queue}/messages/{id}"): Described(
        "read_message",
        "Reads a message, which is not consumed.",
        _READ,
        (QueueNotFound, SettingsUnreadable, MessageNotFound, RangeUnsatisfiable, Busy),
    ),
    ("GET", "/{queue}/messages/{id}/history"): Described(
        "read_history",
        "What became of a message, where the queue's setting has it recorded.",
        (Success(200, "Its events, by time.", json_of(reference("History")), ("Cache-Control",)),),
        (QueueNotFound, SettingsUnreadable, MessageNotFound),
    ),
    ("PATCH", "/{queue}/messages/{id}"): Described(
        "reschedule",
        "Has a message become due at another time: extends, releases or delays it.",
        (
            Success(
                200,
                "Its new due time.",
                json_of(reference("Rescheduled")),
                ("ETag",),
                {"queue": _QUEUE, "id": "$response.body#/id"},
            ),
        ),
        (
            QueueNotFound,
            SettingsUnreadable,
            MessageNotFound,
            MessageLeased,
            DeliveredAgain,
            DueTooFar,
            Busy,
        ),
        body={JSON: _DUE_IN, MERGE_PATCH: _DUE_IN},
    ),
    ("POST", "/{queue}/messages/{id}/sideline"): Described(
        "sideline_message",
        "Moves a message to its queue's sideline, `{queue}_SIDELINE`, which is made where needed.",
        (
            Success(
                200,
                "It is there, now or since before.",
                json_of(reference("Sidelined")),
                ("ETag", "Location"),
                {"queue": "$response.body#/queue", "id": "$response.body#/id"},
            ),
        ),
        (
            AlreadySideline,
            QueueNotFound,
            SettingsUnreadable,
            MessageNotFound,
            MessageLeased,
            DeliveredAgain,
            SidelinePurged,
            Busy,
        ),
    ),
    ("DELETE", "/{queue}/messages/{id}"): Described(
        "delete_message",
        "Deletes a message.",
        (_REMOVED,),
        (QueueNotFound, SettingsUnreadable, MessageNotFound, DeliveredAgain, Busy),
    ),
    ("GET", "/{queue}/peek"): Described(
        "peek",
        "Shows messages in order, none of which is consumed.",
        (
            Success(
                200,
                "A line for each message of the page.",
                rows_of("PeekedLine"),
                ("Cache-Control", "Cross-Origin-Resource-Policy", "X-Content-Type-Options"),
            ),
        ),
        (QueueNotFound, SettingsUnreadable, Busy),
    ),
    ("GET", "/{queue}/keys/{key}"): Described(
        "read_by_key",
        "Reads the message that has a lookup key.",
        _READ,
        (QueueNotFound, SettingsUnreadable, KeyNotFound, RangeUnsatisfiable, Busy),
    ),
    ("DELETE", "/{queue}/keys/{key}"): Described(
        "delete_by_key",
        "Deletes the message that has a lookup key.",
        (_REMOVED,),
        (QueueNotFound, SettingsUnreadable, KeyNotFound, DeliveredAgain, Busy),
    ),
}
