"""The messages that a consumer has and its program has not taken, and how many more it has room
for.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping

from mq.client.message import AsyncMessage


class Inbox:
    """Messages in the order of their arrival. `prefetch`: how many of each queue, together with
    those that are requested. `change` waits for any change.
    """

    def __init__(self, prefetch: Mapping[str, int]) -> None:
        self._prefetch = prefetch
        self._waiting: deque[AsyncMessage] = deque()
        self._keys: set[tuple[str, str]] = set()
        self._here: Counter[str] = Counter()
        self._requested: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self.turn = 0
        """Counts the changes."""

    def put(self, message: AsyncMessage, *, was_requested: bool = False) -> None:
        """Adds a message. It replaces an earlier delivery, which is no longer the consumer's. Of a
        pack more may come than were requested: then fewer are requested later.
        """
        key = _key(message)
        if key in self._keys:
            self._drop(lambda each: _key(each) == key)
        self._keys.add(key)
        self._waiting.append(message)
        self._here[message.queue] += 1
        self._requested[message.queue] -= was_requested
        self.changed()

    def take(self) -> AsyncMessage | None:
        """Removes and returns the first message, if there is one."""
        if not self._waiting:
            return None
        found = self._waiting.popleft()
        self._keys.discard(_key(found))
        self._here[found.queue] -= 1
        self.changed()
        return found

    def put_back(self, message: AsyncMessage) -> None:
        """Makes a message that was taken the first again, unless it was delivered again since."""
        if _key(message) in self._keys:
            return
        self._keys.add(_key(message))
        self._waiting.appendleft(message)
        self._here[message.queue] += 1
        self.changed()

    def lose(self, is_lost: Callable[[AsyncMessage], bool]) -> list[AsyncMessage]:
        """Removes the messages that are lost, and returns them."""
        lost = self._drop(is_lost)
        self.changed()
        return lost

    def _drop(self, is_lost: Callable[[AsyncMessage], bool]) -> list[AsyncMessage]:
        left: deque[AsyncMessage] = deque()
        lost = []
        for each in self._waiting:
            if is_lost(each):
                self._keys.discard(_key(each))
                self._here[each.queue] -= 1
                lost.append(each)
            else:
                left.append(each)
        self._waiting = left
        return lost

    def requested(self, queue: str, count: int) -> None:
        """Counts `count` more messages as requested; a negative count takes a request back."""
        self._requested[queue] += count

    def forget_requests(self) -> None:
        """Nothing that was requested will arrive."""
        self._requested.clear()

    def wanted(self, queue: str) -> int:
        """How many messages to request; 0 while that is less than half of the prefetch, since one
        message at a time would cost a command each.
        """
        prefetch = self._prefetch[queue]
        lacking = prefetch - self._here[queue] - self._requested[queue]
        return lacking if lacking >= max(1, prefetch // 2) else 0

    def changed(self) -> None:
        """Wakes all that wait for a change."""
        self.turn += 1
        before, self._changed = self._changed, asyncio.Event()
        before.set()

    async def change(self, since: int | None = None) -> None:
        """Waits for the next change; with a turn, for the first one after it."""
        if since is None or since == self.turn:
            await self._changed.wait()


def _key(message: AsyncMessage) -> tuple[str, str]:
    return message.queue, message.id
