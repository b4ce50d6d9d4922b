"""What a client raises: one root, with the facts of each; no exception of another library.

`Unanswered` and its kinds: nobody said what became of the request. `Problem` and its kinds: mq said
what stood in the way (RFC 9457). The table at the end is the one map of problem types to classes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

PROBLEM_PREFIX: Final = "urn:mq:problem:"
_MEMBERS: Final = frozenset({"type", "title", "status", "detail", "retryable"})
_SHOWN_CHARS_MAX: Final = 200
_LINE_CHARS_MAX: Final = 300


def one_line(error: BaseException, *, with_kind: bool = False) -> str:
    """An exception in a line of a log: bounded, on one line; `with_kind`: its class first."""
    kind, text = type(error).__name__, " ".join(str(error).split())
    if not text:
        return kind
    said = f"{kind}: {text}" if with_kind else text
    return said if len(said) <= _LINE_CHARS_MAX else f"{said[: _LINE_CHARS_MAX - 1]}…"


class ClientError(Exception):
    """The root of all that a client raises."""


class NotUsable(ClientError):
    """The client cannot be used: it is closed, or belongs to another event loop, or to the process
    that this one was forked from. Final: trying again does not help.
    """


class BadName(ClientError, ValueError):
    """A text that is no queue's name."""


class AlreadySettled(ClientError):
    """The message was settled before, by another word than this one."""


class Unanswered(ClientError):
    """Nobody said what became of the request. `was_sent`: whether mq may have acted on it."""

    was_sent = True


class CouldNotConnect(Unanswered):
    """Nothing listens there, or it cannot be reached. Nothing was sent."""

    was_sent = False


class ConnectionLost(Unanswered):
    """The connection ended before the answer had come: mq may have acted on the request, or not."""


class TimedOut(Unanswered, TimeoutError):
    """The answer did not come in time: mq may have acted on the request, or not."""


class NotMq(ClientError):
    """An answer that is not mq's: of a proxy, or of another server at this address."""

    def __init__(self, status: int, shown: str, why: str = "is not mq's") -> None:
        super().__init__(status, shown, why)
        self.status = status
        """That of the answer."""
        self.shown = shown[:_SHOWN_CHARS_MAX]
        """The beginning of what came."""
        self.why = why

    def __str__(self) -> str:
        shown = f": {self.shown}" if self.shown else ""
        return f"the answer with status {self.status} {self.why}{shown}"


class UpgradeRefused(NotMq):
    """What was to be a WebSocket was answered as something else: most often, a proxy is between."""

    def __init__(self, status: int, shown: str = "", why: str = "begins no WebSocket") -> None:
        super().__init__(status, shown, why)


class Problem(ClientError):
    """What mq says that stood in the way. `retryable`: the same may succeed later."""

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
        """The members that this type has beside the usual ones, such as `queue`."""
        self.retry_after_s = retry_after_s
        """After how many seconds mq would have it tried again; None where it did not say."""

    def __str__(self) -> str:
        said = self.detail or self.title or "a problem"
        facts = ", ".join(f"{name} {value!r}" for name, value in self.facts.items())
        return f"{said} ({self.slug}{', ' if facts else ''}{facts})"


class Refused(Problem):
    """The request is not one that mq takes (400 and others of its kind): a mistake of the caller's,
    or of mq's settings. `facts["parameter"]` often says which parameter.
    """


class Unauthenticated(Problem):
    """No token was sent, or none that is good (401): `Client(token=...)`."""

    @classmethod
    def here(cls) -> "Unauthenticated":
        """As mq would say it, where what it said is not to be had."""
        said = {
            "type": f"{PROBLEM_PREFIX}unauthenticated",
            "title": "Unauthenticated",
            "status": 401,
            "detail": "A token that is good is to be shown here.",
            "retryable": False,
        }
        return cls(said)


class Forbidden(Problem):
    """The token has not the right that this takes (403)."""

    @property
    def right(self) -> str:
        """The right: `publish`, `consume`, `admin`, or `any`."""
        return str(self.facts.get("right", ""))


class QueueNotFound(Problem):
    """There is no such queue."""


class QueueExpired(Problem):
    """The queue has expired: it takes no messages and gives none."""


class MessageNotFound(Problem):
    """The queue has no such message."""


class MessageLeased(Problem):
    """The message is in the lease of a consumer of many: it can be read and deleted alone."""


class DeliveredAgain(Problem):
    """The message has been delivered again since: it is another's now."""

    @classmethod
    def here(cls, receives: int) -> "DeliveredAgain":
        """As mq would say it, where the client itself knows it."""
        said = {
            "type": f"{PROBLEM_PREFIX}delivered-again",
            "title": "Delivered again",
            "status": 412,
            "detail": "The message has been delivered again since.",
            "retryable": False,
            "receives": receives,
        }
        return cls(said)

    @property
    def receives(self) -> int:
        """How often it has been delivered by now."""
        return _whole(self.facts.get("receives"))


class KeyNotFound(Problem):
    """No message has the key."""


class KeyTaken(Problem):
    """A living message has the key."""

    @property
    def id(self) -> str:
        """Of the message that has it."""
        return str(self.facts.get("id", ""))

    @property
    def key(self) -> str:
        """The key."""
        return str(self.facts.get("key", ""))


class ScheduleNotFound(Problem):
    """The queue has no such schedule."""


class SettingsChanged(Problem):
    """The settings are others by now than those that the change was meant for."""


class SettingsFixed(Problem):
    """The queue was made with other settings, which stay as long as it does."""


class ShovelNotFound(Problem):
    """The queue's shovel has never run, and is not to by itself."""


class ShovelRunning(Problem):
    """The queue's shovel runs: one at a time."""

    @property
    def id(self) -> str:
        """Of the run that goes on; empty where that is not known yet."""
        return str(self.facts.get("id", ""))


class TooLarge(Problem):
    """A body, a batch, or headers are larger than they may be."""


class Unavailable(Problem):
    """mq cannot do it at this moment (503 and others of its kind): its disk is full, or failed, or
    somebody is at the message. Whether anything was done hangs on the type.
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
    """The problem of the class that its type has, else that its status has."""
    slug = str(said.get("type", "")).removeprefix(PROBLEM_PREFIX)
    status = _whole(said.get("status"))
    unavailable = status >= _SERVERS_FAULT or status == _TOO_SLOW
    kind = _CLASSES.get(slug, Unavailable if unavailable else Refused)
    return kind(said, retry_after_s)
