"""The one place that sends calls, and sends them again where that is safe."""

import asyncio
import os
from typing import TypeVar

from mq.client.calls.call import Call
from mq.client.errors import ClientError, NotUsable, Problem, Unanswered
from mq.client.options import Retry, Seams, Timeouts
from mq.client.retrying import is_safe, may_be_done, next_pause_s
from mq.client.transport import Answer, Limits, Pairs, Request, Socket, Transport

T = TypeVar("T")


class Sender:
    """Sends calls of one client, in the event loop and the process that it was first used in."""

    def __init__(
        self,
        transport: Transport,
        headers: Pairs,
        timeouts: Timeouts,
        retry: Retry,
        seams: Seams,
        shown_url: str = "",
    ) -> None:
        """`shown_url`: where mq is, for lines of the log."""
        self._transport = transport
        self._headers = headers
        self.timeouts = timeouts
        self.retry = retry
        self.seams = seams
        self.shown_url = shown_url
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()

    def check_usable(self) -> None:
        """Raises NotUsable: closed, or forked."""
        if os.getpid() != self._pid:
            raise NotUsable("the client is of the process that this one was forked from")
        if self._is_closed:
            raise NotUsable("the client is closed")

    def check_loop(self) -> None:
        """Raises NotUsable: closed, forked, or another event loop's."""
        self.check_usable()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            raise NotUsable("the client is of another event loop")

    async def send(self, call: Call[T], *, was_tried: bool = False) -> T:
        """What the call gives. `was_tried`: whether the same was asked for before, in another way,
        and may have been done. Raises ClientError of all kinds.
        """
        clock, retry = self.seams.clock, self.retry
        began_s = clock.steady_s()
        attempt, lost = 1, was_tried
        while True:
            passed_s = clock.steady_s() - began_s
            try:
                answer = await self._once(call.request, attempt, passed_s)
                return call.read(answer)
            except ClientError as error:
                is_final = isinstance(error, Problem) and not error.retryable
                if lost and is_final and call.when_repeated is not None:
                    return call.when_repeated(error)
                if not is_safe(call.again, call.request, error):
                    raise
                # What a fetch may wait at the server is not of the deadline.
                passed_s = clock.steady_s() - began_s - call.request.wait_s
                pause_s = next_pause_s(attempt, passed_s, error, retry, self.seams.chance())
                if pause_s is None:
                    raise
                lost = lost or may_be_done(error)
            await self.seams.sleep(pause_s)
            attempt += 1

    async def _once(self, request: Request, attempt: int, passed_s: float) -> Answer:
        self.check_loop()
        limits = self._limits(request, attempt, passed_s)
        try:
            return await self._transport.request(request.with_headers(self._headers), limits)
        except Unanswered as error:
            if self._is_closed:
                raise NotUsable("the client was closed") from error
            raise

    def _limits(self, request: Request, attempt: int, passed_s: float) -> Limits:
        """Those of the time-outs; after the first attempt, cut to what the deadline leaves."""
        connect_s, answer_s = self.timeouts.connect_s, self.timeouts.answer_s
        if attempt > 1:
            left_s = max(self.retry.deadline_s + request.wait_s - passed_s, 0.001)
            connect_s, answer_s = min(connect_s, left_s), min(answer_s, left_s)
        return Limits(connect_s, answer_s + request.wait_s)

    async def connect(self, request: Request) -> Socket:
        """Begins a WebSocket, once. Raises as a transport does."""
        self.check_loop()
        # A proxy may keep it to itself: whoever waits for the upgrade waits no longer than for a
        # connection.
        limits = Limits(self.timeouts.connect_s, self.timeouts.connect_s)
        return await self._transport.connect(request.with_headers(self._headers), limits)

    async def close(self) -> None:
        """Ends the transport. May be called again."""
        self._is_closed = True
        if os.getpid() == self._pid:
            await self._transport.close()
