"""Who waits for a queue's messages, and whose turn it is.

Pure and synchronous; use it on the event loop's thread. A waiter that can take a message now stands
in the line of its priority and selection. The queue serves those in line directly: the highest
priority first, and among equals the one that has waited longest (`serving.py`). A waiter that was
served goes to the end of its line; one without credit, or whose client does not read, stands in
none.
"""

from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import ClassVar, TypeAlias

from mq.model.message import Delivery
from mq.model.selection import Selection

LineKey: TypeAlias = tuple[int, Selection | None]
_Line: TypeAlias = "OrderedDict[Waiter, None]"


class Waiter(ABC):
    """A request or a subscription that takes messages of a queue, of a `selection` if it has one.

    `credit`: how many more messages it takes. With `takes_packs` it takes packs whole, and the last
    one may exceed its credit. `in_flight`: its claims that go on. `is_fresh`: it is to be told when
    nothing is ready for it.
    """

    __slots__ = (
        "credit", "in_flight", "is_fresh", "number", "priority", "selection", "takes_packs",
        "visibility_s",
    )  # fmt: skip
    stays: ClassVar[bool] = True
    """Whether it waits for messages that are published later."""

    def __init__(
        self,
        credit: int = 1,
        priority: int = 0,
        visibility_s: float | None = None,
        selection: Selection | None = None,
        takes_packs: bool = False,
    ) -> None:
        self.credit = credit
        self.priority = priority
        self.visibility_s = visibility_s
        self.selection = selection
        self.takes_packs = takes_packs
        self.in_flight = 0
        self.is_fresh = False
        self.number = 0

    @property
    @abstractmethod
    def is_gone(self) -> bool:
        """Whether it takes no delivery any more, not even of a claim that goes on."""

    @property
    def wants(self) -> bool:
        """Whether it takes messages now, as far as it has room."""
        return self.credit > 0

    def room(self) -> int:
        """How many claims may begin for it now. With 0 it leaves its line, until its owner has it
        stand again.
        """
        return self.credit

    @abstractmethod
    def begins(self) -> None:
        """A claim begins for it."""

    @abstractmethod
    def got(self, delivery: Delivery) -> None:
        """A claim brought a message. It is no longer `in_flight`."""

    @abstractmethod
    def missed(self) -> None:
        """A claim brought nothing; its credit is as before. It goes on in front of its line."""

    @abstractmethod
    def found_nothing(self) -> None:
        """Nothing is ready for it."""

    @abstractmethod
    def failed(self, error: BaseException) -> None:
        """A claim failed."""


class Lines:
    """The lines of one queue. `shows` is called with the highest priority among those that stay and
    have no selection, and with the number of these.
    """

    def __init__(self, shows: Callable[[int, int], None] | None = None) -> None:
        self._lines: dict[int, dict[Selection | None, _Line]] = {}
        """By priority and selection; no line is empty."""
        self._fresh: dict[Selection | None, dict[Waiter, None]] = {}
        self._shows = shows
        self._staying: Counter[int] = Counter()
        self._shown = (0, 0)
        self._count = 0
        self._last = self._first = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Waiter]:
        for lines in self._lines.values():
            for line in lines.values():
                yield from line

    def __contains__(self, waiter: Waiter) -> bool:
        line = self._lines.get(waiter.priority, {}).get(waiter.selection)
        return line is not None and waiter in line

    @property
    def selections(self) -> set[Selection | None]:
        return set().union(*self._lines.values())

    def enter(self, waiter: Waiter) -> None:
        """At the end of its line."""
        self._last += 1
        waiter.number = self._last
        lines = self._lines.get(waiter.priority)
        if lines is None:
            lines = self._lines[waiter.priority] = {}
            if len(self._lines) > 1:
                self._lines = dict(sorted(self._lines.items(), reverse=True))
        lines.setdefault(waiter.selection, OrderedDict())[waiter] = None
        self._count += 1
        if waiter.is_fresh:
            self._fresh.setdefault(waiter.selection, {})[waiter] = None
        self._changes(waiter, 1)

    def enter_first(self, waiter: Waiter) -> None:
        """In front of its line, whether it stands there already or not."""
        if waiter not in self:
            self.enter(waiter)
        self._first -= 1
        waiter.number = self._first
        self._lines[waiter.priority][waiter.selection].move_to_end(waiter, last=False)

    def to_end(self, waiter: Waiter) -> None:
        self._last += 1
        waiter.number = self._last
        self._lines[waiter.priority][waiter.selection].move_to_end(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Does nothing for a waiter that stands in no line."""
        lines = self._lines.get(waiter.priority)
        line = None if lines is None else lines.get(waiter.selection)
        if lines is None or line is None or waiter not in line:
            return
        del line[waiter]
        if not line:
            del lines[waiter.selection]
            if not lines:
                del self._lines[waiter.priority]
        self._count -= 1
        self._is_fresh_no_more(waiter)
        self._changes(waiter, -1)

    def first(self, passed: Collection[LineKey]) -> Waiter | None:
        """The next one to serve, of the lines that were not `passed` over."""
        for priority, lines in self._lines.items():
            heads = [
                next(iter(line))
                for selection, line in lines.items()
                if not passed or (priority, selection) not in passed
            ]
            if heads:
                return heads[0] if len(heads) == 1 else min(heads, key=_number)
        return None

    def above(self, priority: int) -> list[Selection | None]:
        """The selections of those that are served before this priority."""
        return [one for above, lines in self._lines.items() if above > priority for one in lines]

    def fresh(self, selection: Selection | None) -> Collection[Waiter]:
        """Those of this selection that are to be told when nothing is ready."""
        return self._fresh.get(selection, ())

    def find_nothing(self, waiters: Iterable[Waiter]) -> None:
        """Tells those of them that stand here, and are fresh."""
        for each in list(waiters):
            if each.is_fresh and each in self:
                self._is_fresh_no_more(each)
                each.is_fresh = False
                each.found_nothing()

    def _is_fresh_no_more(self, waiter: Waiter) -> None:
        if waiter.is_fresh and (fresh := self._fresh.get(waiter.selection)) is not None:
            fresh.pop(waiter, None)
            if not fresh:
                del self._fresh[waiter.selection]

    def _changes(self, waiter: Waiter, by: int) -> None:
        if self._shows is None or not waiter.stays or waiter.selection is not None:
            return
        self._staying[waiter.priority] += by
        if not self._staying[waiter.priority]:
            del self._staying[waiter.priority]
        top = max(self._staying, default=0)
        shown = top, self._staying[top]
        if shown != self._shown:
            self._shown = shown
            self._shows(*shown)


def _number(waiter: Waiter) -> int:
    return waiter.number
