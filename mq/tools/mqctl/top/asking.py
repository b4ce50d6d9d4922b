"""Asks mq what the board is to know: a bounded number of requests a tick."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import cast

from mq.client.client import AsyncClient
from mq.client.errors import ClientError, Problem, QueueNotFound
from mq.client.values import Members, QueueEntry
from mq.tools.mqctl.complaints import problem_text
from mq.tools.mqctl.printing import shown
from mq.tools.mqctl.top.board import Board, Health
from mq.tools.mqctl.top.limits import ASKED_AT_A_TIME, NAMES_A_TICK, REASON_CHARS_MAX
from mq.tools.mqctl.top.rotation import next_asked


class Asker:
    """Fills a board. `patterns`: globs, of which a queue's name is to match one where there are
    any; `room`: how many queues are asked about in a tick.

    A tick has at most `room` requests, one for each thousand names of the list, and three.
    """

    def __init__(
        self,
        client: AsyncClient,
        board: Board,
        steady_s: Callable[[], float],
        patterns: Sequence[str],
        room: int,
    ) -> None:
        self._client = client
        self._board = board
        self._steady_s = steady_s
        self._patterns = patterns
        self._room = room
        self._list: AsyncGenerator[QueueEntry, None] | None = None
        self.error: ClientError | None = None
        """Why mq did not answer in the last tick; None where it did."""

    async def tick(self, visible: Iterable[str]) -> None:
        """A look at how mq is, at a part of the list, and at some queues: those that are visible,
        and others in turn. Raises NotUsable alone.
        """
        await self._told(self._tick(visible))

    async def all_once(self) -> None:
        """A look at every queue, however many requests that takes."""
        await self._told(self._all_once())

    async def _told(self, asked: Awaitable[None]) -> None:
        try:
            await asked
        except ClientError as error:
            self.error = error
            self._board.lost(self._steady_s(), told(error))
            await self.close()
        else:
            self.error = None

    async def _tick(self, visible: Iterable[str]) -> None:
        await self._health()
        await self._names(NAMES_A_TICK)
        await self._describe(next_asked(self._board.tried_s(), visible, self._room))

    async def _all_once(self) -> None:
        await self._health()
        await self.close()
        while not await self._names(NAMES_A_TICK):
            pass
        await self._describe(list(self._board.entries))

    async def _health(self) -> None:
        readiness = unready = memory = None
        try:
            readiness = await self._client.readiness()
        except Problem as error:
            unready = told(error)
        self._board.answered(self._steady_s())
        members: Members | None = None
        with contextlib.suppress(Problem):
            members = await self._client.members()
        with contextlib.suppress(Problem):
            memory = await self._client.memory()
        self._board.health = Health(readiness, unready, members, memory)

    async def _names(self, count: int) -> bool:
        """The next part of the list; whether that was its end."""
        if self._list is None:
            # What it is; the protocol of an iterator has no end of its own.
            self._list = cast("AsyncGenerator[QueueEntry, None]", self._client.queues())
            self._board.begin_list()
        found: list[str] = []
        looked_at = 0
        async for entry in self._list:
            looked_at += 1
            if self._is_wanted(entry.name):
                found.append(entry.name)
            if looked_at >= count:
                self._board.list_names(found)
                return False
        self._board.list_names(found)
        self._board.end_of_list()
        self._list = None
        return True

    def _is_wanted(self, name: str) -> bool:
        return not self._patterns or any(fnmatchcase(name, each) for each in self._patterns)

    async def _describe(self, names: Sequence[str]) -> None:
        """Some at a time; the first error that is no problem of a queue ends all."""
        todo = iter(names)

        async def describer() -> None:
            for name in todo:
                await self._describe_one(name)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(ASKED_AT_A_TIME, len(names))):
                    group.create_task(describer())
        except BaseExceptionGroup as failed:
            # One says what happened: the others were cancelled for it.
            raise failed.exceptions[0] from None

    async def _describe_one(self, name: str) -> None:
        try:
            said = await self._client.queue(name).describe()
        except QueueNotFound:
            self._board.forget(name)
        except Problem as error:
            self._board.refused(name, self._steady_s(), told(error))
        else:
            self._board.take(said, self._steady_s())

    async def close(self) -> None:
        """Lets the list go that is half read: the next look begins it anew."""
        held, self._list = self._list, None
        if held is not None:
            await held.aclose()


def told(error: ClientError) -> str:
    """Why mq did not do it, in a bounded line."""
    text = problem_text(error) if isinstance(error, Problem) else shown(error)
    return text if len(text) <= REASON_CHARS_MAX else text[: REASON_CHARS_MAX - 3] + "..."
