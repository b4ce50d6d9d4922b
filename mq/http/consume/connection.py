"""One connection of `/-/consume`: commands in, messages out, and its end.

Commands begin in order. Those that need the storage run together, and each is answered when done.
While COMMANDS_IN_FLIGHT_MAX are unanswered, no more are read.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from mq.access.errors import Unauthenticated
from mq.broker.broker import Broker
from mq.broker.consumers import Seen
from mq.broker.settling import Disposition, IfReceives, Remove, Reschedule, Sideline, settle_many
from mq.http.access import Permission
from mq.http.consume.follows import Follows
from mq.http.consume.sending import Acts, Sending
from mq.http.consume.socket import COMMANDS_IN_FLIGHT_MAX, CloseCode, Socket
from mq.http.consume.subscriptions import Subscriptions
from mq.http.metering import SETTLES
from mq.http.request import Request
from mq.http.service import Service
from mq.model.errors import BadFrame, Busy, ConsumerEnded, MessageNotFound, MqError, Unavailable
from mq.model.message import Delivery, GivenBack
from mq.model.names import MessageId, QueueName
from mq.protocol.consume.frames import (
    Begin,
    Command,
    Follow,
    Followed,
    Grant,
    Prefetched,
    Settle,
    Subscribe,
    Unfollow,
    Unsubscribe,
    Verb,
    Wanted,
    parse,
    problem_frame,
    results_frame,
    unsubscribed_frame,
)
from mq.protocol.consume.session import Session

# A client that leaves this many pings unanswered is gone.
SILENT_PINGS_MAX: Final = 2
# How long either side may take to answer a close.
CLOSE_ANSWER_S: Final = 2.0

_log = logging.getLogger("mq.http")

_OK: Final = 200
_METHOD: Final = "GET"


async def consume(service: Service, request: Request, path: Mapping[str, str]) -> None:
    """GET: serves a WebSocket until it ends."""
    socket = Socket.accept(request)
    consuming = Consuming(service, socket, request)
    socket.begin(consuming.leave)
    try:
        await consuming.run()
    finally:
        consuming.end()


class Consuming:
    """A consuming client, from its handshake to its end. Used on the event loop's thread only.

    The request's caller is asked for again with each command: it and its rights may end before the
    connection.
    """

    def __init__(self, service: Service, socket: Socket, request: Request) -> None:
        self._service = service
        self._socket = socket
        self._path = request.target
        self._sent_by = request.sender
        self._permission = Permission(request.caller)
        self._session = Session()
        self._subscriptions = Subscriptions(
            service.broker, self._session, self._has_message, self._gone, service.meter, self
        )
        self._follows = Follows(service.broker, self._send, self._gone)
        acts = Acts(
            on_sent=self._subscriptions.go_on,
            on_lapsed=self._subscriptions.lapsed,
            on_full=self._subscriptions.pause,
            on_stuck=self._subscriptions.give_back_unsent,
            on_read=self._subscriptions.resume,
        )
        self._sending = Sending(socket, self._session, service.broker, acts)
        self._in_flight = 0
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_leaving = False
        self._is_closing = False
        self._silent = 0
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(service.settings.ping_s, self._look_after)
        self._sender = asyncio.create_task(self._sending.run())
        self._sender.add_done_callback(self._sender_ended)

    async def run(self) -> None:
        """Obeys the client until it or the daemon ends the connection."""
        while (said := await self._next()) is not None:
            if isinstance(said, bytes):
                self._close(CloseCode.UNSUPPORTED, "a command must be a text frame")
            elif said and self._is_known():
                await self._do(said)
        # Held messages are released before the close frame is answered, so that a client that waits
        # for the answer finds them released.
        self._subscriptions.close()
        await self._subscriptions.released(CLOSE_ANSWER_S)
        self._close(CloseCode.NORMAL)
        await asyncio.wait([self._sender], timeout=CLOSE_ANSWER_S)
        if self._socket.is_broken:
            await self._socket.linger()

    async def _next(self) -> str | bytes | None:
        await self._may_read.wait()
        said = await self._socket.read()
        self._silent = 0
        return said

    def seen(self, queue: str) -> Seen:
        """The client's consumer of a queue, as a list of consumers shows it."""
        return Seen("websocket", *self._sent_by(), self._session.held_of(queue))

    async def released(self) -> None:
        """Waits, a moment at most, until messages given back are released."""
        await self._subscriptions.released(CLOSE_ANSWER_S)

    def leave(self) -> None:
        """The daemon drains: sends only answers, then ends the connection."""
        self._is_leaving = True
        self._follows.close()
        self._subscriptions.end()
        self._leave_if_done()

    def end(self) -> None:
        """The client is gone: releases what it held."""
        self._timer.cancel()
        self._sender.cancel()
        self._follows.close()
        self._subscriptions.close()

    # Commands

    async def _do(self, text: str) -> None:
        try:
            command = parse(text)
        except BadFrame as error:
            self._begins()
            self._answer(problem_frame(error.ref, self._problem(error)))
            if not error.is_json:
                self._close(CloseCode.NO_DATA, "a command must be JSON")
            return
        if isinstance(command.does, Begin):
            self._session.begin(command.does.ids)
            return
        if isinstance(command.does, Prefetched):
            fetched = command.does.fetched
            errors = self._permission.errors(list({each.queue.text for each in fetched}))
            self._session.prefetched(each for each in fetched if each.queue.text not in errors)
            return
        self._begins()
        if isinstance(command.does, Settle):
            task = asyncio.create_task(self._settle(command, command.does))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            await self._do_for_queues(command)

    async def _do_for_queues(self, command: Command) -> None:
        match command.does:
            case Subscribe(wanted):
                # In order: the next command may be about it.
                made = [(each.queue, await self._subscribe(each)) for each in wanted]
                self._done(command, "queue", made)
            case Follow(followed):
                begun = [(each.queue, await self._follow(each)) for each in followed]
                self._done(command, "queue", begun)
            case Unfollow(queues):
                left = [(each, _error(partial(self._follows.unfollow, each))) for each in queues]
                self._done(command, "queue", left)
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

    def _is_known(self) -> bool:
        """Whether the caller is still known; if not, the connection ends. Subscriptions without a
        right end too.
        """
        try:
            if self._permission.renew():
                self._end_forbidden()
        except Unauthenticated:
            self._subscriptions.close()
            self._close(CloseCode.POLICY, "the token is no longer valid")
            return False
        return True

    def _end_forbidden(self) -> None:
        """Ends subscriptions that the client may not have any more, and releases their claimed
        messages that are not being sent.
        """
        for queue, error in self._permission.errors(self._follows.queues).items():
            if _error(partial(self._follows.unfollow, queue)) is None:
                self._gone(queue, error)
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
        # The right may have been revoked meanwhile.
        if (error := self._permission.error(wanted.queue)) is not None:
            _error(partial(self._subscriptions.unsubscribe, wanted.queue))
        return error

    async def _follow(self, wanted: Followed) -> BaseException | None:
        if (error := self._permission.error(wanted.queue)) is not None:
            return error
        try:
            await self._follows.follow(wanted)
        except Exception as failed:
            return failed
        if (error := self._permission.error(wanted.queue)) is not None:
            _error(partial(self._follows.unfollow, wanted.queue))
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
                meter.request(SETTLES[asked.verb], status, seconds)

    def _begins(self) -> None:
        self._in_flight += 1
        if self._in_flight >= COMMANDS_IN_FLIGHT_MAX:
            self._may_read.clear()

    def _done(
        self,
        command: Command,
        what: str,
        ends: Sequence[tuple[str, BaseException | None]],
        status: int = _OK,
    ) -> list[int]:
        """Answers a command and returns the status of each result."""
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
        self._in_flight -= 1
        self._may_read.set()
        self._leave_if_done()

    def _problem(self, error: BaseException) -> dict[str, object]:
        return self._service.error_responses.item(error, _METHOD, self._path)

    # Events of the connection

    def _send(self, text: bytes, then: Callable[[], None]) -> None:
        self._sending.answer(text, then)

    def _has_message(self) -> None:
        self._sending.go_on()

    def _gone(self, queue: str, error: MqError) -> None:
        self._sending.answer(unsubscribed_frame(queue, self._problem(error)))
        if isinstance(error, ConsumerEnded) and not self._subscriptions.queues:
            self._close(CloseCode.POLICY, "the consumer was ended by request")

    def _leave_if_done(self) -> None:
        if self._is_leaving and not self._in_flight:
            self._close(CloseCode.GOING_AWAY, "mq is shutting down")

    def _close(self, code: CloseCode, reason: str = "") -> None:
        """Ends the connection by a close frame, or by aborting it if the client does not answer in
        time, even if it goes on sending.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self._follows.close()
        self._subscriptions.end()
        self._sending.close(code, reason)
        self._timer.cancel()
        self._timer = self._loop.call_later(CLOSE_ANSWER_S, self._socket.abort)

    def _sender_ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if not isinstance(error, ConnectionError):
            _log.error("sending failed", exc_info=error)
        self._socket.abort()

    def _look_after(self) -> None:
        """Ends the connection of an unknown caller, and pings a silent client. A client whose
        commands mq does not read at the moment need not answer.
        """
        if not self._is_known():
            return
        if self._may_read.is_set() or self._socket.is_full:
            self._silent += 1
        if self._silent > SILENT_PINGS_MAX:
            self._subscriptions.close()
            self._close(CloseCode.FAILED, "the client did not answer pings")
            return
        self._socket.ping()
        self._timer = self._loop.call_later(self._service.settings.ping_s, self._look_after)


def _error(act: Callable[[], None]) -> Exception | None:
    try:
        act()
    except Exception as error:
        return error
    return None


STATUSES: Final = {Verb.ACK: 202, Verb.RELEASE: 200, Verb.SIDELINE: 200}


async def settle(
    broker: Broker, session: Session, asked: Settle
) -> dict[str, BaseException | None]:
    """Settles each message once; the error of each, None if it is settled, durably. The client
    still holds a message whose storage failed.
    """
    taken = session.settle(asked.ids)
    of_queues: dict[QueueName, dict[MessageId, Disposition[Any]]] = {}
    for each in taken.values():
        if isinstance(each, Delivery):
            how = _disposition(asked, IfReceives(each.stamp.receives))
            of_queues.setdefault(each.queue, {})[each.id] = how
    work = (settle_many(broker, queue, wanted) for queue, wanted in of_queues.items())
    found: dict[str, Any] = {}
    ends = await asyncio.gather(*work, return_exceptions=True)
    for wanted, end in zip(of_queues.values(), ends, strict=True):
        of_each = dict.fromkeys(wanted, end) if isinstance(end, BaseException) else end
        found |= {message_id.text: of_one for message_id, of_one in of_each.items()}
    errors: dict[str, BaseException | None] = {}
    for text, each in taken.items():
        if isinstance(each, MessageNotFound):
            errors[text] = each
            continue
        error = errors[text] = found[text] if isinstance(found[text], BaseException) else None
        is_kept = error is not None and (
            isinstance(error, Unavailable | Busy) or not isinstance(error, MqError)
        )
        session.settled(each, is_kept)
    return errors


def _disposition(asked: Settle, seen: IfReceives) -> Disposition[Any]:
    match asked.verb:
        case Verb.ACK:
            return Remove(seen)
        case Verb.RELEASE:
            given = GivenBack.UNHANDLED if asked.unhandled else GivenBack.YES
            return Reschedule(0, seen, given, asked.failure)
        case Verb.SIDELINE:
            return Sideline(asked.reason, seen, asked.failure)
