"""What an audit has to say at its end, for people and for programs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mq.model.lifecycle import State
from mq.spark.jobs.audit_findings import Finding
from mq.store.audit.breaches import Amounts

_STATES: Final = tuple(state for state in State if state is not State.ABSENT)


@dataclass(frozen=True, slots=True)
class Balance:
    """Whether a queue's counts reconcile. `outcome`: "reconciled", "differs", or "unknown", and
    `why`. `figures`: what is known, by its name; with `since` (RFC 3339) of what was published from
    then on.
    """

    queue: str
    outcome: str
    why: str = ""
    since: str = ""
    figures: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As programs get it."""
        fields = {
            "queue": self.queue,
            "outcome": self.outcome,
            "why": self.why,
            "since": self.since,
            **self.figures,
        }
        return {name: value for name, value in fields.items() if value != ""}

    def line(self) -> str:
        """As people get it."""
        figures = ", ".join(f"{number} {name}" for name, number in self.figures.items())
        since = f" since {self.since}" if self.since else ""
        why = f" ({self.why})" if self.why else ""
        return (
            f"counts of {self.queue}: {self.outcome}{why}{since}{': ' if figures else ''}{figures}"
        )


@dataclass(frozen=True, slots=True)
class Audited:
    """An audit that came to its end. `kinds`: how many findings of each kind; `examples`: the first
    ones; `bodies`: how many were held against a digest; `seconds`: of the looks at names.
    """

    root: str
    amounts: Amounts
    names: int
    folders: int
    seconds: float
    kinds: Mapping[str, int]
    examples: tuple[Finding, ...]
    balances: tuple[Balance, ...] = ()
    bodies: int | None = None
    to: str = ""

    @property
    def findings(self) -> int:
        """How many, of all kinds."""
        return sum(self.kinds.values())

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found. Counts that nobody can know are no finding."""
        return not self.findings

    @property
    def names_per_s(self) -> float:
        """How many names were looked at in a second."""
        return self.names / self.seconds if self.seconds else 0.0

    def facts(self) -> dict[str, Any]:
        """As programs get it: one document."""
        amounts = self.amounts
        by_queue = {
            queue: {state.value: number for state, number in sorted(of.items(), key=_by_value)}
            for queue, of in sorted(amounts.of_queues.items())
        }
        facts: dict[str, Any] = {
            "root": self.root,
            "outcome": "clean" if self.is_clean else "findings",
            "findings": self.findings,
            "by_kind": dict(sorted(self.kinds.items())),
            "examples": [each.as_json() for each in self.examples],
            "messages": {state.value: number for state, number in amounts.messages.items()},
            "messages_by_queue": by_queue,
            "counts": [each.as_json() for each in self.balances],
            "foreign": amounts.foreign,
            "dotfiles": amounts.hidden,
            "set_aside": amounts.lost,
            "names": self.names,
            "folders": self.folders,
            "seconds": round(self.seconds, 3),
            "names_per_s": round(self.names_per_s),
        }
        if self.bodies is not None:
            facts["bodies"] = self.bodies
        if self.to:
            facts["to"] = self.to
        return facts

    def lines(self) -> Iterator[str]:
        """The same for people."""
        for kind, number in sorted(self.kinds.items()):
            of_kind = [each for each in self.examples if each.kind == kind]
            yield f"{kind}: {number}: {of_kind[0].says}" if of_kind else f"{kind}: {number}"
            for each in of_kind:
                detail = f" ({each.detail})" if each.detail else ""
                yield f"  {each.path}{detail}"
            if (more := number - len(of_kind)) > 0:
                yield f"  and {more} more"
            if of_kind and of_kind[0].repair:
                yield f"  repair: {of_kind[0].repair}"
        yield from self._table()
        for balance in self.balances:
            yield balance.line()
        if self.bodies is not None:
            yield f"{self.bodies} bodies held against a digest"
        if self.amounts.lost:
            yield f"{self.amounts.lost} files lie in lost/"
        looked = f"{self.names} names in {self.seconds:.1f} s, {self.names_per_s:,.0f} a second"
        yield looked
        yield f"{self.root}: {'clean' if self.is_clean else f'{self.findings} findings'}"

    def _table(self) -> Iterator[str]:
        names = sorted(self.amounts.of_queues)
        width = max(map(len, ("queue", "all", *names)))
        yield "  ".join(("queue".ljust(width), *(state.value.rjust(9) for state in _STATES)))
        for name in names:
            of = self.amounts.of_queues[name]
            yield "  ".join((name.ljust(width), *(str(of[state]).rjust(9) for state in _STATES)))
        of_all = self.amounts.messages
        yield "  ".join(("all".ljust(width), *(str(of_all[state]).rjust(9) for state in _STATES)))


def _by_value(item: tuple[State, int]) -> str:
    return item[0].value
