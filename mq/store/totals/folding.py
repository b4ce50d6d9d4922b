"""Folds totals: adds the counts of processes to the sums of queues, and removes their files.

Sums name the files that are part of them until those are gone, so a crash in between counts nothing
twice. PROTOCOL.md, "fold totals", has the steps and what a crash after each leaves.
"""

import contextlib
from collections.abc import Iterable
from typing import Final

from mq.model.errors import BadName, Busy
from mq.model.names import QueueName
from mq.model.totals import Row, summed
from mq.store.core.root import Root, sweep_unfinished, unlink_if_there
from mq.store.core.standing import queue_exists
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Steps
from mq.store.format.totals import (
    is_counts,
    new_totals_file,
    parse_folded,
    parse_totals,
    print_sums,
    sums_name,
    totals_file,
    totals_lock,
)
from mq.store.format.walk import entries_if_there
from mq.store.totals.ledger import read_totals_file

# The limit of files that one call folds.
TOTALS_FOLDED_MAX: Final = 1000
# How long a deleted queue's row stays: another process may still write its counts.
TOTALS_DELETED_KEPT_S: Final = 3600.0


def fold_totals(root: Root) -> Steps[int]:
    """Adds the files' counts to the sums, and removes the files. Returns their number. May block to
    check whether queues exist. Raises Busy, OSError. Durable on return: the sums; a file that comes
    back is already part of them.
    """
    layout, files = root.layout, root.files
    folder = layout.totals
    if not _listed(root):
        sweep_unfinished(root, folder)
        return 0
    descriptor = files.open_kept(totals_lock(layout))
    try:
        if not files.lock(descriptor):
            raise Busy("another process folds totals")
        there = _listed(root)
        found = _read(root, there[:TOTALS_FOLDED_MAX])
        for sums in sorted({sums_name(queue) for rows in found.values() for queue in rows}):
            before = read_totals_file(root, sums) or b""
            folded = {*found, *parse_folded(before).intersection(there)}
            after = print_sums(_with(root, sums, before, found), folded)
            written, path = new_totals_file(layout, sums), totals_file(layout, sums)
            yield from replace_file(files, written, path, after)
        for name in found:
            unlink_if_there(files, totals_file(layout, name))
        sweep_unfinished(root, folder)
    finally:
        files.close(descriptor)
    return len(found)


def _listed(root: Root) -> list[str]:
    return sorted(
        entry.name
        for entry in entries_if_there(root.files, root.layout.totals)
        if is_counts(entry.name) and entry.is_file(follow_symlinks=False)
    )


def _read(root: Root, names: Iterable[str]) -> dict[str, dict[str, Row]]:
    """The counts of the files; one that cannot be read stays for a later call."""
    found = {}
    for name in names:
        with contextlib.suppress(OSError):
            found[name] = parse_totals(read_totals_file(root, name) or b"")
    return found


def _with(root: Root, sums: str, before: bytes, found: dict[str, dict[str, Row]]) -> dict[str, Row]:
    """The rows of the sums with those of files that were not part of them."""
    folded = parse_folded(before)
    rows: dict[str, list[Row]] = {queue: [row] for queue, row in parse_totals(before).items()}
    for name, of in found.items():
        if name not in folded:
            for queue, row in of.items():
                if sums_name(queue) == sums:
                    rows.setdefault(queue, []).append(row)
    total = {queue: summed(each) for queue, each in rows.items()}
    return {queue: row for queue, row in total.items() if not _is_over(root, queue, row)}


def _is_over(root: Root, queue: str, row: Row) -> bool:
    """Whether the queue was deleted a while ago. A queue not known to be deleted stays."""
    if not row.began_ms or not root.has_aged(row.began_ms, TOTALS_DELETED_KEPT_S):
        return False
    try:
        return not queue_exists(root, QueueName.parse(queue))
    except BadName:
        return True
