"""The room in queues with a limit: a count of the folders, made now and then, plus what this
process has published since.

Each process counts for itself, and between two counts it does not know what other processes
publish. So a queue may exceed its limit by what they publish in that time.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mq.model.clock import Clock
from mq.model.errors import QueueFull
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.store.format.walk import look_pause_s

# How long a count is used; longer where counting takes long.
LOOKED_AGE_S: Final = 0.5
# A queue that is making room may exceed its limit by one part in this many meanwhile.
SLACK_SHARE: Final = 8
ACCOUNTS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Load:
    """A number of messages, and the bytes of their files."""

    messages: int = 0
    bytes: int = 0

    def __add__(self, other: "Load") -> "Load":
        return Load(self.messages + other.messages, self.bytes + other.bytes)

    def __sub__(self, other: "Load") -> "Load":
        return Load(self.messages - other.messages, self.bytes - other.bytes)

    def __bool__(self) -> bool:
        return self != NOTHING

    def fits(self, settings: QueueSettings, slack: int = 0) -> bool:
        """Whether it fits into a queue of these settings; `slack` n allows 1/n more."""
        return all(
            not most or found <= most + (most // slack if slack else 0)
            for found, most in (
                (self.messages, settings.messages_max),
                (self.bytes, settings.bytes_max),
            )
        )


NOTHING: Final = Load()


@dataclass(frozen=True, slots=True)
class Held:
    """The load of a queue: its ready messages, and the kept ones, which are delayed or in flight.
    Bytes are counted if the settings limit them.
    """

    ready: Load = NOTHING
    kept: Load = NOTHING

    @property
    def all(self) -> Load:
        return self.ready + self.kept

    def excess(self, settings: QueueSettings) -> Load:
        """How many of its ready messages must go. One of them always stays."""
        total = self.all
        over, most = total.messages - settings.messages_max, self.ready.messages - 1
        return Load(
            max(0, min(over, most)) if settings.messages_max else 0,
            max(0, total.bytes - settings.bytes_max) if settings.bytes_max else 0,
        )


class Says(Enum):
    """Whether there is room for a publish, as far as is known."""

    YES = "there is room"
    LOOK = "a look is due"
    FULL = "there is none, as far as is known"
    WAIT = "there may be, once the publishes in progress are counted"
    MAKE = "there is, once the oldest messages have gone"


@dataclass(slots=True)
class _Account:
    """`held`: the load that the last count found; `since`: the load published here since that count
    began; `later`: since the count in progress began; `coming`: the publishes in progress.
    """

    held: Held = Held()
    again_s: float = 0.0
    stale_s: float = 0.0
    since: Load = NOTHING
    later: Load = NOTHING
    coming: Load = NOTHING


class Room:
    """The limited queues of one root, for one process. `count` counts a queue's messages, and their
    bytes if asked to; it blocks, and raises QueueNotFound, OSError. Threads share it.
    """

    def __init__(self, clock: Clock, count: Callable[[QueueName, bool], Held]) -> None:
        self._clock = clock
        self._count = count
        self._accounts: dict[str, _Account] = {}
        self._lock = threading.Lock()
        self._looking = threading.Lock()

    def take(
        self,
        queue: QueueName,
        settings: QueueSettings,
        load: Load,
        largest: int | None = None,
        strictly: bool = False,
    ) -> Says:
        """Whether a publish may begin. With YES it is counted, and the caller then calls `ended`.
        `largest`: the bytes of its largest message; None: it is one message. `strictly`: not if
        room would have to be made. Does not block.
        """
        with self._lock:
            account = self._accounts.get(queue.text)
            if account is None or self._now_s() >= account.stale_s:
                return Says.LOOK
            known = account.held.all + account.since
            total = known + account.coming
            if settings.refuses or strictly:
                says = Says.YES if (total + load).fits(settings) else Says.WAIT
                if says is Says.WAIT and not (known + load).fits(settings):
                    says = Says.FULL
            elif not (account.held.kept + Load(1, largest or load.bytes)).fits(settings):
                says = Says.FULL  # The kept bodies alone fill it.
            else:
                says = Says.YES if total.fits(settings, SLACK_SHARE) else Says.MAKE
            if says is Says.YES:
                account.coming += load
            return says

    def ended(self, queue: QueueName, load: Load, was_published: bool) -> None:
        """A publish that was counted has ended."""
        with self._lock:
            account = self._accounts.get(queue.text)
            if account is not None:
                account.coming -= load
                if was_published:
                    account.since += load
                    account.later += load

    def is_over(self, queue: QueueName, settings: QueueSettings) -> bool:
        """Whether the queue exceeds its limit, as far as is known."""
        with self._lock:
            account = self._accounts.get(queue.text)
            return account is not None and not (account.held.all + account.since).fits(settings)

    def held(self, queue: QueueName) -> Held:
        with self._lock:
            account = self._accounts.get(queue.text)
            return Held() if account is None else account.held

    def pause_s(self, queue: QueueName) -> float:
        """Seconds until the next count, so that counting takes a small share of the time."""
        with self._lock:
            account = self._accounts.get(queue.text)
            return 0.0 if account is None else max(0.0, account.again_s - self._now_s())

    def look(self, queue: QueueName, settings: QueueSettings) -> Held:
        """Counts what the queue holds now; blocking. Raises QueueNotFound, OSError."""
        with self._looking:
            return self._look(queue, settings)

    def _look(self, queue: QueueName, settings: QueueSettings) -> Held:
        began_s = self._now_s()
        with self._lock:
            if (account := self._accounts.get(queue.text)) is not None:
                account.later = NOTHING
        held = self._count(queue, settings.bytes_max > 0)
        ended_s = self._now_s()
        pause_s = look_pause_s(ended_s - began_s)
        with self._lock:
            account = self._accounts.pop(queue.text, None) or _Account()
            account.held, account.since = held, account.later
            account.again_s = ended_s + pause_s
            account.stale_s = ended_s + max(pause_s, LOOKED_AGE_S)
            while len(self._accounts) >= ACCOUNTS_MAX:
                del self._accounts[next(iter(self._accounts))]
            self._accounts[queue.text] = account
        return held

    def takes_in(self, queue: QueueName, settings: QueueSettings, load: Load) -> bool:
        """Whether `load` fits without making room; if so it counts as published. Counts the queue's
        messages where the known count is old or says no: blocking. Raises QueueNotFound, OSError.
        """
        if not settings.is_limited:
            return True
        says = self.take(queue, settings, load, strictly=True)
        if says is Says.LOOK or (says is Says.FULL and not self.pause_s(queue)):
            self.look(queue, settings)
            says = self.take(queue, settings, load, strictly=True)
        if says is Says.YES:
            self.ended(queue, load, was_published=True)
        return says is Says.YES

    def refuse_full(self, queue: QueueName, settings: QueueSettings, load: Load) -> None:
        """Raises QueueFull if there is no room. Otherwise counts the messages as published; room is
        made later if the settings say so. For mq-mover and Spark. Blocking. Raises also
        QueueNotFound, OSError.
        """
        if not settings.is_limited:
            return
        says = self.take(queue, settings, load)
        if says is Says.LOOK or (says is Says.FULL and not self.pause_s(queue)):
            self.look(queue, settings)
            says = self.take(queue, settings, load)
        if says in (Says.LOOK, Says.FULL, Says.WAIT):
            raise full(queue, settings)
        if says is Says.YES:
            self.ended(queue, load, was_published=True)

    def _now_s(self) -> float:
        return self._clock.steady_s()


def full(queue: QueueName, settings: QueueSettings) -> QueueFull:
    """The error of a publish that finds no room."""
    return QueueFull(queue.text, settings.messages_max, settings.bytes_max)
