"""A call: a request, how its answer is read, and when it may be said again."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from mq.client.errors import ClientError, Problem
from mq.client.transport import Answer, Request

T = TypeVar("T")


class Again(Enum):
    """When a request may be sent again by itself."""

    SAFE = "whatever became of the last one: twice is as once"
    ANSWERED = "after a problem that passes, but not when the answer was lost"
    UNDONE = "when surely nothing was done"
    NEVER = "never: whoever asks wants to know how it is now"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request whose answer gives a T.

    `read` raises Problem or NotMq. `when_repeated` says what a problem means that comes after an
    attempt whose answer was lost, as a 404 after a delete does: it gives what the call gives then,
    or raises the problem.
    """

    request: Request
    read: Callable[[Answer], T]
    again: Again = Again.SAFE
    when_repeated: Callable[[ClientError], T] | None = None


def done_after(*kinds: type[Problem]) -> Callable[[ClientError], None]:
    """These problems, after an attempt whose answer was lost, mean that it was done."""

    def judge(problem: ClientError) -> None:
        if not isinstance(problem, kinds):
            raise problem

    return judge
