"""What is wrong with what a WebSocket's client asks for."""

from dataclasses import dataclass

from mq.model.errors import MqError


@dataclass(eq=False)
class BadFrame(MqError):
    """What a WebSocket's client says and is no command; `ref` is what it calls it."""

    expected: str
    ref: str | int | None = None
    is_json: bool = True


class NoWebSocket(MqError):
    """A request that begins no WebSocket, where only that is served."""


class ForeignOrigin(MqError):
    """A browser's page of another origin asks for a change, or a WebSocket."""


@dataclass(eq=False)
class AlreadySubscribed(MqError):
    """The connection has a subscription of the queue."""

    queue: str


@dataclass(eq=False)
class NotSubscribed(MqError):
    """The connection has no subscription of the queue."""

    queue: str


@dataclass(eq=False)
class TooManySubscriptions(MqError):
    """The connection has as many as it can have."""

    subscriptions_max: int


@dataclass(eq=False)
class TooMuchCredit(MqError):
    """More than a connection can have of credit and of messages that it holds, together."""

    credit_max: int
