"""How long a client waits, and how it retries."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from mq.model.clock import Clock, SystemClock

URL_DEFAULT: Final = "http://127.0.0.1:8080"
# The most attempts of a call, and the longest time-out or pause.
ATTEMPTS_MAX: Final = 100
SECONDS_MAX: Final = 7 * 24 * 3600.0
# How long closing a consumer, a WebSocket or a client may take.
CLOSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a client waits for mq, in seconds.

    `connect_s`: for a connection, and for a WebSocket's first answer. `answer_s`: for each sign of
    life of a request: mq reads a piece of its body, the answer's head arrives, a piece of its body
    arrives. So a large body may take any time while it moves. A fetch's `wait_s` is added. Raises
    ValueError.
    """

    connect_s: float = 5.0
    answer_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("connect_s", "answer_s"):
            check_seconds(name, getattr(self, name), 0.001)


@dataclass(frozen=True, slots=True)
class Retry:
    """How a client retries a request that is safe to repeat.

    `attempts` counts the first; 1 never retries. The wait before the second is random, up to
    `first_s` (full jitter), then up to twice as long each time, at most `longest_s`; and at least
    the answer's `Retry-After`. `deadline_s`, for all attempts together: none begins later, and all
    but the first are cut short by it. A fetch's `wait_s` is added. Raises ValueError.
    """

    attempts: int = 5
    first_s: float = 0.1
    longest_s: float = 5.0
    deadline_s: float = 30.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise ValueError(
                f"attempts must be a whole number from 1 to {ATTEMPTS_MAX}, not {self.attempts!r}"
            )
        for name in ("first_s", "longest_s", "deadline_s"):
            check_seconds(name, getattr(self, name), 0.0)


def check_seconds(name: str, value: float, least: float, most: float = SECONDS_MAX) -> None:
    """Raises ValueError for an option outside of its bounds."""
    if not least <= value <= most:
        raise ValueError(f"{name} must be seconds from {least:g} to {most:g}, not {value!r}")


@dataclass(frozen=True, slots=True)
class Seams:
    """What a test may replace: how a client waits, its random numbers from 0 to 1, its clock."""

    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    clock: Clock = field(default_factory=SystemClock)
