"""How long a message waits over which its handler failed: longer after each delivery. Pure."""

from dataclasses import dataclass

from mq.model.worker_limits import (
    BACKOFF_DOUBLINGS_MAX,
    BACKOFF_FIRST_S,
    BACKOFF_LONGEST_S,
    WORKER_SECONDS_MAX,
)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits in seconds: `first_s` after the first delivery, twice as long after each, at most
    `longest_s`; of each wait, the second half is left to chance, so that what failed together does
    not come back together. Raises ValueError.
    """

    first_s: float = BACKOFF_FIRST_S
    longest_s: float = BACKOFF_LONGEST_S

    def __post_init__(self) -> None:
        if not 0 <= self.first_s <= self.longest_s <= WORKER_SECONDS_MAX:
            raise ValueError(
                f"first_s and longest_s are seconds from 0 to {WORKER_SECONDS_MAX:g}, in this order"
            )

    def delay_s(self, receives: int, chance: float) -> float:
        """The wait of a message that was received so often; `chance` is from 0 to 1."""
        doublings = min(max(receives - 1, 0), BACKOFF_DOUBLINGS_MAX)
        whole_s = min(self.first_s * 2.0**doublings, self.longest_s)
        return whole_s * (1 + chance) / 2
