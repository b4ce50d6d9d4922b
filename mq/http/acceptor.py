"""Admission of connections, and limits on their time and memory."""

import array
import asyncio
import contextlib
import fcntl
import resource
import termios
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

from mq.http.answers import Answer, error_answer
from mq.model.errors import HeadTooSlow, TooManyConnections
from mq.model.limits import MIB
from mq.model.log import logger
from mq.runtime.server_settings import UNREAD_S_DEFAULT, ServerSettings

# A connection idle for this long may be closed for another; how often those are searched for.
IDLE_S_MIN: Final = 1.0
IDLE_LOOK_EVERY_S: Final = 0.1
# Refused connections that may still read their answer.
REFUSED_LINGER_MAX: Final = 256
# Of the files that a process may open: how many are kept for its own work (messages, histories,
# uploads), or their share if there are few; and the share for refused connections.
DESCRIPTORS_KEPT: Final = 512
DESCRIPTORS_KEPT_SHARE: Final = 0.5
DESCRIPTORS_REFUSED_SHARE: Final = 0.1


class Held(Protocol):
    """A connection, as the limit sees it."""

    @property
    def idle_since_s(self) -> float | None:
        """Since when it is idle, by the loop's clock; None: it is not."""

    @property
    def has_spoken(self) -> bool:
        """Whether the client has sent anything."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of connections: their number, and the time of a head, after which a client that has
    sent nothing counts as idle.
    """

    connections_max: int
    head_s: float
    unread_s: float = UNREAD_S_DEFAULT
    """How long a client may read nothing of what waits for it."""
    lingering_max: int = REFUSED_LINGER_MAX
    """How many refused connections may still read their answer."""

    @classmethod
    def of(cls, settings: ServerSettings, descriptors: float) -> Self:
        """The settings' bounds within the limit of open files, of which each connection takes one;
        without spare ones no connection could be accepted, or even refused.
        """
        kept = min(DESCRIPTORS_KEPT, descriptors * DESCRIPTORS_KEPT_SHARE)
        lingering = min(REFUSED_LINGER_MAX, descriptors * DESCRIPTORS_REFUSED_SHARE)
        free = max(1.0, descriptors - kept - lingering)
        return cls(
            int(min(settings.connections_max, free)),
            settings.head_s,
            settings.unread_s,
            int(lingering),
        )


class ConnectionLimit:
    """Admits or refuses each new connection. `connections`: those that exist."""

    def __init__(
        self, bounds: Bounds, connections: Callable[[], Iterable[Held]], now_s: Callable[[], float]
    ) -> None:
        self._bounds: Final = bounds
        self._connections = connections
        self._now_s = now_s
        self._idle: deque[tuple[float, Held]] = deque()
        self._looked_s = float("-inf")

    def admits(self, count: int) -> bool:
        """Whether one more may come beside `count` others; at the limit the one that is idle for
        longest is closed for it.
        """
        return count < self._bounds.connections_max or self._close_one()

    def _close_one(self) -> bool:
        now_s = self._now_s()
        if not self._idle and now_s - self._looked_s >= IDLE_LOOK_EVERY_S:
            self._looked_s = now_s
            self._idle.extend(found_idle(self._connections(), now_s, self._bounds.head_s))
        while self._idle:
            since_s, held = self._idle.popleft()
            if held.idle_since_s == since_s:  # Not used since.
                held.close()
                return True
        return False


def found_idle(
    connections: Iterable[Held], now_s: float, head_s: float
) -> Sequence[tuple[float, Held]]:
    """The connections that may be closed for new ones, and since when they are idle; oldest
    first.
    """
    found: list[tuple[float, Held]] = []
    for each in connections:
        since_s = each.idle_since_s
        patience_s = IDLE_S_MIN if each.has_spoken else head_s
        if since_s is not None and now_s - since_s >= patience_s:
            found.append((since_s, each))
    return sorted(found, key=lambda one: one[0])


# Bytes of incomplete heads and pipelined requests of all connections of a process.
UNPARSED_BYTES_MAX: Final = 16 * MIB
# How long refused connections may read their answer; the time between two log lines about them.
REFUSED_LINGER_S: Final = 1.0
REFUSALS_SAID_EVERY_S: Final = 60.0

_log = logger("mq.http")


def bounds_of(settings: ServerSettings) -> Bounds:
    """The settings' bounds within the process's limit of open files. Logs a warning if that allows
    fewer connections than the settings.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = descriptors == resource.RLIM_INFINITY
    bounds = Bounds.of(settings, float("inf") if endless else descriptors)
    if bounds.connections_max < settings.connections_max:
        fields = {"connections_max": bounds.connections_max, "descriptors": descriptors}
        _log.warning(
            "the limit of open files allows fewer connections than configured",
            extra={"fields": fields},
        )
    return bounds


class Acceptor:
    """Admits or refuses connections. `connections`: those admitted."""

    def __init__(self, bounds: Bounds, connections: Callable[[], Iterable[Held]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._bounds = bounds
        self._limit = ConnectionLimit(bounds, connections, self._loop.time)
        self._lingering = 0
        self._refused = 0
        self._said_s = float("-inf")
        self._unparsed = Unparsed()

    def refusal(self, count: int) -> Answer | None:
        """The answer that refuses a new connection beside `count` others; None: it is admitted."""
        if self._limit.admits(count):
            return None
        self._say_refused(count)
        return error_answer(TooManyConnections(self._bounds.connections_max))

    def turn_away(self, transport: asyncio.Transport, answer: Answer) -> None:
        """Sends the answer and closes the connection: after a moment, since closing with unread
        input resets the connection and loses the answer; at once if many linger already.
        """
        transport.write(answer.encoded())
        if self._lingering >= self._bounds.lingering_max:
            transport.close()
            return
        self._lingering += 1
        if transport.can_write_eof():
            transport.write_eof()
        self._loop.call_later(REFUSED_LINGER_S, self._end, transport)

    def _say_refused(self, count: int) -> None:
        self._refused += 1
        if self._loop.time() - self._said_s >= REFUSALS_SAID_EVERY_S:
            fields = {"connections": count, "refused": self._refused}
            _log.warning("connections are refused: all are in use", extra={"fields": fields})
            self._said_s, self._refused = self._loop.time(), 0

    def _end(self, transport: asyncio.Transport) -> None:
        self._lingering -= 1
        if transport.get_write_buffer_size():
            transport.abort()  # The client reads nothing.
        else:
            transport.close()

    def watch(self, late: Callable[[Answer], None]) -> "HeadWatch":
        """A watch over a connection's heads; `late` gets the answer to one that is late."""
        return HeadWatch(self._loop, self._bounds.head_s, late)

    def watch_unparsed(self) -> "UnparsedWatch":
        """A count of a connection's unparsed bytes."""
        return UnparsedWatch(self._unparsed)

    def watch_unread(self) -> "UnreadWatch":
        """A watch over a client that does not read."""
        return UnreadWatch(self._loop, self._bounds.unread_s)


class Unparsed:
    """The unparsed bytes of all connections."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class UnparsedWatch:
    """The unparsed bytes of one connection."""

    __slots__ = ("_all", "size")

    def __init__(self, unparsed: Unparsed) -> None:
        self._all = unparsed
        self.size = 0

    def holds(self, size: int) -> bool:
        """Sets how many bytes wait; False, and nothing is set, where they exceed the limit."""
        more = size - self.size
        if more > 0 and self._all.bytes + more > UNPARSED_BYTES_MAX:
            return False
        self._all.bytes += more
        self.size = size
        return True


class HeadWatch:
    """Limits the time of one connection's heads: `late` gets the answer to one that is late."""

    __slots__ = ("_head_s", "_late", "_loop", "timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, head_s: float, late: Callable[[Answer], None]
    ) -> None:
        self._loop = loop
        self._head_s = head_s
        self._late = late
        self.timer: asyncio.TimerHandle | None = None
        """Runs while a head is incomplete."""

    def mind(self, has_begun: bool) -> None:
        """Starts or stops the time of a head that `has_begun` and is incomplete."""
        if not has_begun:
            self.end()
        elif self.timer is None:
            self.timer = self._loop.call_later(self._head_s, self._is_late)

    def end(self) -> None:
        """The head is complete, or the client is gone."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _is_late(self) -> None:
        self.timer = None
        self._late(error_answer(HeadTooSlow(self._head_s)))


class UnreadWatch:
    """Aborts a connection whose client reads nothing of the waiting bytes for `unread_s`."""

    __slots__ = ("_left", "_loop", "_timer", "_transport", "_unread_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, unread_s: float) -> None:
        self._loop = loop
        self._unread_s = unread_s
        self._transport: asyncio.Transport | None = None
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """The transport's buffer is over its limit."""
        self.end()
        self._transport, self._left = transport, _untaken(transport)
        self._timer = self._loop.call_later(self._unread_s, self._look)

    def end(self) -> None:
        """The transport has written enough, or is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport = None

    def _look(self) -> None:
        transport = self._transport
        if transport is None:
            return
        left = _untaken(transport)
        if left >= self._left:
            self.end()
            transport.abort()
            return
        self._left = left
        self._timer = self._loop.call_later(self._unread_s, self._look)


def _untaken(transport: asyncio.Transport) -> int:
    """The bytes that wait for the client, in this process and in the kernel."""
    waits = array.array("i", [0])
    socket = transport.get_extra_info("socket")
    if socket is not None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, waits)
    return transport.get_write_buffer_size() + waits[0]
