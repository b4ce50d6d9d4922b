"""What one client sends, on its way to aiohttp's parser: one request at a time, a bounded part a
turn, and no more that waits than there is room for.
"""

import asyncio
from typing import Protocol

from mq.http.answers import Answer
from mq.http.doors import HeadWatch, UnparsedWatch
from mq.http.framing import BodyBroken, FramesRefused, Framing, HeadTooLong, Malformed
from mq.http.problems import error_answer, problem_answer
from mq.model.errors import HeadersTooLarge, NoMemory
from mq.model.limits import HEADER_BLOCK_BYTES_MAX, HEADERS_MAX
from mq.model.serving_limits import PIPELINED_BYTES_MAX
from mq.protocol.problems import BAD_REQUEST


class Parsing(Protocol):
    """Where it goes."""

    transport: asyncio.Transport | None

    @property
    def is_full(self) -> bool:
        """Whether the parser has more than is read of it."""

    def parse(self, data: bytes) -> None:
        """Takes a part of a request, or of frames."""

    def refuse(self, answer: Answer) -> None:
        """Sends the answer to what is not parsed, and ends the connection."""

    def break_body(self) -> None:
        """Nothing more comes of the body in hand."""

    def refuse_frames(self, error: FramesRefused) -> None:
        """Ends the WebSocket."""


class Intake:
    """For one connection, on the event loop's thread."""

    __slots__ = (
        "_framing",
        "_head",
        "_is_free",
        "_is_going_on",
        "_is_held_up",
        "_loop",
        "_parsing",
        "_unparsed",
        "has_ended",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        parsing: Parsing,
        head: HeadWatch,
        unparsed: UnparsedWatch,
    ) -> None:
        self._loop = loop
        self._parsing = parsing
        self._head = head
        self._unparsed = unparsed
        self._framing = Framing(loop.time)
        self._is_free = True
        self._is_going_on = False
        self._is_held_up = False
        self.has_ended = False
        """Whether what comes is dropped."""

    @property
    def is_free(self) -> bool:
        """Whether each request that was parsed is answered."""
        return self._is_free

    @property
    def has_begun_head(self) -> bool:
        """Whether a head has begun, and has to end in time."""
        return self._head.is_on

    def came(self, data: bytes) -> None:
        """The client sent this."""
        if not self.has_ended:
            self._framing.add(data)
            self.go_on()

    def answered(self) -> None:
        """The request before is answered: what came behind it is looked at."""
        self._is_free = True
        self.go_on()

    def begin_frames(self) -> None:
        """The client and this side have agreed on a WebSocket."""
        self._framing.begin_frames()
        self.go_on()

    def end(self) -> None:
        """What waits, and what comes from here on, is dropped."""
        self.has_ended = True
        self._mind_rest()

    def go_on(self) -> None:
        """Has a bounded part of what waits be parsed, and goes on in the loop's next turn."""
        if self._is_going_on or self.has_ended or self._parsing.is_full:
            return
        self._is_going_on = True
        try:
            self._take()
        except Malformed:
            self._refuse(problem_answer(BAD_REQUEST))
        except HeadTooLong:
            self._refuse(error_answer(HeadersTooLarge(HEADERS_MAX, HEADER_BLOCK_BYTES_MAX)))
        except BodyBroken:
            self.has_ended = True
            self._parsing.break_body()
        except FramesRefused as error:
            self.has_ended = True
            self._parsing.refuse_frames(error)
        finally:
            self._is_going_on = False
        if self._framing.size or self._unparsed.size or self._is_held_up or self._head.is_on:
            self._mind_rest()

    def _take(self) -> None:
        framing = self._framing
        while self._is_free or not framing.is_at_head:
            begins = framing.is_at_head
            part = framing.take()
            if not part:
                break
            if begins:
                self._is_free = False
            self._parsing.parse(part)
            if framing.is_tired:
                self._loop.call_soon(self.go_on)
                break

    def _mind_rest(self) -> None:
        """What waits to be parsed is bounded, and a head that began has to end."""
        framing = self._framing
        is_behind = framing.is_at_head and not self._is_free
        if not self._unparsed.holds(framing.size if framing.is_at_head else 0):
            self._has_no_room(is_behind)
        if self.has_ended:
            framing.drop()
            self._unparsed.holds(0)
        self._head.mind(self._is_free and framing.has_begun_head)
        transport = self._parsing.transport
        if transport is None:
            return
        if framing.is_tired or (is_behind and framing.size >= PIPELINED_BYTES_MAX):
            self._is_held_up = True
            transport.pause_reading()
        elif self._is_held_up and not self._parsing.is_full:
            self._is_held_up = False
            transport.resume_reading()

    def _has_no_room(self, is_behind: bool) -> None:
        """Other connections have in hand what may be unparsed. Who has an answer to come gets that,
        and tries again on another connection what it sent behind.
        """
        if is_behind:
            self.has_ended = True
        else:
            self._refuse(error_answer(NoMemory()))

    def _refuse(self, answer: Answer) -> None:
        self.has_ended = True
        self._parsing.refuse(answer)
