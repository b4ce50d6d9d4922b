"""An audit's findings as rows: breaches of the disk format, and kinds of its own."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Final

import pyarrow as pa

from mq.spark.rows import Columns, arrow_schema
from mq.store.audit.findings import Amounts, Breach, Violation, printable

FOREIGN: Final = "foreign"
FOREIGN_SAYS: Final = "a name where messages lie that is none of mq's"
COUNTS: Final = "counts"
COUNTS_SAYS: Final = "published, and nowhere: neither there, nor removed, nor archived"
DIGEST: Final = "digest"
DIGEST_SAYS: Final = "a body that is not what its digest says"

FOUND: Final = "found"
COUNTED: Final = "counted"
FIELDS: Final = ("kind", "says", "path", "detail", "queue", "repair")
"""The fields of a finding, in order."""
ROWS: Final = f"part string, nth int, {', '.join(f'{name} string' for name in FIELDS)}, blob binary"
_SCHEMA: Final = arrow_schema(ROWS)
_ROWS_PER_BATCH: Final = 1000

FSCK: Final = "mqctl fsck --repair"
_BY_HAND: Final = {
    Breach.STORAGE: "look at the disk: dmesg, and the file system's own check",
    Breach.FORMAT: "by hand: mq repairs no format that it does not know",
    Breach.FOLDER: "mqctl fsck --repair; queues/ by hand",
    Breach.SETTINGS: "by hand: write the queue's settings anew; of no queue: mqctl fsck --repair",
    Breach.LINKED: "by hand: take the name outside of the root away",
}
FOREIGN_REPAIR: Final = "by hand: mq leaves it alone; a torn name may be a message"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: its `kind` (`says`: in words), where, the fact that shows it, its
    queue, and the repair. "" where a field does not apply.
    """

    kind: str
    says: str
    path: str
    detail: str = ""
    queue: str = ""
    repair: str = ""

    @classmethod
    def of(cls, violation: Violation) -> "Finding":
        """The finding for a breach of the disk format."""
        return cls(
            violation.breach.name.lower(),
            violation.breach.value,
            printable(violation.path),
            printable(violation.detail),
            "" if violation.queue is None else violation.queue.text,
            _BY_HAND.get(violation.breach, FSCK),
        )

    def as_json(self) -> dict[str, str]:
        fields = zip(FIELDS, astuple(self), strict=True)
        return {name: value for name, value in fields if value}

    def line(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.says}{detail}: {self.path}"


def finding_batches(found: Iterable[Finding], of_kind: "Counter[str]") -> Iterator[pa.RecordBatch]:
    """Rows of findings; `nth` numbers the findings of each kind in this task, from 0, by
    `of_kind`.
    """
    rows = Columns(_SCHEMA)
    for each in found:
        rows.add(FOUND, of_kind[each.kind], *astuple(each), None)
        of_kind[each.kind] += 1
        if len(rows) >= _ROWS_PER_BATCH:
            yield rows.batch()
            rows = Columns(_SCHEMA)
    if len(rows):
        yield rows.batch()


def counted_batch(blob: bytes) -> pa.RecordBatch:
    """A row of pickled counts."""
    return pa.RecordBatch.from_pylist([{"part": COUNTED, "blob": blob}], _SCHEMA)


@dataclass(frozen=True, slots=True)
class Balance:
    """Whether a queue's counts reconcile. `outcome`: "reconciled", "differs", or "unknown"; `why`:
    the reason. `figures`: counts by name; with `since` (RFC 3339), of messages published from then
    on.
    """

    queue: str
    outcome: str
    why: str = ""
    since: str = ""
    figures: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        fields = {
            "queue": self.queue,
            "outcome": self.outcome,
            "why": self.why,
            "since": self.since,
            **self.figures,
        }
        return {name: value for name, value in fields.items() if value != ""}

    def line(self) -> str:
        figures = ", ".join(f"{number} {name}" for name, number in self.figures.items())
        since = f" since {self.since}" if self.since else ""
        why = f" ({self.why})" if self.why else ""
        return (
            f"counts of {self.queue}: {self.outcome}{why}{since}{': ' if figures else ''}{figures}"
        )


@dataclass(frozen=True, slots=True)
class Audited:
    """A complete audit. `kinds`: the number of findings of each kind; `examples`: the first ones;
    `bodies`: how many were compared with a digest; `seconds`: the time for the names.
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
        return sum(self.kinds.values())

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found. Unknown counts are not a finding."""
        return not self.findings

    @property
    def names_per_s(self) -> float:
        """Names checked per second."""
        return self.names / self.seconds if self.seconds else 0.0

    def facts(self) -> dict[str, Any]:
        """The result as one JSON document."""
        facts: dict[str, Any] = {
            "root": self.root,
            "outcome": "clean" if self.is_clean else "findings",
            "findings": self.findings,
            "by_kind": dict(sorted(self.kinds.items())),
            "examples": [each.as_json() for each in self.examples],
            **self.amounts.as_json(),
            "counts": [each.as_json() for each in self.balances],
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
        yield from self.amounts.table()
        for balance in self.balances:
            yield balance.line()
        if self.bodies is not None:
            yield f"{self.bodies} bodies held against a digest"
        if self.amounts.lost:
            yield f"{self.amounts.lost} files lie in lost/"
        looked = f"{self.names} names in {self.seconds:.1f} s, {self.names_per_s:,.0f} a second"
        yield looked
        yield f"{self.root}: {'clean' if self.is_clean else f'{self.findings} findings'}"
