"""The ledger: the counts of all processes of a root, by queue."""

import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from mq.model.names import QueueName
from mq.model.totals import Row, Total, summed
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.totals import is_counts, parse_folded, parse_totals, sums_name, totals_file
from mq.store.format.walk import entries_if_there

# Scans that concurrent folds may disturb in a row. Folds begin a minute apart.
_LOOKS: Final = 3
# The limit of rows of unfolded files kept in memory.
TOTALS_ROWS_KEPT_MAX: Final = 50_000


class _Sums(NamedTuple):
    """A file of sums and its version."""

    version: tuple[int, int, int] | None
    content: bytes


_NO_SUMS: Final = _Sums(None, b"")


class Ledger:
    """The totals of a root's queues. Thread-safe; blocking."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, Row]] = {}
        """Count files that were read; they never change."""

    def of(self, queue: QueueName) -> dict[Total, int]:
        """A queue's totals, including this process's unwritten counts. Raises OSError."""
        tally = self._root.totals
        with tally.writing:
            found = self._found((queue,))[queue]
            if (held := tally.row(queue.text)) is not None:
                found.append(held)
        return _totals(found)

    def written_of(self, queues: Iterable[QueueName]) -> dict[QueueName, dict[Total, int]]:
        """The totals of queues as all processes of the root have written them, so that every
        process gives the same answer. Raises OSError.
        """
        return {queue: _totals(rows) for queue, rows in self._found(tuple(queues)).items()}

    def _found(self, queues: tuple[QueueName, ...]) -> dict[QueueName, list[Row]]:
        with self._lock:
            names = dict.fromkeys(sums_name(queue.text) for queue in queues)
            # A fold adds files to the sums, then removes them: read the files between two equal
            # versions of the sums.
            for look in range(_LOOKS):
                sums = {name: self._sums(name) for name in names}
                files = self._files()
                if look == _LOOKS - 1 or all(
                    self._version(name) == sums[name].version for name in names
                ):
                    break
        folded = {name: parse_folded(each.content) for name, each in sums.items()}
        rows = {name: parse_totals(each.content) for name, each in sums.items()}
        found = {}
        for queue in queues:
            text, name = queue.text, sums_name(queue.text)
            found[queue] = [
                of[text] for of in (rows[name], *_not_in(files, folded[name])) if text in of
            ]
        return found

    def _files(self) -> dict[str, dict[str, Row]]:
        folder = self._root.layout.totals
        found: dict[str, dict[str, Row]] = {}
        for entry in entries_if_there(self._root.files, folder):
            if not is_counts(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            known = self._known.get(entry.name)
            if known is None:
                content = self._read(entry.name)
                if content is None:
                    continue
                known = parse_totals(content)
            found[entry.name] = known
        kept = sum(map(len, found.values())) <= TOTALS_ROWS_KEPT_MAX
        self._known = found if kept else {}
        return found

    def _sums(self, name: str) -> _Sums:
        version = self._version(name)
        content = None if version is None else self._read(name)
        return _NO_SUMS if content is None else _Sums(version, content)

    def _version(self, name: str) -> tuple[int, int, int] | None:
        status = self._root.files.status(totals_file(self._root.layout, name))
        return None if status is None else (status.st_ino, status.st_mtime_ns, status.st_size)

    def _read(self, name: str) -> bytes | None:
        return read_totals_file(self._root, name)


def read_totals_file(root: Root, name: str) -> bytes | None:
    """Reads a file of totals/; None: it is gone. Raises OSError."""
    path = totals_file(root.layout, name)
    status = root.files.status(path)
    if status is None:
        return None
    try:
        return root.files.read_file(path, status.st_size)
    except OSError as error:
        if is_gone(error):
            return None
        raise


def _not_in(files: dict[str, dict[str, Row]], folded: frozenset[str]) -> Iterable[dict[str, Row]]:
    return (rows for name, rows in files.items() if name not in folded)


def _totals(rows: Iterable[Row]) -> dict[Total, int]:
    counts = summed(rows).counts
    return {each: counts.get(each, 0) for each in Total}
