"""A queue's selections: each has its own claimer, so that messages that only one selection skips
delay no other.
"""

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

from mq.broker.claims import Claimer
from mq.broker.waiting import Lines, Waiter
from mq.model.errors import TooManySelections
from mq.model.selection import Selection

# Selections that a queue's consumers have at a time, and how long an unused one is remembered.
SELECTIONS_PER_QUEUE_MAX: Final = 64
SELECTION_IDLE_S: Final = 60.0


class Selected(Protocol):
    """The queue that has them."""

    lines: Lines

    def new_claimer(self, selection: Selection) -> Claimer: ...


class Selections:
    """The selections of a queue's waiters in this process, at most SELECTIONS_PER_QUEUE_MAX. An
    unused one is dropped after a while, or at once when another one needs its place. Use it on the
    event loop's thread.
    """

    def __init__(self, queue: Selected) -> None:
        self._queue = queue
        self._claimers: dict[Selection, Claimer] = {}
        """The one that was used last comes last."""
        self._used_since_tick: set[Selection] = set()
        self._consumers: dict[Selection, set[Waiter]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._claimers)

    def __iter__(self) -> Iterator[tuple[Selection, Claimer]]:
        return iter(self._claimers.items())

    def find(self, selection: Selection) -> Claimer | None:
        """The claimer of a selection; None if there is none."""
        return self._claimers.get(selection)

    def use(self, selection: Selection) -> Claimer:
        """The claimer of a selection, made if it is missing. Raises TooManySelections when all
        others are in use.
        """
        claimer = self._claimers.pop(selection, None)
        if claimer is None:
            self._make_room()
            claimer = self._queue.new_claimer(selection)
        self._claimers[selection] = claimer
        self._used_since_tick.add(selection)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SELECTION_IDLE_S, self._tick)
        return claimer

    def join(self, waiter: Waiter) -> None:
        """Keeps the consumer's selection until it leaves. Raises TooManySelections."""
        if waiter.selection is not None:
            self.use(waiter.selection)
            self._consumers.setdefault(waiter.selection, set()).add(waiter)

    def leave(self, waiter: Waiter) -> None:
        selection = waiter.selection
        if selection is not None and (those := self._consumers.get(selection)) is not None:
            those.discard(waiter)
            if not those:
                del self._consumers[selection]

    def close(self) -> None:
        """Forgets all selections, as the queue is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for selection in list(self._claimers):
            self._drop(selection)

    def _make_room(self) -> None:
        if len(self._claimers) < SELECTIONS_PER_QUEUE_MAX:
            return
        for selection in self._claimers:
            if not self._is_used(selection):
                self._drop(selection)
                return
        raise TooManySelections(SELECTIONS_PER_QUEUE_MAX)

    def _is_used(self, selection: Selection) -> bool:
        stands = selection in self._consumers or selection in self._queue.lines.selections
        return stands or bool(self._claimers[selection].pending())

    def _drop(self, selection: Selection) -> None:
        self._used_since_tick.discard(selection)
        self._claimers.pop(selection).close()

    def _tick(self) -> None:
        self._timer = None
        for selection in list(self._claimers):
            if selection not in self._used_since_tick and not self._is_used(selection):
                self._drop(selection)
        self._used_since_tick.clear()
        if self._claimers:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SELECTION_IDLE_S, self._tick)
