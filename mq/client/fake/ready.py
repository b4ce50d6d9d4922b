"""A queue's ready messages, in the order of delivery: pure."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from mq.client.fake.message import Message


def _place(message: Message) -> tuple[int, str]:
    return message.place


class Ready:
    """By priority, and within one by when they were published."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        """As they are now: whoever goes through them may take some away."""
        return iter(tuple(self._messages))

    def add(self, message: Message) -> None:
        """It became ready."""
        insort(self._messages, message, key=_place)

    def discard(self, message: Message) -> None:
        """It is ready no more."""
        at = bisect_left(self._messages, message.place, key=_place)
        if at < len(self._messages) and self._messages[at] is message:
            del self._messages[at]

    def first(self) -> Message | None:
        """The one that is delivered next."""
        return self._messages[0] if self._messages else None
