"""Sends the requests of a bench over its connections, and counts what comes of them."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from mq.client.calls import fetching, publishing, settling
from mq.client.calls.call import Call
from mq.client.errors import ClientError, NotMq, NotUsable, Problem, QueueNotFound, Unanswered
from mq.client.sending import Sender
from mq.client.values import NewMessage, Published
from mq.client.wire.rows import Row
from mq.tools.mqctl.bench.limits import (
    EMPTY_IN_A_ROW_MAX,
    FAILED_IN_A_ROW_MIN,
    FETCH_WAIT_S,
    VISIBILITY_S,
)
from mq.tools.mqctl.bench.pace import Turns
from mq.tools.mqctl.bench.plan import ATTRIBUTE, Plan
from mq.tools.mqctl.bench.tally import Tally

T = TypeVar("T")

_IDEMPOTENCY: Final = "idempotency-key"
_SERVERS_FAULT: Final = 500


class GaveUp(Exception):
    """The load cannot go on; the text says why."""


class Load:
    """The connections. `select`: whether only messages of this bench are asked for, as in a queue
    that others may use.
    """

    def __init__(
        self, sender: Sender, plan: Plan, steady_s: Callable[[], float], *, select: bool
    ) -> None:
        self._sender = sender
        self._plan = plan
        self._steady_s = steady_s
        self._select = f"header:{ATTRIBUTE}={plan.run}" if select else None
        self._headers = {ATTRIBUTE: plan.run} if select else None
        self._body = plan.body()
        self._failed_in_a_row = 0
        self._stopping = asyncio.Event()
        self.met_others = False
        """Whether a message of somebody else was fetched."""

    def stop(self) -> None:
        """What is on its way is waited for; nothing more is sent."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    async def publish(self, tally: Tally, turns: Turns, messages: int | None) -> None:
        """Publishes until there is no turn any more. `messages`: in all, None: as many as come.
        Raises GaveUp.
        """
        batch = self._plan.batch

        async def connection() -> None:
            while (turn := await self._turn(turns)) is not None:
                number, due_s = turn
                count = batch if messages is None else min(batch, messages - number * batch)
                await self._publish(tally, due_s, count)

        await self._on_all(connection)
        tally.unsent = 0 if self._stopping.is_set() else turns.unsent

    async def consume(self, fetched: Tally, deleted: Tally, turns: Turns, messages: int) -> None:
        """Fetches, and deletes what was fetched, until it has had so many, or there is no turn any
        more, or nothing comes. Raises GaveUp.
        """
        left = messages
        empty = 0

        async def connection() -> None:
            nonlocal left, empty
            while left > 0 and empty < EMPTY_IN_A_ROW_MAX:
                # What one is about to fetch is not waited for by another.
                count = min(self._plan.batch, left)
                left -= count
                turn = await self._turn(turns)
                if turn is None:
                    return
                found = await self._fetch(fetched, turn[1], count)
                left += count - len(found or ())
                if found is not None:
                    empty = 0 if found else empty + 1
                if found:
                    await self._delete(deleted, found)

        await self._on_all(connection)
        is_cut_short = left > 0 and not self._stopping.is_set()
        fetched.unsent = turns.unsent if is_cut_short else 0

    async def _on_all(self, connection: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._plan.connections):
                    group.create_task(connection())
        except BaseExceptionGroup as failed:
            # One says what happened: the others were cancelled for it.
            raise failed.exceptions[0] from None

    async def _turn(self, turns: Turns) -> tuple[int, float | None] | None:
        """The next turn, at its time; when it is due where a rate was said."""
        turn = None if self._stopping.is_set() else turns.take(self._steady_s())
        if turn is None:
            return None
        if turn.due_s is not None and (early_s := turn.due_s - self._steady_s()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), early_s)
                return None
        return turn.number, turn.due_s

    async def _publish(self, tally: Tally, due_s: float | None, count: int) -> None:
        call = self._one() if self._plan.batch == 1 else self._many(count)
        sent_s = self._steady_s()
        tally.begin(sent_s)
        try:
            found = await self._send(call)
        except ClientError as error:
            self._refused(tally, error, count)
            return
        stored = 0
        for each in found:
            if each.problem is None:
                stored += 1
            else:
                tally.refuse(each.problem, 1, may_be_done=_may_be_done(each.problem))
        if stored:
            tally.done(sent_s if due_s is None else due_s, self._steady_s(), stored)

    def _one(self) -> Call[list[Published]]:
        """A publish of one message; an idempotency key costs mq a link, so it is there only where
        it was asked for.
        """
        message = NewMessage(self._body, headers=self._headers)
        call = publishing.publish(self._plan.name, message, str(uuid.uuid4()))
        request = call.request
        if not self._plan.is_idempotent:
            kept = tuple(each for each in request.headers if each[0].lower() != _IDEMPOTENCY)
            request = replace(request, headers=kept)
        return Call(request, lambda answer: [Published(call.read(answer))])

    def _many(self, count: int) -> Call[list[Published]]:
        return publishing.lines(
            self._plan.name,
            (self._body + b"\n") * count,
            delay_s=None,
            at=None,
            priority=None,
            visibility_s=None,
            headers=self._headers,
            content_type=None,
        )

    async def _fetch(self, tally: Tally, due_s: float | None, count: int) -> list[Row] | None:
        """What was fetched; None where that failed."""
        sent_s = self._steady_s()
        tally.begin(sent_s)
        name = self._plan.name
        try:
            if self._plan.batch == 1:
                one = await self._send(
                    fetching.fetch(name, FETCH_WAIT_S, VISIBILITY_S, self._select)
                )
                found = [] if one is None else [one]
            else:
                found = await self._send(
                    fetching.fetch_many(name, count, FETCH_WAIT_S, VISIBILITY_S, self._select)
                )
        except ClientError as error:
            self._refused(tally, error, count)
            return None
        ended_s = self._steady_s()
        ours = [row for row in found if row.body.startswith(self._plan.mark)]
        if len(ours) < len(found):
            await self._give_back([row for row in found if row not in ours])
        if ours:
            tally.done(sent_s if due_s is None else due_s, ended_s, len(ours))
        elif not found:
            tally.empty += 1
        return ours

    async def _give_back(self, strangers: Sequence[Row]) -> None:
        """What is another's is ready again at once, and the bench is over: it would be fetched
        again and again. What is on its way is waited for, so that it is nobody's fetch that is cut
        short.
        """
        self.met_others = True
        self._stopping.set()
        for row in strangers:
            # Where that fails it comes back when it is due.
            with contextlib.suppress(Problem, Unanswered, NotMq):
                await self._send(settling.extend(self._plan.name, row.id, 0, row.receives))

    async def _delete(self, tally: Tally, found: Sequence[Row]) -> None:
        sent_s = self._steady_s()
        tally.begin(sent_s)
        name = self._plan.name
        done = 1
        try:
            if self._plan.batch == 1:
                await self._send(settling.delete(name, found[0].id, None))
            else:
                done = 0
                for each in await self._send(settling.delete_many(name, [row.id for row in found])):
                    if each.problem is None:
                        done += 1
                    else:
                        tally.refuse(each.problem, 1, may_be_done=_may_be_done(each.problem))
        except ClientError as error:
            self._refused(tally, error, len(found))
            return
        if done:
            tally.done(sent_s, self._steady_s(), done)

    async def _send(self, call: Call[T]) -> T:
        answer = await self._sender.send(call)
        self._failed_in_a_row = 0
        return answer

    def _refused(self, tally: Tally, error: ClientError, count: int) -> None:
        """Counts an error. Raises GaveUp where going on makes no sense."""
        if isinstance(error, NotUsable):
            raise error
        tally.refuse(error, count, may_be_done=_may_be_done(error))
        if isinstance(error, QueueNotFound):
            raise GaveUp("the queue was deleted meanwhile")
        self._failed_in_a_row += 1
        # Each connection may have met the same hiccup.
        if self._failed_in_a_row >= FAILED_IN_A_ROW_MIN + 2 * self._plan.connections:
            raise GaveUp(f"nothing succeeds any more: {error}")


def _may_be_done(error: ClientError) -> bool:
    if isinstance(error, Problem):
        return error.status >= _SERVERS_FAULT
    return not isinstance(error, Unanswered) or error.was_sent
