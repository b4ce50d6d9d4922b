"""Fills the board with a bounded number of requests per tick."""

import contextlib
import heapq
import math
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, cast

from mq.client.client import AsyncClient
from mq.client.errors import ClientError, Problem, QueueNotFound
from mq.client.together import together
from mq.client.values import Members, QueueEntry
from mq.model.clock import Clock
from mq.tools.mqctl.complaints import problem_text
from mq.tools.mqctl.printing import shown
from mq.tools.mqctl.top.board import Board, Health, Reach

ASKED_AT_A_TIME: Final = 8
"""Concurrent requests."""
NAMES_A_TICK: Final = 2000
REASON_CHARS_MAX: Final = 300
# The share of a tick's requests for queues that are not on the screen.
REST_SHARE: Final = 0.25


class Asker:
    """Fills a board. `patterns`: globs that select queues; `room`: the most queues to describe per
    tick. A tick also lists some names and makes three requests about mq itself.
    """

    def __init__(
        self, client: AsyncClient, clock: Clock, patterns: Sequence[str], room: int
    ) -> None:
        self._client = client
        self.clock = clock
        self.board = Board(Reach(clock.steady_s()))
        self._patterns = patterns
        self._room = room
        self._list: AsyncGenerator[QueueEntry, None] | None = None
        self.error: ClientError | None = None
        """Why mq did not answer in the last tick; None if it did."""

    async def tick(self, visible: Iterable[str]) -> None:
        """Polls mq's state, a part of the list, and some queues: the visible ones, and others in
        turn. Raises only NotUsable.
        """
        await self._tried(self._tick(visible))

    async def all_once(self) -> None:
        """Polls every queue, however many requests that takes."""
        await self._tried(self._all_once())

    async def _tried(self, asked: Awaitable[None]) -> None:
        try:
            await asked
        except ClientError as error:
            self.error = error
            self.board.lost(self.clock.steady_s(), reason_of(error))
            await self.close()
        else:
            self.error = None

    async def _tick(self, visible: Iterable[str]) -> None:
        await self._health()
        await self._names(NAMES_A_TICK)
        await self._describe(next_asked(self.board.tried_s(), visible, self._room))

    async def _all_once(self) -> None:
        await self._health()
        await self.close()
        while not await self._names(NAMES_A_TICK):
            pass
        await self._describe(list(self.board.queues()))

    async def _health(self) -> None:
        readiness = unready = memory = None
        try:
            readiness = await self._client.readiness()
        except Problem as error:
            unready = reason_of(error)
        self.board.answered(self.clock.steady_s())
        members: Members | None = None
        with contextlib.suppress(Problem):
            members = await self._client.members()
        with contextlib.suppress(Problem):
            memory = await self._client.memory()
        self.board.health = Health(readiness, unready, members, memory)

    async def _names(self, count: int) -> bool:
        """The next part of the list; whether it was the last."""
        if self._list is None:
            # It is a generator, which the declared type does not say.
            self._list = cast("AsyncGenerator[QueueEntry, None]", self._client.queues())
            self.board.begin_list()
        found: list[str] = []
        looked_at = 0
        async for entry in self._list:
            looked_at += 1
            if self._is_wanted(entry.name):
                found.append(entry.name)
            if looked_at >= count:
                self.board.list_names(found)
                return False
        self.board.list_names(found)
        self.board.end_of_list()
        self._list = None
        return True

    def _is_wanted(self, name: str) -> bool:
        return not self._patterns or any(fnmatchcase(name, each) for each in self._patterns)

    async def _describe(self, names: Sequence[str]) -> None:
        """Describes queues concurrently. An error other than a queue's problem ends all."""
        todo = iter(names)

        async def describer() -> None:
            for name in todo:
                await self._describe_one(name)

        await together(*(describer() for _ in range(min(ASKED_AT_A_TIME, len(names)))))

    async def _describe_one(self, name: str) -> None:
        try:
            found = await self._client.queue(name).describe()
        except QueueNotFound:
            self.board.forget(name)
        except Problem as error:
            self.board.refused(name, self.clock.steady_s(), reason_of(error))
        else:
            self.board.take(found, self.clock.steady_s())

    async def close(self) -> None:
        """Closes a half-read list: the next tick starts again."""
        held, self._list = self._list, None
        if held is not None:
            await held.aclose()


def reason_of(error: ClientError) -> str:
    """The reason of an error, in a bounded line."""
    text = problem_text(error) if isinstance(error, Problem) else shown(error)
    return text if len(text) <= REASON_CHARS_MAX else text[: REASON_CHARS_MAX - 3] + "..."


def next_asked(
    asked_s: Mapping[str, float | None], shown: Iterable[str], room: int
) -> tuple[str, ...]:
    """At most `room` names: those on the screen, and the others that were described longest ago; a
    share of the room is theirs, so that each gets its turn. `asked_s`: the time of each name's last
    request, None: never.
    """
    visible = [name for name in dict.fromkeys(shown) if name in asked_s]
    others = asked_s.keys() - set(visible)
    for_others = min(len(others), max(1, math.ceil(room * REST_SHARE)), room)
    if len(visible) > room - for_others:
        chosen = _longest(asked_s, visible, room - for_others)
    else:
        chosen = visible
    return (*chosen, *_longest(asked_s, others, room - len(chosen)))


def _longest(asked_s: Mapping[str, float | None], names: Iterable[str], count: int) -> list[str]:
    """Those that were described longest ago, never ones first, then by name."""

    def waited(name: str) -> tuple[float, str]:
        when = asked_s[name]
        return (-math.inf if when is None else when, name)

    return heapq.nsmallest(count, names, key=waited)
