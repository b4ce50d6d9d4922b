"""What goes out to one client, at the pace at which it reads: answers first, then messages.

One task sends everything, since the fragments of a message stand together. While the client does
not read, nothing more is claimed for it, and soon what was is given back.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from mq.broker.broker import Broker
from mq.http.carried import download
from mq.http.consume.socket import Socket
from mq.http.consume.wire import CloseCode, Opcode, frame
from mq.model.errors import Unavailable
from mq.model.limits import CHUNK_BYTES
from mq.model.message import Delivery
from mq.protocol.consume.frames import header_frame
from mq.protocol.consume.limits import FULL_S_MAX, UNSENT_S_MAX
from mq.protocol.consume.session import Session

_log = logging.getLogger("mq.http")


@dataclass(frozen=True, slots=True)
class Acts:
    """What the way out has somebody do: `on_sent`, there is room to claim more; `on_lapsed`, a
    message was not sent in its time; `on_full`, the client has not read for FULL_S_MAX; `on_stuck`,
    nor for UNSENT_S_MAX; `on_room`, it reads again.
    """

    on_sent: Callable[[], None]
    on_lapsed: Callable[[Delivery], None]
    on_full: Callable[[], None]
    on_stuck: Callable[[], None]
    on_room: Callable[[], None]


class Sending:
    """The way out of one connection."""

    def __init__(self, socket: Socket, session: Session, broker: Broker, acts: Acts) -> None:
        self._socket = socket
        self._session = session
        self._broker = broker
        self._acts = acts
        self._answers: deque[tuple[bytes, Callable[[], None] | None]] = deque()
        self._closing: tuple[CloseCode, str] | None = None
        self._changed = asyncio.Event()

    def answer(self, text: bytes, then: Callable[[], None] | None = None) -> None:
        """Has a text frame be sent before any other message; `then` is called once it was, or when
        nothing is sent any more.
        """
        if not self._socket.is_open:
            if then is not None:
                then()
            return
        self._answers.append((frame(Opcode.TEXT, text), then))
        self._changed.set()

    def go_on(self) -> None:
        """There is something to be sent."""
        self._changed.set()

    def close(self, code: CloseCode, reason: str) -> None:
        """Has the last frame be sent, after the answers and no more messages."""
        self._closing = self._closing or (code, reason)
        self._changed.set()

    async def run(self) -> None:
        """Sends until the last frame is sent, or the connection is gone."""
        while self._socket.is_open:
            await self._changed.wait()
            self._changed.clear()
            while self._socket.is_open and await self._send_some():
                if self._socket.is_full:
                    await self._wait_for_reader()
            if self._closing is not None:
                self._socket.close(*self._closing)

    async def _send_some(self) -> bool:
        """Sends about a chunk, or a body that is not held; false when nothing was left."""
        parts, size, large = [], 0, None
        hands: list[object] = []
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
            hands.append(delivery.hand)
            self._session.sent(delivery)
        if parts:
            self._socket.write(b"".join(parts), hands)
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
        """In fragments, none of which is held for longer than its turn."""
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
            # A message that has begun cannot be taken back; one that has not comes back when due.
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
        self._acts.on_room()
