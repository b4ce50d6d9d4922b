"""The selections that one queue's consumers have in one process, each with fetches of its own: what
nobody of a selection takes is not among what is known for it, and so in nobody's way.
"""

import asyncio
from collections.abc import Callable, Iterator

from mq.broker.fetching import Fetching
from mq.broker.interest import Interest
from mq.model.errors import TooManySelections
from mq.model.limits import SELECTION_IDLE_S, SELECTIONS_PER_QUEUE_MAX
from mq.model.selection import Selection


class Selections:
    """So many at a time. One that nobody uses is dropped after a while, or at once when another
    needs its place. Lives on the event loop's thread.

    `begin` makes the fetches of a selection; `ended` hears of one that was dropped.
    """

    def __init__(
        self, begin: Callable[[Selection], Fetching], ended: Callable[[Selection], None]
    ) -> None:
        self._begin = begin
        self._ended = ended
        self._fetchings: dict[Selection, Fetching] = {}
        """The one that was used last comes last."""
        self._used_since_tick: set[Selection] = set()
        self._interests: dict[Selection, set[Interest]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._fetchings)

    def __iter__(self) -> Iterator[tuple[Selection, Fetching]]:
        return iter(self._fetchings.items())

    def find(self, selection: Selection) -> Fetching | None:
        """The fetches of a selection, where there are any."""
        return self._fetchings.get(selection)

    def use(self, selection: Selection) -> Fetching:
        """The fetches of a selection, from here on. Raises TooManySelections when all others are in
        use.
        """
        fetching = self._fetchings.pop(selection, None)
        if fetching is None:
            self._make_room()
            fetching = self._begin(selection)
        self._fetchings[selection] = fetching
        self._used_since_tick.add(selection)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SELECTION_IDLE_S, self._tick)
        return fetching

    def join(self, interest: Interest) -> None:
        """A consumer comes, and has its selection until it goes. Raises TooManySelections."""
        if interest.selection is not None:
            self.use(interest.selection)
            self._interests.setdefault(interest.selection, set()).add(interest)

    def leave(self, interest: Interest) -> None:
        """A consumer goes."""
        selection = interest.selection
        if selection is not None and (held := self._interests.get(selection)) is not None:
            held.discard(interest)
            if not held:
                del self._interests[selection]

    def close(self) -> None:
        """The queue is gone: nothing is remembered of it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for selection in list(self._fetchings):
            self._drop(selection)

    def _make_room(self) -> None:
        if len(self._fetchings) < SELECTIONS_PER_QUEUE_MAX:
            return
        for selection in self._fetchings:
            if not self._is_used(selection):
                self._drop(selection)
                return
        raise TooManySelections(SELECTIONS_PER_QUEUE_MAX)

    def _is_used(self, selection: Selection) -> bool:
        fetching = self._fetchings[selection]
        return selection in self._interests or bool(len(fetching.waiters) or fetching.tasks())

    def _drop(self, selection: Selection) -> None:
        self._used_since_tick.discard(selection)
        self._fetchings.pop(selection).close()
        self._ended(selection)

    def _tick(self) -> None:
        self._timer = None
        for selection in list(self._fetchings):
            if selection not in self._used_since_tick and not self._is_used(selection):
                self._drop(selection)
        self._used_since_tick.clear()
        if self._fetchings:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SELECTION_IDLE_S, self._tick)
