"""The client's errors: one root, `ClientError`; no exception of another library.

`Unanswered` and its kinds: no answer arrived. `Problem` and its kinds: mq reported an error (RFC
9457); the table at the end maps problem types to classes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mq.access import errors as access
from mq.protocol.problems import PROBLEMS, problem_members
from mq.protocol.problems import TYPE_PREFIX as PROBLEM_PREFIX

_MEMBERS: Final = frozenset({"type", "title", "status", "detail", "retryable"})
_SHOWN_CHARS_MAX: Final = 200
_LINE_CHARS_MAX: Final = 300


def one_line(error: BaseException, *, with_kind: bool = False) -> str:
    """An exception for a log: bounded, on one line; `with_kind`: its class first."""
    kind, text = type(error).__name__, " ".join(str(error).split())
    if not text:
        return kind
    line = f"{kind}: {text}" if with_kind else text
    return line if len(line) <= _LINE_CHARS_MAX else f"{line[: _LINE_CHARS_MAX - 1]}…"


class ClientError(Exception):
    """The root of the client's errors."""


class NotUsable(ClientError):
    """The client is closed, or belongs to another event loop: make another one. Or a consumer or a
    message was open when this process was forked: it is the parent's. Retrying does not help.
    """

    @classmethod
    def closed(cls) -> "NotUsable":
        """The error of a closed client."""
        return cls("the client is closed: make another one")

    @classmethod
    def inherited(cls, what: str) -> "NotUsable":
        """The error of a consumer or message that was open when this process was forked."""
        return cls(
            f"the {what} is open in the process from which this one was forked: use it there"
        )


class BadName(ClientError, ValueError):
    """The text is not a queue name."""


class AlreadySettled(ClientError):
    """The message was settled before, in another way: deleted, released or sidelined."""


class Unanswered(ClientError):
    """No answer arrived. `was_sent`: mq may have carried out the request."""

    was_sent = True


class CouldNotConnect(Unanswered):
    """No connection to mq: nothing listens at the address, or it cannot be reached. Nothing was
    sent.
    """

    was_sent = False


class ConnectionLost(Unanswered):
    """The connection ended before the answer. mq may have carried out the request."""


class TimedOut(Unanswered, TimeoutError):
    """The answer did not arrive in time. mq may have carried out the request."""


class AnswerTooLarge(ClientError):
    """The answer is larger than the client's `answer_bytes_max`. mq has carried out the request;
    fetched messages are delivered again when their visibility timeout ends.
    """


class NotMq(ClientError):
    """The answer is not mq's, but a proxy's, or another server's at this URL."""

    def __init__(self, status: int, shown: str, why: str = "is not mq's") -> None:
        super().__init__(status, shown, why)
        self.status = status
        """The answer's status."""
        self.shown = shown[:_SHOWN_CHARS_MAX]
        """The beginning of the answer's body."""
        self.why = why

    def __str__(self) -> str:
        shown = f": {self.shown}" if self.shown else ""
        return f"the answer with status {self.status} {self.why} (does the URL lead to mq?){shown}"


class UpgradeRefused(NotMq):
    """mq's address answered no WebSocket handshake: most often, a proxy is between."""

    def __init__(self, status: int, shown: str = "", why: str = "opens no WebSocket") -> None:
        super().__init__(status, shown, why)


class Problem(ClientError):
    """An error that mq reports. `retryable`: the same request may succeed later."""

    def __init__(self, said: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        super().__init__(dict(said), retry_after_s)
        self.type: str = str(said.get("type", "about:blank"))
        """Stable, such as `urn:mq:problem:queue-not-found`."""
        self.slug: str = self.type.removeprefix(PROBLEM_PREFIX)
        """The end of the type, such as `queue-not-found`."""
        self.status: int = _whole(said.get("status"))
        self.title: str = str(said.get("title", ""))
        self.detail: str = str(said.get("detail", ""))
        self.retryable: bool = said.get("retryable") is True
        self.facts: Mapping[str, Any] = MappingProxyType(
            {name: value for name, value in said.items() if name not in _MEMBERS}
        )
        """The members that only this type has, such as `queue`."""
        self.retry_after_s = retry_after_s
        """When to retry at the earliest, in seconds, where the answer has a Retry-After."""

    def __str__(self) -> str:
        text = self.detail or self.title or "mq reports an error"
        facts = ", ".join(f"{name} {value!r}" for name, value in self.facts.items())
        return f"{text} ({self.slug}{', ' if facts else ''}{facts})"


class Refused(Problem):
    """mq refuses the request (400 and other 4xx): correct it, or mq's settings.
    `facts["parameter"]` often names the parameter.
    """


class Unauthenticated(Problem):
    """The request has no token, or an invalid one (401): `Client(token=...)`."""

    @classmethod
    def here(cls) -> "Unauthenticated":
        """The same problem without mq's answer, where that is not available."""
        return cls(problem_members(PROBLEMS[access.Unauthenticated], {}))


class Forbidden(Problem):
    """The token lacks the right (403)."""

    @property
    def right(self) -> str:
        """The right that it lacks: `publish`, `consume`, `admin`, or `any`."""
        return str(self.facts.get("right", ""))


class QueueNotFound(Problem):
    """The queue does not exist: `queue.create()` creates it."""


class QueueExpired(Problem):
    """The queue has expired: it neither accepts nor delivers messages."""


class MessageNotFound(Problem):
    """The queue has no message of this id."""


class MessageLeased(Problem):
    """A Spark query holds the message in a lease: it can only be read or deleted."""


class DeliveredAgain(Problem):
    """The message was delivered again since: it is another consumer's now."""

    @property
    def receives(self) -> int:
        """How often it was delivered until now."""
        return _whole(self.facts.get("receives"))


class KeyNotFound(Problem):
    """No message of the queue has the key."""


class KeyTaken(Problem):
    """Another message of the queue has the key."""

    @property
    def id(self) -> str:
        """The id of the message that has it."""
        return str(self.facts.get("id", ""))

    @property
    def key(self) -> str:
        """The key."""
        return str(self.facts.get("key", ""))


class ScheduleNotFound(Problem):
    """The queue has no schedule of this name."""


class SettingsChanged(Problem):
    """The settings have changed since the entity tag was read: read them again."""


class SettingsFixed(Problem):
    """The queue was created with another `bucket` or `shards`, which cannot change."""


class ShovelNotFound(Problem):
    """The queue's shovel never ran, and has no interval to run by."""


class ShovelRunning(Problem):
    """The queue's shovel runs already."""

    @property
    def id(self) -> str:
        """The id of the run; empty while it is not known yet."""
        return str(self.facts.get("id", ""))


class TooLarge(Problem):
    """A body, a batch or the headers are larger than mq accepts."""


class Unavailable(Problem):
    """mq cannot do it now (5xx, and 408): its disk is full or failed, or another request is busy
    with the message. Whether it did anything depends on the type.
    """


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


_CLASSES: Final[Mapping[str, type[Problem]]] = {
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "queue-not-found": QueueNotFound,
    "queue-expired": QueueExpired,
    "message-not-found": MessageNotFound,
    "message-leased": MessageLeased,
    "delivered-again": DeliveredAgain,
    "key-not-found": KeyNotFound,
    "key-taken": KeyTaken,
    "schedule-not-found": ScheduleNotFound,
    "settings-changed": SettingsChanged,
    "settings-fixed": SettingsFixed,
    "shovel-not-found": ShovelNotFound,
    "shovel-running": ShovelRunning,
    "body-too-large": TooLarge,
    "batch-too-large": TooLarge,
    "headers-too-large": TooLarge,
}
_SERVERS_FAULT: Final = 500
_TOO_SLOW: Final = 408


def problem_of(said: Mapping[str, Any], retry_after_s: float | None = None) -> Problem:
    """A problem, of the class of its type, else of its status."""
    slug = str(said.get("type", "")).removeprefix(PROBLEM_PREFIX)
    status = _whole(said.get("status"))
    unavailable = status >= _SERVERS_FAULT or status == _TOO_SLOW
    kind = _CLASSES.get(slug, Unavailable if unavailable else Refused)
    return kind(said, retry_after_s)
