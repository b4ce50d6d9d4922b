"""Which consumers wait for a queue's messages, and which one is notified of a message.

Pure and synchronous; use it on the event loop's thread. A consumer that wants messages stands in
the line of its priority. A message notifies the first consumer that it matches. A notified consumer
takes messages until none is left for it, and goes to the end of its line.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from typing import Final, Protocol, TypeAlias

from mq.broker.siblings import QueueSiblings
from mq.model.errors import MqError
from mq.model.limits import PRIORITY_MAX
from mq.model.selection import Selection

# How long a notified consumer may take to ask for the message: then another one is notified.
NOTIFIED_S: Final = 1.0


class State(Enum):
    """What a consumer is to its queue."""

    NOT_INTERESTED = auto()
    INTERESTED = auto()
    NOTIFIED = auto()


class Event(Enum):
    WANTS = auto()
    """It would take messages: it is new, was given credit, or goes on after a pause."""
    NOTICE = auto()
    """It is its turn."""
    PULLS = auto()
    """It has asked for messages."""
    FOUND = auto()
    """It got what it asked for, and there is more."""
    FOUND_NOTHING = auto()
    """Nothing is left for it."""
    OUT_OF_CREDIT = auto()
    PAUSED = auto()
    STALLED = auto()
    """It was notified and does not ask."""
    CLOSED = auto()


_NOT, _INTERESTED, _NOTIFIED = State
# Other transitions cannot happen. A consumer may ask before it is notified, and gets the
# messages that it asked for even when it is not interested any more.
TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    State.NOT_INTERESTED: {
        Event.WANTS: _INTERESTED,
        Event.PULLS: _NOT,
        Event.FOUND: _NOT,
        Event.FOUND_NOTHING: _NOT,
        Event.OUT_OF_CREDIT: _NOT,
        Event.PAUSED: _NOT,
        Event.CLOSED: _NOT,
    },
    State.INTERESTED: {
        Event.WANTS: _INTERESTED,
        Event.NOTICE: _NOTIFIED,
        Event.PULLS: _INTERESTED,
        Event.FOUND: _INTERESTED,
        Event.FOUND_NOTHING: _INTERESTED,
        Event.OUT_OF_CREDIT: _NOT,
        Event.PAUSED: _NOT,
        Event.CLOSED: _NOT,
    },
    State.NOTIFIED: {
        Event.WANTS: _NOTIFIED,
        Event.PULLS: _NOTIFIED,
        Event.FOUND: _NOTIFIED,
        Event.FOUND_NOTHING: _INTERESTED,
        Event.OUT_OF_CREDIT: _NOT,
        Event.PAUSED: _NOT,
        Event.STALLED: _NOT,
        Event.CLOSED: _NOT,
    },
}


class Subscription:
    """One consumer's place in a queue. `number`: its place among all interested consumers."""

    __slots__ = (
        "asks", "is_armed", "number", "priority", "selection", "since_s", "state", "woken_for",
    )  # fmt: skip

    def __init__(self, priority: int = 0, selection: Selection | None = None) -> None:
        self.priority = priority
        self.selection = selection
        self.state = State.NOT_INTERESTED
        self.number = 0
        self.woken_for: str | None = None
        """The message that notified it, by its id's text, where it was one."""
        self.is_armed = False
        """Whether it is its turn to ask."""
        self.asks = False
        """Whether it waits for what it asked for."""
        self.since_s = 0.0

    def was_notified(self) -> None: ...

    def failed(self, error: MqError) -> None:
        """A scan or a claim failed, or the queue is gone."""

    def sit(self) -> None:
        """Waits to become the active consumer, as the queue has one from here on."""


class Stock(Protocol):
    """The messages of a queue that this process knows."""

    def work(self, selection: Selection | None) -> int:
        """How many messages a consumer with this selection could ask for: the candidates without a
        waiter, plus one where unknown messages may be ready.
        """
        ...

    def matches(self, selection: Selection, name: str) -> bool:
        """Whether a message matches a selection, as far as is known."""
        ...

    def holds(self, selection: Selection | None, name: str) -> bool:
        """Whether a message is a candidate of the selection."""
        ...


Line: TypeAlias = "OrderedDict[Subscription, None]"


class Subscriptions:
    """The subscriptions of all consumers of one queue in one process. Each method returns the
    subscriptions that the caller must notify. `siblings`: the waiting consumers of other processes.
    """

    def __init__(
        self, stock: Stock, steady_s: Callable[[], float], siblings: QueueSiblings | None = None
    ) -> None:
        self._siblings = siblings
        self._news = [0] * (PRIORITY_MAX + 1)
        """For each priority, counts what may have brought them something to take."""
        self._stock = stock
        self._steady_s = steady_s
        self._numbers = 0
        self._lines: dict[int, dict[Selection | None, Line]] = {}
        """The interested ones by priority and selection; no line is empty."""
        self.active: dict[int, Counter[Selection | None]] = {}
        """How many are interested or notified."""
        self._notified: OrderedDict[Subscription, None] = OrderedDict()
        self._armed: Counter[Selection | None] = Counter()
        """How many of those have not asked yet."""
        self._answering: dict[Selection | None, OrderedDict[Subscription, None]] = {}
        """Those notified of a message, until what they asked for has come."""
        self._dry: set[tuple[int, Selection | None]] = set()
        """Lines for which no candidate is left."""

    # Questions

    @property
    def waiting(self) -> set[Selection | None]:
        """The selections of interested consumers."""
        return set().union(*self._lines.values())

    def __bool__(self) -> bool:
        """Whether any is interested or notified."""
        return bool(self.active)

    @property
    def is_any_notified(self) -> bool:
        return bool(self._notified)

    def news(self, subscription: Subscription) -> int:
        """A number that changes when a message arrives that this consumer might take."""
        return self._news[subscription.priority]

    def share(self, subscription: Subscription) -> int:
        """How many candidates it may ask for at once, an equal share among its priority; at least
        1.
        """
        active = self.active.get(subscription.priority)
        equals = max(1, active[subscription.selection] if active else 0)
        return max(1, -(-self._stock.work(subscription.selection) // equals))

    def holds_back(self, priority: int) -> bool:
        """Whether a consumer of a higher priority is interested."""
        return (bool(self.active) and max(self.active) > priority) or self.yields(priority)

    def yields(self, priority: int) -> bool:
        """Whether consumers of another process have precedence over this priority."""
        return self._siblings is not None and self._siblings.go_first(priority)

    def took(self) -> None:
        """This process asked for a message, or took one."""
        if self._siblings is not None:
            self._siblings.took()

    def may_take(self, priority: int, name: str) -> bool:
        """Whether no consumer of a higher priority is interested in the message."""
        return not any(
            above > priority and self._is_for_any(name, selections)
            for above, selections in self.active.items()
        )

    # Events of consumers

    def wants(self, subscription: Subscription) -> list[Subscription]:
        """The consumer wants messages."""
        if subscription.state is State.NOT_INTERESTED:
            self._turn(subscription, Event.WANTS)
            return self.wake()
        return []

    def pulls(self, subscription: Subscription) -> None:
        """The consumer has asked for at least one message."""
        self._disarm(subscription)
        subscription.asks = True
        self._turn(subscription, Event.PULLS)

    def found(self, subscription: Subscription) -> list[Subscription]:
        """The consumer got all messages that it asked for, and there are more: it asks again."""
        subscription.asks = False
        self._answers_no_more(subscription)
        self._turn(subscription, Event.FOUND)
        if subscription.state is State.NOTIFIED:
            self._arm(subscription, None)
        return self.wake()

    def found_nothing(self, subscription: Subscription, news: int) -> list[Subscription]:
        """The consumer got fewer messages than it asked for, or no more are left. `news`: the value
        when it asked.
        """
        subscription.asks = False
        if news == self.news(subscription):
            self._dry.add((subscription.priority, subscription.selection))
        self._answers_no_more(subscription)
        self._turn(subscription, Event.FOUND_NOTHING)
        return self.wake()

    def stops(self, subscription: Subscription, event: Event) -> list[Subscription]:
        """The consumer takes no more messages, by OUT_OF_CREDIT, PAUSED, STALLED or CLOSED. Others
        may take them.
        """
        was_active = subscription.state is not State.NOT_INTERESTED
        is_free = subscription.is_armed or (subscription.asks and event is Event.CLOSED)
        self._turn(subscription, event)
        if is_free:
            self._answers_no_more(subscription)
        if not (was_active or is_free):
            return []
        # Its message is for any other consumer; otherwise it only ceases to precede lower ones.
        self._is_news(PRIORITY_MAX + 1 if is_free else subscription.priority)
        return self.wake()

    # Events of the queue

    def arrived(self, name: str) -> list[Subscription]:
        """A message became ready: notifies the first matching consumer that is not waiting for
        another message, and those before it in the line. A consumer that was notified before and
        matches finds the message too; then no consumer of a lower priority is notified.
        """
        woken: list[Subscription] = []
        for priority in range(PRIORITY_MAX + 1):
            self._news[priority] += 1
        for priority in sorted(self.active, reverse=True):
            if self.yields(priority):
                break
            lines = self._lines.get(priority, {})
            matching = [
                selection
                for selection in lines
                if selection is None or self._stock.matches(selection, name)
            ]
            while heads := [next(iter(lines[each])) for each in matching if each in lines]:
                first = min(heads, key=_number)
                self._notify(first, name)
                woken.append(first)
                if first.is_armed:
                    return woken
            if self._is_for_any(name, self.active[priority]):
                break
        self._dry.clear()
        return woken

    def more_known(self) -> list[Subscription]:
        """The candidates, or their claims, have changed."""
        self._is_news(PRIORITY_MAX + 1)
        return self.wake()

    def ended(self, selection: Selection) -> None:
        """Forgets a selection that has no consumer any more."""
        self._dry = {line for line in self._dry if line[1] != selection}

    def stalled(self, now_s: float) -> list[Subscription]:
        """Skips consumers that were notified NOTIFIED_S ago and have not asked."""
        late = [
            each for each in self._notified if each.is_armed and now_s - each.since_s >= NOTIFIED_S
        ]
        woken = []
        for subscription in late:
            woken += self.stops(subscription, Event.STALLED)
        return woken

    def wake(self) -> list[Subscription]:
        """Notifies one consumer for each candidate without one. A consumer that is still waiting
        for messages counts for those alone.
        """
        woken: list[Subscription] = []
        for priority in sorted(self._lines, reverse=True):
            lines = self._lines[priority]
            free = {
                selection: count
                for selection in lines
                if (priority, selection) not in self._dry
                and (count := self._unanswered(selection)) > 0
                and not self._is_blocked(priority, selection)
            }
            while heads := [
                next(iter(lines[selection]))
                for selection, count in free.items()
                if count > 0 and selection in lines
            ]:
                first = min(heads, key=_number)
                self._notify(first, None)
                woken.append(first)
                if first.is_armed:
                    free[first.selection] -= 1
        return woken

    # Inside

    def _turn(self, subscription: Subscription, event: Event) -> None:
        before = subscription.state
        after = TRANSITIONS[before].get(event)
        if after is None:
            raise ValueError(f"{event.name} of one that is {before.name}")
        if after is before:
            return
        if before is State.INTERESTED:
            self._leave_line(subscription)
        elif before is State.NOTIFIED:
            self._disarm(subscription)
            del self._notified[subscription]
        subscription.state = after
        if after is State.INTERESTED:
            self._enter_line(subscription)
        elif after is State.NOTIFIED:
            self._notified[subscription] = None
        if before is State.NOT_INTERESTED:
            self.active.setdefault(subscription.priority, Counter())[subscription.selection] += 1
        elif after is State.NOT_INTERESTED:
            self._is_active_no_more(subscription)
        else:
            return
        if self._siblings is not None and subscription.selection is None:
            tops = [each for each, selections in self.active.items() if None in selections]
            top = max(tops, default=0)
            self._siblings.shows(top, self.active[top][None] if tops else 0)

    def _is_active_no_more(self, subscription: Subscription) -> None:
        active = self.active[subscription.priority]
        active[subscription.selection] -= 1
        if not active[subscription.selection]:
            del active[subscription.selection]
            if not active:
                del self.active[subscription.priority]

    def _notify(self, subscription: Subscription, name: str | None) -> None:
        self._turn(subscription, Event.NOTICE)
        self._arm(subscription, name)

    def _enter_line(self, subscription: Subscription) -> None:
        self._numbers += 1
        subscription.number = self._numbers
        lines = self._lines.setdefault(subscription.priority, {})
        lines.setdefault(subscription.selection, OrderedDict())[subscription] = None

    def _leave_line(self, subscription: Subscription) -> None:
        lines = self._lines[subscription.priority]
        del lines[subscription.selection][subscription]
        if not lines[subscription.selection]:
            del lines[subscription.selection]
            if not lines:
                del self._lines[subscription.priority]

    def _is_news(self, below: int) -> None:
        """Consumers below a priority may find a message."""
        for priority in range(below):
            self._news[priority] += 1
        self._dry = {line for line in self._dry if line[0] >= below}

    def _arm(self, subscription: Subscription, name: str | None) -> None:
        """Makes it the consumer's turn to ask. A consumer that is waiting for messages asks again
        after them.
        """
        subscription.since_s = self._steady_s()
        if not subscription.asks:
            subscription.is_armed = True
            self._armed[subscription.selection] += 1
            if name is not None:
                subscription.woken_for = name
                self._answering.setdefault(subscription.selection, OrderedDict())[subscription] = (
                    None
                )

    def _answers_no_more(self, subscription: Subscription) -> None:
        """The message that it was notified of is taken, or is for other consumers."""
        name, subscription.woken_for = subscription.woken_for, None
        if name is None:
            return
        answering = self._answering[subscription.selection]
        del answering[subscription]
        if not answering:
            del self._answering[subscription.selection]
        others = self.waiting - {subscription.selection}
        if any(self._stock.holds(selection, name) for selection in others):
            self._is_news(PRIORITY_MAX + 1)

    def _disarm(self, subscription: Subscription) -> None:
        if subscription.is_armed:
            subscription.is_armed = False
            self._armed[subscription.selection] -= 1
            if not self._armed[subscription.selection]:
                del self._armed[subscription.selection]

    def _unanswered(self, selection: Selection | None) -> int:
        """How many candidates of a selection no notified consumer will ask for."""
        count = self._stock.work(selection) - self._armed[selection]
        for other, answering in self._answering.items():
            if count > 0 and other != selection:
                count -= sum(
                    each.woken_for is not None and self._stock.holds(selection, each.woken_for)
                    for each in answering
                )
        return count

    def _is_blocked(self, priority: int, selection: Selection | None) -> bool:
        """Whether all candidates of the selection are for a consumer of a higher priority."""
        return any(
            above > priority and (None in selections or selection in selections)
            for above, selections in self.active.items()
        ) or self.yields(priority)

    def _is_for_any(self, name: str, selections: "Counter[Selection | None]") -> bool:
        return any(
            selection is None or self._stock.matches(selection, name) for selection in selections
        )

    def __iter__(self) -> Iterator[Subscription]:
        """All interested or notified consumers."""
        for lines in self._lines.values():
            for line in lines.values():
                yield from line
        yield from self._notified


def _number(subscription: Subscription) -> int:
    return subscription.number
