"""Totals that are counted and folded, in a script like those of `scripts.py`: after any cut they
are no less than what was folded, and no more than what was counted.
"""

from collections.abc import Callable

from crash.registry import script
from crash.stage import ORDERS, Stage

from mq.model.names import QueueName
from mq.model.totals import Total
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.totals.folding import fold_totals
from mq.store.totals.writing import write_totals

COUNTED = "counted"
"""A queue of which nothing else is counted."""


def _count(root: Root, flusher: FsyncFlusher) -> None:
    root.totals.add(QueueName(COUNTED), Total.PUBLISHED)
    assert write_totals(root)


def _fold(root: Root, flusher: FsyncFlusher) -> None:
    assert run_alone(fold_totals(root), flusher) == 1


async def _play(on: Stage, *works: Callable[[Root, FsyncFlusher], None], times: int) -> None:
    await on.begin(ORDERS)
    for number in range(1, times + 1):
        on.disk.mark("count_asked", queue=COUNTED)
        for work in works:
            await on.other(work)
        on.disk.mark("folded", queue=COUNTED, count=number)


@script()
async def fold_totals_at_first(on: Stage) -> None:
    """By the process that made their folder, and has flushed the root's at its start, before."""

    def both(root: Root, flusher: FsyncFlusher) -> None:
        _count(root, flusher)
        _fold(root, flusher)

    await _play(on, both, times=1)


@script()
async def fold_totals_again(on: Stage) -> None:
    await _play(on, _count, _fold, times=2)
