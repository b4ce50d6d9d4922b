"""The one map of errors to statuses: RFC 9457 problems with stable types. Pure.

Only the facts of an error's class reach a client, never an exception's text or a path.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from mq.access.bearer import challenge
from mq.access.errors import Forbidden, Unauthenticated
from mq.model.errors import (
    AlreadySideline,
    BadBody,
    BadName,
    BadParameter,
    BadPrecondition,
    BadSetting,
    BatchTooLarge,
    BodyTooLarge,
    BodyTooSlow,
    BodyUnreadable,
    Busy,
    DeliveredAgain,
    DueTooFar,
    ExpectationUnknown,
    HeadersTooLarge,
    HeadTooSlow,
    KeyNotFound,
    KeyTaken,
    MediaTypeUnknown,
    MessageLeased,
    MessageNotFound,
    MqError,
    NameTaken,
    NoDescriptors,
    NoInodes,
    NoMemory,
    NoSpace,
    PublishPurged,
    QueueExpired,
    QueueNotFound,
    QuotaExceeded,
    RangeUnsatisfiable,
    ReadOnly,
    ScheduleNotFound,
    ScheduleUnreadable,
    SettingsChanged,
    SettingsUnreadable,
    ShapeFixed,
    ShovelNotFound,
    ShovelRunning,
    SidelinePurged,
    StagedFileGone,
    StorageFailed,
    TooManyConnections,
    TooManyQueues,
    TooManySchedules,
    TooManySelections,
    TooManyShovels,
    TooManyWaiters,
    Unavailable,
    UnknownParameter,
    UnknownSetting,
)
from mq.model.limits import RETRY_AFTER_S
from mq.protocol.consume.errors import (
    AlreadySubscribed,
    BadFrame,
    ForeignOrigin,
    NotSubscribed,
    NoWebSocket,
    TooManySubscriptions,
    TooMuchCredit,
)

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


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of problem: its type's slug, status, title, and what to say of it."""

    slug: str
    status: int
    title: str
    detail: str
    retryable: bool = False
    closes: bool = False


PROBLEMS: Final[dict[type[MqError], Problem]] = {
    BadName: Problem(
        "bad-name", 400, "Bad name",
        "The {parameter} is malformed; expected: {expected}.",
    ),
    UnknownParameter: Problem(
        "unknown-parameter", 400, "Unknown parameter", "This request has no such query parameter."
    ),
    BadParameter: Problem(
        "bad-{parameter}", 400, "Bad parameter",
        "The parameter {parameter} is malformed; expected: {expected}.",
    ),
    BadBody: Problem(
        "bad-body", 400, "Bad body", "The body is not what is asked for here: {expected}."
    ),
    BadFrame: Problem(
        "malformed-frame", 400, "Malformed frame",
        "The frame is not what is asked for here: {expected}.",
    ),
    ForeignOrigin: Problem(
        "foreign-origin", 403, "Foreign origin",
        "A page of another origin may not do this.",
    ),
    Unauthenticated: Problem(
        "unauthenticated", 401, "Unauthenticated", "A token that is good is to be shown here."
    ),
    Forbidden: Problem(
        "forbidden", 403, "Forbidden", "This takes a right that the caller has not: {right}."
    ),
    NotSubscribed: Problem(
        "not-subscribed", 404, "Not subscribed", "The connection has no subscription of the queue."
    ),
    AlreadySubscribed: Problem(
        "already-subscribed", 409, "Already subscribed",
        "The connection has a subscription of the queue.",
    ),
    TooManySubscriptions: Problem(
        "too-many-subscriptions", 409, "Too many subscriptions",
        "A connection has at most {subscriptions_max} subscriptions.",
    ),
    TooMuchCredit: Problem(
        "too-much-credit", 409, "Too much credit",
        "What a connection holds and may still get is at most {credit_max} messages.",
    ),
    NoWebSocket: Problem(
        "no-websocket", 426, "No WebSocket", "This is served over a WebSocket (RFC 6455) alone."
    ),
    DueTooFar: Problem(
        "due-too-far", 400, "Due too far",
        "The root's file system cannot keep a time so far in the future.",
    ),
    BadPrecondition: Problem(
        "bad-if-match", 400, "Bad If-Match", 'If-Match takes * or entity tags such as "1".'
    ),
    BodyUnreadable: Problem(
        "body-unreadable", 400, "Body unreadable", "The body ended early or is malformed.",
        closes=True,
    ),
    QueueNotFound: Problem("queue-not-found", 404, "Queue not found", "There is no such queue."),
    MessageNotFound: Problem(
        "message-not-found", 404, "Message not found", "The queue has no such message."
    ),
    KeyNotFound: Problem("key-not-found", 404, "Key not found", "No message has the key."),
    ScheduleNotFound: Problem(
        "schedule-not-found", 404, "Schedule not found", "The queue has no such schedule."
    ),
    QueueExpired: Problem(
        "queue-expired", 410, "Queue expired",
        "The queue has expired at {expired_at}: it takes no messages and gives none.",
    ),
    NameTaken: Problem(
        "name-taken", 409, "Name taken", "Something that is no folder has the queue's name."
    ),
    MessageLeased: Problem(
        "message-leased", 409, "Message leased",
        "The message is in the lease {lease}: until that ends it can be read and deleted alone.",
    ),
    KeyTaken: Problem("key-taken", 409, "Key taken", "A living message has the key."),
    AlreadySideline: Problem(
        "already-sideline", 409, "Already a sideline", "A sideline has no sideline of its own."
    ),
    ShovelNotFound: Problem(
        "shovel-not-found", 404, "Shovel not found",
        "The queue's shovel has never run, and is not to by itself.",
    ),
    ShovelRunning: Problem(
        "shovel-running", 409, "Shovel running",
        "The queue's shovel runs: one at a time, of all processes.",
    ),
    TooManyShovels: Problem(
        "too-many-shovels", 503, "Too many shovels",
        "So many as {shovels_max} run in the daemon, or it is about to end.", True,
    ),
    TooManySchedules: Problem(
        "too-many-schedules", 409, "Too many schedules",
        "A queue has at most {schedules_max} schedules.",
    ),
    ShapeFixed: Problem(
        "settings-fixed", 409, "Settings fixed",
        "The queue was made with other settings, which stay as long as it does.",
    ),
    UnknownSetting: Problem(
        "unknown-setting", 400, "Unknown setting", "A queue has no such setting."
    ),
    BadSetting: Problem(
        "bad-setting", 422, "Bad setting", "The setting {parameter} takes {expected}, or null."
    ),
    SettingsChanged: Problem(
        "settings-changed", 412, "Settings changed", "The queue's settings are others by now."
    ),
    BodyTooSlow: Problem(
        "body-too-slow", 408, "Body too slow",
        "No byte of the body came for {idle_s:g} s, or fewer than {bytes_per_s} each second.",
        retryable=True, closes=True,
    ),
    HeadTooSlow: Problem(
        "head-too-slow", 408, "Head too slow",
        "The request's head did not end within {head_s:g} s.", retryable=True, closes=True,
    ),
    TooManyQueues: Problem(
        "too-many-queues", 429, "Too many queues", "There are {queues_max} queues or more.",
    ),
    TooManyConnections: Problem(
        "too-many-connections", 503, "Too many connections",
        "The daemon has {connections_max} connections, and all are in use.", True, closes=True,
    ),
    TooManyWaiters: Problem(
        "too-many-waiters", 503, "Too many waiters",
        "So many as {waiters_max} wait for messages at this moment.", True,
    ),
    DeliveredAgain: Problem(
        "delivered-again", 412, "Delivered again",
        "If-Match names another delivery than the message's last: its receives are {receives}.",
    ),
    BodyTooLarge: Problem(
        "body-too-large", 413, "Body too large", "A body has at most {bytes_max} bytes.",
        closes=True,
    ),
    BatchTooLarge: Problem(
        "batch-too-large", 413, "Batch too large",
        "One request carries at most {messages_max} messages and {bytes_max} bytes.", closes=True,
    ),
    RangeUnsatisfiable: Problem(
        "range-unsatisfiable", 416, "Range unsatisfiable", "The body has {size} bytes."
    ),
    MediaTypeUnknown: Problem(
        "media-type-unknown", 415, "Media type unknown", "The body must be JSON, and be said to be."
    ),
    HeadersTooLarge: Problem(
        "headers-too-large", 431, "Headers too large",
        "A message keeps at most {headers_max} headers of {bytes_max} bytes in all.", closes=True,
    ),
    ExpectationUnknown: Problem(
        "expectation-unknown", 417, "Expectation unknown", "Only 100-continue can be expected."
    ),
    Unavailable: Problem(
        "unavailable", 503, "Unavailable", "It cannot be guaranteed as stored now.", True
    ),
    NoSpace: Problem("no-space", 503, "No space", "The disk is full, but for a reserve.", True),
    NoInodes: Problem(
        "no-inodes", 503, "No inodes", "The disk has no room for another file.", True
    ),
    QuotaExceeded: Problem(
        "quota-exceeded", 503, "Quota exceeded", "The daemon's disk quota is used up.", True
    ),
    NoDescriptors: Problem(
        "no-descriptors", 503, "No descriptors", "The daemon has too many files open.", True
    ),
    NoMemory: Problem(
        "no-memory", 503, "No memory", "The daemon holds as many bytes as it may.", True
    ),
    ReadOnly: Problem(
        "read-only", 503, "Read-only", "The root, or a file in it, cannot be written.", True
    ),
    StorageFailed: Problem("storage-failed", 503, "Storage failed", "The storage failed.", True),
    StagedFileGone: Problem(
        "publish-forgotten", 503, "Publish forgotten", "The publish took too long.", True
    ),
    PublishPurged: Problem(
        "publish-purged", 503, "Publish purged", "The queue was purged meanwhile.", True
    ),
    SidelinePurged: Problem(
        "sideline-purged", 503, "Sideline purged",
        "The sideline was purged after the message was published; an hour later it can go there.",
        True,
    ),
    SettingsUnreadable: Problem(
        "settings-unreadable", 503, "Settings unreadable",
        "The queue's settings cannot be understood.", True,
    ),
    ScheduleUnreadable: Problem(
        "schedule-unreadable", 503, "Schedule unreadable",
        "The schedule's file cannot be understood, and it is not fired.", True,
    ),
    TooManySelections: Problem(
        "too-many-selections", 503, "Too many selections",
        "The queue's consumers have {selections_max} selections at this moment.", True,
    ),
    Busy: Problem("message-busy", 503, "Busy", "Another process is at it.", True),
}  # fmt: skip

PATH_UNKNOWN: Final = Problem("path-unknown", 404, "Path unknown", "There is nothing here.")
METHOD_NOT_ALLOWED: Final = Problem(
    "method-not-allowed", 405, "Method not allowed", "See Allow for what is allowed here."
)
BAD_REQUEST: Final = Problem(
    "bad-request", 400, "Bad request", "The request is not well-formed HTTP.", closes=True
)
INTERNAL: Final = Problem("internal", 500, "Internal error", "The daemon's log says more.", True)

OTHERS: Final = (PATH_UNKNOWN, METHOD_NOT_ALLOWED, BAD_REQUEST, INTERNAL)


def problem_for(error: MqError) -> Problem:
    """The problem of the error's class."""
    return problem_of(type(error))


def problem_of(error: type[MqError]) -> Problem:
    """The problem of a class of errors, or of the nearest class above that has one."""
    for kind in error.__mro__:
        if issubclass(kind, MqError) and kind in PROBLEMS:
            return PROBLEMS[kind]
    return INTERNAL


def slug_of(problem: Problem, facts: Mapping[str, object]) -> str:
    """The end of the problem's type: what is malformed stands in some; no underscores do."""
    return problem.slug.format_map(facts).replace("_", "-")


def problem_members(problem: Problem, facts: dict[str, object]) -> dict[str, object]:
    """The problem as members of an answer, or of one item of it."""
    return {
        "type": TYPE_PREFIX + slug_of(problem, facts),
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail.format_map(facts),
        "retryable": problem.retryable,
        **{name: value for name, value in facts.items() if name in MEMBERS},
    }


def problem_headers(problem: Problem, error: MqError | None = None) -> dict[str, str]:
    """The headers of an answer that is the problem of an error."""
    headers: dict[str, str] = {}
    if isinstance(error, KeyTaken):
        headers["X-Message-Id"] = error.id
    if isinstance(error, RangeUnsatisfiable):
        headers["Content-Range"] = f"bytes */{error.size}"
    if isinstance(error, NoWebSocket):
        headers |= {"Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    if isinstance(error, Unauthenticated | Forbidden):
        headers["WWW-Authenticate"] = challenge(error)
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return headers


def facts_of(error: MqError) -> dict[str, object]:
    """The fields of the error's class."""
    names: list[str] = list(getattr(error, "__dataclass_fields__", ()))
    return {name: getattr(error, name) for name in names}
