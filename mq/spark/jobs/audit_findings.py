"""What an audit finds, as rows: of the disk format's breaches, and of kinds of its own."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Final

import pyarrow as pa

from mq.store.audit.breaches import Breach, Violation

FOREIGN: Final = "foreign"
FOREIGN_SAYS: Final = "a name where messages lie that is none of mq's"
COUNTS: Final = "counts"
COUNTS_SAYS: Final = "published, and nowhere: neither there, nor removed, nor archived"
DIGEST: Final = "digest"
DIGEST_SAYS: Final = "a body that is not what its digest says"

COLUMNS: Final = "kind STRING, says STRING, path STRING, detail STRING, queue STRING, repair STRING"
ROWS: Final = f"part STRING, nth INT, {COLUMNS}, blob BINARY"
FOUND: Final = "found"
COUNTED: Final = "counted"
FIELDS: Final = ("kind", "says", "path", "detail", "queue", "repair")
"""Of a finding, in their order."""
_SCHEMA: Final = pa.schema(
    [
        ("part", pa.string()),
        ("nth", pa.int32()),
        *((name, pa.string()) for name in FIELDS),
        ("blob", pa.binary()),
    ]
)
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
    """One thing that is wrong: its `kind` (`says` has it in words), where, the fact that shows it,
    the queue that it is of, and what puts it right. "" where there is nothing to say.
    """

    kind: str
    says: str
    path: str
    detail: str = ""
    queue: str = ""
    repair: str = ""

    @classmethod
    def of(cls, violation: Violation) -> "Finding":
        """Of a breach of the disk format."""
        return cls(
            violation.breach.name.lower(),
            violation.breach.value,
            printable(violation.path),
            printable(violation.detail),
            "" if violation.queue is None else violation.queue.text,
            _BY_HAND.get(violation.breach, FSCK),
        )

    def as_json(self) -> dict[str, str]:
        """As programs get it."""
        fields = zip(FIELDS, astuple(self), strict=True)
        return {name: value for name, value in fields if value}

    def line(self) -> str:
        """As people get it."""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.says}{detail}: {self.path}"


def finding_of_storage(path: str, detail: str, queue: str = "") -> Finding:
    """Of what the storage does not say."""
    breach = Breach.STORAGE
    return Finding(
        breach.name.lower(), breach.value, printable(path), detail, queue, _BY_HAND[breach]
    )


def printable(text: str) -> str:
    """Bytes that are no text, and what a terminal would act on, as escapes: always one line."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def finding_batches(found: Iterable[Finding], of_kind: "Counter[str]") -> Iterator[pa.RecordBatch]:
    """Rows of findings; `nth` counts those of a kind in this task, from 0, as `of_kind` does."""
    rest = iter(found)
    while some := list(islice(rest, _ROWS_PER_BATCH)):
        numbers = []
        for each in some:
            numbers.append(of_kind[each.kind])
            of_kind[each.kind] += 1
        texts = [pa.array(column, pa.string()) for column in zip(*map(astuple, some), strict=True)]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([FOUND] * len(some)),
                pa.array(numbers, pa.int32()),
                *texts,
                pa.nulls(len(some), pa.binary()),
            ],
            schema=_SCHEMA,
        )


def counted_batch(blob: bytes) -> pa.RecordBatch:
    """A row of what was counted."""
    texts = [pa.nulls(1, pa.string()) for _ in FIELDS]
    return pa.RecordBatch.from_arrays(
        [pa.array([COUNTED]), pa.nulls(1, pa.int32()), *texts, pa.array([blob])], schema=_SCHEMA
    )
