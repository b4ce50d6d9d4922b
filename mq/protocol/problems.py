"""The one map of errors to statuses: RFC 9457 problems with stable types. Pure.

Only the facts of an error's class reach a client, never an exception's text or a path.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from mq.access.errors import Forbidden, Unauthenticated
from mq.model import errors

RETRY_AFTER_S: Final = 1

TYPE_PREFIX: Final = "urn:mq:problem:"
MEDIA_TYPE: Final = "application/problem+json"

MEMBERS: Final = frozenset(
    {
        "parameter",
        "queue",
        "key",
        "id",
        "expired_at",
        "lease",
        "schedule",
        "receives",
        "right",
        "bytes_max",
        "connections_max",
        "consumer",
        "credit_max",
        "headers_max",
        "messages_max",
        "queues_max",
        "schedules_max",
        "selections_max",
        "shovels_max",
        "size",
        "subscriptions_max",
        "waiters_max",
    }
)


_RETRY_AFTER: Final = {"Retry-After": str(RETRY_AFTER_S)}
_ASK: Final = {"WWW-Authenticate": "{challenge}"}


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of problem. `slug`, `detail` and the values of `own_headers` are format strings of an
    error's facts; `closes`: the connection ends with the answer.
    """

    slug: str
    status: int
    title: str
    detail: str
    retryable: bool = False
    closes: bool = False
    own_headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of its answer that others do not have."""
        is_503 = self.status == HTTPStatus.SERVICE_UNAVAILABLE
        return {**self.own_headers, **_RETRY_AFTER} if is_503 else self.own_headers


PROBLEMS: Final[dict[type[errors.MqError], Problem]] = {
    errors.BadName: Problem(
        "bad-name", 400, "Bad name", "The {noun} is malformed: it must be {expected}."
    ),
    errors.UnknownParameter: Problem(
        "unknown-parameter", 400, "Unknown parameter",
        "This request has no query parameter {parameter!r:.80}{hint}. Its parameters: {takes}.",
    ),
    errors.BadParameter: Problem(
        "bad-{parameter}", 400, "Bad parameter",
        "The {noun} is malformed: it must be {expected}.",
    ),
    errors.BadBody: Problem("bad-body", 400, "Bad body", "The body must be {expected}."),
    errors.UnknownField: Problem(
        "unknown-field", 400, "Unknown field",
        "A row has no field {parameter!r:.80}{hint}. Its fields: {takes}.",
    ),
    errors.BadFrame: Problem(
        "malformed-frame", 400, "Malformed frame", "A frame must be {expected}."
    ),
    errors.ForeignOrigin: Problem(
        "foreign-origin", 403, "Foreign origin",
        "The request comes from a web page of another origin. Send it without a browser, or from "
        "mq's own page.",
    ),
    Unauthenticated: Problem(
        "unauthenticated", 401, "Unauthenticated",
        "The request has no valid token or client certificate. Send Authorization: Bearer TOKEN.",
        own_headers=_ASK,
    ),
    Forbidden: Problem(
        "forbidden", 403, "Forbidden",
        "The caller lacks {noun}. Ask the operator for a token that grants it.",
        own_headers=_ASK,
    ),
    errors.NotSubscribed: Problem(
        "not-subscribed", 404, "Not subscribed",
        "This connection has no subscription to queue {queue!r}. Send subscribe first.",
    ),
    errors.AlreadySubscribed: Problem(
        "already-subscribed", 409, "Already subscribed",
        "This connection has a subscription to queue {queue!r} already. Unsubscribe before "
        "subscribing with other options.",
    ),
    errors.TooManySubscriptions: Problem(
        "too-many-subscriptions", 409, "Too many subscriptions",
        "A connection has at most {subscriptions_max} subscriptions. Unsubscribe from a queue, or "
        "open another connection.",
    ),
    errors.TooMuchCredit: Problem(
        "too-much-credit", 409, "Too much credit",
        "Credit and unsettled messages of a connection are at most {credit_max} together. Settle "
        "messages, or grant less credit.",
    ),
    errors.NoWebSocket: Problem(
        "no-websocket", 426, "WebSocket required",
        "This path only accepts WebSocket handshakes (RFC 6455, version 13).",
        own_headers={"Upgrade": "websocket", "Sec-WebSocket-Version": "13"},
    ),
    errors.DueTooFar: Problem(
        "due-too-far", 400, "Due time too far in the future",
        "The file system of the daemon's root cannot store this due time. Choose an earlier one.",
    ),
    errors.BadPrecondition: Problem(
        "bad-if-match", 400, "Bad If-Match",
        'The header If-Match must be * or a list of entity tags such as "1".',
    ),
    errors.BodyUnreadable: Problem(
        "body-unreadable", 400, "Body unreadable",
        "The body ended early, or its transfer coding is malformed.", closes=True,
    ),
    errors.QueueNotFound: Problem(
        "queue-not-found", 404, "Queue not found",
        "There is no queue {queue!r}. Create it with PUT /{queue}.",
    ),
    errors.MessageNotFound: Problem(
        "message-not-found", 404, "Message not found",
        "The queue has no message with this id: it was deleted, purged, moved to a sideline "
        "(QUEUE_SIDELINE), or never published.",
    ),
    errors.KeyNotFound: Problem(
        "key-not-found", 404, "Key not found", "No message of the queue has the key {key!r}."
    ),
    errors.ScheduleNotFound: Problem(
        "schedule-not-found", 404, "Schedule not found", "The queue has no schedule {schedule!r}."
    ),
    errors.QueueExpired: Problem(
        "queue-expired", 410, "Queue expired",
        "Queue {queue!r} expired at {expired_at} and takes and delivers no messages. Change its "
        "setting expires_at to use it again.",
    ),
    errors.NameTaken: Problem(
        "name-taken", 409, "Name taken",
        "A file that is not a folder has the name of queue {queue!r}. Remove it from the root, or "
        "choose another name.",
    ),
    errors.MessageLeased: Problem(
        "message-leased", 409, "Message leased",
        "The message is in the lease {lease} of a Spark consumer. Until the lease ends the message "
        "can only be read and deleted.",
    ),
    errors.KeyTaken: Problem(
        "key-taken", 409, "Key taken",
        "Message {id} has the key {key!r} already. Delete that message, or choose another key.",
        own_headers={"X-Message-Id": "{id}"},
    ),
    errors.NotPacked: Problem(
        "not-packed", 409, "Not packed",
        "{queue} stores no packs, and several messages with one Idempotency-Key must be a pack: "
        "publish them with a key each, or set pack_messages_max.",
    ),
    errors.PublishDiffers: Problem(
        "publish-differs", 409, "Publish differs",
        "The first publish with this Idempotency-Key was of {earlier} messages, this one is of "
        "{messages}. Choose another key.",
    ),
    errors.AlreadySideline: Problem(
        "already-sideline", 409, "Already a sideline",
        "{queue} is a sideline, and a sideline has no sideline of its own.",
    ),
    errors.ShovelNotFound: Problem(
        "shovel-not-found", 404, "Shovel not found",
        "The shovel of queue {queue!r} has never run and is not scheduled. Start it with "
        "POST /{queue}/shovel.",
    ),
    errors.ShovelRunning: Problem(
        "shovel-running", 409, "Shovel running",
        "The shovel of queue {queue!r} is running, and only one runs at a time. Wait until it "
        "ends, or stop it with DELETE /{queue}/shovel.",
    ),
    errors.TooManyShovels: Problem(
        "too-many-shovels", 503, "Too many shovels",
        "The daemon runs at most {shovels_max} shovels at a time, or is shutting down. Try again "
        "later.", True,
    ),
    errors.TooManySchedules: Problem(
        "too-many-schedules", 409, "Too many schedules",
        "A queue has at most {schedules_max} schedules. Delete one first.",
    ),
    errors.ShapeFixed: Problem(
        "settings-fixed", 409, "Settings fixed",
        "Queue {queue!r} has another bucket or shards, and neither can be changed. Leave both out, "
        "or delete and create the queue.",
    ),
    errors.UnknownSetting: Problem(
        "unknown-setting", 400, "Unknown setting",
        "A queue has no setting {parameter!r}{hint}. GET /{{queue}}/settings lists all.",
    ),
    errors.BadSetting: Problem(
        "bad-setting", 422, "Bad setting",
        "The setting {parameter} must be {expected}, or null for the default.",
    ),
    errors.SettingsChanged: Problem(
        "settings-changed", 412, "Settings changed",
        "The settings changed since the version that If-Match names. Read them again.",
    ),
    errors.BodyTooSlow: Problem(
        "body-too-slow", 408, "Body too slow",
        "The body came too slowly: nothing for {idle_s:g} s, or less than {bytes_per_s} bytes a "
        "second. Send the request again.",
        retryable=True, closes=True,
    ),
    errors.HeadTooSlow: Problem(
        "head-too-slow", 408, "Head too slow",
        "The request's head was not complete within {head_s:g} s. Send the request again.",
        retryable=True, closes=True,
    ),
    errors.TooManyQueues: Problem(
        "too-many-queues", 429, "Too many queues",
        "The root is at its limit of {queues_max} queues. Delete a queue, or raise --queues-max.",
    ),
    errors.TooManyConnections: Problem(
        "too-many-connections", 503, "Too many connections",
        "The daemon is at its limit of {connections_max} connections (--connections-max), and none "
        "is idle. Try again later.", True, closes=True,
    ),
    errors.ConsumerNotFound: Problem(
        "consumer-not-found", 404, "Consumer not found",
        "The queue has no consumer {consumer}. It has ended, or its process did not answer.",
    ),
    errors.ConsumerEnded: Problem(
        "consumer-ended", 410, "Consumer ended",
        "This consumer of {queue} was ended by request. Its messages are released.",
    ),
    errors.TooManyWaiters: Problem(
        "too-many-waiters", 503, "Too many waiters",
        "The daemon is at its limit of {waiters_max} waiting consumers (--waiters-max). Try again "
        "later, or fetch without wait.", True,
    ),
    errors.DeliveredAgain: Problem(
        "delivered-again", 412, "Delivered again",
        "If-Match names another delivery than the message's last one, whose receives are "
        "{receives}.",
    ),
    errors.BodyTooLarge: Problem(
        "body-too-large", 413, "Body too large",
        "A body has at most {bytes_max} bytes here. Send a smaller one, or raise the limit "
        "(body_bytes_max, --max-body).",
        closes=True,
    ),
    errors.BatchTooLarge: Problem(
        "batch-too-large", 413, "Batch too large",
        "A request carries at most {messages_max} messages and {bytes_max} bytes. Split the batch.",
        closes=True,
    ),
    errors.RangeUnsatisfiable: Problem(
        "range-unsatisfiable", 416, "Range not satisfiable",
        "The range begins behind the end of the body, which has {size} bytes.",
        own_headers={"Content-Range": "bytes */{size}"},
    ),
    errors.MediaTypeUnknown: Problem(
        "media-type-unknown", 415, "Unsupported media type",
        "The body must be JSON. Send it with Content-Type: application/json.",
    ),
    errors.HeadersTooLarge: Problem(
        "headers-too-large", 431, "Headers too large",
        "The headers are too large: {limits}.",
        closes=True,
    ),
    errors.ExpectationUnknown: Problem(
        "expectation-unknown", 417, "Unsupported expectation",
        "The header Expect must be 100-continue or left out.",
    ),
    errors.Unavailable: Problem(
        "unavailable", 503, "Unavailable",
        "The operation is not guaranteed to be stored. Try again later; the daemon's log has the "
        "cause.", True,
    ),
    errors.NoSpace: Problem(
        "no-space", 503, "No space",
        "The disk has no free space beyond its reserve. Free some, then try again.", True,
    ),
    errors.NoInodes: Problem(
        "no-inodes", 503, "No inodes",
        "The file system has no free inodes beyond its reserve. Free some, then try again.", True,
    ),
    errors.QuotaExceeded: Problem(
        "quota-exceeded", 503, "Quota exceeded",
        "The daemon's user has used up its disk quota. Raise it or free space, then try again.",
        True,
    ),
    errors.NoDescriptors: Problem(
        "no-descriptors", 503, "No descriptors",
        "The daemon, or its machine, has no free file descriptor. Try again later, or raise the "
        "limit of open files.", True,
    ),
    errors.NoMemory: Problem(
        "no-memory", 503, "No memory",
        "The daemon's memory budget (--memory) is in use. Try again later, or send less at a time.",
        True,
    ),
    errors.ReadOnly: Problem(
        "read-only", 503, "Read-only",
        "The daemon cannot write to its root, or to a file in it. Check the mount and its "
        "permissions.", True,
    ),
    errors.RootAway: Problem(
        "root-away", 503, "Root away",
        "The daemon's root is not at its path: its mount is gone, or another folder is there. Try "
        "again once it is back.", True,
    ),
    errors.StorageFailed: Problem(
        "storage-failed", 503, "Storage failed",
        "The storage failed; the daemon's log has the system's error. Try again later.", True,
    ),
    errors.StagedFileGone: Problem(
        "publish-forgotten", 503, "Publish abandoned",
        "The publish took so long that it was abandoned. Publish again.", True,
    ),
    errors.PublishPurged: Problem(
        "publish-purged", 503, "Publish purged",
        "The queue was purged during the publish. Publish again.", True,
    ),
    errors.SidelinePurged: Problem(
        "sideline-purged", 503, "Sideline purged",
        "The sideline was purged after this message was published. Sideline the message again an "
        "hour after the purge.", True,
    ),
    errors.SettingsUnreadable: Problem(
        "settings-unreadable", 503, "Settings unreadable",
        "The queue's settings file is damaged. The operator has to repair it; fetches still work.",
        True,
    ),
    errors.ScheduleUnreadable: Problem(
        "schedule-unreadable", 503, "Schedule unreadable",
        "The schedule's file is damaged, and the schedule does not fire. Replace or delete the "
        "schedule.", True,
    ),
    errors.TooManySelections: Problem(
        "too-many-selections", 503, "Too many selections",
        "The queue's consumers use {selections_max} selections, which is the limit. Try again "
        "later, or share a selection.", True,
    ),
    errors.Busy: Problem(
        "message-busy", 503, "Busy",
        "Another process is changing this message or queue. Try again.", True,
    ),
    errors.QueuePaused: Problem(
        "queue-paused", 503, "Queue paused",
        "The queue's setting paused refuses publishes. Try again once it is none or deliveries.",
        True,
    ),
    errors.QueueFull: Problem(
        "queue-full", 503, "Queue full",
        "The queue is at its limit of messages or bytes (settings messages_max and bytes_max, of "
        "which 0 is none). Try again once messages were removed.", True,
    ),
}  # fmt: skip

PATH_UNKNOWN: Final = Problem(
    "path-unknown", 404, "Path unknown",
    "Nothing is served at this path. GET / lists the entry points.",
)  # fmt: skip
METHOD_NOT_ALLOWED: Final = Problem(
    "method-not-allowed", 405, "Method not allowed",
    "This path does not support the method. The header Allow lists those that it supports.",
    own_headers={"Allow": "{allow}"},
)  # fmt: skip
BAD_REQUEST: Final = Problem(
    "bad-request", 400, "Bad request", "The request is not well-formed HTTP/1.1.", closes=True
)
INTERNAL: Final = Problem(
    "internal", 500, "Internal error",
    "The daemon failed to handle the request; its log has the cause. Try again.", True,
)  # fmt: skip

OTHERS: Final = (PATH_UNKNOWN, METHOD_NOT_ALLOWED, BAD_REQUEST, INTERNAL)


def problem_for(error: errors.MqError) -> Problem:
    """The problem of the error's class."""
    return problem_of(type(error))


def problem_of(error: type[errors.MqError]) -> Problem:
    """The problem of a class of errors, or of the nearest class above that has one."""
    for kind in error.__mro__:
        if issubclass(kind, errors.MqError) and kind in PROBLEMS:
            return PROBLEMS[kind]
    return INTERNAL


def slug_of(problem: Problem, facts: Mapping[str, object]) -> str:
    """The end of the problem's type, which may name a parameter; without underscores."""
    return problem.slug.format_map(facts).replace("_", "-")


def problem_members(problem: Problem, facts: Mapping[str, object]) -> dict[str, object]:
    """The problem as members of an answer, or of one item of it."""
    return {
        "type": TYPE_PREFIX + slug_of(problem, facts),
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail.format_map(facts),
        "retryable": problem.retryable,
        **{name: value for name, value in facts.items() if name in MEMBERS},
    }


def problem_headers(problem: Problem, facts: Mapping[str, object]) -> dict[str, str]:
    """The headers of an answer that is the problem."""
    return {name: value.format_map(facts) for name, value in problem.headers.items()}


def facts_of(error: errors.MqError) -> dict[str, object]:
    """The fields of the error's class."""
    names: list[str] = list(getattr(error, "__dataclass_fields__", ()))
    return {name: getattr(error, name) for name in names}
