"""Sends requests, and repeats them where that is safe. No other module does.

A `Call` is a request as a value: its content, how its answer is read, when it may be repeated. The
modules of the queue's nouns make calls; a `Sender` sends them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from mq.client import wire
from mq.client.bodies import StreamedBody
from mq.client.errors import ClientError, NotMq, NotUsable, Problem, Unanswered, UpgradeRefused
from mq.client.forks import renewed_by_forks
from mq.client.options import Retry, Seams, Timeouts
from mq.client.transport import Answer, Limits, Pairs, Request, Socket, Transport
from mq.client.values import NewMessage

T = TypeVar("T")

# After these mq has done nothing: it reports each before it acts, or after it lost a race.
NOTHING_DONE: Final = frozenset(
    {
        "message-busy",
        "no-memory",
        "queue-full",
        "queue-paused",
        "too-many-connections",
        "too-many-selections",
        "too-many-shovels",
        "too-many-waiters",
    }
)
# Statuses of a proxy that did not reach mq, or did not get its answer: mq may have the request.
_PROXYS: Final = frozenset({502, 503, 504})
# The status of a proxy that did not pass the request on.
_TOO_MANY: Final = 429


class Again(Enum):
    """When a request may be repeated."""

    SAFE = "always: twice has the effect of once"
    ANSWERED = "after a retryable problem, but not after a lost answer"
    UNDONE = "when mq has certainly done nothing"
    NEVER = "never: the caller asks for the current state"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request whose answer gives a T.

    `read` gets an answer of an expected status; it raises NotMq. `when_repeated` judges a problem
    that follows a lost answer, as a 404 after a delete: it returns the call's result, or raises the
    problem.
    """

    request: Request
    read: Callable[[Answer], T]
    again: Again = Again.SAFE
    when_repeated: Callable[[ClientError], T] | None = None


def nothing(_: Answer) -> None:
    """Reads an answer of which only the status matters."""


def done_after(*kinds: type[Problem]) -> Callable[[ClientError], None]:
    """A `when_repeated` by which these problems mean that an earlier attempt succeeded."""

    def judge(problem: ClientError) -> None:
        if not isinstance(problem, kinds):
            raise problem

    return judge


class Lingers(Protocol):
    """Publishes a message together with others."""

    async def publish(self, queue: str, message: NewMessage) -> str | None:
        """Its id; None: it is not published, and must go alone."""
        ...

    def forked(self) -> None:
        """See OfAProcess."""


class Sender:
    """Sends the calls of one client, in one event loop of a process."""

    def __init__(
        self,
        transport: Transport,
        headers: Pairs,
        timeouts: Timeouts,
        retry: Retry,
        seams: Seams,
        shown_url: str = "",
    ) -> None:
        """`shown_url`: mq's URL for logs, without a password."""
        self._transport = transport
        self._headers = headers
        self.timeouts = timeouts
        self.retry = retry
        self.seams = seams
        self.shown_url = shown_url
        self.linger: Lingers | None = None
        """Where single publishes wait for others."""
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        renewed_by_forks(self)

    def forked(self) -> None:
        """See OfAProcess."""
        self._loop = None
        if self.linger is not None:
            self.linger.forked()

    def check_usable(self) -> None:
        """Raises NotUsable once it is closed."""
        if self._is_closed:
            raise NotUsable.closed()

    def check_loop(self) -> None:
        """Raises NotUsable: closed, or used in another event loop."""
        self.check_usable()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            raise NotUsable(
                "the AsyncClient is used in another event loop than before: make one in each loop"
            )

    async def send(self, call: Call[T], *, was_tried: bool = False) -> T:
        """Sends a call until it succeeds or may not be repeated; its result. `was_tried`: whether
        an earlier attempt, made in another way, may have done it. Raises ClientError.
        """
        clock, retry = self.seams.clock, self.retry
        began_s = clock.steady_s()
        attempt, was_lost = 1, was_tried
        while True:
            passed_s = clock.steady_s() - began_s
            try:
                answer = await self._once(call.request, attempt, passed_s)
                return call.read(wire.checked(answer, call.request.expected))
            except ClientError as error:
                is_final = isinstance(error, Problem) and not error.retryable
                if was_lost and is_final and call.when_repeated is not None:
                    return call.when_repeated(error)
                if not is_safe(call.again, call.request, error):
                    raise
                # The time for which mq may hold a fetch does not count.
                passed_s = clock.steady_s() - began_s - call.request.wait_s
                pause_s = next_pause_s(attempt, passed_s, error, retry, self.seams.chance())
                if pause_s is None:
                    raise
                was_lost = was_lost or may_be_done(error)
            await self.seams.sleep(pause_s)
            attempt += 1

    async def _once(self, request: Request, attempt: int, passed_s: float) -> Answer:
        self.check_loop()
        limits = self._limits(request, attempt, passed_s)
        try:
            return await self._transport.request(request.with_headers(self._headers), limits)
        except Unanswered as error:
            if self._is_closed:
                raise NotUsable.closed() from error
            raise

    def _limits(self, request: Request, attempt: int, passed_s: float) -> Limits:
        """The time-outs; after the first attempt, cut to what the deadline leaves."""
        connect_s, answer_s = self.timeouts.connect_s, self.timeouts.answer_s
        if attempt > 1:
            left_s = max(self.retry.deadline_s + request.wait_s - passed_s, 0.001)
            connect_s, answer_s = min(connect_s, left_s), min(answer_s, left_s)
        return Limits(connect_s, answer_s + request.wait_s)

    async def connect(self, request: Request) -> Socket:
        """Opens a WebSocket; one attempt. Raises as a transport does."""
        self.check_loop()
        # A proxy may swallow the handshake: the answer to it has no longer than a connection.
        limits = Limits(self.timeouts.connect_s, self.timeouts.connect_s)
        return await self._transport.connect(request.with_headers(self._headers), limits)

    async def close(self) -> None:
        """Closes the transport. May be called again."""
        self._is_closed = True
        await self._transport.close()


class OfQueue:
    """The base of a queue's nouns: its name, and the sender of its calls."""

    __slots__ = ("_sender", "name")

    name: str
    """The queue's name."""

    def __init__(self, name: str, sender: Sender) -> None:
        self.name = name
        self._sender = sender

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def passes(error: ClientError) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, Problem):
        return error.retryable
    if isinstance(error, NotMq):
        return error.status in _PROXYS or error.status == _TOO_MANY
    return isinstance(error, Unanswered)


def may_be_done(error: ClientError) -> bool:
    """Whether mq may have carried out the request in spite of the error."""
    if isinstance(error, Unanswered):
        return error.was_sent
    if isinstance(error, Problem):
        return error.retryable and error.slug not in NOTHING_DONE
    return isinstance(error, NotMq) and error.status in _PROXYS


def is_safe(again: Again, request: Request, error: ClientError) -> bool:
    """Whether the request may be repeated after the error."""
    if not passes(error) or isinstance(error, UpgradeRefused):
        return False
    if isinstance(request.body, StreamedBody) and not request.body.can_begin:
        return False
    match again:
        case Again.SAFE:
            return True
        case Again.ANSWERED:
            return isinstance(error, Problem) or not may_be_done(error)
        case Again.UNDONE:
            return not may_be_done(error)
        case Again.NEVER:
            return False


def pause_before(attempt: int, error: ClientError | None, retry: Retry, chance: float) -> float:
    """The wait before an attempt, in seconds; the second is 2. Full jitter, `chance` from 0 to 1;
    at least Retry-After.
    """
    # Bounded first: a float has no larger power.
    doublings = min(attempt - 2, 63)
    pause_s = chance * min(retry.longest_s, retry.first_s * 2.0**doublings)
    after_s = error.retry_after_s if isinstance(error, Problem) else None
    return max(pause_s, after_s or 0.0)


def next_pause_s(
    attempt: int, passed_s: float, error: ClientError, retry: Retry, chance: float
) -> float | None:
    """The wait after attempt number `attempt`, `passed_s` after the first began, in seconds; None:
    there is no other attempt.
    """
    if attempt >= retry.attempts:
        return None
    pause_s = pause_before(attempt + 1, error, retry, chance)
    return None if passed_s + pause_s >= retry.deadline_s else pause_s
