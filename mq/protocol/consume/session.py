"""One connection's state and limits: subscriptions, credit, held messages, and what comes next.
Pure: it decides, and `connection` acts.

A queue's credit counts down with each message claimed for the client, and up by the client's
grants. Credit, claimed and held messages are at most CREDIT_MAX together, which bounds what a
connection costs.
"""

import itertools
from collections import deque
from collections.abc import Iterable
from typing import Final

from mq.model.errors import (
    AlreadySubscribed,
    MessageNotFound,
    NotSubscribed,
    TooManySubscriptions,
    TooMuchCredit,
)
from mq.model.limits import MIB
from mq.model.message import Delivery
from mq.protocol.consume.frames import CREDIT_MAX, SUBSCRIPTIONS_MAX, Fetched

# Messages claimed ahead of sending and, as far as sizes are known, bytes of their bodies; the least
# that a queue's turn claims.
CLAIMED_AHEAD_MAX: Final = 128
CLAIMED_AHEAD_BYTES: Final = 4 * MIB
TURN_MESSAGES_MIN: Final = 16


class Session:
    """One connection's state. Of held messages only what settles them is kept, not their bodies."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        """By queue: the credit, including claims that are under way."""
        self._turns: deque[str] = deque()
        """Queues that may have messages, each once, the next one first."""
        self._claiming = 0
        self._unsent: deque[Delivery] = deque()
        self._held: dict[str, Delivery] = {}
        self._unbegun: set[str] | None = None
        """Held messages that the program does not have yet; None: the client does not report."""
        self._prefetched: dict[str, Fetched] = {}
        """What the client has by requests, and its program does not have yet."""
        self._being_settled = 0
        self._largest = 1

    @property
    def queues(self) -> list[str]:
        return list(self._open)

    @property
    def unsent(self) -> int:
        """The number of claimed messages that wait to be sent."""
        return len(self._unsent)

    @property
    def promised(self) -> int:
        """Credit, unsent and held messages together."""
        ahead = sum(self._open.values()) + len(self._unsent)
        return ahead + len(self._held) + self._being_settled

    def credit(self, queue: str) -> int:
        return self._open.get(queue, 0)

    # Subscriptions

    def subscribe(self, queue: str, credit: int, now_ms: int) -> None:
        """Adds a subscription. Raises AlreadySubscribed, TooManySubscriptions, TooMuchCredit."""
        if queue in self._open:
            raise AlreadySubscribed(queue)
        if len(self._open) == SUBSCRIPTIONS_MAX:
            raise TooManySubscriptions(SUBSCRIPTIONS_MAX)
        self._make_room(credit, now_ms)
        self._open[queue] = credit

    def unsubscribe(self, queue: str) -> None:
        """Ends a subscription; sent messages stay held. Raises NotSubscribed."""
        if self._open.pop(queue, None) is None:
            raise NotSubscribed(queue)
        self.has_nothing(queue)

    def grant(self, queue: str, credit: int, now_ms: int) -> None:
        """Adds credit. Raises NotSubscribed, TooMuchCredit."""
        if queue not in self._open:
            raise NotSubscribed(queue)
        self._make_room(credit, now_ms)
        self._open[queue] += credit

    def _make_room(self, credit: int, now_ms: int) -> None:
        if self.promised + credit <= CREDIT_MAX:
            return
        # Held messages past their due time may be another's by now.
        lapsed = [text for text, held in self._held.items() if held.stamp.due_ms <= now_ms]
        for text in lapsed:
            del self._held[text]
            self._begins_now(text)
        if self.promised + credit > CREDIT_MAX:
            raise TooMuchCredit(CREDIT_MAX)

    # Turns

    def has_something(self, queue: str) -> None:
        """The queue may have a message for the client: it gets a turn."""
        if queue in self._open and queue not in self._turns:
            self._turns.append(queue)

    def has_nothing(self, queue: str) -> None:
        """The queue has no message for now."""
        if queue in self._turns:
            self._turns.remove(queue)

    @property
    def has_turns(self) -> bool:
        """Whether queues wait for their turn."""
        return bool(self._turns)

    def next_claim(self) -> tuple[str, int] | None:
        """The queue to claim from now, and how many messages at most; its next turn comes after all
        others'. None if no queue has messages, or enough wait to be sent.
        """
        ahead = max(1, min(CLAIMED_AHEAD_MAX, CLAIMED_AHEAD_BYTES // self._largest))
        more = ahead - self._claiming - len(self._unsent)
        if more <= 0 or not self._turns:
            return None
        share = max(TURN_MESSAGES_MIN, ahead // len(self._turns))
        queue = self._turns.popleft()
        self._turns.append(queue)
        return queue, min(more, share)

    def claims(self, count: int) -> None:
        self._claiming += count

    def claim_ended(self) -> None:
        self._claiming -= 1

    # Messages

    def arrived(self, *deliveries: Delivery) -> bool:
        """Takes claimed messages for sending, one or those of a pack, which may exceed the credit;
        false: they are not wanted any more, and the caller keeps them.
        """
        queue = deliveries[0].queue.text
        if self._open.get(queue, 0) <= 0:
            return False
        self._open[queue] -= len(deliveries)
        self._unsent.extend(deliveries)
        # The largest recent size bounds claims ahead; it decays with each smaller message.
        size = sum(each.size for each in deliveries)
        self._largest = max(size, self._largest - self._largest // 16, 1)
        return True

    def next_unsent(self, now_ms: int) -> tuple[Delivery | None, list[Delivery]]:
        """The next message to send, and those before it that became due meanwhile: these are ready
        for others, and their credit is restored.
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
        """The client holds the message now."""
        # Only what settles it is kept.
        kept = delivery._replace(body=b"", descriptor=None, headers=(), reservation=None)
        self._held[delivery.id.text] = kept
        if self._unbegun is not None:
            self._unbegun.add(delivery.id.text)

    def begin(self, ids: Iterable[str]) -> None:
        """The client's program has these. Messages sent before the first report count as begun."""
        if self._unbegun is None:
            self._unbegun = set()
        for text in ids:
            self._begins_now(text)
            self._prefetched.pop(text, None)

    def prefetched(self, fetched: Iterable[Fetched]) -> None:
        """The client has these by requests, and its program does not have them yet. Beyond
        CREDIT_MAX the oldest are forgotten: they count as begun.
        """
        for each in fetched:
            self._prefetched.pop(each.id.text, None)
            self._prefetched[each.id.text] = each
        while len(self._prefetched) > CREDIT_MAX:
            del self._prefetched[next(iter(self._prefetched))]

    def take_prefetched(self) -> list[Fetched]:
        """The connection is gone: returns what the client had by requests and did not begin."""
        taken = list(self._prefetched.values())
        self._prefetched.clear()
        return taken

    def _begins_now(self, text: str) -> None:
        if self._unbegun is not None:
            self._unbegun.discard(text)

    def take_back_unsent(self) -> list[Delivery]:
        """Returns the unsent messages to the caller, and restores their credit."""
        taken = list(self._unsent)
        self._unsent.clear()
        for delivery in taken:
            self._restore(delivery)
        return taken

    def held_of(self, queue: str) -> int:
        """How many messages of a queue were claimed for the client and are not settled."""
        each = itertools.chain(self._unsent, self._held.values())
        return sum(delivery.queue.text == queue for delivery in each)

    def take_back(self, queue: str) -> tuple[list[Delivery], list[Delivery]]:
        """Takes all messages of a queue from the client; as `end` returns them."""
        held = [each for each in self._held.values() if each.queue.text == queue]
        unbegun = self._unbegun or set()
        begun = [each for each in held if each.id.text not in unbegun]
        unhandled = [each for each in held if each.id.text in unbegun]
        unhandled += [each for each in self._unsent if each.queue.text == queue]
        self._unsent = deque(each for each in self._unsent if each.queue.text != queue)
        for each in held:
            del self._held[each.id.text]
            self._begins_now(each.id.text)
        return begun, unhandled

    def _restore(self, delivery: Delivery) -> None:
        if delivery.queue.text in self._open:
            self._open[delivery.queue.text] += 1

    # Settling

    def queue_of(self, text: str) -> str | None:
        """The queue of a held message; None: the client does not hold it."""
        held = self._held.get(text)
        return None if held is None else held.queue.text

    def settle(self, ids: Iterable[str]) -> dict[str, Delivery | MessageNotFound]:
        """Takes out the held messages among these, each once; the others are not found."""
        found: dict[str, Delivery | MessageNotFound] = {}
        for text in ids:
            if text not in found:
                held = self._held.pop(text, None)
                found[text] = MessageNotFound(text) if held is None else held
                self._being_settled += held is not None
                self._begins_now(text)
        return found

    def settled(self, delivery: Delivery, is_kept: bool) -> None:
        """Settling has ended; `is_kept`: it failed, and the client still holds the message, unless
        it got the same one again.
        """
        self._being_settled -= 1
        if is_kept:
            self._held.setdefault(delivery.id.text, delivery)

    def end(self) -> tuple[list[Delivery], list[Delivery]]:
        """The connection is gone: returns the messages to release, those that the program may have
        had and those that it never had.
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
