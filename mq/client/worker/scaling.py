"""How many messages a worker handles at a time. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mq.model.worker_limits import CONSUMERS_MAX


@dataclass(frozen=True, slots=True)
class Scale:
    """What the worker was made with (`own`), what its queues' settings say together (`said`, 0:
    nothing), and by how much it was scaled since (`difference`).
    """

    own: int
    said: int = 0
    difference: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.own <= CONSUMERS_MAX:
            raise ValueError(f"consumers is a whole number from 1 to {CONSUMERS_MAX}")

    @property
    def total(self) -> int:
        """So many, 1 to 100."""
        return _bounded(self._base + self.difference)

    def scaled(self, by: int) -> "Scale":
        """By so many more, or fewer. Only what that changes is remembered: what went beyond a bound
        need not be taken back first.
        """
        return replace(self, difference=_bounded(self.total + by) - self._base)

    def following(self, settings: Iterable[int]) -> "Scale":
        """With what its queues say now, each once; 0 says nothing."""
        return replace(self, said=sum(settings))

    @property
    def _base(self) -> int:
        return _bounded(self.said or self.own)


def _bounded(count: int) -> int:
    return min(max(count, 1), CONSUMERS_MAX)
