"""Who is interested in a queue's messages, and who is told that there is one.

Pure and synchronous. A consumer that would take messages stands in the line of its priority; one
message notifies one of them, the first that it matches; who was notified takes messages until
nothing is left for it, and goes to the end of its line. Each method gives those that are notified
by it: the caller tells them.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from mq.broker.interest import TRANSITIONS, Event, Interest, State
from mq.model.limits import NOTIFIED_S, PRIORITY_MAX
from mq.model.selection import Selection


@dataclass(frozen=True, slots=True)
class Known:
    """What the interests of a queue ask of it. `work`: how many messages are known that those of a
    selection (None: without one) might take, and nobody has asked for; `matches`: whether a message
    is of a selection, as far as is known; `holds`: whether it is among those known of one;
    `steady_s`: a steady clock's seconds.
    """

    work: Callable[[Selection | None], int]
    matches: Callable[[Selection, str], bool]
    holds: Callable[[Selection | None, str], bool]
    steady_s: Callable[[], float]


Line: TypeAlias = "OrderedDict[Interest, None]"


class Interests:
    """The interests of all consumers of one queue in one process."""

    def __init__(self, known: Known) -> None:
        self._news = [0] * (PRIORITY_MAX + 1)
        """For each priority, counts what may have brought them something to take."""
        self._known = known
        self._numbers = 0
        self._lines: dict[int, dict[Selection | None, Line]] = {}
        """The interested ones by priority and selection; no line is empty."""
        self._active: dict[int, Counter[Selection | None]] = {}
        """How many are interested or notified."""
        self._notified: OrderedDict[Interest, None] = OrderedDict()
        self._armed: Counter[Selection | None] = Counter()
        """Of those how many are still to ask."""
        self._answering: dict[Selection | None, OrderedDict[Interest, None]] = {}
        """Who was notified of a message, until what it asked for has come."""
        self._dry: set[tuple[int, Selection | None]] = set()
        """Lines for which nothing is left of all that is known."""

    # What is asked of it

    @property
    def waiting(self) -> set[Selection | None]:
        """The selections that somebody is interested in."""
        return set().union(*self._lines.values())

    def __bool__(self) -> bool:
        """Whether anybody is interested or notified."""
        return bool(self._active)

    @property
    def is_anybody_notified(self) -> bool:
        """Whether it is somebody's turn."""
        return bool(self._notified)

    def news(self, interest: Interest) -> int:
        """What tells whether something has come since that it might take."""
        return self._news[interest.priority]

    def share(self, interest: Interest) -> int:
        """How many it may ask for at once of what is known, so that each of its equals has as many;
        one where nothing is.
        """
        active = self._active.get(interest.priority)
        equals = max(1, active[interest.selection] if active else 0)
        return max(1, -(-self._known.work(interest.selection) // equals))

    def holds_back(self, priority: int) -> bool:
        """Whether somebody above this priority is interested, who goes first."""
        return bool(self._active) and max(self._active) > priority

    def may_take(self, priority: int, name: str) -> bool:
        """Whether nobody above this priority is interested in the message."""
        return not any(
            above > priority and self._is_for_any(name, selections)
            for above, selections in self._active.items()
        )

    # What consumers do

    def wants(self, interest: Interest) -> list[Interest]:
        """It would take messages."""
        if interest.state is State.NOT_INTERESTED:
            self._turn(interest, Event.WANTS)
            return self.wake()
        return []

    def pulls(self, interest: Interest) -> None:
        """It has asked for at least one message."""
        self._disarm(interest)
        interest.asks = True
        self._turn(interest, Event.PULLS)

    def found(self, interest: Interest) -> list[Interest]:
        """All it asked for came, and there is more: it is to ask again."""
        interest.asks = False
        self._answers_no_more(interest)
        self._turn(interest, Event.FOUND)
        if interest.state is State.NOTIFIED:
            self._arm(interest, None)
        return self.wake()

    def found_nothing(self, interest: Interest, news: int) -> list[Interest]:
        """Not all it asked for came, or there is no more; `news`: what it was when it asked."""
        interest.asks = False
        if news == self.news(interest):
            self._dry.add((interest.priority, interest.selection))
        self._answers_no_more(interest)
        self._turn(interest, Event.FOUND_NOTHING)
        return self.wake()

    def stops(self, interest: Interest, event: Event) -> list[Interest]:
        """It takes no more, by OUT_OF_CREDIT, PAUSED, STALLED or CLOSED: others may."""
        was_active = interest.state is not State.NOT_INTERESTED
        is_free = interest.is_armed or (interest.asks and event is Event.CLOSED)
        self._turn(interest, event)
        if is_free:
            self._answers_no_more(interest)
        if not (was_active or is_free):
            return []
        # What it was to take is for anybody; else it stands in the way of those below no more.
        self._is_news(PRIORITY_MAX + 1 if is_free else interest.priority)
        return self.wake()

    # What the queue does

    def arrived(self, name: str) -> list[Interest]:
        """A message of this id became ready: one that does not wait for another is notified of it,
        and those before it in the line. Who was notified before and whom it matches finds it too,
        and none below is notified of it.
        """
        woken: list[Interest] = []
        for priority in range(PRIORITY_MAX + 1):
            self._news[priority] += 1
        for priority in sorted(self._active, reverse=True):
            lines = self._lines.get(priority, {})
            matching = [
                selection
                for selection in lines
                if selection is None or self._known.matches(selection, name)
            ]
            while heads := [next(iter(lines[each])) for each in matching if each in lines]:
                first = min(heads, key=_number)
                self._notify(first, name)
                woken.append(first)
                if first.is_armed:
                    return woken
            if self._is_for_any(name, self._active[priority]):
                break
        self._dry.clear()
        return woken

    def goes_on(self) -> list[Interest]:
        """More may be known, or taken by somebody, than before."""
        self._is_news(PRIORITY_MAX + 1)
        return self.wake()

    def ended(self, selection: Selection) -> None:
        """The selection has no consumer any more: nothing is remembered of it."""
        self._dry = {line for line in self._dry if line[1] != selection}

    def stalled(self, now_s: float) -> list[Interest]:
        """Those that were notified NOTIFIED_S ago and do not ask are passed over."""
        late = [
            each for each in self._notified if each.is_armed and now_s - each.since_s >= NOTIFIED_S
        ]
        woken = []
        for interest in late:
            woken += self.stops(interest, Event.STALLED)
        return woken

    def wake(self) -> list[Interest]:
        """Notifies as many as there are messages known that nobody answers for; who waits for what
        it asked for answers for no more than that.
        """
        woken: list[Interest] = []
        for priority in sorted(self._lines, reverse=True):
            lines = self._lines[priority]
            free = {
                selection: self._unanswered(selection)
                for selection in lines
                if (priority, selection) not in self._dry
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

    # How it is done

    def _turn(self, interest: Interest, event: Event) -> None:
        """Goes on by the table."""
        before = interest.state
        after = TRANSITIONS[before].get(event)
        if after is None:
            raise ValueError(f"{event.name} of one that is {before.name}")
        if after is before:
            return
        if before is State.INTERESTED:
            self._leave_line(interest)
        elif before is State.NOTIFIED:
            self._disarm(interest)
            del self._notified[interest]
        interest.state = after
        if after is State.INTERESTED:
            self._enter_line(interest)
        elif after is State.NOTIFIED:
            self._notified[interest] = None
        if before is State.NOT_INTERESTED:
            self._active.setdefault(interest.priority, Counter())[interest.selection] += 1
        elif after is State.NOT_INTERESTED:
            self._is_active_no_more(interest)

    def _is_active_no_more(self, interest: Interest) -> None:
        active = self._active[interest.priority]
        active[interest.selection] -= 1
        if not active[interest.selection]:
            del active[interest.selection]
            if not active:
                del self._active[interest.priority]

    def _notify(self, interest: Interest, name: str | None) -> None:
        self._turn(interest, Event.NOTICE)
        self._arm(interest, name)

    def _enter_line(self, interest: Interest) -> None:
        self._numbers += 1
        interest.number = self._numbers
        lines = self._lines.setdefault(interest.priority, {})
        lines.setdefault(interest.selection, OrderedDict())[interest] = None

    def _leave_line(self, interest: Interest) -> None:
        lines = self._lines[interest.priority]
        del lines[interest.selection][interest]
        if not lines[interest.selection]:
            del lines[interest.selection]
            if not lines:
                del self._lines[interest.priority]

    def _is_news(self, below: int) -> None:
        """Those below a priority may find something to take."""
        for priority in range(below):
            self._news[priority] += 1
        self._dry = {line for line in self._dry if line[0] >= below}

    def _arm(self, interest: Interest, name: str | None) -> None:
        """It is its turn to ask; who waits for what it asked for asks again after that."""
        interest.since_s = self._known.steady_s()
        if not interest.asks:
            interest.is_armed = True
            self._armed[interest.selection] += 1
            if name is not None:
                interest.woken_for = name
                self._answering.setdefault(interest.selection, OrderedDict())[interest] = None

    def _answers_no_more(self, interest: Interest) -> None:
        """What it was woken for is taken; or it is others' who would take it."""
        name, interest.woken_for = interest.woken_for, None
        if name is None:
            return
        answering = self._answering[interest.selection]
        del answering[interest]
        if not answering:
            del self._answering[interest.selection]
        others = self.waiting - {interest.selection}
        if any(self._known.holds(selection, name) for selection in others):
            self._is_news(PRIORITY_MAX + 1)

    def _disarm(self, interest: Interest) -> None:
        if interest.is_armed:
            interest.is_armed = False
            self._armed[interest.selection] -= 1
            if not self._armed[interest.selection]:
                del self._armed[interest.selection]

    def _unanswered(self, selection: Selection | None) -> int:
        """How many of the messages known to those of a selection nobody is to ask for."""
        count = self._known.work(selection) - self._armed[selection]
        for other, answering in self._answering.items():
            if count > 0 and other != selection:
                count -= sum(
                    each.woken_for is not None and self._known.holds(selection, each.woken_for)
                    for each in answering
                )
        return count

    def _is_blocked(self, priority: int, selection: Selection | None) -> bool:
        """Whether all that those of a selection might take is for somebody above."""
        return any(
            above > priority and (None in selections or selection in selections)
            for above, selections in self._active.items()
        )

    def _is_for_any(self, name: str, selections: "Counter[Selection | None]") -> bool:
        return any(
            selection is None or self._known.matches(selection, name) for selection in selections
        )

    def __iter__(self) -> Iterator[Interest]:
        """All that are interested or notified."""
        for lines in self._lines.values():
            for line in lines.values():
                yield from line
        yield from self._notified


def _number(interest: Interest) -> int:
    return interest.number
