"""Sends to one client at the pace at which it reads: answers first, then messages.

One task sends everything, so that a message's fragments stay together. While the client does not
read, nothing more is claimed for it, and after UNSENT_S_MAX its unsent messages are released.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mq.broker.broker import Broker
from mq.http.bodies import download
from mq.http.consume.socket import CloseCode, Opcode, Socket, frame
from mq.model.errors import Unavailable
from mq.model.limits import CHUNK_BYTES
from mq.model.log import logger
from mq.model.message import Delivery
from mq.protocol.consume.frames import header_frame
from mq.protocol.consume.session import Session

# A client that has not read for FULL_S_MAX gets no more messages meanwhile; after UNSENT_S_MAX,
# messages that were claimed for it and not sent are released.
FULL_S_MAX: Final = 0.05
UNSENT_S_MAX: Final = 1.0

_log = logger("mq.http")


@dataclass(frozen=True, slots=True)
class Acts:
    """Callbacks: `on_sent`, more may be claimed; `on_lapsed`, a message became due before it was
    sent; `on_full`, the client has not read for FULL_S_MAX; `on_stuck`, nor for UNSENT_S_MAX;
    `on_read`, it reads again.
    """

    on_sent: Callable[[], None]
    on_lapsed: Callable[[Delivery], None]
    on_full: Callable[[], None]
    on_stuck: Callable[[], None]
    on_read: Callable[[], None]


class Sending:
    """The sender of one connection."""

    def __init__(self, socket: Socket, session: Session, broker: Broker, acts: Acts) -> None:
        self._socket = socket
        self._session = session
        self._broker = broker
        self._acts = acts
        self._answers: deque[tuple[bytes, Callable[[], None] | None]] = deque()
        self._closing: tuple[CloseCode, str] | None = None
        self._changed = asyncio.Event()

    def answer(self, text: bytes, then: Callable[[], None] | None = None) -> None:
        """Queues a text frame before any further message; calls `then` once it is sent, or when the
        connection ends.
        """
        if not self._socket.is_open:
            if then is not None:
                then()
            return
        self._answers.append((frame(Opcode.TEXT, text), then))
        self._changed.set()

    def go_on(self) -> None:
        self._changed.set()

    def close(self, code: CloseCode, reason: str) -> None:
        """Queues the close frame behind the answers; no more messages are sent."""
        self._closing = self._closing or (code, reason)
        self._changed.set()

    async def run(self) -> None:
        """Sends until the close frame is sent or the connection is gone."""
        while self._socket.is_open:
            await self._changed.wait()
            self._changed.clear()
            while self._socket.is_open and await self._send_some():
                if self._socket.is_full:
                    await self._wait_for_reader()
            if self._closing is not None:
                self._socket.close(*self._closing)

    async def _send_some(self) -> bool:
        """Sends about a chunk, or a streamed body; false if nothing was left."""
        parts, size, large = [], 0, None
        reservations: list[object] = []
        while self._answers and size < CHUNK_BYTES:
            text, then = self._answers.popleft()
            parts.append(text)
            size += len(text)
            if then is not None:
                then()
        while size < CHUNK_BYTES and self._closing is None:
            delivery = self._next()
            if delivery is None:
                break
            if delivery.body is None:
                large = delivery
                break
            header = frame(Opcode.TEXT, header_frame(delivery))
            body = frame(Opcode.BINARY, delivery.body)
            parts += (header, body)
            size += len(header) + len(body)
            reservations.append(delivery.reservation)
            self._session.sent(delivery)
        if parts:
            self._socket.write(b"".join(parts), reservations)
        if large is not None:
            await self._send_large(large)
        if parts or large:
            self._acts.on_sent()
        return bool(parts or large)

    def _next(self) -> Delivery | None:
        delivery, lapsed = self._session.next_unsent(self._broker.root.now_ms())
        for each in lapsed:
            self._acts.on_lapsed(each)
        return delivery

    async def _send_large(self, delivery: Delivery) -> None:
        """Sends a streamed body in fragments."""
        if delivery.descriptor is None:
            raise ValueError("the body is held")
        body = download(self._broker, delivery.descriptor, delivery.offset, delivery.size)
        self._session.sent(delivery)
        left, opcode = delivery.size, Opcode.BINARY
        try:
            async for chunk in body.chunks():
                left -= len(chunk)
                part = frame(opcode, chunk, is_last=left == 0)
                if opcode is Opcode.BINARY:
                    part = frame(Opcode.TEXT, header_frame(delivery)) + part
                self._socket.write(part)
                opcode = Opcode.CONTINUATION
                if self._socket.is_full:
                    await self._wait_for_reader()
                if not self._socket.is_open:
                    return
        except Unavailable as error:
            # A begun message cannot be taken back; another comes back when due.
            _log.warning("a body could not be read", extra={"fields": {"error": repr(error)}})
            if opcode is Opcode.CONTINUATION:
                self._socket.close(CloseCode.FAILED, "a body could not be read")
        finally:
            await body.close()

    async def _wait_for_reader(self) -> None:
        loop = asyncio.get_running_loop()
        timers = [
            loop.call_later(FULL_S_MAX, self._acts.on_full),
            loop.call_later(UNSENT_S_MAX, self._acts.on_stuck),
        ]
        try:
            await self._socket.emptied()
        finally:
            for timer in timers:
                timer.cancel()
        self._acts.on_read()
