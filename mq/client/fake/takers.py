"""Those who wait for a queue's messages, and whose turn it is: pure."""

from typing import Protocol

from mq.client.fake.message import Message
from mq.model.errors import MqError
from mq.model.message import Delivery
from mq.model.selection import Selection


class Taker(Protocol):
    """One who waits: a long poll, or a connection's subscription."""

    priority: int
    selection: Selection | None
    visibility_s: float | None

    @property
    def wants(self) -> bool:
        """Whether it takes another message now."""

    def take(self, delivery: Delivery) -> None:
        """A message was claimed for it."""

    def failed(self, error: MqError) -> None:
        """The queue is gone, or has expired: nothing comes any more."""


class Takers:
    """Those of one queue, the one that has waited longest first."""

    def __init__(self) -> None:
        self._takers: list[Taker] = []

    def __len__(self) -> int:
        return len(self._takers)

    @property
    def is_anybody_hungry(self) -> bool:
        """Whether anybody takes a message now."""
        return any(each.wants for each in self._takers)

    def selections(self) -> set[Selection]:
        """What they take, where it is not everything."""
        return {each.selection for each in self._takers if each.selection is not None}

    def join(self, taker: Taker) -> None:
        """It waits from here on."""
        self._takers.append(taker)

    def leave(self, taker: Taker) -> None:
        """It waits no more."""
        if taker in self._takers:
            self._takers.remove(taker)

    def next_for(self, message: Message) -> Taker | None:
        """Who gets the message: of the highest priority, the one that has waited longest, for whom
        it is the end of its turn. None: nobody wants it.
        """
        best: Taker | None = None
        for each in self._takers:
            if (best is None or each.priority > best.priority) and _takes(each, message):
                best = each
        if best is not None:
            self._takers.remove(best)
            self._takers.append(best)
        return best

    def fail_all(self, error: MqError) -> None:
        """Nothing comes any more to any of them."""
        takers, self._takers = self._takers, []
        for each in takers:
            each.failed(error)


def _takes(taker: Taker, message: Message) -> bool:
    if not taker.wants:
        return False
    return taker.selection is None or taker.selection.matches(message.id, message.headers)
