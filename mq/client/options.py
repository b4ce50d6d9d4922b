"""What a client may be told about time: how long it waits, and how it tries again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mq.client.limits import ATTEMPTS_MAX, SECONDS_MAX
from mq.model.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a client waits for mq.

    `connect_s`: for a connection, and for a WebSocket's first answer. `answer_s`: for each sign of
    life of a request: a piece of its body that was taken, the answer's head, a piece of what it
    carries. A fetch that waits at the server has its `wait_s` on top. So a large body may take as
    long as it takes, while it moves.
    """

    connect_s: float = 5.0
    answer_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("connect_s", "answer_s"):
            _check(name, getattr(self, name), 0.001)


@dataclass(frozen=True, slots=True)
class Retry:
    """How a client tries again what is safe to try again.

    `attempts` counts the first; 1 never tries again. Before the second it waits up to `first_s`, by
    chance (full jitter), then up to twice as long each time, at most `longest_s`; and as long as
    `Retry-After` says at least. `deadline_s`: for all of it together: no attempt begins later, and
    those after the first are cut short by it. A fetch's `wait_s` comes on top.
    """

    attempts: int = 5
    first_s: float = 0.1
    longest_s: float = 5.0
    deadline_s: float = 30.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise ValueError(f"attempts is a whole number from 1 to {ATTEMPTS_MAX}")
        for name in ("first_s", "longest_s", "deadline_s"):
            _check(name, getattr(self, name), 0.0)


def _check(name: str, value: float, least: float) -> None:
    if not least <= value <= SECONDS_MAX:
        raise ValueError(f"{name} is seconds from {least:g} to {SECONDS_MAX:g}")


@dataclass(frozen=True, slots=True)
class Seams:
    """What else a client asks of the world, so that a test can say it: how to wait, chance from 0
    to 1, and the clock.
    """

    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    clock: Clock = field(default_factory=SystemClock)
