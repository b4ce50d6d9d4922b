"""Collects single publishes of a client's tasks: those of one queue and of equal attributes that
come within a moment go as one pack.
"""

import asyncio
import contextlib
from typing import Final, TypeAlias

from mq.client.publishing import PACK_BYTES_SENT_MAX, PACK_ROWS_MAX, Packer, content_of, may_share
from mq.client.sending import Sender
from mq.client.values import NewMessage, Published

LINGER_MS_MAX: Final = 1000.0
# How long a queue that takes no packs is not asked again.
REFUSED_S: Final = 60.0

_Key: TypeAlias = tuple[str, tuple[object, ...]]


class _Group:
    """Messages of one queue and equal attributes, each with what its publisher waits for."""

    def __init__(self) -> None:
        self.full = asyncio.Event()
        self.waiting: list[tuple[NewMessage, asyncio.Future[str | None]]] = []
        self._size = 0

    def add(self, message: NewMessage, size: int) -> "asyncio.Future[str | None]":
        mine: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.waiting.append((message, mine))
        self._size += size
        if len(self.waiting) == PACK_ROWS_MAX or self._size >= PACK_BYTES_SENT_MAX:
            self.full.set()
        return mine


class Linger:
    """The publishes of a client that wait for others, each up to `linger_s` seconds."""

    def __init__(self, sender: Sender, linger_s: float) -> None:
        self._sender = sender
        self._linger_s = linger_s
        self._groups: dict[_Key, _Group] = {}
        self._refused_until_s: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def forked(self) -> None:
        """What waits is the parent's to publish."""
        self._groups, self._tasks = {}, set()

    async def publish(self, queue: str, message: NewMessage) -> str | None:
        """Publishes a message with others; returns its id. None: it is not published, and must go
        alone. Durable on return. Raises as `Publishing.publish`.
        """
        alike = may_share(message)
        now_s = self._sender.seams.clock.steady_s()
        if alike is None or now_s < self._refused_until_s.get(queue, now_s):
            return None
        self._sender.check_loop()
        body, _ = content_of(message.body, message.json)
        key = queue, alike
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
            task = asyncio.create_task(self._run(key, group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        mine = group.add(message, len(body) if isinstance(body, bytes) else 0)
        if group.full.is_set():
            del self._groups[key]
        return await mine

    async def _run(self, key: _Key, group: _Group) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._linger_s):
                await group.full.wait()
        if self._groups.get(key) is group:
            del self._groups[key]
        waiting = [(message, mine) for message, mine in group.waiting if not mine.done()]
        if not waiting:
            return
        ends: list[Published] | Exception
        try:
            ends = await self._send(key[0], [message for message, _ in waiting])
        except asyncio.CancelledError:
            for _, mine in waiting:
                mine.cancel()
            raise
        except Exception as error:
            ends = error
        for place, (_, mine) in enumerate(waiting):
            if not mine.done():  # Else its publisher has gone.
                _answer(mine, ends if isinstance(ends, Exception) else ends[place])

    async def _send(self, queue: str, messages: list[NewMessage]) -> list[Published]:
        """Publishes a pack. Returns the result of each, without an id where it must go alone."""
        packer = Packer(queue, self._sender)
        ends = await packer.publish(messages)
        if packer.is_refused:
            self._refused_until_s[queue] = self._sender.seams.clock.steady_s() + REFUSED_S
        return ends or [Published()] * len(messages)


def _answer(mine: "asyncio.Future[str | None]", end: Published | Exception) -> None:
    error = end if isinstance(end, Exception) else end.problem
    if error is not None:
        mine.set_exception(error)
    elif isinstance(end, Published):
        mine.set_result(end.id)
