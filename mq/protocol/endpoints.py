"""Every endpoint, each declared once. Pure.

`mq.http.dispatcher` binds a handler to each by its name. The named schemas are in
`mq.http.openapi`.
"""

from collections.abc import Mapping
from typing import Final

from mq import __version__
from mq.access.callers import Needs, Right
from mq.access.errors import Forbidden
from mq.model.errors import (
    AlreadySideline,
    AlreadySubscribed,
    BadBody,
    BadFrame,
    BadName,
    BadParameter,
    BadSetting,
    BatchTooLarge,
    BodyTooLarge,
    Busy,
    ConsumerEnded,
    ConsumerNotFound,
    DeliveredAgain,
    DueTooFar,
    ForeignOrigin,
    HeadersTooLarge,
    KeyNotFound,
    KeyTaken,
    MessageLeased,
    MessageNotFound,
    NameTaken,
    NotPacked,
    NotSubscribed,
    NoWebSocket,
    PublishDiffers,
    PublishPurged,
    QueueExpired,
    QueueFull,
    QueueNotFound,
    QueuePaused,
    RangeUnsatisfiable,
    ScheduleNotFound,
    ScheduleUnreadable,
    SettingsChanged,
    SettingsUnreadable,
    ShapeFixed,
    ShovelNotFound,
    ShovelRunning,
    SidelinePurged,
    StagedFileGone,
    TooManyQueues,
    TooManySchedules,
    TooManySelections,
    TooManyShovels,
    TooManySubscriptions,
    TooManyWaiters,
    TooMuchCredit,
    UnknownField,
    UnknownSetting,
)
from mq.protocol import bodies, envelopes, fetching, queues, schedules, sidelines
from mq.protocol.conditions import IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE
from mq.protocol.endpoint import (
    ANY,
    JSON,
    MERGE_PATCH,
    STORAGE,
    Answer,
    Content,
    Endpoint,
    json_of,
    rows_of,
)
from mq.protocol.query import reference

ABOUT: Final = {
    "name": "mq",
    "version": __version__,
    "page": "/-/",
    "openapi": "/-/openapi.json",
    "livez": "/-/livez",
    "readyz": "/-/readyz",
}
"""The answer of `/`."""

LINE_PROBLEM: Final = "LineProblem"
ACK_PROBLEM: Final = "AckProblem"
SETTLE_PROBLEM: Final = "SettleProblem"
SCHEDULE_PROBLEM: Final = "ScheduleProblem"
FRAME_PROBLEM: Final = "FrameProblem"

_NO_STORE: Final = ("Cache-Control",)
_BYTES: Final = {ANY: Content()}
_MADE: Final = {"queue": "$response.body#/name"}
_QUEUE: Final = "$request.path.queue"
_BY_HEADER: Final = {"queue": _QUEUE, "id": "$response.header.X-Message-Id"}
_REMOVED: Final = Answer(202, "The message is deleted, by this request or an earlier one.")
_READ_HEADERS: Final = (
    "X-Message-Id",
    "X-Message-Receives",
    "X-Message-Attempts",
    "X-Message-Published",
    "X-Message-Due",
    "X-Message-Sidelined",
    "X-Message-Reason",
    "X-Message-Schedule",
    "X-Message-Group",
    "X-Message-Tags",
    "ETag",
    "Cache-Control",
    "Content-Security-Policy",
    "Cross-Origin-Resource-Policy",
    "X-Content-Type-Options",
    "X-Message-State",
    "Accept-Ranges",
)
_READ: Final = (
    Answer(200, "The message.", _BYTES, _READ_HEADERS, _BY_HEADER),
    Answer(206, "The range of its body.", _BYTES, (*_READ_HEADERS, "Content-Range")),
)
_OF_A_QUEUE: Final = (QueueNotFound, SettingsUnreadable)
_SETTINGS: Final = Answer(
    200, "The effective settings.", json_of("Settings"), ("ETag", "Cache-Control")
)
_PATCH: Final = Content(reference("SettingsPatch"), example={"visibility_s": 60})
_WHY: Final = Content(reference("Sideline"), example={"reason": "no such customer"})
_DUE_IN: Final = Content(reference("Reschedule"), example={"due_in_s": 60})
_ID: Final = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"
_ACKS: Final = {"ids": [_ID]}
_SETTLE_PROBLEMS: Final = {
    SETTLE_PROBLEM: (
        *(BadName, MessageNotFound, MessageLeased, DeliveredAgain, DueTooFar, SidelinePurged),
        *(SettingsUnreadable, Busy, *STORAGE),
    )
}
_SCHEDULE_HEADERS: Final = ("Location", "Cache-Control")
_SCHEDULE: Final = {"queue": _QUEUE, "schedule": "$response.body#/name"}
_PAGE_HEADERS: Final = ("Cache-Control", "ETag", "X-Content-Type-Options")
_KNOWN: Final = Answer(304, "The client has the current version.", headers=_PAGE_HEADERS)


def _settling(name: str, example: object) -> dict[str, Content]:
    """The body of a request that settles many messages."""
    return {JSON: Content(reference(name), example=example), MERGE_PATCH: Content(reference(name))}


_DECLARED: Final = (
    Endpoint(
        "create_queue",
        "PUT /{queue}",
        "Creates a queue. Creating it again answers 200.",
        parameters=(queues.DIGITS, queues.SHARDS),
        answers=(
            Answer(200, "The queue existed.", json_of("Queue"), ("Location",), _MADE),
            Answer(201, "The queue is created.", json_of("Queue"), ("Location",), _MADE),
        ),
        problems=(NameTaken, ShapeFixed, SettingsUnreadable, QueueExpired, TooManyQueues, Busy),
    ),
    Endpoint(
        "describe_queue",
        "GET HEAD /{queue}",
        "Describes a queue: counts, totals and settings.",
        right=Needs.ANY,
        answers=(Answer(200, "The description.", json_of("Description")),),
        problems=_OF_A_QUEUE,
    ),
    Endpoint(
        "delete_queue",
        "DELETE /{queue}",
        "Deletes a queue and its messages in every state.",
        answers=(Answer(200, "The queue is deleted.", json_of("Queue")),),
        problems=(QueueNotFound, Busy),
    ),
    Endpoint(
        "publish",
        "POST /{queue}/messages",
        "Publishes a message, or a batch of messages with `split`.",
        more="The body is the message.",
        right=Right.PUBLISH,
        parameters=(*envelopes.ATTRIBUTES.values(), bodies.SPLIT, bodies.PACK),
        headers=(envelopes.IDEMPOTENCY,),
        body={**_BYTES, **rows_of("PostedRow")},
        body_is_required=False,
        messaging=("publish", "send"),
        answers=(
            Answer(
                200,
                "With `split`: a row for each line of the body.",
                rows_of("PublishedLine"),
                _NO_STORE,
            ),
            Answer(
                201,
                "The message is on stable media.",
                json_of("Published"),
                ("X-Message-Id", "Location"),
                _BY_HEADER,
            ),
        ),
        problems=(
            QueueNotFound,
            QueueExpired,
            QueuePaused,
            QueueFull,
            SettingsUnreadable,
            KeyTaken,
            NotPacked,
            PublishDiffers,
            BadBody,
            UnknownField,
            BatchTooLarge,
            DueTooFar,
            StagedFileGone,
            PublishPurged,
            Busy,
        ),
        items={
            LINE_PROBLEM: (
                BadBody,
                BadParameter,
                BodyTooLarge,
                HeadersTooLarge,
                KeyTaken,
                UnknownField,
                DueTooFar,
                QueueExpired,
                QueuePaused,
                QueueFull,
                SettingsUnreadable,
                StagedFileGone,
                PublishPurged,
                Busy,
                *STORAGE,
            )
        },
    ),
    Endpoint(
        "fetch",
        "GET /{queue}/messages",
        "Fetches the next messages, and hides them for the visibility timeout.",
        right=Right.CONSUME,
        # A fetch takes messages from others.
        changes=True,
        parameters=(
            *(fetching.WAIT, fetching.VISIBILITY, fetching.COUNT, fetching.SELECT),
            fetching.CONSUMER_PRIORITY,
            fetching.CONSUMER,
            fetching.PACKS,
        ),
        headers=(fetching.PREFER,),
        messaging=("fetch", "receive"),
        answers=(
            Answer(
                200,
                "The message; with `count`, a row for each.",
                {**_BYTES, **rows_of("FetchedLine")},
                ("Cache-Control", "Cross-Origin-Resource-Policy"),
                _BY_HEADER,
            ),
            Answer(204, "No message is ready, or became ready within `wait`.", headers=_NO_STORE),
        ),
        problems=(
            QueueNotFound,
            QueueExpired,
            SettingsUnreadable,
            TooManySelections,
            TooManyWaiters,
            ConsumerEnded,
            Busy,
        ),
    ),
    Endpoint(
        "purge_queue",
        "DELETE /{queue}/messages",
        "Purges a queue: deletes all messages published until now.",
        answers=(Answer(202, "The time up to which messages are purged.", json_of("Purged")),),
        problems=(QueueNotFound, Busy),
    ),
    Endpoint(
        "acknowledge",
        "POST /{queue}/acks",
        "Acknowledges many messages: deletes them.",
        right=Right.CONSUME,
        body=_settling("Acks", _ACKS),
        messaging=("ack", "settle"),
        answers=(Answer(200, "A result for each id, in order.", json_of("Acked")),),
        problems=(*_OF_A_QUEUE, UnknownField),
        items={
            ACK_PROBLEM: (
                *(BadName, MessageNotFound, MessageLeased, DeliveredAgain),
                *(SettingsUnreadable, Busy, *STORAGE),
            )
        },
    ),
    Endpoint(
        "extend_messages",
        "POST /{queue}/extensions",
        "Extends the visibility timeouts of many messages, or delays messages.",
        right=Right.CONSUME,
        body=_settling("Extensions", {"messages": [{"id": _ID, "due_in_s": 60}]}),
        messaging=("extend", "settle"),
        answers=(Answer(200, "A result for each message, in order.", json_of("Settled")),),
        problems=(*_OF_A_QUEUE, UnknownField),
        items=_SETTLE_PROBLEMS,
    ),
    Endpoint(
        "release_messages",
        "POST /{queue}/releases",
        "Releases many messages (nack, requeue): gives them back for a retry.",
        right=Right.CONSUME,
        body=_settling("Releases", {"messages": [{"id": _ID, "receives": 1, "unhandled": True}]}),
        messaging=("release", "settle"),
        answers=(Answer(200, "A result for each message, in order.", json_of("Settled")),),
        problems=(*_OF_A_QUEUE, UnknownField),
        items=_SETTLE_PROBLEMS,
    ),
    Endpoint(
        "sideline_messages",
        "POST /{queue}/sidelines",
        "Moves many messages to the sideline (dead-letter queue).",
        right=Right.CONSUME,
        body=_settling("Sidelines", {"messages": [{"id": _ID, "reason": "exception"}]}),
        messaging=("sideline", "settle"),
        answers=(Answer(200, "A result for each message, in order.", json_of("Settled")),),
        problems=(AlreadySideline, *_OF_A_QUEUE, UnknownField),
        items=_SETTLE_PROBLEMS,
    ),
    Endpoint(
        "read_message",
        "GET HEAD /{queue}/messages/{id}",
        "Reads a message in any state without consuming it.",
        right=Right.CONSUME,
        headers=(RANGE, IF_RANGE),
        answers=_READ,
        problems=(*_OF_A_QUEUE, MessageNotFound, RangeUnsatisfiable, Busy),
    ),
    Endpoint(
        "reschedule",
        "PATCH /{queue}/messages/{id}",
        "Changes when a message is due: extends its visibility timeout, releases or delays it.",
        right=Right.CONSUME,
        headers=(IF_MATCH,),
        body={JSON: _DUE_IN, MERGE_PATCH: _DUE_IN},
        messaging=("reschedule", "settle"),
        answers=(
            Answer(
                200,
                "Its new due time.",
                json_of("Rescheduled"),
                ("ETag",),
                {"queue": _QUEUE, "id": "$response.body#/id"},
            ),
        ),
        problems=(*_OF_A_QUEUE, MessageNotFound, MessageLeased, DeliveredAgain, DueTooFar, Busy),
    ),
    Endpoint(
        "delete_message",
        "DELETE /{queue}/messages/{id}",
        "Deletes a message: acknowledges it if it was fetched.",
        right=Right.CONSUME,
        headers=(IF_MATCH,),
        messaging=("delete", "settle"),
        answers=(_REMOVED,),
        problems=(*_OF_A_QUEUE, MessageNotFound, MessageLeased, DeliveredAgain, Busy),
    ),
    Endpoint(
        "sideline_message",
        "POST /{queue}/messages/{id}/sideline",
        "Moves a message to the sideline (dead-letter queue).",
        # A consumer that may delete a message may sideline it.
        right=Right.CONSUME,
        parameters=(sidelines.REASON,),
        headers=(IF_MATCH,),
        body={JSON: _WHY, MERGE_PATCH: _WHY},
        body_is_required=False,
        messaging=("sideline", "settle"),
        answers=(
            Answer(
                200,
                "The message is in the sideline, by this request or an earlier one.",
                json_of("Sidelined"),
                ("ETag", "Location"),
                {"queue": "$response.body#/queue", "id": "$response.body#/id"},
            ),
        ),
        problems=(
            AlreadySideline,
            *_OF_A_QUEUE,
            MessageNotFound,
            MessageLeased,
            DeliveredAgain,
            SidelinePurged,
            Busy,
        ),
    ),
    Endpoint(
        "read_history",
        "GET HEAD /{queue}/messages/{id}/history",
        "Reads a message's events, recorded while the setting `history` is true.",
        right=Right.CONSUME,
        answers=(Answer(200, "The events, by time.", json_of("History"), _NO_STORE),),
        problems=(*_OF_A_QUEUE, MessageNotFound),
    ),
    Endpoint(
        "read_failures",
        "GET HEAD /{queue}/messages/{id}/failures",
        "Reads why consumers released or sidelined a message: the newest five reasons.",
        right=Right.CONSUME,
        answers=(Answer(200, "The failures, newest last.", json_of("Failures"), _NO_STORE),),
        problems=(*_OF_A_QUEUE, MessageNotFound, Busy),
    ),
    Endpoint(
        "peek",
        "GET /{queue}/peek",
        "Lists messages without consuming them.",
        right=Right.CONSUME,
        parameters=(
            *(fetching.STATE, fetching.PEEK_COUNT, fetching.PEEK_AFTER),
            *(fetching.PEEK_SELECT, fetching.PEEK_TAG),
        ),
        answers=(
            Answer(
                200,
                "A row for each message.",
                rows_of("PeekedLine"),
                (
                    *("Cache-Control", "Cross-Origin-Resource-Policy", "X-Content-Type-Options"),
                    "X-Peek-After",
                ),
            ),
        ),
        problems=(*_OF_A_QUEUE, Busy),
    ),
    Endpoint(
        "list_consumers",
        "GET /{queue}/consumers",
        "Lists a queue's consumers and long polls, in all processes of this mq.",
        right=Right.CONSUME,
        answers=(Answer(200, "The consumers, oldest first.", json_of("Consumers"), _NO_STORE),),
        problems=_OF_A_QUEUE,
    ),
    Endpoint(
        "end_consumer",
        "DELETE /{queue}/consumers/{consumer}",
        "Ends a consumer or a long poll, and releases its messages of this queue.",
        more="The consumer gets the problem `consumer-ended`.",
        answers=(Answer(200, "The consumer has ended.", json_of("EndedConsumer")),),
        problems=(*_OF_A_QUEUE, ConsumerNotFound),
    ),
    Endpoint(
        "list_groups",
        "GET /{queue}/groups",
        "Lists the groups that wait for a fetched message, the longest wait first.",
        right=Right.CONSUME,
        parameters=(fetching.GROUP_COUNT,),
        answers=(Answer(200, "The groups.", json_of("Groups"), _NO_STORE),),
        problems=(QueueNotFound,),
    ),
    Endpoint(
        "read_by_key",
        "GET HEAD /{queue}/keys/{key}",
        "Reads the message with a lookup key.",
        right=Right.CONSUME,
        headers=(RANGE, IF_RANGE),
        answers=_READ,
        problems=(*_OF_A_QUEUE, KeyNotFound, RangeUnsatisfiable, Busy),
    ),
    Endpoint(
        "delete_by_key",
        "DELETE /{queue}/keys/{key}",
        "Deletes the message with a lookup key.",
        right=Right.CONSUME,
        headers=(IF_MATCH,),
        messaging=("delete", "settle"),
        answers=(_REMOVED,),
        problems=(*_OF_A_QUEUE, KeyNotFound, DeliveredAgain, Busy),
    ),
    Endpoint(
        "list_tagged",
        "GET /{queue}/tags/{tag}",
        "Lists the messages with a tag, by id.",
        right=Right.CONSUME,
        parameters=(fetching.PEEK_COUNT, fetching.TAG_AFTER),
        answers=(Answer(200, "A page of messages.", json_of("Tagged"), _NO_STORE),),
        problems=(*_OF_A_QUEUE, Busy),
    ),
    Endpoint(
        "delete_tagged",
        "DELETE /{queue}/tags/{tag}",
        "Deletes the messages with a tag, at most 1000 a request.",
        right=Right.CONSUME,
        parameters=(fetching.TAG_AFTER,),
        messaging=("delete", "settle"),
        answers=(Answer(200, "The counts, and the next `after`.", json_of("DoneTagged")),),
        problems=(*_OF_A_QUEUE, Busy),
    ),
    Endpoint(
        "sideline_tagged",
        "POST /{queue}/tags/{tag}/sideline",
        "Moves the messages with a tag to the sideline, at most 1000 a request.",
        right=Right.CONSUME,
        parameters=(sidelines.REASON, fetching.TAG_AFTER),
        messaging=("sideline", "settle"),
        answers=(Answer(200, "The counts, and the next `after`.", json_of("DoneTagged")),),
        problems=(AlreadySideline, *_OF_A_QUEUE, Busy),
    ),
    Endpoint(
        "read_tag_history",
        "GET HEAD /{queue}/tags/{tag}/history",
        "Reads the events of the newest 10000 messages published with a tag.",
        right=Right.CONSUME,
        answers=(Answer(200, "The events, by time.", json_of("TagHistory"), _NO_STORE),),
        problems=_OF_A_QUEUE,
    ),
    Endpoint(
        "read_settings",
        "GET HEAD /{queue}/settings",
        "Reads a queue's settings.",
        # The description has them too.
        right=Needs.ANY,
        answers=(_SETTINGS,),
        problems=_OF_A_QUEUE,
    ),
    Endpoint(
        "change_settings",
        "PATCH /{queue}/settings",
        "Changes settings by a merge patch (RFC 7396).",
        headers=(IF_MATCH,),
        body={MERGE_PATCH: _PATCH, JSON: _PATCH},
        answers=(_SETTINGS,),
        problems=(*_OF_A_QUEUE, UnknownSetting, BadSetting, ShapeFixed, SettingsChanged, Busy),
    ),
    # Schedules stand for publishes to come.
    Endpoint(
        "put_schedule",
        "PUT /{queue}/schedules/{schedule}",
        "Creates or replaces a schedule (cron job), which publishes its body repeatedly.",
        more="Either `every` and optionally `delay`, or `cron` and optionally `tz`.",
        right=Right.PUBLISH,
        parameters=schedules.PUT_PARAMETERS,
        body=_BYTES,
        body_is_required=False,
        answers=(
            Answer(200, "The schedule existed.", json_of("Schedule"), _SCHEDULE_HEADERS, _SCHEDULE),
            Answer(
                201, "The schedule is created.", json_of("Schedule"), _SCHEDULE_HEADERS, _SCHEDULE
            ),
        ),
        problems=(*_OF_A_QUEUE, TooManySchedules, DueTooFar, Busy),
    ),
    Endpoint(
        "read_schedule",
        "GET HEAD /{queue}/schedules/{schedule}",
        "Reads a schedule, with its counts and next firing.",
        right=Right.PUBLISH,
        answers=(Answer(200, "The schedule.", json_of("Schedule"), _NO_STORE),),
        problems=(QueueNotFound, ScheduleNotFound, ScheduleUnreadable),
    ),
    Endpoint(
        "delete_schedule",
        "DELETE /{queue}/schedules/{schedule}",
        "Deletes a schedule. Its messages stay.",
        right=Right.PUBLISH,
        answers=(Answer(200, "The schedule is deleted.", json_of("NamedSchedule")),),
        problems=(QueueNotFound, ScheduleNotFound, Busy),
    ),
    Endpoint(
        "list_schedules",
        "GET /{queue}/schedules",
        "Lists a queue's schedules by name, without bodies.",
        right=Right.PUBLISH,
        answers=(Answer(200, "All schedules.", json_of("Schedules"), _NO_STORE),),
        problems=(QueueNotFound,),
        items={SCHEDULE_PROBLEM: (ScheduleUnreadable,)},
    ),
    Endpoint(
        "begin_shovel",
        "POST /{queue}/shovel",
        "Starts a shovel (redrive): moves messages from the sideline back to the queue.",
        parameters=sidelines.PARAMETERS,
        answers=(Answer(202, "The shovel runs.", json_of("BegunShovel"), ("Location",)),),
        problems=(
            QueueNotFound,
            AlreadySideline,
            SettingsUnreadable,
            ShovelRunning,
            TooManyShovels,
        ),
    ),
    Endpoint(
        "read_shovel",
        "GET HEAD /{queue}/shovel",
        "Reads the state of the running or last shovel, in any process.",
        answers=(Answer(200, "The state.", json_of("Shovel"), _NO_STORE),),
        problems=(QueueNotFound, ShovelNotFound),
    ),
    Endpoint(
        "stop_shovel",
        "DELETE /{queue}/shovel",
        "Stops the running shovel, in any process.",
        answers=(
            Answer(200, "No shovel runs.", json_of("Shovel"), _NO_STORE),
            Answer(202, "The shovel is stopping.", json_of("Shovel"), _NO_STORE),
        ),
        problems=(QueueNotFound, ShovelNotFound),
    ),
    Endpoint(
        "consume",
        "GET /-/consume",
        "Opens a WebSocket that pushes the messages of many queues.",
        # Each command is checked by itself.
        right=Needs.CALLER,
        is_stored=False,
        is_traced=False,
        answers=(Answer(101, "The connection is a WebSocket now."),),
        problems=(NoWebSocket, ForeignOrigin),
        items={
            FRAME_PROBLEM: (
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
                ConsumerEnded,
                TooMuchCredit,
                MessageNotFound,
                MessageLeased,
                DeliveredAgain,
                AlreadySideline,
                SidelinePurged,
                Busy,
                *STORAGE,
            )
        },
        frames={"client": "ConsumeCommand", "server": "ConsumeFrame"},
    ),
    Endpoint(
        "read_root",
        "GET HEAD /",
        "Lists the entry points.",
        right=Needs.NOTHING,
        is_stored=False,
        more="A browser (`Accept: text/html`) goes to the page.",
        answers=(
            Answer(200, "Name, version and entry points.", json_of("Root"), ("Vary",)),
            Answer(303, "The address of the page.", headers=("Location", "Vary")),
        ),
    ),
    Endpoint(
        "livez",
        "GET HEAD /-/livez",
        "Answers while the event loop runs.",
        right=Needs.NOTHING,
        is_stored=False,
        is_traced=False,
        answers=(Answer(200, "The daemon is alive.", json_of("Alive")),),
    ),
    Endpoint(
        "readyz",
        "GET HEAD /-/readyz",
        "Probes whether the daemon can store, and reports its durability.",
        right=Needs.NOTHING,
        is_traced=False,
        answers=(Answer(200, "The daemon can store.", json_of("Ready")),),
    ),
    Endpoint(
        "read_memory",
        "GET HEAD /-/memory",
        "Reports what the process that answers holds in memory.",
        is_stored=False,
        answers=(Answer(200, "The figures.", json_of("Memory"), _NO_STORE),),
    ),
    Endpoint(
        "read_metrics",
        "GET HEAD /-/metrics",
        "Reports the metrics of all processes, for Prometheus.",
        # It names queues.
        right=Needs.ANY,
        is_stored=False,
        answers=(
            Answer(
                200,
                "Samples, in the format that `Accept` asks for.",
                {"text/plain": Content(), "application/openmetrics-text": Content()},
                _NO_STORE,
            ),
        ),
    ),
    Endpoint(
        "list_queues",
        "GET HEAD /-/queues",
        "Lists the queues by name.",
        # It lists those to which the caller has any right.
        right=Needs.CALLER,
        parameters=(queues.AFTER, queues.COUNT),
        answers=(Answer(200, "A page of queues.", json_of("Queues"), _NO_STORE),),
    ),
    Endpoint(
        "read_trends",
        "GET HEAD /-/trends",
        "Reads the load of the last hour, day or week: of a queue, or of all queues together.",
        # The queue, or all queues, must be the caller's by any right.
        right=Needs.CALLER,
        parameters=(queues.TRENDS_RANGE, queues.TRENDS_QUEUE),
        answers=(Answer(200, "The points, oldest first.", json_of("Trends"), _NO_STORE),),
        problems=(QueueNotFound, Forbidden),
    ),
    Endpoint(
        "list_members",
        "GET HEAD /-/members",
        "Lists the mq-mover processes with their last reports.",
        parameters=(queues.MEMBERS_QUEUE,),
        answers=(Answer(200, "The members.", json_of("Members"), _NO_STORE),),
    ),
    Endpoint(
        "refresh",
        "POST /-/refresh",
        "Makes every process scan all queues now.",
        answers=(Answer(200, "What this process found.", json_of("Refreshed"), _NO_STORE),),
    ),
    Endpoint(
        "openapi",
        "GET HEAD /-/openapi.json",
        "Reads the OpenAPI 3.1 document.",
        right=Needs.NOTHING,
        is_stored=False,
        answers=(
            Answer(200, "An OpenAPI document, version 3.1.", {JSON: Content({"type": "object"})}),
        ),
    ),
    # The page asks for what it shows by itself, with the rights of its user.
    Endpoint(
        "read_page",
        "GET HEAD /-/",
        "Reads the operators' web page.",
        right=Needs.NOTHING,
        headers=(IF_NONE_MATCH,),
        is_stored=False,
        answers=(Answer(200, "HTML.", {"text/html": Content()}, _PAGE_HEADERS), _KNOWN),
    ),
    Endpoint(
        "read_page_asset",
        "GET HEAD /-/page/{asset}",
        "Reads a file of the page.",
        right=Needs.NOTHING,
        headers=(IF_NONE_MATCH,),
        is_stored=False,
        answers=(
            Answer(
                200,
                "The file.",
                {"text/css": Content(), "text/javascript": Content(), "image/svg+xml": Content()},
                _PAGE_HEADERS,
            ),
            _KNOWN,
        ),
    ),
)

ENDPOINTS: Final = tuple(each for declared in _DECLARED for each in declared.each())
"""In the order of `/-/openapi.json` and of HTTP.md."""

TABLE: Final[Mapping[str, Mapping[str, Endpoint]]] = {
    path: {each.method: each for each in ENDPOINTS if each.path == path}
    for path in dict.fromkeys(each.path for each in ENDPOINTS)
}
"""By path and method."""
