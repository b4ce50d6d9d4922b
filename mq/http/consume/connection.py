"""One connection of `/-/consume`: commands in, messages out, and its end.

Commands are begun in their order; those that ask the storage for something go on together, and each
is answered when it is done. While COMMANDS_IN_HAND_MAX are not answered, no more are read.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, cast

from aiohttp import web

from mq.access.callers import Caller
from mq.access.errors import Unauthenticated
from mq.http.access import caller_of
from mq.http.connection import Connection
from mq.http.consume.permission import Permission
from mq.http.consume.sending import Acts, Sending
from mq.http.consume.settling import STATUSES, settle
from mq.http.consume.socket import Socket
from mq.http.consume.subscriptions import Subscriptions
from mq.http.consume.wire import CloseCode
from mq.http.framing import FramesRefused
from mq.http.metering import SETTLES, outcome_of
from mq.http.service import Service
from mq.model.errors import MqError
from mq.protocol.consume.errors import BadFrame
from mq.protocol.consume.frames import (
    Begin,
    Command,
    Grant,
    Settle,
    Subscribe,
    Unsubscribe,
    Wanted,
    parse,
    problem_frame,
    results_frame,
    unsubscribed_frame,
)
from mq.protocol.consume.limits import CLOSE_ANSWER_S, COMMANDS_IN_HAND_MAX, SILENT_PINGS_MAX
from mq.protocol.consume.session import Session

_log = logging.getLogger("mq.http")

_OK: Final = 200
_METHOD: Final = "GET"


async def consume(
    service: Service, request: web.BaseRequest, path: Mapping[str, str]
) -> web.StreamResponse:
    """GET: a WebSocket; on return it has ended."""
    socket = await Socket.accept(request)
    protocol = cast(Connection, request.protocol)
    who = partial(caller_of, service.access, request)
    consuming = Consuming(service, socket, request.raw_path, who)
    protocol.leave = consuming.leave
    protocol.begin_frames(consuming.broke)
    try:
        await consuming.run()
    finally:
        protocol.leave = protocol.broke = None
        consuming.end()
    return socket.response


class Consuming:
    """A client that consumes, from its handshake to its end. Lives on the event loop's thread.

    Who it is, and what it may, is asked of `who` again and again: both may end before it does.
    """

    def __init__(
        self, service: Service, socket: Socket, path: str, who: Callable[[], Caller]
    ) -> None:
        self._service = service
        self._socket = socket
        self._path = path
        self._permission = Permission(who)
        self._session = Session()
        self._subscriptions = Subscriptions(
            service.broker, self._session, self._has_message, self._gone, service.meter
        )
        acts = Acts(
            on_sent=self._subscriptions.claim,
            on_lapsed=self._subscriptions.lapsed,
            on_full=self._subscriptions.pause,
            on_stuck=self._subscriptions.give_back_unsent,
            on_room=self._subscriptions.resume,
        )
        self._sending = Sending(socket, self._session, service.broker, acts)
        self._in_hand = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_leaving = False
        self._is_closing = False
        self._is_broken = False
        self._silent = 0
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(service.settings.ping_s, self._look_after)
        self._sender = asyncio.create_task(self._sending.run())
        self._sender.add_done_callback(self._sender_ended)

    async def run(self) -> None:
        """Does what the client says, until it or the daemon ends the connection."""
        while (said := await self._next()) is not None:
            if isinstance(said, bytes):
                self._close(CloseCode.UNSUPPORTED, "commands are text")
            elif said and self._is_known():
                await self._do(said)
        # The client's last frame is answered by one of ours, where that was not sent before.
        self._subscriptions.close()
        self._close(self._socket.broken or CloseCode.NORMAL)
        await asyncio.wait([self._sender], timeout=CLOSE_ANSWER_S)
        if self._socket.broken is not None:
            await self._socket.linger()

    async def _next(self) -> str | bytes | None:
        await self._has_room.wait()
        said = await self._socket.read()
        self._silent = 0
        return said

    def leave(self) -> None:
        """The daemon drains: nothing more is sent but answers, and then the connection ends."""
        self._is_leaving = True
        self._subscriptions.end()
        self._leave_if_done()

    def broke(self, error: FramesRefused) -> None:
        """The client sent what ends the connection; nothing more of it is heard."""
        self._is_broken = True
        self._subscriptions.close()
        self._close(error.code, error.reason)

    def end(self) -> None:
        """Nobody is there any more: what the client holds is released."""
        self._timer.cancel()
        self._sender.cancel()
        self._subscriptions.close()

    # Commands

    async def _do(self, text: str) -> None:
        try:
            command = parse(text)
        except BadFrame as error:
            self._begins()
            self._answer(problem_frame(error.ref, self._problem(error)))
            if not error.is_json:
                self._close(CloseCode.NO_DATA, "a command is JSON")
            return
        if isinstance(command.does, Begin):
            self._session.begin(command.does.ids)
            return
        self._begins()
        match command.does:
            case Subscribe(wanted):
                # What comes next may be about it.
                made = [(each.queue, await self._subscribe(each)) for each in wanted]
                self._done(command, "queue", made)
            case Unsubscribe(queues):
                unsubscribe = self._subscriptions.unsubscribe
                ended = [(each, _error(partial(unsubscribe, each))) for each in queues]
                self._done(command, "queue", ended)
            case Grant(credit):
                grant = self._subscriptions.grant
                granted = [
                    (each, _error(partial(grant, each, more))) for each, more in credit.items()
                ]
                self._done(command, "queue", granted)
            case Settle() as asked:
                task = asyncio.create_task(self._settle(command, asked))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _is_known(self) -> bool:
        """Whether it is still known who the client is: else the connection ends. Nothing more comes
        of queues that it may no longer consume.
        """
        try:
            if self._permission.renew():
                self._end_forbidden()
        except Unauthenticated:
            self._subscriptions.close()
            self._close(CloseCode.POLICY, "the token is good no more")
            return False
        return True

    def _end_forbidden(self) -> None:
        """Ends subscriptions that are not the client's to have any more; what was claimed by them,
        and is not on its way, is others'.
        """
        errors = self._permission.errors(self._subscriptions.queues)
        if not errors:
            return
        reads = not self._subscriptions.is_paused
        self._subscriptions.pause()
        self._subscriptions.give_back_unsent()
        for queue, error in errors.items():
            self._subscriptions.unsubscribe(queue)
            self._gone(queue, error)
        if reads:
            self._subscriptions.resume()

    async def _subscribe(self, wanted: Wanted) -> BaseException | None:
        if (error := self._permission.error(wanted.queue)) is not None:
            return error
        try:
            await self._subscriptions.subscribe(wanted)
        except Exception as failed:
            return failed
        # It may have been taken away meanwhile.
        if (error := self._permission.error(wanted.queue)) is not None:
            _error(partial(self._subscriptions.unsubscribe, wanted.queue))
        return error

    async def _settle(self, command: Command, asked: Settle) -> None:
        queues = {text: self._session.queue_of(text) for text in asked.ids}
        ends: dict[str, BaseException | None] = {
            text: None if queue is None else self._permission.error(queue)
            for text, queue in queues.items()
        }
        ids = tuple(text for text in asked.ids if ends[text] is None)
        meter = self._service.meter
        began_s = 0.0 if meter is None else meter.steady_s()
        try:
            ends |= await settle(self._service.broker, self._session, replace(asked, ids=ids))
        except Exception as error:
            ends |= dict.fromkeys(ids, error)
        found = [(text, ends[text]) for text in asked.ids]
        statuses = self._done(command, "id", found, STATUSES[asked.verb])
        if meter is not None:
            seconds = meter.steady_s() - began_s
            for status in statuses:
                meter.request(SETTLES[asked.verb], outcome_of(status), seconds)

    def _begins(self) -> None:
        self._in_hand += 1
        if self._in_hand >= COMMANDS_IN_HAND_MAX:
            self._has_room.clear()

    def _done(
        self,
        command: Command,
        what: str,
        ends: Sequence[tuple[str, BaseException | None]],
        status: int = _OK,
    ) -> list[int]:
        """Answers it; the status of each."""
        results, statuses = [], []
        for text, error in ends:
            result: dict[str, object] = {what: text, "status": status}
            if error is not None:
                problem = self._problem(error)
                result |= {"status": problem["status"], "problem": problem}
            results.append(result)
            statuses.append(cast(int, result["status"]))
        self._answer(results_frame(command.ref, results))
        return statuses

    def _answer(self, text: bytes) -> None:
        self._sending.answer(text, self._answered)

    def _answered(self) -> None:
        """An answer was sent: the next command may be read."""
        self._in_hand -= 1
        self._has_room.set()
        self._leave_if_done()

    def _problem(self, error: BaseException) -> dict[str, object]:
        return self._service.complaints.item(error, _METHOD, self._path)

    # What happens to the connection

    def _has_message(self) -> None:
        self._sending.go_on()

    def _gone(self, queue: str, error: MqError) -> None:
        self._sending.answer(unsubscribed_frame(queue, self._problem(error)))

    def _leave_if_done(self) -> None:
        if self._is_leaving and not self._in_hand:
            self._close(CloseCode.GOING_AWAY, "mq is being stopped")

    def _close(self, code: CloseCode, reason: str = "") -> None:
        """Ends the connection by a frame, and without one when the client does not answer it, also
        one that goes on talking.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self._subscriptions.end()
        self._sending.close(code, reason)
        self._timer.cancel()
        self._timer = self._loop.call_later(CLOSE_ANSWER_S, self._socket.abort)

    def _sender_ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            if self._is_broken:
                self._socket.end_writing()
            return
        if not isinstance(error, ConnectionError):
            _log.error("sending failed", exc_info=error)
        self._socket.abort()

    def _look_after(self) -> None:
        """A client that is known no more is told so. One that is silent is asked whether it is
        there; one from which nothing is read, for what the storage has in hand, need not say
        anything.
        """
        if not self._is_known():
            return
        if self._has_room.is_set() or self._socket.is_full:
            self._silent += 1
        if self._silent > SILENT_PINGS_MAX:
            self._subscriptions.close()
            self._close(CloseCode.FAILED, "no pong")
            return
        self._socket.ping()
        self._timer = self._loop.call_later(self._service.settings.ping_s, self._look_after)


def _error(act: Callable[[], None]) -> Exception | None:
    try:
        act()
    except Exception as error:
        return error
    return None
