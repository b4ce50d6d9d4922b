"""The queue of a bench: made for it, and taken away after, whatever happens between."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mq.client.client import AsyncClient
from mq.client.errors import ClientError, QueueNotFound
from mq.client.values import PeekedMessage, State
from mq.tools.mqctl.bench.limits import (
    CLEAN_S,
    EXPIRES_AFTER_S,
    LOOKS_MAX,
    PAGES_MAX,
    PAGES_OF_OWN_MAX,
    PEEKED_A_PAGE,
)
from mq.tools.mqctl.bench.plan import ATTRIBUTE, Plan

# Fetched is a kind of delayed. What moves from one to the other between two looks is in neither, so
# that each is looked at again.
_LOOKED_AT: Final[tuple[State, ...]] = ("ready", "delayed", "ready", "delayed")


class Holds(Exception):
    """The queue holds messages, which are not this bench's."""

    def __init__(self, queue: str, messages: int) -> None:
        super().__init__(queue, messages)
        self.queue = queue
        self.messages = messages


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a bench: its queue, or messages of it in a queue of others; and why. None:
    nothing is.
    """

    queue: str | None = None
    why: str | None = None


class Keeping:
    """A bench's queue. `is_own`: it was made for the bench, and goes with it."""

    def __init__(self, client: AsyncClient, plan: Plan) -> None:
        self._plan = plan
        self._queue = client.queue(plan.name)
        self._is_there = False
        self._is_doubtful = False
        self.is_own = False
        self.has_others = False
        """Whether others are known to have published to it."""

    async def prepare(self, now_ms: int) -> None:
        """Makes the queue, or looks at the one that is there. Raises Holds where that has messages
        and it was not said that others' are to stay; ClientError.

        What it made goes by itself after a day, should nobody be there to take it away.
        """
        if self._plan.queue is not None:
            try:
                await self._look()
            except QueueNotFound:
                pass
            else:
                self._is_there = True
                return
        # From here on it may be there by this bench, also where the answer is lost.
        self._is_there = True
        # A name by chance is nobody else's.
        self.is_own = self._plan.queue is None
        self._is_doubtful = not self.is_own
        if await self._queue.create():
            self.is_own, self._is_doubtful = True, False
        if self.is_own:
            end = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(seconds=EXPIRES_AFTER_S)
            await self._queue.change_settings(
                {"expires_at": end.isoformat().replace("+00:00", "Z"), "expiry_grace_s": 0}
            )

    async def _look(self) -> None:
        said = await self._queue.describe()
        held = said.ready + said.delayed + said.in_flight + said.leased
        if held and not self._plan.among_others:
            raise Holds(self._plan.name, held)

    async def clean(self) -> Left:
        """Takes away the queue where it is the bench's, else what the bench has in it. Ends within
        a bounded time, and raises nothing: what it could not do is told.
        """
        if not self._is_there:
            return Left()
        try:
            async with asyncio.timeout(CLEAN_S):
                return await self._clean()
        except TimeoutError:
            return Left(self._plan.name, f"it could not be taken away within {CLEAN_S:g} s")
        except ClientError as error:
            return Left(self._plan.name, str(error))

    async def _clean(self) -> Left:
        try:
            if self.is_own:
                await self._look_through(PAGES_OF_OWN_MAX)
                if not self.has_others:
                    await self._queue.delete()
                    return Left()
            own, is_all = await self._look_through(PAGES_MAX)
            for _ in range(LOOKS_MAX):
                # What is taken away may be followed by what was still on its way.
                if not own:
                    break
                await self._delete(own)
                own, is_all = await self._look_through(PAGES_MAX)
        except QueueNotFound:
            return Left()
        return await self._left(bool(own) or not is_all)

    async def _look_through(self, pages: int) -> tuple[list[str], bool]:
        """So many pages of each state: the ids of the bench's messages, and whether all was looked
        at.
        """
        own: dict[str, None] = {}
        is_all = True
        for state in _LOOKED_AT:
            after: str | None = None
            for _ in range(pages):
                page = await self._queue.peek(states=(state,), count=PEEKED_A_PAGE, after=after)
                ours = [each.id for each in page if self._is_ours(each)]
                own.update(dict.fromkeys(ours))
                self.has_others = self.has_others or len(ours) < len(page)
                if len(page) < PEEKED_A_PAGE:
                    break
                after = page[-1].id
            else:
                is_all = False
        return list(own), is_all

    def _is_ours(self, message: PeekedMessage) -> bool:
        marked = message.headers.get(ATTRIBUTE) == self._plan.run
        return marked or message.body.startswith(self._plan.mark)

    async def _delete(self, own: Sequence[str]) -> None:
        for start in range(0, len(own), PEEKED_A_PAGE):
            await self._queue.delete_messages(own[start : start + PEEKED_A_PAGE])

    async def _left(self, is_some: bool) -> Left:
        """The queue stays, as others use it."""
        name = self._plan.name
        if is_some:
            return Left(name, "messages of this bench may still be in it")
        if self.is_own:
            with contextlib.suppress(QueueNotFound):
                await self._queue.change_settings({"expires_at": None, "expiry_grace_s": None})
            return Left(name, "others published to it: it holds messages of theirs")
        if self._is_doubtful:
            return Left(name, "it was not there before, and may be of this bench")
        return Left()
