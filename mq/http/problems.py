"""The one map of errors to statuses: RFC 9457 problems with stable types.

Only the facts of an error's class reach a client, never an exception's text or a path.
"""

from dataclasses import dataclass
from typing import Final

from mq.errors import (
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
    KeyNotFound,
    KeyTaken,
    MediaTypeUnknown,
    MessageLeased,
    MessageNotFound,
    MqError,
    NameTaken,
    NoDescriptors,
    NoInodes,
    NoSpace,
    PublishPurged,
    QueueNotFound,
    QuotaExceeded,
    RangeUnsatisfiable,
    ReadOnly,
    ScheduleNotFound,
    ScheduleUnreadable,
    SettingsChanged,
    SettingsUnreadable,
    ShapeFixed,
    SidelinePurged,
    StagedFileGone,
    StorageFailed,
    TooManySchedules,
    TooManySelections,
    Unavailable,
    UnknownParameter,
    UnknownSetting,
)
from mq.http.answers import Answer, json_answer
from mq.limits import RETRY_AFTER_S

TYPE_PREFIX: Final = "urn:mq:problem:"
MEDIA_TYPE: Final = "application/problem+json"

MEMBERS: Final = frozenset(
    {
        "parameter",
        "queue",
        "key",
        "id",
        "lease",
        "schedule",
        "receives",
        "bytes_max",
        "headers_max",
        "messages_max",
        "schedules_max",
        "selections_max",
        "size",
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
        "body-too-slow", 408, "Body too slow", "No byte of the body came for {idle_s:g} s.",
        retryable=True, closes=True,
    ),
    DeliveredAgain: Problem(
        "delivered-again", 412, "Delivered again",
        "The message has been delivered again since; its receives are {receives} now.",
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


def problem_answer(
    problem: Problem, facts: dict[str, object] | None = None, headers: dict[str, str] | None = None
) -> Answer:
    """The problem as an answer. `facts` fill its detail, and those that are for programs
    become members beside the standard ones.
    """
    headers = headers or {}
    if problem.status == 503:
        headers = {**headers, "Retry-After": str(RETRY_AFTER_S)}
    content = problem_members(problem, facts or {})
    return json_answer(content, problem.status, headers, MEDIA_TYPE, problem.closes)


def problem_members(problem: Problem, facts: dict[str, object]) -> dict[str, object]:
    """The problem as members of an answer, or of one item of it."""
    return {
        "type": TYPE_PREFIX + problem.slug.format_map(facts),
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail.format_map(facts),
        "retryable": problem.retryable,
        **{name: value for name, value in facts.items() if name in MEMBERS},
    }


def error_answer(error: MqError) -> Answer:
    """The answer to an error: the fields of its class are all that a client may know of it."""
    headers = {"X-Message-Id": error.id} if isinstance(error, KeyTaken) else None
    return problem_answer(problem_for(error), facts_of(error), headers)


def facts_of(error: MqError) -> dict[str, object]:
    """The fields of the error's class."""
    names: list[str] = list(getattr(error, "__dataclass_fields__", ()))
    return {name: getattr(error, name) for name in names}
