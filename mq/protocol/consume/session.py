"""One connection's state: what it subscribed to, may still get, holds, and gets next. Pure: it
decides, and `connection` acts.

The credit of a queue counts down when a message of it was claimed for the client, and up when the
client says so. What a connection may still get, what is claimed for it and what it holds is at most
CREDIT_MAX together, so whatever it does, what it costs is bounded.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from mq.model.errors import MessageNotFound
from mq.model.message import Delivery
from mq.protocol.consume.errors import (
    AlreadySubscribed,
    NotSubscribed,
    TooManySubscriptions,
    TooMuchCredit,
)
from mq.protocol.consume.limits import (
    CLAIMED_AHEAD_BYTES,
    CLAIMED_AHEAD_MAX,
    CREDIT_MAX,
    SUBSCRIPTIONS_MAX,
    TURN_MESSAGES_MIN,
)


class Session:
    """What one connection has and is to get. Of a message that the client holds only what settles
    it is kept, not its body.
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        """By queue: how many may still be claimed, or are being claimed."""
        self._turns: deque[str] = deque()
        """Queues that have something, each once, the next one first."""
        self._claiming = 0
        self._unsent: deque[Delivery] = deque()
        self._held: dict[str, Delivery] = {}
        self._unbegun: set[str] | None = None
        """Of what the client holds, what its program does not have yet; None: it does not tell."""
        self._settling = 0
        self._largest = 1

    @property
    def queues(self) -> list[str]:
        """Those that are subscribed to."""
        return list(self._open)

    @property
    def unsent(self) -> int:
        """How many messages are claimed and wait to be sent."""
        return len(self._unsent)

    @property
    def promised(self) -> int:
        """All that the connection may still get, is to get, or holds."""
        ahead = sum(self._open.values()) + len(self._unsent)
        return ahead + len(self._held) + self._settling

    def credit(self, queue: str) -> int:
        """How many messages of the queue may still come."""
        return self._open.get(queue, 0)

    # What is subscribed to

    def subscribe(self, queue: str, credit: int, now_ms: int) -> None:
        """Adds a subscription. Raises AlreadySubscribed, TooManySubscriptions, TooMuchCredit."""
        if queue in self._open:
            raise AlreadySubscribed(queue)
        if len(self._open) == SUBSCRIPTIONS_MAX:
            raise TooManySubscriptions(SUBSCRIPTIONS_MAX)
        self._make_room(credit, now_ms)
        self._open[queue] = credit

    def unsubscribe(self, queue: str) -> None:
        """Ends a subscription; what was sent of the queue is held on. Raises NotSubscribed."""
        if self._open.pop(queue, None) is None:
            raise NotSubscribed(queue)
        self.has_nothing(queue)

    def grant(self, queue: str, credit: int, now_ms: int) -> None:
        """So many more may come. Raises NotSubscribed, TooMuchCredit."""
        if queue not in self._open:
            raise NotSubscribed(queue)
        self._make_room(credit, now_ms)
        self._open[queue] += credit

    def _make_room(self, credit: int, now_ms: int) -> None:
        if self.promised + credit <= CREDIT_MAX:
            return
        # Whatever is due already is not surely the client's any more.
        lapsed = [text for text, held in self._held.items() if held.stamp.due_ms <= now_ms]
        for text in lapsed:
            del self._held[text]
            self._begins_now(text)
        if self.promised + credit > CREDIT_MAX:
            raise TooMuchCredit(CREDIT_MAX)

    # Whose turn it is

    def has_something(self, queue: str) -> None:
        """The queue may have a message for the client: its turn comes."""
        if queue in self._open and queue not in self._turns:
            self._turns.append(queue)

    def has_nothing(self, queue: str) -> None:
        """The queue has none, for now."""
        if queue in self._turns:
            self._turns.remove(queue)

    def next_claim(self) -> tuple[str, int] | None:
        """Of which queue messages are to be claimed now, and how many at most; its next turn comes
        after all others'. None while nothing has anything, or enough waits to be sent.
        """
        ahead = max(1, min(CLAIMED_AHEAD_MAX, CLAIMED_AHEAD_BYTES // self._largest))
        room = ahead - self._claiming - len(self._unsent)
        if room <= 0 or not self._turns:
            return None
        share = max(TURN_MESSAGES_MIN, ahead // len(self._turns))
        queue = self._turns.popleft()
        self._turns.append(queue)
        return queue, min(room, share)

    def claims(self, count: int) -> None:
        """So many claims have begun."""
        self._claiming += count

    def claim_ended(self) -> None:
        """One of them has ended."""
        self._claiming -= 1

    # What comes

    def arrived(self, delivery: Delivery) -> bool:
        """A message was claimed for the client, and is to be sent; false: it is not wanted any
        more, and is the caller's.
        """
        queue = delivery.queue.text
        if not self._open.get(queue):
            return False
        self._open[queue] -= 1
        self._unsent.append(delivery)
        # The largest lately: what is claimed ahead is bounded by it, and grows again after it.
        self._largest = max(delivery.size, self._largest - self._largest // 16, 1)
        return True

    def next_unsent(self, now_ms: int) -> tuple[Delivery | None, list[Delivery]]:
        """The message to be sent next, and those before it whose time was up before their turn
        came: they are nobody's, and their credit is there again.
        """
        lapsed: list[Delivery] = []
        while self._unsent:
            delivery = self._unsent.popleft()
            if delivery.stamp.due_ms > now_ms:
                return delivery, lapsed
            lapsed.append(delivery)
            self._restore(delivery)
        return None, lapsed

    def sent(self, delivery: Delivery) -> None:
        """The client has the message, and holds it."""
        # What settles it, and no more of it.
        kept = replace(delivery, body=b"", descriptor=None, headers=(), hand=None)
        self._held[delivery.id.text] = kept
        if self._unbegun is not None:
            self._unbegun.add(delivery.id.text)

    def begin(self, ids: Iterable[str]) -> None:
        """The client's program has these. What it was sent before it first said so counts as
        begun.
        """
        if self._unbegun is None:
            self._unbegun = set()
        for text in ids:
            self._begins_now(text)

    def _begins_now(self, text: str) -> None:
        if self._unbegun is not None:
            self._unbegun.discard(text)

    def take_back_unsent(self) -> list[Delivery]:
        """What was claimed and not sent, which is the caller's; its credit is there again."""
        taken = list(self._unsent)
        self._unsent.clear()
        for delivery in taken:
            self._restore(delivery)
        return taken

    def _restore(self, delivery: Delivery) -> None:
        if delivery.queue.text in self._open:
            self._open[delivery.queue.text] += 1

    # What becomes of it

    def queue_of(self, text: str) -> str | None:
        """The queue of a message that the client holds; None: it holds no such message."""
        held = self._held.get(text)
        return None if held is None else held.queue.text

    def settle(self, ids: Iterable[str]) -> dict[str, Delivery | MessageNotFound]:
        """Takes out what the client holds of these, each once; the others are not its to settle."""
        found: dict[str, Delivery | MessageNotFound] = {}
        for text in ids:
            if text not in found:
                held = self._held.pop(text, None)
                found[text] = MessageNotFound(text) if held is None else held
                self._settling += held is not None
                self._begins_now(text)
        return found

    def settled(self, delivery: Delivery, is_kept: bool) -> None:
        """How that ended; `is_kept`: it failed, and the client holds the message on, unless it has
        been given the same one again.
        """
        self._settling -= 1
        if is_kept:
            self._held.setdefault(delivery.id.text, delivery)

    def end(self) -> tuple[list[Delivery], list[Delivery]]:
        """The connection is gone; all that is to be released: what the client's program may have
        had, and what it never had.
        """
        unbegun = self._unbegun or set()
        begun = [held for text, held in self._held.items() if text not in unbegun]
        unhandled = [held for text, held in self._held.items() if text in unbegun]
        unhandled += self._unsent
        unbegun.clear()
        self._open.clear()
        self._turns.clear()
        self._held.clear()
        self._unsent.clear()
        return begun, unhandled
