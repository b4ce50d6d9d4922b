"""A fetched message, and the requests that settle it."""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Final, Self, TypeAlias, cast, get_args

from mq.client import wire
from mq.client.errors import AlreadySettled, ClientError, DeliveredAgain, MessageNotFound, one_line
from mq.client.forks import check_inherited
from mq.client.options import CLOSE_S
from mq.client.sending import Call, Sender, done_after, nothing
from mq.client.together import together
from mq.client.transport import Answer, Request
from mq.client.values import Content, Extended, Failed, Reason, Settled, Sidelined
from mq.client.wire import Members, Row, priority_and_key
from mq.model.failure import Failure
from mq.model.limits import BATCH_MESSAGES_MAX
from mq.protocol import sidelines

DELETED: Final = "deleted"
RELEASED: Final = "released"
SIDELINED: Final = "sidelined"

Said: TypeAlias = str | Mapping[str, str] | None
"""The `reason` of a request or command; None: it has none."""

_log: Final = logging.getLogger("mq.client")


class Fetched(Content):
    """The content of a fetched message."""

    __slots__ = {
        "attempts": "How often it was delivered, without deliveries that were returned unhandled.",
        "body": "Its bytes, as they were published.",
        "group": "Its group, whose messages are delivered one at a time; None: it has none.",
        "headers": "Its Content-Type and the other headers that it keeps, by names in lower case.",
        "id": "Its id: the same at each delivery.",
        "published": "When it was published.",
        "queue": "The queue that it was fetched from.",
        "reason": "A line that says why it was last released or sidelined; None: none was said.",
        "receives": "How often it was delivered, this time included.",
        "row": "The row of the answer that it comes from.",
        "schedule": "The firing of a schedule that published it: name, due, number; else None.",
        "sidelined": "In a sideline, the reason, where it is known.",
        "tags": "Its tags.",
    }

    def __init__(self, queue: str, row: Row) -> None:
        self.queue: Final = queue
        self.row: Final = row
        self.id: Final = row.id
        self.body = row.body
        self.headers = row.headers
        self.group: Final = row.group
        self.receives: Final = row.receives
        self.attempts: Final = row.receives if row.attempts is None else row.attempts
        self.published: Final = row.published
        self.reason: Final = row.reason
        self.sidelined: Final = row.sidelined
        self.schedule: Final = row.schedule
        self.tags: Final = row.tags

    @property
    def key(self) -> str | None:
        """Its lookup key."""
        return priority_and_key(self.id)[1]

    @property
    def priority(self) -> int:
        """Its priority, 0 to 9."""
        return priority_and_key(self.id)[0]

    def __repr__(self) -> str:
        return f"<message {self.id} of {self.queue}, receives {self.receives}>"


@dataclass(frozen=True, slots=True)
class Target:
    """The message of a request; with `receives`, that delivery alone (If-Match)."""

    queue: str
    id: str
    receives: int | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """How a delivery is released: ready after `delay_s`; `unhandled`: it does not count as an
    attempt.
    """

    delay_s: float = 0.0
    unhandled: bool = False
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """Why a message is sidelined."""

    reason: Reason = "rejected"
    failure: Failure | None = None

    @classmethod
    def of(cls, reason: str | Failure) -> Self:
        """Makes a reason from a program's argument. Raises ValueError for a text out of bounds."""
        if isinstance(reason, Failure):
            return cls("exception" if reason.type else "rejected", reason)
        if reason in get_args(Reason):
            return cls(cast(Reason, reason))
        return cls("rejected", Failure(reason))

    def said(self) -> Said:
        """The reason as a single member; None: mq's default."""
        if self.failure is not None:
            return said(self.failure)
        return None if self.reason == "rejected" else self.reason


class Settler:
    """Settles deliveries by requests, one each; durable on return. Each method raises
    DeliveredAgain where the message was delivered again since, and as any request does.
    """

    __slots__ = ("_pid", "_sender")

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._pid = os.getpid()

    def check_process(self) -> None:
        """Raises NotUsable in a process that was forked since."""
        check_inherited(self._pid, "message")

    async def begin(self, message_id: str) -> bool:
        """Reports that the program starts to handle the message. False: it is no longer the
        program's. mq counts a message that a request fetched as begun anyway.
        """
        return True

    async def delete(self, target: Target) -> None:
        """Deletes the message."""
        await self._sender.send(delete_call(target))

    async def release(self, target: Target, how: "Released") -> None:
        """Makes the message ready again."""
        await self._sender.send(release_call(target, how))

    async def return_unhandled(self, targets: Sequence[Target]) -> list[Settled]:
        """Releases up to 1000 messages of one queue that no program handled. Returns the result of
        each.
        """
        rows = [{"id": each.id, "receives": each.receives, "unhandled": True} for each in targets]
        return await self._sender.send(settle_many_call("release_messages", targets[0].queue, rows))

    async def extend(self, target: Target, seconds: float) -> Extended:
        """Makes the message due in `seconds`."""
        return await self._sender.send(extend_call(target, seconds))

    async def sideline(self, target: Target, why: "Why") -> None:
        """Moves the message to the sideline."""
        await self._sender.send(sideline_call(target, why))

    async def failures(self, target: Target) -> tuple[Failed, ...]:
        """Reads the message's failures."""
        return await self._sender.send(failures_call(target))


class AsyncMessage(Fetched):
    """A fetched message. `async with message:` deletes it at the end of the block, and releases it
    when an exception leaves the block, unless the block settles it.

    Each method applies to this delivery alone: once the message was delivered again, it raises
    DeliveredAgain and changes nothing. Settling a message twice in the same way does nothing; in
    another way, it raises AlreadySettled.
    """

    __slots__ = ("_lock", "_settler", "due", "settled")

    due: datetime
    """The end of its visibility timeout, by mq's clock."""
    settled: str | None
    """How it was settled: deleted, released, sidelined; None: it is not."""

    def __init__(self, queue: str, row: Row, settler: Settler) -> None:
        super().__init__(queue, row)
        self.due = row.due
        self.settled = None
        self._settler = settler
        self._lock = asyncio.Lock()

    def came_by(self, settler: Settler) -> bool:
        """Whether it came over the settler's connection."""
        return self._settler is settler

    @property
    def settler(self) -> Settler:
        """The object that settles it. Raises NotUsable in a process that was forked since."""
        self._settler.check_process()
        return self._settler

    async def begin(self) -> bool:
        """Reports that the program starts to handle it. False: it is no longer the program's."""
        return await self.settler.begin(self.id)

    async def delete(self) -> None:
        """Deletes the message, which is handled. Durable on return."""
        async with self._lock:
            if not self._is_settled(DELETED):
                await self.settler.delete(self._target)
                self.settled = DELETED

    async def release(
        self, delay_s: float = 0.0, *, unhandled: bool = False, reason: str | Failure | None = None
    ) -> None:
        """Makes the message ready again after `delay_s`. `reason` is kept with it: at most 8 KiB.
        With `unhandled`, which takes neither, the delivery does not count towards the queue's
        `max_receives`. Durable on return.
        """
        if unhandled and (delay_s or reason is not None):
            raise ValueError(
                "release(unhandled=True) makes a message ready at once that has not failed: omit "
                "delay_s and reason"
            )
        failure = Failure(reason) if isinstance(reason, str) else reason
        async with self._lock:
            if not self._is_settled(RELEASED):
                await self.settler.release(self._target, Released(delay_s, unhandled, failure))
                self.settled = RELEASED

    async def sideline(self, reason: Reason | str | Failure = "rejected") -> None:
        """Moves the message to its queue's sideline (dead-letter queue). `reason`: `rejected`,
        `exception`, a text, or a Failure, which mq keeps with the message; at most 8 KiB. Durable
        on return.
        """
        why = Why.of(reason)
        async with self._lock:
            if not self._is_settled(SIDELINED):
                await self.settler.sideline(self._target, why)
                self.settled = SIDELINED

    async def failures(self) -> tuple[Failed, ...]:
        """Reads why it was released or sidelined: the newest five reasons, the newest last."""
        return await self.settler.failures(self._target)

    async def extend(self, seconds: float) -> datetime:
        """Keeps the message for `seconds` from now; returns until when. Durable on return."""
        async with self._lock:
            if self.settled is not None:
                raise AlreadySettled(
                    f"message {self.id} of {self.queue} was {self.settled}: it cannot be extended"
                )
            self.due = (await self.settler.extend(self._target, seconds)).due
            return self.due

    @property
    def _target(self) -> Target:
        return Target(self.queue, self.id, self.receives)

    def _is_settled(self, wanted: str) -> bool:
        """Whether it was settled in this way before. Raises AlreadySettled if it was in another."""
        if self.settled not in (None, wanted):
            raise AlreadySettled(
                f"message {self.id} of {self.queue} was {self.settled}: it cannot be {wanted}"
            )
        return self.settled is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.settled is not None:
            return
        if error is None:
            await self.delete()
            return
        try:
            # A cancelled block ends soon, even when mq does not answer.
            await release_within(self, None if isinstance(error, Exception) else CLOSE_S)
        except (ClientError, TimeoutError) as failed:
            # The caller's own exception goes on; the message is ready again when it is due.
            error.add_note(unreleased(self, failed))


async def release_within(message: AsyncMessage, seconds: float | None) -> None:
    """Releases a message. Raises TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        await message.release()


async def return_unhandled(messages: Iterable[AsyncMessage]) -> None:
    """Returns messages that no program handled, as far as they are still the client's. Others are
    delivered again when their visibility timeout ends.
    """
    parts: dict[tuple[Settler, str], list[AsyncMessage]] = {}
    for each in messages:
        if each.settled is None:
            parts.setdefault((each.settler, each.queue), []).append(each)
    await together(
        *(
            _give_back(settler, of[first : first + BATCH_MESSAGES_MAX])
            for (settler, _), of in parts.items()
            for first in range(0, len(of), BATCH_MESSAGES_MAX)
        )
    )


async def _give_back(settler: Settler, messages: Sequence[AsyncMessage]) -> None:
    targets = [Target(each.queue, each.id, each.receives) for each in messages]
    try:
        results = await settler.return_unhandled(targets)
    except ClientError as error:
        problems: list[ClientError | None] = [error] * len(messages)
    else:
        problems = [each.problem for each in results]
    for message, problem in zip(messages, problems, strict=True):
        if problem is None:
            message.settled = RELEASED
        else:
            _log.debug(
                "could not return message %s of %s: %s; it is delivered again when due",
                *(message.id, message.queue, one_line(problem)),
            )


def unreleased(message: Fetched, error: Exception) -> str:
    """The note of an exception that leaves a block whose message could not be released."""
    return (
        f"mq: message {message.id} of {message.queue} could not be released: {error}; it is "
        "delivered again when it is due"
    )


def delete_call(target: Target) -> Call[None]:
    """Deletes a message. A not-found after a lost answer means deleted."""
    headers = wire.if_match(target.receives)
    request = wire.request_to("delete_message", target.queue, target.id, headers=headers)
    return Call(request, nothing, when_repeated=done_after(MessageNotFound))


def extend_call(target: Target, seconds: float) -> Call[Extended]:
    """Makes a message due in `seconds`; with 0 it is ready at once."""
    return Call(_reschedule(target, seconds), _extended)


def release_call(target: Target, how: Released) -> Call[object]:
    """Releases a delivery. Delivered again or not found, after a lost answer, means released."""
    more = {"unhandled" if how.unhandled else "release": True, **reason_member(said(how.failure))}
    request = _reschedule(target, how.delay_s, more)
    return Call(request, _extended, when_repeated=done_after(DeliveredAgain, MessageNotFound))


def release_by_id_call(
    target: Target, delay_s: float, failure: Failure | None = None
) -> Call[Extended]:
    """Releases a message from any consumer."""
    more = {"release": True, **reason_member(said(failure))}
    return Call(_reschedule(target, delay_s, more), _extended)


def said(failure: Failure | None) -> Said:
    """A failure as a request's `reason`."""
    return None if failure is None else failure.said()


def reason_member(why: Said) -> dict[str, object]:
    """The member `reason` of a request; empty without a reason."""
    return {} if why is None else {"reason": why}


_NO_MORE: Final[Mapping[str, object]] = {}


def _reschedule(target: Target, due_in_s: float, more: Mapping[str, object] = _NO_MORE) -> Request:
    return wire.request_to(
        "reschedule",
        *(target.queue, target.id),
        headers=wire.if_match(target.receives),
        body={"due_in_s": round(due_in_s, 3), **more},
    )


def _extended(answer: Answer) -> Extended:
    return Members.of(answer).value(Extended)


def settle_many_call(
    endpoint: str, queue: str, rows: Iterable[Mapping[str, object]]
) -> Call[list[Settled]]:
    """Settles the messages of these rows."""
    rows = list(rows)

    def read(answer: Answer) -> list[Settled]:
        results = list(Members.of(answer).each("results"))
        if len(results) != len(rows):
            raise wire.not_mq(answer, "has not one result for each message")
        return [
            Settled(each.text("id"), each.whole("status"), each.problem("problem"))
            for each in results
        ]

    return Call(wire.request_to(endpoint, queue, body={"messages": rows}), read)


def sideline_call(target: Target, why: Why) -> Call[Sidelined]:
    """Moves a message to its queue's sideline."""
    request = wire.request_to(
        "sideline_message",
        *(target.queue, target.id),
        query=((sidelines.REASON, why.reason),),
        headers=wire.if_match(target.receives),
        body=reason_member(said(why.failure)) or b"",
    )
    return Call(request, _sidelined)


def failures_call(target: Target) -> Call[tuple[Failed, ...]]:
    """Reads a message's failures."""
    return Call(wire.request_to("read_failures", target.queue, target.id), _failures)


def _failures(answer: Answer) -> tuple[Failed, ...]:
    return tuple(each.value(Failed) for each in Members.of(answer).each("failures"))


def _sidelined(answer: Answer) -> Sidelined:
    return Members.of(answer).value(Sidelined)
