"""One client's connection: bytes to a request, its answer, then the next request.

Requests may be pipelined. Input behind a request is bounded, and parsed once the answer is written.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, cast

from mq.http.acceptor import Acceptor, Bounds
from mq.http.access import Shown
from mq.http.answers import Answer, Pending, Result, Streamed, error_answer, head_of, problem_answer
from mq.http.bodies import SMALL_CHUNK_BYTES
from mq.http.dispatcher import Dispatcher
from mq.http.request import LINGERING_S, BodyBroken, Framing, Malformed, Request, Upgraded, parse
from mq.model.errors import HeadersTooLarge, NoMemory, Unavailable
from mq.model.limits import KIB
from mq.model.log import logger
from mq.protocol.problems import BAD_REQUEST

# At a drain: how often, and how many times at most, mq checks whether clients that have just
# connected have sent something, before it closes the silent connections.
FIRST_REQUEST_LOOK_S: Final = 0.01
FIRST_REQUEST_LOOKS: Final = 100
KEEPALIVE_S: Final = 75.0

# Pipelined bytes behind an unanswered request: at this size reading pauses.
PIPELINED_BYTES_MAX: Final = 32 * KIB

# How long a handler that a drain cancels may take to clean up.
HANDLER_END_S: Final = 1.0
# Requests of one connection that are parsed before other connections have their turn.
REQUESTS_PER_TURN_MAX: Final = 16

_log = logger("mq.http")

_HEAD: Final = "HEAD"
_SWITCHING: Final = 101


class PendingWrites:
    """Reservations of one connection's answers, held until their last byte has left the process: a
    transport buffers what its client does not read. Call `look` when the transport may write again,
    and `forget` when it is lost.
    """

    __slots__ = ("_holding", "_is_narrowed", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._holding: list[Any] = []
        self._is_narrowed = False

    def add(self, transport: asyncio.WriteTransport, held: object) -> None:
        """Holds a reservation until everything written so far has left."""
        self._holding.append(held)
        if len(self._holding) == 1:
            # Usually the socket takes everything by the end of this turn of the loop.
            self._loop.call_soon(self.look, transport)

    def look(self, transport: asyncio.WriteTransport) -> None:
        """Releases the reservations of what has left."""
        if not self._holding or transport.is_closing():
            return  # A closing transport releases them when it is lost.
        if not transport.get_write_buffer_size():
            self.forget()
            if self._is_narrowed:
                self._is_narrowed = False
                transport.set_write_buffer_limits()
        else:
            # The protocol resumes only when the buffer is empty, so until then writers wait for the
            # client.
            self._is_narrowed = True
            transport.set_write_buffer_limits(high=0)

    def forget(self) -> None:
        self._holding.clear()


class Connection(asyncio.Protocol):
    """Used on the event loop's thread only."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._dispatcher = server.dispatcher
        self._loop = server.loop
        self.transport: asyncio.Transport | None = None
        self.shown = Shown(server.dispatcher.access)
        """The client's credentials."""
        self.has_spoken = False
        """Whether the client has sent anything."""
        self._framing = Framing()
        self._head = server.acceptor.watch(self._head_is_late)
        self._unparsed = server.acceptor.watch_unparsed()
        self._unread = server.acceptor.watch_unread()
        self._pending_writes = PendingWrites(self._loop)
        # The current request, and the task or future that it waits for.
        self._request: Request | None = None
        self._is_answered = False
        self._task: asyncio.Task[Any] | None = None
        self._pending: Pending | None = None
        self._abandoning: Callable[[], None] | None = None
        """Releases what the current request's result would hold, if the client goes first."""
        self._upgraded: Upgraded | None = None
        self._is_going_on = False
        self._is_tired = False
        """Whether more requests wait for the loop's next turn."""
        self._is_paused = False
        self._has_ended = False
        """Whether input is dropped."""
        self._closes = False
        """Whether the connection ends with the current request."""
        self.is_full = False
        """Whether the client must read before more is written."""
        self._drained: asyncio.Future[None] | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._keepalive: asyncio.TimerHandle | None = None
        self._idle_since_s = 0.0

    @property
    def idle_since_s(self) -> float | None:
        is_busy = self._request is not None or self._head.timer is not None or self._is_tired
        # Closing a connection that has ended frees nothing.
        return None if is_busy or self._has_ended else self._idle_since_s

    @property
    def is_upgraded(self) -> bool:
        return self._upgraded is not None

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        answer = self._server.acceptor.refusal(len(self._server.connections))
        if answer is not None:
            self._has_ended = True
            self._server.acceptor.turn_away(self.transport, answer)
            return
        self._server.connections.add(self)
        if self._server.drains:
            # Its TLS handshake began before the drain: it gets one answer, or ends.
            self._closes = True
            self._loop.call_later(FIRST_REQUEST_LOOK_S * FIRST_REQUEST_LOOKS, self.leave)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            with contextlib.suppress(OSError):
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._idle_since_s = self._loop.time()
        self._keepalive = self._loop.call_later(self._server.keepalive_s, self._end_if_idle)

    def data_received(self, data: bytes) -> None:
        self.has_spoken = True
        if self._upgraded is not None:
            self._upgraded.came(data)
        elif not self._has_ended:
            framing = self._framing
            framing.data = framing.data + data if framing.data else data
            self.go_on()

    def pause_writing(self) -> None:
        """Also begins the time after which a client that reads nothing is aborted."""
        self.is_full = True
        if self.transport is not None:
            self._unread.begin(self.transport)

    def resume_writing(self) -> None:
        self.is_full = False
        self._unread.end()
        if self.transport is not None:
            self._pending_writes.look(self.transport)
        self._wake()
        if self._upgraded is not None:
            self._upgraded.came(b"")
        self.go_on()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Abandons the current request: its handler is cancelled."""
        self.transport, self._has_ended = None, True
        self._server.lost(self)
        self._framing.drop()
        self._unparsed.holds(0)
        self._head.end()
        self._unread.end()
        self._pending_writes.forget()
        for timer in (self._lingering, self._keepalive):
            if timer is not None:
                timer.cancel()
        self._wake()
        if self._request is not None:
            self._request.body.fail()
        self._abandon()

    # Requests

    def go_on(self) -> None:
        """Parses the input, as far as it may be parsed now."""
        if self._is_going_on or self._has_ended or self._upgraded is not None:
            return
        self._is_going_on, self._is_tired = True, False
        try:
            for _ in range(REQUESTS_PER_TURN_MAX):
                if not self._take():
                    break
            else:
                self._is_tired = True
                self._loop.call_soon(self.go_on)
        except Malformed:
            self._refuse(problem_answer(BAD_REQUEST))
        except HeadersTooLarge as error:
            self._refuse(error_answer(error))
        finally:
            self._is_going_on = False
        # Usually all input is parsed and nothing waits.
        request = self._request
        is_held = self._is_paused or self._head.timer is not None
        if is_held or self._framing.data or self._unparsed.size or (request and request.body.size):
            self._mind_rest()

    def _take(self) -> bool:
        """Parses one head, or more of the current body; true if there may be more."""
        request = self._request
        if request is not None:
            if not self._framing.is_at_head and not request.body.is_full:
                self._take_body(request)
            return self._request is None
        if self.is_full or self._has_ended or not (head := self._framing.head()):
            return False
        if self._head.timer is not None:
            self._head.end()
        request = self._request = parse(head, self)
        self._is_answered = False
        if not request.body.is_whole:
            self._framing.begin_body(request.head.length)
            self._take_body(request)
        self._act(self._dispatcher.begin(request))
        return self._request is None

    def _take_body(self, request: Request) -> None:
        framing, body = self._framing, request.body
        try:
            part = framing.body()
        except BodyBroken:
            self._has_ended = True
            body.fail()
            if self._is_answered:
                self.close()
            return
        body.feed(part, framing.is_at_head)
        if framing.is_tired:
            self._loop.call_soon(self.go_on)
        elif body.is_whole and self._is_answered:
            self._done()

    def _mind_rest(self) -> None:
        """Bounds the unparsed input, and the time of a head."""
        framing, request = self._framing, self._request
        is_behind = framing.is_at_head and (request is not None or self.is_full)
        if not self._unparsed.holds(len(framing.data) if framing.is_at_head else 0):
            self._has_no_room(is_behind)
        if self._has_ended:
            framing.drop()
            self._unparsed.holds(0)
        self._head.mind(not (is_behind or self._is_tired) and framing.has_begun_head)
        self.hold_up(
            framing.is_tired
            or self._is_tired
            or (is_behind and len(framing.data) >= PIPELINED_BYTES_MAX)
            or (request is not None and request.body.is_full and not request.body.is_whole)
        )

    def _has_no_room(self, is_behind: bool) -> None:
        """The limit of unparsed input is reached. A client that waits for an answer gets it, and
        has to send pipelined requests again on another connection.
        """
        if self._request is not None:
            self._has_ended = True
        elif is_behind:
            self.close()
        else:
            self._refuse(error_answer(NoMemory()))

    def hold_up(self, is_paused: bool) -> None:
        transport = self.transport
        if transport is None or is_paused == self._is_paused or transport.is_closing():
            return
        self._is_paused = is_paused
        if is_paused:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _refuse(self, answer: Answer) -> None:
        """Answers a malformed request and ends the connection."""
        _log.debug("malformed request", extra={"fields": {"status": answer.status}})
        self._has_ended = True
        self._head.end()
        if self.transport is not None:
            self._server.acceptor.turn_away(self.transport, answer._replace(closes=True))

    def _head_is_late(self, answer: Answer) -> None:
        if self.transport is not None:
            self.transport.write(answer.encoded())
        self.close()

    # Answers

    def _act(self, result: Result) -> None:
        if isinstance(result, Answer):
            self._send(result)
        elif isinstance(result, Pending):
            self._pending, self._abandoning = result, result.abandon
            if self._request is not None and self._request.body.size:
                # The handler does not need the body. Reading continues, to notice a client that
                # hangs up.
                self._request.body.drop()
                self._loop.call_soon(self.go_on)
            result.future.add_done_callback(self._future_ended)
        elif isinstance(result, Streamed):
            if self._abandoning is None:
                self._abandoning = partial(self._drop, result)
            self._task = self._server.begin(self._stream(result))
        elif result is None:
            self._closes = True
            self._answered(_SWITCHING, {})
        else:
            self._task = self._server.begin(result)
            self._task.add_done_callback(self._task_ended)

    def _future_ended(self, future: "asyncio.Future[Any]") -> None:
        pending, request = self._pending, self._request
        if pending is None or request is None or pending.future is not future:
            if not future.cancelled():
                future.exception()  # The client is gone.
            return
        self._pending = None
        try:
            result: Result = pending.answer(future.result())
        except (Exception, asyncio.CancelledError) as error:
            result = self._dispatcher.failed(request, error)
        self._act(result)

    def _task_ended(self, task: "asyncio.Task[Any]") -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        request = self._request
        if task is not self._task or request is None:
            if error is None:
                self._drop(task.result())
            return
        self._task = None
        if error is None:
            self._act(task.result())
        elif isinstance(error, ConnectionError | asyncio.CancelledError):
            self.close()
        else:
            self._act(self._dispatcher.failed(request, error))

    def _drop(self, result: Result) -> None:
        """Releases the result of a request whose client has gone."""
        if isinstance(result, Pending):
            if result.abandon is not None:
                result.abandon()
        elif isinstance(result, Streamed):
            self._server.begin(result.source.close())
        elif isinstance(result, Coroutine):
            result.close()

    def _send(self, answer: Answer) -> None:
        request, transport = self._request, self.transport
        if request is None or transport is None:
            return
        body = answer.body
        if answer.closes:
            self._closes = True
        head = self._head_of(request, answer, len(body))
        if request.method == _HEAD:
            transport.write(head)
        elif len(body) < SMALL_CHUNK_BYTES:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        if answer.reservation is not None:
            self._pending_writes.add(transport, answer.reservation)
        self._answered(answer.status, answer.headers)

    async def _stream(self, streamed: Streamed) -> None:
        self._abandoning = None  # From here on `finally` releases it.
        request, source = self._request, streamed.source
        if request is None:
            raise ValueError("there is no current request")
        is_chunked = streamed.size is None and request.head.is_http_1_1
        if streamed.size is None and not is_chunked:
            self._closes = True
        try:
            self.write(self._head_of(request, streamed, streamed.size))
            async for part in source.chunks():
                if not part:
                    continue  # An empty chunk would end the body.
                self.write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
                await self.drained()
            if is_chunked:
                self.write(b"0\r\n\r\n")
        except Unavailable as error:
            # The status is sent: only cutting the connection can still report the error.
            _log.warning("a body could not be read", extra={"fields": {"error": repr(error)}})
            self._abort()
        except ConnectionError:
            pass
        except Exception as error:
            _log.error("an answer failed", exc_info=error)
            self._abort()
        finally:
            await source.close()
        if self._request is request:
            self._answered(streamed.status, streamed.headers)

    def _head_of(self, request: Request, answer: Answer | Streamed, size: int | None) -> bytes:
        """The head of the answer. Decides whether the connection ends with it."""
        head = request.head
        # After an unanswered Expect the client may send the body or not: its first byte cannot be
        # told from that of a next request.
        is_unsure = head.expects and not request.body.is_whole
        if is_unsure or self._has_ended or not head.keeps_alive:
            self._closes = True
        return head_of(answer.status, answer.headers, size, head.is_http_1_1, self._closes)

    def _answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer is written. The rest of the request's body is read and dropped."""
        request = self._request
        self._task = self._pending = self._abandoning = None
        if request is None:
            return
        self._is_answered = True
        self._dispatcher.ended(request, status, headers)
        if request.body.is_whole:
            self._done()
        elif request.body.is_broken:
            self.close()
        else:
            request.body.drop()
            self._lingering = self._loop.call_later(LINGERING_S, self.close)
            self.go_on()

    def _done(self) -> None:
        """The request is answered and was read whole."""
        self._request = None
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if self._closes or self._has_ended:
            self.close()
            return
        self._idle_since_s = self._loop.time()
        if self._framing.data or self._is_paused:
            self.go_on()

    def _abandon(self) -> None:
        """Ends the current request without an answer."""
        request, task, abandoning = self._request, self._task, self._abandoning
        self._request = self._task = self._pending = self._abandoning = None
        if task is not None:
            task.cancel()
        if abandoning is not None:
            abandoning()
        if request is not None and not self._is_answered:
            self._dispatcher.ended(request, None, {})

    # For handlers, as `Client`

    def write(self, data: bytes, held: object = None) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if held is not None:
            self._pending_writes.add(transport, held)

    async def drained(self) -> None:
        if self.is_full and self.transport is not None:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
        if self.transport is None:
            raise ConnectionResetError("the client is gone")

    def _wake(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set_result(None)

    def upgrade(self, upgraded: Upgraded) -> None:
        """Passes further input to the WebSocket."""
        self._upgraded = upgraded
        rest = self._framing.drop()
        self._mind_rest()
        if rest:
            upgraded.came(rest)

    # Ends

    def close(self) -> None:
        """Ends the connection once everything written is sent."""
        self._has_ended = True
        if self.transport is not None:
            if self.transport.get_write_buffer_size() and not self.is_full:
                self._unread.begin(self.transport)  # A client that reads nothing is aborted.
            self.transport.close()

    def leave(self) -> None:
        """Ends the connection after the current request; a WebSocket by a close frame."""
        self._closes = True
        if self._upgraded is not None:
            self._upgraded.leave()
        elif self._request is None:
            self.close()

    def cut(self) -> None:
        """Ends the current request and the connection at once."""
        self._abandon()
        self._abort()

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _end_if_idle(self) -> None:
        left_s = self._server.keepalive_s
        if (since_s := self.idle_since_s) is not None:
            left_s += since_s - self._loop.time()
        if left_s <= 0:
            self.close()
        else:
            self._keepalive = self._loop.call_later(left_s, self._end_if_idle)


class Server:
    """The connections of a service, on a running event loop."""

    def __init__(self, dispatcher: Dispatcher, bounds: Bounds) -> None:
        self.loop = asyncio.get_running_loop()
        self.dispatcher = dispatcher
        self.connections: set[Connection] = set()
        self.acceptor = Acceptor(bounds, lambda: self.connections)
        self.keepalive_s = KEEPALIVE_S
        self.drains = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = asyncio.Event()
        """Set when a connection or a task ends."""

    def __call__(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)

    def begin(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Starts a task that a drain waits for."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._ended.set()

    def _task_ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._ended.set()

    def counts(self) -> tuple[int, int]:
        """The number of connections, and of WebSockets among them."""
        return len(self.connections), sum(each.is_upgraded for each in self.connections)

    def all_have_spoken(self) -> bool:
        """Whether every connected client has sent something."""
        return all(each.has_spoken for each in self.connections)

    async def drain(self, seconds: float) -> None:
        """Ends idle connections at once, others after their answer, or after `seconds`."""
        self.drains = True
        await asyncio.sleep(0)  # Requests that have arrived begin.
        for each in list(self.connections):
            each.leave()
        await self._empty(seconds)
        for each in list(self.connections):
            each.cut()
        await self._empty(HANDLER_END_S)

    async def _empty(self, seconds: float) -> None:
        """Waits until no connection and no work is left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.connections or self._tasks:
                    self._ended.clear()
                    await self._ended.wait()
