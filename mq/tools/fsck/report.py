"""What fsck has to say at its end, for people and for programs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mq.model.fsck_limits import EXAMPLES_MAX
from mq.model.lifecycle import State
from mq.store.audit.breaches import Amounts, Breach, Violation


class Outcome(Enum):
    """In a word; the value is what programs are told."""

    CLEAN = "clean"
    PUT_RIGHT = "put_right"
    BROKEN = "broken"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Told:
    """A breach, and what was done about it, or would be, or why nothing is."""

    violation: Violation
    what: str = ""

    def as_json(self) -> dict[str, Any]:
        """As programs get it."""
        each = self.violation
        fields = {
            "breach": each.breach.name.lower(),
            "says": each.breach.value,
            "path": each.path,
            "detail": each.detail,
            "queue": None if each.queue is None else each.queue.text,
            "what": self.what,
        }
        return {name: value for name, value in fields.items() if value}

    def line(self) -> str:
        """As people get it: one line, whatever somebody has called a file."""
        detail = f" ({self.violation.detail})" if self.violation.detail else ""
        what = f": {self.what}" if self.what else ""
        return _printable(f"{self.violation.breach.value}{detail}: {self.violation.path}{what}")


@dataclass(slots=True)
class Found:
    """How many breaches of each kind, and where the first ones are."""

    counts: Counter[Breach] = field(default_factory=Counter)
    examples: list[Told] = field(default_factory=list)

    def add(self, told: Told) -> None:
        """One more."""
        self.counts[told.violation.breach] += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(told)

    @property
    def total(self) -> int:
        """Of all kinds."""
        return sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        """As programs get it."""
        counts = {breach.name.lower(): self.counts[breach] for breach in Breach}
        return {
            "count": self.total,
            "by_breach": {name: count for name, count in counts.items() if count},
            "examples": [told.as_json() for told in self.examples],
        }


@dataclass(slots=True)
class Report:
    """What was found in a root, and what became of it."""

    root: str
    amounts: Amounts = field(default_factory=Amounts)
    remaining: Found = field(default_factory=Found)
    put_right: Found = field(default_factory=Found)
    names: int = 0
    """How many things were looked at in the last pass."""
    passes: int = 0
    is_whole: bool = False
    """Whether the check came to its end."""

    @property
    def outcome(self) -> Outcome:
        """In a word."""
        if self.remaining.total:
            return Outcome.BROKEN
        if not self.is_whole:
            return Outcome.INTERRUPTED
        return Outcome.PUT_RIGHT if self.put_right.total else Outcome.CLEAN

    def as_json(self) -> dict[str, Any]:
        """One document."""
        amounts = self.amounts
        by_queue = {
            name: {state.value: count for state, count in sorted(of.items(), key=_by_value)}
            for name, of in sorted(amounts.of_queues.items())
        }
        return {
            "root": self.root,
            "outcome": self.outcome.value,
            "messages": {state.value: count for state, count in amounts.messages.items()},
            "messages_by_queue": by_queue,
            "foreign": amounts.foreign,
            "dotfiles": amounts.hidden,
            "set_aside": amounts.lost,
            "names": self.names,
            "passes": self.passes,
            "put_right": self.put_right.as_json(),
            "remaining": self.remaining.as_json(),
        }

    def lines(self) -> Iterator[str]:
        """The same for people."""
        for title, found in (("put right", self.put_right), ("remains", self.remaining)):
            for told in found.examples:
                yield f"{title}: {told.line()}"
            if (more := found.total - len(found.examples)) > 0:
                yield f"{title}: {more} more"
        yield from self._amounts()
        yield self._last_line()

    def _amounts(self) -> Iterator[str]:
        states = [state for state in State if state is not State.ABSENT]
        names = sorted(self.amounts.of_queues)
        width = max(map(len, ("queue", "all", *names)))
        yield "  ".join(("queue".ljust(width), *(state.value.rjust(9) for state in states)))
        for name in names:
            of = self.amounts.of_queues[name]
            yield "  ".join((name.ljust(width), *(str(of[state]).rjust(9) for state in states)))
        of_all = self.amounts.messages
        yield "  ".join(("all".ljust(width), *(str(of_all[state]).rjust(9) for state in states)))
        if self.amounts.foreign:
            yield f"{self.amounts.foreign} names are none of mq's, {self.amounts.foreign_name!r}"
        if self.amounts.lost:
            yield f"{self.amounts.lost} files lie in lost/"

    def _last_line(self) -> str:
        if self.outcome is Outcome.CLEAN:
            return f"{self.root}: clean"
        if self.outcome is Outcome.PUT_RIGHT:
            return f"{self.root}: clean; {self.put_right.total} put right"
        if self.outcome is Outcome.INTERRUPTED:
            return f"{self.root}: not all was looked at; {self.put_right.total} put right"
        also = f"; {self.put_right.total} put right" if self.put_right.total else ""
        return f"{self.root}: {self.remaining.total} broken{also}"


def _by_value(item: tuple[State, int]) -> str:
    return item[0].value


def _printable(text: str) -> str:
    """Bytes that are no text, and what a terminal would act on, as escapes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )
