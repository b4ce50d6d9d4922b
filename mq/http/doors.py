"""A server's door: who comes in, and how long one who came in may take to say what it wants."""

import array
import asyncio
import contextlib
import fcntl
import logging
import resource
import termios
from collections.abc import Callable, Iterable

from mq.http.answers import Answer
from mq.http.problems import error_answer
from mq.http.room import Bounds, Held, Room
from mq.model.errors import HeadTooSlow, TooManyConnections
from mq.model.serving_limits import REFUSALS_SAID_EVERY_S, REFUSED_LINGER_S, UNPARSED_BYTES_MAX
from mq.runtime.server_settings import ServerSettings

_log = logging.getLogger("mq.http")


def bounds_of(settings: ServerSettings) -> Bounds:
    """The settings' bounds, within this process's limit of open files. The log says where that
    leaves fewer connections than the settings.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = descriptors == resource.RLIM_INFINITY
    bounds = Bounds.of(settings, float("inf") if endless else descriptors)
    if bounds.connections_max < settings.connections_max:
        fields = {"connections_max": bounds.connections_max, "descriptors": descriptors}
        _log.warning("few open files allowed: fewer connections", extra={"fields": fields})
    return bounds


class Door:
    """Lets connections in, or turns them away. `connections`: those that are in."""

    def __init__(self, bounds: Bounds, connections: Callable[[], Iterable[Held]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._bounds = bounds
        self._room = Room(bounds, connections, self._loop.time)
        self._lingering = 0
        self._refused = 0
        self._said_s = float("-inf")
        self._unparsed = Unparsed()

    def refusal(self, count: int) -> Answer | None:
        """What a new connection is told that there is no room for beside `count` others; None:
        there is.
        """
        if self._room.has_for_one_more(count):
            return None
        self._say_refused(count)
        return error_answer(TooManyConnections(self._bounds.connections_max))

    def turn_away(self, transport: asyncio.Transport, answer: Answer) -> None:
        """Tells a connection its answer and ends it: after a moment, since what is still to be read
        there would have the answer be lost; at once where many linger.
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
        transport.close()

    def watch(self, late: Callable[[Answer], None]) -> "HeadWatch":
        """For the heads of one connection; `late` is called with the answer to one that is late."""
        return HeadWatch(self._loop, self._bounds.head_s, late)

    def watch_unparsed(self) -> "UnparsedWatch":
        """For what of one connection waits to be parsed."""
        return UnparsedWatch(self._unparsed)

    def watch_unread(self) -> "UnreadWatch":
        """For what one connection's client is to read."""
        return UnreadWatch(self._loop, self._bounds.unread_s)


class Unparsed:
    """The bytes of all connections that wait to be parsed."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class UnparsedWatch:
    """Counts those of one connection."""

    __slots__ = ("_all", "size")

    def __init__(self, unparsed: Unparsed) -> None:
        self._all = unparsed
        self.size = 0

    def holds(self, size: int) -> bool:
        """That many wait now; False: there is no room for more than before."""
        more = size - self.size
        if more > 0 and self._all.bytes + more > UNPARSED_BYTES_MAX:
            return False
        self._all.bytes += more
        self.size = size
        return True


class HeadWatch:
    """Has a head that began end in time."""

    __slots__ = ("_head_s", "_late", "_loop", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, head_s: float, late: Callable[[Answer], None]
    ) -> None:
        self._loop = loop
        self._head_s = head_s
        self._late = late
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        """Whether a head has begun."""
        return self._timer is not None

    def mind(self, has_begun: bool) -> None:
        """Whether there is some of a head, and not all of it."""
        if not has_begun:
            self.end()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._head_s, self._is_late)

    def end(self) -> None:
        """The head is whole, or nobody is there to end it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_late(self) -> None:
        self._timer = None
        self._late(error_answer(HeadTooSlow(self._head_s)))


class UnreadWatch:
    """Gives a client up that has taken nothing of what waits for it, for so long. Else it would
    have its connection, and what waits, for ever.
    """

    __slots__ = ("_left", "_loop", "_timer", "_transport", "_unread_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, unread_s: float) -> None:
        self._loop = loop
        self._unread_s = unread_s
        self._transport: asyncio.Transport | None = None
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """More waits than the transport likes."""
        self.end()
        self._transport, self._left = transport, _untaken(transport)
        self._timer = self._loop.call_later(self._unread_s, self._look)

    def end(self) -> None:
        """The transport has room again, or is gone."""
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
    """How many bytes wait for the client, here and in the system."""
    waits = array.array("i", [0])
    socket = transport.get_extra_info("socket")
    if socket is not None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, waits)
    return transport.get_write_buffer_size() + waits[0]
