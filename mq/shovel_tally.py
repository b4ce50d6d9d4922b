"""What the workers of a shovel's run share: how many messages may still be moved, what became of
those that were looked at, and how the run stands.

Floor 0, pure.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from mq.shovel_progress import Progress, RunState


class Tally:
    """Of one run. One thread at a time: whoever uses it holds the run's lock."""

    def __init__(self, progress: Progress, limit: int | None) -> None:
        self._progress = progress
        self._left = limit
        self._in_hand = 0
        self._stayed: Counter[str] = Counter()

    @property
    def progress(self) -> Progress:
        """As of now."""
        return replace(self._progress, stayed=dict(self._stayed))

    @property
    def is_anything_in_hand(self) -> bool:
        """Whether some are being moved at this moment."""
        return self._in_hand > 0

    def room(self, most: int) -> int:
        """How many may be taken in hand, of `most`."""
        return most if self._left is None else min(most, self._left)

    def takes(self, count: int) -> None:
        """So many are in hand."""
        self._in_hand += count
        if self._left is not None:
            self._left -= count

    def gives_back(self, count: int) -> None:
        """So many are not in hand any more, and were not moved."""
        self._in_hand -= count
        if self._left is not None:
            self._left += count

    def settles(self, moved: int, stayed: Mapping[str, int], lost: int, failed: int) -> None:
        """What became of some that were in hand; `lost`: others had them meanwhile."""
        stay = sum(stayed.values())
        self._in_hand -= moved
        self.gives_back(stay + lost + failed)
        self._stayed.update(stayed)
        was = self._progress
        self._progress = replace(
            was,
            looked_at=was.looked_at + moved + stay + lost,
            moved=was.moved + moved,
            failed=was.failed + failed,
        )

    def stands(self, state: RunState, error: str | None = None) -> None:
        """How the run stands from here on; `error` None: the last one stays."""
        self._progress = replace(self._progress, state=state, error=error or self._progress.error)

    def ends(self, state: RunState, ms: int) -> None:
        """How it ended."""
        self._progress = self._progress.ended(state, ms)
