"""fsck's report, as text and as JSON."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from mq.store.audit.findings import Amounts, Breach, Violation, printable

# The most findings, and repairs, that a report shows; it counts the others.
EXAMPLES_MAX: Final = 1000


class Outcome(Enum):
    """The outcome; the value is for programs."""

    CLEAN = "clean"
    PUT_RIGHT = "put_right"
    BROKEN = "broken"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Finding:
    """A breach with its repair, the repair that it would get, or why it has none."""

    violation: Violation
    what: str = ""

    def as_json(self) -> dict[str, Any]:
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
        """One line of text, whatever a file's name contains."""
        detail = f" ({self.violation.detail})" if self.violation.detail else ""
        what = f": {self.what}" if self.what else ""
        return printable(f"{self.violation.breach.value}{detail}: {self.violation.path}{what}")


@dataclass(slots=True)
class Findings:
    """The number of breaches of each kind, and the first examples."""

    counts: Counter[Breach] = field(default_factory=Counter)
    examples: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        self.counts[finding.violation.breach] += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(finding)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        counts = {breach.name.lower(): self.counts[breach] for breach in Breach}
        return {
            "count": self.total,
            "by_breach": {name: count for name, count in counts.items() if count},
            "examples": [finding.as_json() for finding in self.examples],
        }


@dataclass(slots=True)
class Report:
    """The findings for a root, and their repairs."""

    root: str
    amounts: Amounts = field(default_factory=Amounts)
    remaining: Findings = field(default_factory=Findings)
    put_right: Findings = field(default_factory=Findings)
    names: int = 0
    """The number of names checked in the last pass."""
    passes: int = 0
    is_whole: bool = False
    """Whether the check finished."""

    @property
    def outcome(self) -> Outcome:
        if self.remaining.total:
            return Outcome.BROKEN
        if not self.is_whole:
            return Outcome.INTERRUPTED
        return Outcome.PUT_RIGHT if self.put_right.total else Outcome.CLEAN

    def as_json(self) -> dict[str, Any]:
        return {
            "root": self.root,
            "outcome": self.outcome.value,
            **self.amounts.as_json(),
            "names": self.names,
            "passes": self.passes,
            "put_right": self.put_right.as_json(),
            "remaining": self.remaining.as_json(),
        }

    def lines(self) -> Iterator[str]:
        for title, found in (("put right", self.put_right), ("remains", self.remaining)):
            for finding in found.examples:
                yield f"{title}: {finding.line()}"
            if (more := found.total - len(found.examples)) > 0:
                yield f"{title}: {more} more"
        yield from self._amounts()
        yield self._last_line()

    def _amounts(self) -> Iterator[str]:
        yield from self.amounts.table()
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
