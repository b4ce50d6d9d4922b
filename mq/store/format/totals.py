"""The names in totals/, and the lines of its files. FORMAT.md, "Totals". Nothing is made before
something is counted.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mq.model.errors import BadName
from mq.model.totals import Row
from mq.store.format.layout import Layout, new_name

_COUNTS: Final = re.compile(r"[0-9a-f]{16}-[1-9][0-9]{0,11}\.counts")
_SUMS: Final = re.compile(r"[0-9a-f]\.sums")
_FOLDED: Final = "folded"
_QUEUE: Final = "queue"
_SINCE: Final = "since_ms"
_BEGAN: Final = "began_ms"


def totals_lock(layout: Layout) -> str:
    return f"{layout.totals}/.lock"


def counts_name(process: str, number: int) -> str:
    """A file with the counts of a process, numbered from 1 on."""
    return f"{process}-{number}.counts"


def sums_name(queue: str) -> str:
    """The file with the sums of a queue, among others."""
    return f"{hashlib.sha256(queue.encode()).hexdigest()[0]}.sums"


def totals_file(layout: Layout, name: str) -> str:
    """The path of a file of that name."""
    return f"{layout.totals}/{name}"


def new_totals_file(layout: Layout, name: str) -> str:
    """Where this process writes it. A dotfile: it means nothing until it is renamed."""
    return f"{layout.totals}/{new_name(name)}"


def is_counts(name: str) -> bool:
    """Whether the name is of a file with a process's counts."""
    return _COUNTS.fullmatch(name) is not None


def parse_totals_file(name: str) -> str:
    """Parses the name of a file of totals/. Raises BadName."""
    if not is_counts(name) and _SUMS.fullmatch(name) is None:
        raise BadName("totals", "16 hex digits, -, a number, .counts; or a hex digit, .sums")
    return name


def print_counts(rows: Mapping[str, Row]) -> bytes:
    """The counts of a process, a line for each queue."""
    return _lines(
        {_QUEUE: queue, _SINCE: row.since_ms, **_began(row), **row.counts}
        for queue, row in rows.items()
    )


def print_sums(rows: Mapping[str, Row], folded: Iterable[str]) -> bytes:
    """The sums of queues, and the names of the files that are part of them."""
    sums = ({_QUEUE: queue, **_began(row), **row.counts} for queue, row in rows.items())
    return _lines(({_FOLDED: sorted(folded)}, *sums))


def parse_totals(content: bytes) -> dict[str, Row]:
    """The rows of a file, by queue. Skips lines that it cannot parse."""
    rows = {}
    for line in content.splitlines():
        said = _said(line)
        if isinstance(queue := said.pop(_QUEUE, None), str):
            whole = {name: n for name, n in said.items() if type(n) is int and n >= 0}
            began_ms = whole.pop(_BEGAN, 0)
            rows[queue] = Row(whole.pop(_SINCE, began_ms), began_ms, whole)
    return rows


def parse_folded(content: bytes) -> frozenset[str]:
    """The names of the files that are part of these sums."""
    found = _said(content.partition(b"\n")[0]).get(_FOLDED)
    names = found if isinstance(found, list) else []
    return frozenset(name for name in names if isinstance(name, str))


def _began(row: Row) -> dict[str, int]:
    return {_BEGAN: row.began_ms} if row.began_ms else {}


def _lines(said: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(each)}\n" for each in said).encode("ascii")


def _said(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
