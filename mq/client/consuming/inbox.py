"""What a consumer has that nobody has taken yet, and how much more of it there may be."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping

from mq.client.message import AsyncMessage


class Inbox:
    """Messages in the order in which they came; of each queue at most as many as it may have, of
    those that are here and those that may come. What changes is heard of by who waits for it.
    """

    def __init__(self, prefetch: Mapping[str, int]) -> None:
        self._prefetch = prefetch
        self._waiting: deque[AsyncMessage] = deque()
        self._names: set[tuple[str, str]] = set()
        self._here: Counter[str] = Counter()
        self._to_come: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self.turn = 0
        """How often something has changed."""

    def put(self, message: AsyncMessage) -> None:
        """One came. An earlier delivery of it that nobody took is nobody's any more."""
        named = _named(message)
        if named in self._names:
            self._leave(lambda each: _named(each) == named)
        self._names.add(named)
        self._waiting.append(message)
        self._here[message.queue] += 1
        self._to_come[message.queue] = max(0, self._to_come[message.queue] - 1)
        self.changed()

    def take(self) -> AsyncMessage | None:
        """The next one, if there is one."""
        if not self._waiting:
            return None
        found = self._waiting.popleft()
        self._names.discard(_named(found))
        self._here[found.queue] -= 1
        self.changed()
        return found

    def put_back(self, message: AsyncMessage) -> None:
        """One that was taken, and is not for who took it, is the next one again."""
        if _named(message) in self._names:
            return  # It was delivered again since.
        self._names.add(_named(message))
        self._waiting.appendleft(message)
        self._here[message.queue] += 1
        self.changed()

    def lose(self, is_lost: Callable[[AsyncMessage], bool]) -> None:
        """These are not here any more."""
        self._leave(is_lost)
        self.changed()

    def _leave(self, is_lost: Callable[[AsyncMessage], bool]) -> None:
        left: deque[AsyncMessage] = deque()
        for each in self._waiting:
            if is_lost(each):
                self._names.discard(_named(each))
                self._here[each.queue] -= 1
            else:
                left.append(each)
        self._waiting = left

    def asked(self, queue: str, count: int) -> None:
        """So many more may come now; less than none: so many do not."""
        self._to_come[queue] = max(0, self._to_come[queue] + count)

    def forget_asked(self) -> None:
        """Nothing comes of what was asked for."""
        self._to_come.clear()

    def wanted(self, queue: str) -> int:
        """How many more are wanted. None, while it is less than half of what the queue may have:
        one at a time would cost a command each.
        """
        prefetch = self._prefetch[queue]
        lacking = prefetch - self._here[queue] - self._to_come[queue]
        return lacking if lacking >= max(1, prefetch // 2) else 0

    def changed(self) -> None:
        """Wakes all who wait."""
        self.turn += 1
        told, self._changed = self._changed, asyncio.Event()
        told.set()

    async def change(self, since: int | None = None) -> None:
        """Waits for the next change; with a turn, for the first one after that."""
        if since is None or since == self.turn:
            await self._changed.wait()


def _named(message: AsyncMessage) -> tuple[str, str]:
    """What tells a message from all others, whichever delivery it is."""
    return message.queue, message.id
