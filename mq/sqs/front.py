"""What SQS's operations share: the caller, the queue of a URL, and errors as SQS has them."""

import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from mq.access.callers import Caller, Needed, check
from mq.access.errors import Forbidden, Unauthenticated
from mq.broker.queue import Queue
from mq.http.request import Request
from mq.http.service import Service
from mq.model import errors
from mq.model.names import MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.protocol.problems import facts_of, problem_for, problem_members
from mq.sqs.attempts import Attempts
from mq.sqs.errors import SqsError, no_queue
from mq.sqs.names import (
    ACCOUNT_DEFAULT,
    REGION_DEFAULT,
    Home,
    account_in_url,
    name_in_url,
    queue_of,
)
from mq.sqs.queue_attributes import Kept, kept_of

Result: TypeAlias = dict[str, Any]
"""An operation's input or output, by SQS's names."""
_REGION: Final = re.compile(r"Credential=[^/,&]+/[0-9]{8}/([a-z0-9-]+)/")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and the daemon's parts. `url`: of its queue, or its path."""

    service: Service
    request: Request
    url: str
    caller: Caller
    attempts: Attempts

    @property
    def home(self) -> Home:
        """Where the client found this mq, so that it comes back."""
        request = self.request
        transport = request.client.transport
        is_tls = transport is not None and transport.get_extra_info("ssl_object") is not None
        scheme = request.headers.get("X-Forwarded-Proto") or ("https" if is_tls else "http")
        if scheme not in ("http", "https"):
            scheme = "http"
        host = request.headers.get("Host", "localhost")
        region = _REGION.search(request.headers.get("Authorization") or unquote(request.raw_query))
        account = account_in_url(self.url) or ACCOUNT_DEFAULT
        return Home(f"{scheme}://{host}", account, region[1] if region else REGION_DEFAULT)

    def admit(self, needed: Needed, queue: QueueName) -> None:
        """Raises Forbidden, Unauthenticated."""
        if self.service.access.is_on:
            check(self.caller, needed, queue.text)

    def sender(self) -> tuple[str, str | None]:
        """The address that the request came from, and its caller's name; None: anonymous."""
        return self.request.sender()[0], self.caller.name if self.service.access.is_on else None

    async def open(self, url: str, needed: Needed) -> "Opened":
        """The queue of a URL. Raises SqsError without one, and Forbidden, Unavailable."""
        name = name_in_url(url)
        if not name:
            raise no_queue()
        return await self.open_named(name, needed)

    async def open_named(self, name: str, needed: Needed) -> "Opened":
        """The queue of a name. Raises likewise."""
        queue = queue_of(name)
        self.admit(needed, queue)
        found = self.service.broker.known(queue.text) or await self.service.broker.queue(queue)
        settings = self.service.broker.refresher.usable(found)
        return Opened(name, found, settings, kept_of(name, settings))

    @property
    def now_s(self) -> int:
        return self.service.broker.root.now_ms() // 1000


@dataclass(frozen=True, slots=True)
class Opened:
    """A queue, under its SQS name, with its settings as of now."""

    name: str
    queue: Queue
    settings: QueueSettings
    kept: Kept

    @property
    def sources(self) -> tuple[QueueName, ...]:
        """Where its messages are: others' dead letters come to its sideline."""
        name = self.queue.name
        return (name.sideline(), name) if self.kept.is_dead else (name,)


_TIMED_CHARS: Final = len("01a21be9-e24e-71e8-8")
"""What an id tells of its publish: the milliseconds, and a count within them."""

_DENIED: Final = ("AccessDeniedException", "Access to the resource is denied.")
_FAILURES: Final[dict[type[BaseException], tuple[str, str]]] = {
    errors.QueueNotFound: ("QueueDoesNotExist", "The specified queue does not exist."),
    errors.QueueExpired: ("QueueDoesNotExist", "The specified queue has expired."),
    errors.QueuePaused: ("RequestThrottled", "The queue is paused."),
    errors.QueueFull: ("OverLimit", "The queue is full."),
    errors.TooManyQueues: ("OverLimit", "There are as many queues as this server allows."),
    errors.BodyTooLarge: (
        "InvalidParameterValueException",
        "One or more parameters are invalid. Reason: Message must be shorter than the queue "
        "allows.",
    ),
    Forbidden: _DENIED,
    Unauthenticated: (
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
    ),
}


def failure_of(error: BaseException) -> SqsError | None:
    """The error as SQS has it; None: it is mq's fault."""
    if isinstance(error, SqsError):
        return error
    if isinstance(error, Unauthenticated) and not error.shown:
        return SqsError(*_DENIED)
    for kind, (name, message) in _FAILURES.items():
        if isinstance(error, kind):
            return SqsError(name, message)
    if not isinstance(error, errors.MqError):
        return None
    is_away = isinstance(error, errors.Unavailable)
    detail = problem_members(problem_for(error), facts_of(error))["detail"]
    return SqsError(
        "ServiceUnavailable" if is_away else "InvalidParameterValueException", str(detail)
    )


def sequence_of(message_id: MessageId) -> str:
    """A number of twenty digits that rises with the time of publishing."""
    digits = message_id.text[:_TIMED_CHARS].replace("-", "")
    # The version's digit is the same in all.
    return str(int(digits[:12] + digits[13:], 16)).zfill(20)
