"""Writes a process's counts since its last write to a new file, which never changes.

Nothing is flushed: a power cut loses about the last half minute, and a killed process loses its
unwritten counts. PROTOCOL.md, "write totals", has the steps and what a crash after each leaves.
"""

import contextlib
from typing import Final

from mq.model.log import logger
from mq.store.core.root import Root
from mq.store.disk.replacing import replace_hint
from mq.store.format.totals import (
    counts_name,
    is_counts,
    new_totals_file,
    print_counts,
    totals_file,
)
from mq.store.format.walk import entries_if_there

# The limit of files that mq-mover has not folded. At the limit, processes write only when they end.
TOTALS_FILES_MAX: Final = 300

_log = logger("mq.totals")


def write_totals(root: Root, at_end: bool = False) -> bool:
    """Writes this process's counts. Returns whether it did. Keeps counts that cannot be written for
    later. `at_end`: the process ends. Blocking. Does not raise storage errors. Durable on return:
    no.
    """
    tally, layout = root.totals, root.layout
    with tally.writing:
        rows = tally.take()
        if not rows:
            return False
        is_written = False
        try:
            if at_end or not _is_full(root):
                name = counts_name(tally.name, tally.number + 1)
                with contextlib.suppress(FileExistsError):
                    root.files.mkdir(layout.totals)
                written, path = new_totals_file(layout, name), totals_file(layout, name)
                replace_hint(root.files, written, path, print_counts(rows))
                tally.number += 1
                is_written, tally.is_failing = True, False
        except OSError as error:
            if not tally.is_failing:
                fields = {"error": repr(error)}
                _log.warning("could not write totals yet", extra={"fields": fields})
            tally.is_failing = True
        finally:
            if not is_written:
                tally.give_back(rows)
    return is_written


def _is_full(root: Root) -> bool:
    names = (entry.name for entry in entries_if_there(root.files, root.layout.totals))
    return sum(map(is_counts, names)) >= TOTALS_FILES_MAX
