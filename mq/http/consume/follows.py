"""One connection's followed queues: the client gets their new messages and consumes none.

A task for each queue reads a few messages, and reads more once these are sent: what waits for a
client that reads slowly is dropped at the broker's bound, and counted.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mq.broker.broker import Broker
from mq.broker.queue import Queue
from mq.broker.tailing import LOOK_IDS_MAX, Tail
from mq.http.reading import peeked_members
from mq.model.errors import (
    AlreadySubscribed,
    Busy,
    MessageNotFound,
    MqError,
    NotSubscribed,
    QueueExpired,
    QueueNotFound,
    TooManySubscriptions,
    Unavailable,
)
from mq.model.limits import PEEK_BODY_BYTES
from mq.model.message import Part, cut
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.protocol.consume.frames import FOLLOWS_MAX, Followed, followed_frame
from mq.store.core.root import Root
from mq.store.operations.read import Reading, read_each
from mq.store.scan.newest import newest

# Messages that are read and sent at a time.
READ_AT_ONCE: Final = 16


@dataclass(slots=True)
class _Follow:
    """A queue that is followed. `news`: set when something waits."""

    queue: Queue
    tail: Tail
    news: asyncio.Event
    task: "asyncio.Task[None]" = field(init=False)


class Follows:
    """A connection's followed queues. `send` queues a text frame, and calls back once it is sent;
    `on_gone` hears of a queue that has ended.
    """

    def __init__(
        self,
        broker: Broker,
        send: Callable[[bytes, Callable[[], None]], None],
        on_gone: Callable[[str, MqError], None],
    ) -> None:
        self._broker = broker
        self._send = send
        self._on_gone = on_gone
        self._follows: dict[str, _Follow | None] = {}
        """None: it is about to be followed."""
        self._has_ended = False

    @property
    def queues(self) -> list[str]:
        return list(self._follows)

    async def follow(self, wanted: Followed) -> None:
        """Begins to follow a queue. Raises BadName, BadParameter, QueueNotFound, QueueExpired,
        AlreadySubscribed, TooManySubscriptions, TooManyWaiters, Unavailable.
        """
        name = QueueName.parse(wanted.queue)
        selection = None if wanted.select is None else Selection.parse(wanted.select)
        if name.text in self._follows:
            raise AlreadySubscribed(name.text)
        if len(self._follows) >= FOLLOWS_MAX:
            raise TooManySubscriptions(FOLLOWS_MAX)
        self._follows[name.text] = None
        news = asyncio.Event()
        tail = Tail(selection, news.set, partial(self._failed, name.text))
        try:
            broker = self._broker
            there, past = await broker.committer.call(
                _there, broker.root, name, wanted.last, selection
            )
            queue = await broker.consuming.follow(name, tail, there)
        except BaseException:
            del self._follows[name.text]
            raise
        tail.saw(past)
        follow = self._follows[name.text] = _Follow(queue, tail, news)
        follow.task = asyncio.create_task(self._run(follow))
        if self._has_ended:
            self.unfollow(name.text)

    def unfollow(self, queue: str) -> None:
        """Follows a queue no more. Raises NotSubscribed."""
        follow = self._follows.pop(queue, None)
        if follow is None:
            raise NotSubscribed(queue)
        self._broker.consuming.unfollow(follow.queue, follow.tail)
        follow.task.cancel()

    def close(self) -> None:
        self._has_ended = True
        for queue, follow in list(self._follows.items()):
            if follow is not None:
                self.unfollow(queue)

    def _failed(self, queue: str, error: MqError) -> None:
        if isinstance(error, QueueNotFound | QueueExpired) and self._follows.get(queue) is not None:
            self.unfollow(queue)
            self._on_gone(queue, error)

    async def _run(self, follow: _Follow) -> None:
        dropped = 0
        while True:
            await follow.news.wait()
            follow.news.clear()
            while True:
                ids, more = follow.tail.take(READ_AT_ONCE)
                dropped += more
                if not ids:
                    break
                call = self._broker.committer.call
                frames = await call(_frames, self._broker.root, follow, ids, dropped)
                if frames:
                    dropped = 0
                    await self._sent(frames)

    async def _sent(self, frames: Sequence[bytes]) -> None:
        """Sends frames, and waits until the client has room for more."""
        sent = asyncio.Event()
        for frame in frames[:-1]:
            self._send(frame, _does_nothing)
        self._send(frames[-1], sent.set)
        await sent.wait()


def _does_nothing() -> None:
    """For frames other than the last, which alone is waited for."""


def _frames(root: Root, follow: _Follow, ids: Sequence[MessageId], dropped: int) -> list[bytes]:
    """The frames of the messages that still exist, in any state, and match the selection."""
    frames, queue, selection = [], follow.queue.name, follow.tail.selection
    for reading in (reading for each in ids for reading in _read(root, queue, each, _first_bytes)):
        if not (selection is None or selection.matches(reading.id, reading.headers)):
            continue
        body = reading.body
        if body is not None and len(body) < reading.size:
            body = cut(body)
        frames.append(
            followed_frame(queue.text, peeked_members(queue, reading), body or b"", dropped)
        )
        dropped = 0
    return frames


def _there(
    root: Root, queue: QueueName, count: int, selection: Selection | None
) -> tuple[list[MessageId], list[MessageId]]:
    """The newest ready messages, and the last `count` of them that match the selection, which a
    pack may exceed; the oldest first.
    """
    there, found = newest(root, queue, LOOK_IDS_MAX)[0], list[MessageId]()
    for message_id in reversed(there):
        if count <= 0:
            break
        matches = selection is None or selection.matches_name(message_id.text)
        if matches is None and selection is not None:
            readings = _read(root, queue, message_id, _nothing)
            matches = bool(readings) and selection.matches(message_id, readings[0].headers)
        if matches:
            found.append(message_id)
            count -= message_id.items or 1
    return there, found[::-1]


def _read(
    root: Root, queue: QueueName, message_id: MessageId, choice: Callable[[int, int], Part | None]
) -> list[Reading]:
    """The message, or the items of a pack, which may lie in files of their own by now; none if it
    is gone, or damaged: it is skipped.
    """
    try:
        return read_each(root, queue, message_id, choice)
    except MessageNotFound:
        items = message_id.all_items()
        return [found for each in items for found in _read(root, queue, each, choice)]
    except (QueueNotFound, Busy, Unavailable):
        return []


def _first_bytes(size: int, receives: int) -> Part:
    return Part(0, min(size, PEEK_BODY_BYTES))


def _nothing(size: int, receives: int) -> None:
    return None
