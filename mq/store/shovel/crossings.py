"""Between which queues messages are being moved: what each look for a message's other places asks.

A message that a shovel took from one queue to another may lie in both after a crash, or come back
to the one that it left, until both folders were flushed. Who moves messages on must know of that:
FORMAT.md, "Crossings".
"""

import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mq.model.clock import Clock
from mq.model.errors import BadName
from mq.model.limits import FOLDER_MTIME_TRUST_S
from mq.model.names import QueueName
from mq.store.disk.files import Files, is_gone
from mq.store.format.crossings import Crossing
from mq.store.format.layout import Layout


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a listing found, and of which mtime the folder was; -1: it may have changed since."""

    mtime_ns: int
    others: Mapping[QueueName, tuple[QueueName, ...]] = field(default_factory=dict)


_NOTHING: Final = _Seen(-1)


class Crossings:
    """The shovels' runs of a root that take messages from one queue to another, for one process: a
    look costs one stat while crossings/ stays as it is, or is not there. Threads share it, without
    a lock: each believes only what it has seen itself.
    """

    def __init__(self, layout: Layout, files: Files, clock: Clock) -> None:
        self._layout = layout
        self._files = files
        self._clock = clock
        self._seen = _NOTHING

    def of(self, queue: QueueName) -> tuple[QueueName, ...]:
        """The other queues that messages of this one may have come from, or gone to, by a run, and
        from there by another; each with its sideline, or the queue whose sideline it is. None where
        no run has to do with the queue. Raises OSError.
        """
        return self._look().others.get(queue, ())

    def _look(self) -> _Seen:
        status = self._files.status(self._layout.crossings)
        # Nobody has a run in what a link leads to: `held` refuses it.
        if status is None or not stat.S_ISDIR(status.st_mode):
            return _NOTHING
        if (seen := self._seen).mtime_ns == status.st_mtime_ns:
            return seen
        settled_ms = self._clock.now_ms() - FOLDER_MTIME_TRUST_S * 1000
        is_settled = status.st_mtime_ns // 1_000_000 <= settled_ms
        others = _others(crossings_in(self._layout, self._files))
        seen = self._seen = _Seen(status.st_mtime_ns if is_settled else -1, others)
        return seen


def crossings_in(layout: Layout, files: Files) -> list[Crossing]:
    """The runs that are not over; foreign names are left out. Raises OSError but where crossings/
    is gone.
    """
    found = []
    try:
        for entry in files.entries(layout.crossings):
            try:
                found.append(Crossing.parse(entry.name))
            except BadName:
                continue
    except OSError as error:
        if not is_gone(error):
            raise
    return sorted(found)


def _others(crossings: Iterable[Crossing]) -> dict[QueueName, tuple[QueueName, ...]]:
    """Of each queue all that are joined to it, over however many runs and sidelines."""
    joined: dict[QueueName, set[QueueName]] = {}
    for crossing in crossings:
        both = (crossing.source, crossing.target)
        together = {*both, *(each.counterpart() for each in both)}
        for queue in tuple(together):
            together |= joined.get(queue, set())
        for queue in together:
            joined[queue] = together
    return {queue: tuple(sorted(all_of - {queue})) for queue, all_of in joined.items()}
