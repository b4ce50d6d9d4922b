"""A connection: aiohttp's own, which also answers plain requests by the direct way.

It uses private fields of aiohttp's RequestHandler, so aiohttp is pinned below its next minor
version: `_messages`, `_current_request`, `_waiter`, `_close`, `_force_close`, `_parser`,
`_request_in_progress`, `_handler_waiter`, `_task_handler`, `_keepalive_timeout`,
`_next_keepalive_close_time`, `_reading_paused`, `_paused`, `_payload_parser`, `_manager` and
`_connections`.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from aiohttp import ClientPayloadError, StreamReader, web
from aiohttp.http_parser import HttpParser, RawRequestMessage
from aiohttp.http_writer import StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD

from mq.http.access import Shown
from mq.http.answers import HAND, Answer
from mq.http.departures import Departures
from mq.http.direct import DirectWay, InHand
from mq.http.doors import Door
from mq.http.framing import FramesRefused
from mq.http.intake import Intake
from mq.http.messages import stream
from mq.http.parsers import Sieve, has_too_large_headers
from mq.http.problems import error_answer, problem_answer
from mq.http.room import Bounds
from mq.model.errors import HeadersTooLarge
from mq.model.limits import HANDLER_END_S, HEADER_BLOCK_BYTES_MAX, HEADERS_MAX, SMALL_CHUNK_BYTES
from mq.model.message import Delivery
from mq.protocol.problems import BAD_REQUEST, INTERNAL

_log = logging.getLogger("mq.http")


class Connection(web.RequestHandler):
    """One client's connection, one request at a time.

    What comes goes through an Intake, which has aiohttp parse a request when the one before is
    answered. While a request goes the direct way, aiohttp's own task waits for a first one.
    """

    __slots__ = (
        "_body",
        "_departures",
        "_direct",
        "_door",
        "_in_hand",
        "_intake",
        "_streaming",
        "_unread",
        "broke",
        "has_spoken",
        "leave",
        "shown",
    )

    def __init__(
        self, server: "ConnectionServer", direct: DirectWay, door: Door, **options: Any
    ) -> None:
        super().__init__(server, **options)
        self._direct = direct
        self._door = door
        head = door.watch(self._head_is_late)
        self._intake = Intake(self._loop, self, head, door.watch_unparsed())
        self._unread = door.watch_unread()
        self._body: StreamReader | None = None
        self._in_hand: InHand | None = None
        self._streaming: asyncio.Task[None] | None = None
        self.broke: Callable[[FramesRefused], None] | None = None
        """Has a WebSocket end for what its client sent."""
        self.leave: Callable[[], None] | None = None
        """Has a WebSocket end, when the server drains."""
        self.has_spoken = False
        """Whether anything came from the client."""
        self.shown = Shown(direct.service.access)
        """Who the client is."""
        self._departures = Departures(self._loop)
        self._parser = cast("HttpParser[Any]", Sieve(self._parser, self._begin))

    @property
    def idle_since_s(self) -> float | None:
        """See Held."""
        if self._in_hand is not None or self._intake.has_begun_head or not self._waits():
            return None
        return self._next_keepalive_close_time - self._keepalive_timeout

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing of aiohttp begins for one that there is no room for: it has its answer, whatever
        it asks.
        """
        answer = self._door.refusal(cast("ConnectionServer", self._manager).count)
        if answer is None:
            super().connection_made(transport)
            return
        self._intake.end()
        self._door.turn_away(cast(asyncio.Transport, transport), answer)

    def data_received(self, data: bytes) -> None:
        """Nothing comes where aiohttp goes on with what it has."""
        if not data:
            self.parse(data)
            return
        self.has_spoken = True
        self._intake.came(data)

    def begin_frames(self, broke: Callable[[FramesRefused], None]) -> None:
        """The client and this side have agreed on a WebSocket. `broke` has it end."""
        self.broke = broke
        self._intake.begin_frames()

    @property
    def is_full(self) -> bool:
        """See Parsing."""
        return self._reading_paused

    def refuse(self, answer: Answer) -> None:
        """See Parsing."""
        _log.debug("malformed request", extra={"fields": {"status": answer.status}})
        if self.transport is not None:
            self._door.turn_away(self.transport, replace(answer, closes=True))

    def refuse_frames(self, error: FramesRefused) -> None:
        """See Parsing."""
        if self.broke is not None:
            self.broke(error)

    def break_body(self) -> None:
        """See Parsing."""
        if self._body is not None and not self._body.is_eof():
            self._body.set_exception(ClientPayloadError())
            self._body.feed_eof()
        if self._intake.is_free:
            self.force_close()  # Its request was answered before.

    def parse(self, data: bytes) -> None:
        """Also takes the rest of a body, and what a WebSocket says, while the server drains, which
        aiohttp would drop, and ends a body whose transfer coding broke, which aiohttp would wait
        for.
        """
        current = self._current_request
        if current is None:
            super().data_received(data)
            return
        closing, forced = self._close, self._force_close
        if self._payload_parser is not None or not current.content.is_eof():
            self._close = self._force_close = False
        # aiohttp closes one whose client broke the protocol, who is to be told so first.
        leave, self.leave = self.leave, None
        super().data_received(data)
        self.leave = leave
        self._close, self._force_close = self._close or closing, self._force_close or forced
        broken = any(not isinstance(message, RawRequestMessage) for message, _ in self._messages)
        if broken and not current.content.is_eof():
            current.content.set_exception(ClientPayloadError())
            current.content.feed_eof()  # Nothing more of it is worth waiting for.

    def connection_lost(self, exc: BaseException | None) -> None:
        """Whoever asked is gone: a fetch in hand is given up."""
        super().connection_lost(exc)
        self._intake.end()
        self._unread.end()
        self._departures.forget()
        if self._streaming is not None:
            self._streaming.cancel()
        self._give_up()

    def hold_until_sent(self, held: object) -> None:
        """Keeps a reference to what counts the bytes that were written to the transport in this
        turn of the loop, until the last of them has left the process, or nobody is there for them.
        """
        if self.transport is not None:
            self._departures.add(self.transport, held)

    def pause_writing(self) -> None:
        """No more is written for now. Who takes none of it is given up."""
        super().pause_writing()
        if self.transport is not None:
            self._unread.begin(self.transport)

    def resume_writing(self) -> None:
        """Whoever waits for it may write again; and what was held for what is sent now goes."""
        super().resume_writing()
        self._unread.end()
        if self.transport is not None:
            self._departures.look(self.transport)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Also holds what a whole answer has in hand until it is sent, and goes on with what came
        behind the request.
        """
        if self._intake.has_ended:
            resp.force_close()
        ended = await super().finish_response(request, resp, start_time)
        if (hand := resp.get(HAND)) is not None:
            self.hold_until_sent(hand)
        if self._in_hand is None:
            self._is_done()
        return ended

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Does nothing where nothing is paused: aiohttp asks after each body, and would run the
        parser once more.
        """
        if self._reading_paused:
            super().resume_reading(resume_parser)
            self._intake.go_on()

    def close(self) -> None:
        """Ends the connection after the request in hand. A handler that has not begun to wait for
        its first request yet would wait for ever, since aiohttp cancels only a wait that is there:
        such a connection, from which nothing was read, ends at once. A WebSocket ends by a frame.
        """
        super().close()
        if self.leave is not None:
            self.leave()
            return
        idle = self._current_request is None and self._in_hand is None
        if idle and self._waiter is None and not self._messages:
            self.force_close()

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109
        """Ends what is in hand after `timeout` seconds. aiohttp alone would wait as long again for
        a handler that it does not end, and knows nothing of a body that goes the direct way.
        """
        if timeout is None:
            await super().shutdown(None)
            return
        ending = self._loop.call_later(timeout, self._end_work)
        try:
            await super().shutdown(timeout + HANDLER_END_S)
        finally:
            ending.cancel()

    def _end_work(self) -> None:
        for task in (self._task_handler, self._streaming):
            if task is not None:
                task.cancel()
        self._give_up()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A problem without the parser's text, and the connection's end."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun")
        _log.debug("malformed request", extra={"fields": {"error": repr(exc)}})
        if has_too_large_headers(exc):
            answer = error_answer(HeadersTooLarge(HEADERS_MAX, HEADER_BLOCK_BYTES_MAX))
        else:
            answer = problem_answer(BAD_REQUEST if status < 500 else INTERNAL)
        response = answer.response()
        response.force_close()
        return response

    def _waits(self) -> bool:
        """Whether the next request is waited for, and is not there."""
        return self._waiter is not None and not self._waiter.done() and not self._messages

    def _head_is_late(self, answer: Answer) -> None:
        if self.transport is not None:
            self.transport.write(answer.encoded())
            self.force_close()

    def _begin(self, message: RawRequestMessage, body: StreamReader) -> bool:
        """Begins a request the direct way, when it is plain and nothing else is in hand."""
        self._body = body
        if not self._waits() or self._in_hand is not None or self._paused or self._close:
            return False
        in_hand = self._direct.begin(message, body, self.shown, self.transport)
        if in_hand is None:
            return False
        self._in_hand = in_hand
        self._request_in_progress = True
        in_hand.future.add_done_callback(self._ended)
        return True

    def _ended(self, future: "asyncio.Future[Any]") -> None:
        in_hand = self._in_hand
        if in_hand is None or self.transport is None:
            self._give_up()
            return
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        answer = (
            in_hand.answer(future.result())
            if error is None
            else self._direct.failed(in_hand, error)
        )
        if answer is None:
            self._streaming = self._loop.create_task(self._stream(in_hand, future.result()))
            return
        if len(answer.body) < SMALL_CHUNK_BYTES:
            self.transport.write(answer.encoded())
        else:
            self.transport.write(answer.encoded_head())
            self.transport.write(answer.body)
        if answer.hand is not None:
            self._departures.add(self.transport, answer.hand)
        self._direct.ended(in_hand, answer.status)
        self._settle(not answer.closes)

    async def _stream(self, in_hand: InHand, delivery: Delivery) -> None:
        """Sends a body that is not held."""
        self._in_hand = replace(in_hand, abandon=None)  # From here on its end gives back.
        keeps, status = False, None
        try:
            task = cast("asyncio.Task[None]", asyncio.current_task())
            writer = StreamWriter(self, self._loop)
            request = web.BaseRequest(
                in_hand.message, EMPTY_PAYLOAD, self, writer, task, self._loop
            )
            response = await stream(self._direct.service, request, delivery)
            _, lost = await self.finish_response(request, response, None)
            keeps = bool(response.keep_alive) and not lost
            status = None if lost else response.status
        except ConnectionError:
            pass
        finally:
            self._streaming = None
            self._direct.ended(in_hand, status)
            self._settle(keeps)

    def _give_up(self) -> None:
        """Nobody is there for an answer: what was claimed and is not on its way is released."""
        in_hand = self._in_hand
        if in_hand is None:
            return
        if self._streaming is None:
            self._direct.ended(in_hand, None)
        self._settle(False)
        if in_hand.abandon is not None:
            in_hand.abandon()

    def _settle(self, keeps: bool) -> None:
        """The request in hand is answered, or nobody is there for the answer."""
        self._in_hand = None
        self._request_in_progress = False
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)
        if self.transport is None:
            return
        if not keeps or self._intake.has_ended or self._close or self._force_close:
            self.force_close()
            return
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        self._is_done()

    def _is_done(self) -> None:
        self._body = None
        self._intake.answered()

    def _process_keepalive(self) -> None:
        """Whoever waits for an answer is not idle, however long that takes."""
        if self._in_hand is not None:
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()


class ConnectionServer(web.Server):
    """aiohttp's server, with connections that know the direct way."""

    def __init__(self, handler: Any, direct: DirectWay, bounds: Bounds, **options: Any) -> None:
        super().__init__(handler, **options)
        self._direct = direct
        self._door = Door(bounds, lambda: cast("dict[Connection, Any]", self._connections))

    @property
    def count(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    def __call__(self) -> web.RequestHandler:
        return Connection(self, self._direct, self._door, loop=self._loop, **self._kwargs)

    def counts(self) -> tuple[int, int]:
        """How many clients are connected, and how many of those consume by a WebSocket."""
        there = self.connections
        consuming = (each for each in there if isinstance(each, Connection) and each.leave)
        return len(there), sum(1 for _ in consuming)

    def all_have_spoken(self) -> bool:
        """Whether something came from every client that is connected."""
        return all(
            connection.has_spoken
            for connection in self.connections
            if isinstance(connection, Connection)
        )
