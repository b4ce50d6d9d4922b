"""Receiving: fetch, write, flush, and only then delete. Releases messages that were not written.

At least once: a message that was not written is delivered again, however this ends.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mq.client.errors import ClientError, Problem, Unanswered
from mq.client.message import AsyncMessage
from mq.client.queue import AsyncQueue
from mq.tools.mqctl.complaints import problem_text
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.inbox import BadFileName, Inbox
from mq.tools.mqctl.options import Options
from mq.tools.mqctl.printing import Printer, plain, shown

T = TypeVar("T")

PAGE_MESSAGES: Final = 100
POLL_S: Final = 20.0
_POLL_S_MAX: Final = 60.0
_SETTLED_AT_ONCE: Final = 32
# How long a command that ends continues to delete and release.
_END_S: Final = 10.0
_NOT_DELETED_TOLD_MAX: Final = 1000
_AGAIN_FIRST_S: Final = 0.5
_AGAIN_LONGEST_S: Final = 10.0
_LINE_END: Final = b"\n"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages to receive, and whether to delete them. `count` None: one, whose bytes are
    printed without a line end; with `follow` without end.
    """

    count: int | None = None
    wait_s: float = 0.0
    follow: bool = False
    ack: bool = False
    visibility_s: float | None = None
    select: tuple[str, ...] = ()

    @property
    def is_one(self) -> bool:
        """Whether a single message is wanted, without a line end."""
        return self.count is None and not self.follow

    @property
    def count_max(self) -> int | None:
        """The most messages to receive; None: no limit."""
        return 1 if self.is_one else self.count


class Receiving:
    def __init__(
        self,
        queue: AsyncQueue,
        wanted: Wanted,
        inbox: Inbox | None,
        printer: Printer,
        options: Options,
    ) -> None:
        self._queue = queue
        self._wanted = wanted
        self._inbox = inbox
        self._printer = printer
        self._options = options
        self._received = 0
        self._was_answered = False
        self._not_deleted: list[dict[str, str]] = []
        self._not_deleted_count = 0
        self._last: AsyncMessage | None = None

    async def run(self) -> None:
        """Receives the messages. Raises Failed for none, or if some could not be deleted; OSError
        for output that cannot be written.
        """
        try:
            await self._receive()
        except BaseException as error:
            if self._not_deleted_count and not isinstance(error, Failed):
                self._printer.note(self._late())
            raise
        if self._not_deleted_count:
            facts = {"received": self._received, "not_deleted": self._not_deleted}
            raise self._failed(ExitCode.PARTLY, self._late(), facts)
        if not self._received:
            raise self._failed(ExitCode.NOTHING, f"{self._queue.name} has no message to receive.")
        if not self._wanted.ack and not self._printer.as_json:
            self._printer.note(self._comes_back())

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wanted.wait_s
        while True:
            left = PAGE_MESSAGES
            if self._wanted.count_max is not None:
                left = self._wanted.count_max - self._received
            if left <= 0:
                return
            wait_s = POLL_S if self._wanted.follow else max(0.0, deadline - loop.time())
            messages = await self._fetch(min(left, PAGE_MESSAGES), min(wait_s, _POLL_S_MAX))
            if messages:
                await self._deliver(messages)
            elif not self._wanted.follow and loop.time() >= deadline:
                return

    async def _fetch(self, count: int, wait_s: float) -> list[AsyncMessage]:
        """The next messages. With --follow it retries while mq is away."""
        again_s = _AGAIN_FIRST_S
        while True:
            try:
                found = await self._queue.fetch_many(
                    count,
                    wait_s=wait_s,
                    visibility_s=self._wanted.visibility_s,
                    select=self._wanted.select or None,
                )
                self._was_answered = True
                return found
            except ClientError as error:
                if not (self._wanted.follow and self._was_answered and _passes(error)):
                    raise
                if again_s == _AGAIN_FIRST_S:
                    self._printer.note(f"{problem_text(error)}; trying again")
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, _AGAIN_LONGEST_S)

    async def _deliver(self, messages: Sequence[AsyncMessage]) -> None:
        """Writes the messages, then deletes those written and releases the others."""
        written: list[AsyncMessage] = []
        try:
            if self._inbox is None:
                for message in messages:
                    self._print(message)
                    written.append(message)
                    # The loop handles signals between two messages.
                    await asyncio.sleep(0)
            else:
                paths = self._inbox.keep([(each.id, each.body) for each in messages])
                written.extend(messages)
                for message, path in zip(messages, paths, strict=True):
                    self._print_path(message, path)
        except BadFileName as error:
            raise self._failed(ExitCode.REFUSED, shown(error)) from error
        finally:
            self._received += len(written)
            self._last = written[-1] if written else self._last
            await _to_the_end(self._settle(written, messages[len(written) :]))

    async def _settle(
        self, written: Sequence[AsyncMessage], others: Sequence[AsyncMessage]
    ) -> None:
        turn = asyncio.Semaphore(_SETTLED_AT_ONCE)

        async def delete(message: AsyncMessage) -> None:
            async with turn:
                try:
                    await message.delete()
                except ClientError as error:
                    self._note_failure(message, error)

        async def release(message: AsyncMessage) -> None:
            async with turn:
                try:
                    await message.release()
                except ClientError as error:
                    self._printer.note(
                        f"{message.id} could not be released; it returns to the queue at "
                        f"{shown(message.due)}: {problem_text(error)}"
                    )

        deletes = [delete(each) for each in written] if self._wanted.ack else []
        await asyncio.gather(*deletes, *(release(each) for each in others))

    def _note_failure(self, message: AsyncMessage, error: ClientError) -> None:
        self._not_deleted_count += 1
        if len(self._not_deleted) < _NOT_DELETED_TOLD_MAX:
            self._not_deleted.append({"id": message.id, "why": problem_text(error)})

    def _print(self, message: AsyncMessage) -> None:
        if self._printer.as_json:
            self._printer.row(_row(message))
        else:
            self._printer.body(message.body, b"" if self._wanted.is_one else _LINE_END)

    def _print_path(self, message: AsyncMessage, path: str) -> None:
        if self._printer.as_json:
            row = _row(message)
            del row["body"]
            self._printer.row({**row, "file": path})
        else:
            self._printer.line(path)
            self._printer.flush()

    def _late(self) -> str:
        shown_ones = "".join(f"\n  {each['id']}: {each['why']}" for each in self._not_deleted)
        return (
            f"{self._not_deleted_count} of {self._received} messages were written but could not be "
            f"deleted; they may be delivered again:{shown_ones}"
        )

    def _comes_back(self) -> str:
        last = self._last
        if last is None:
            return ""
        if self._received == 1:
            return (
                f"{last.id} returns to the queue at {shown(last.due)} unless you delete it: "
                f"mqctl ack {last.queue} {last.id} --receives {last.receives}"
            )
        return (
            f"These {self._received} messages return to the queue when their visibility ends. "
            "Use --ack to delete them."
        )

    def _failed(self, code: ExitCode, message: str, facts: dict[str, Any] | None = None) -> Failed:
        return Failed(code, message, facts, as_json=self._options.as_json)


def _passes(error: ClientError) -> bool:
    """Whether a later attempt may succeed."""
    return isinstance(error, Unanswered) or (isinstance(error, Problem) and error.retryable)


def _row(message: AsyncMessage) -> dict[str, Any]:
    names = (
        "queue",
        "id",
        "receives",
        "published",
        "due",
        "priority",
        "key",
        "sidelined",
        "reason",
    )
    row = {name: getattr(message, name) for name in names}
    if message.schedule is not None:
        row["schedule"] = message.schedule
    return dict(plain({**row, "headers": message.headers, "body": message.body}))


async def _to_the_end(work: "Awaitable[T]") -> T:
    """Finishes the work although the command is cancelled, within some seconds."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=_END_S)
        raise
