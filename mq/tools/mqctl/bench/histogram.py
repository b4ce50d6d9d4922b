"""Latencies, counted in buckets: a bounded size however many there are. Pure."""

import math
from typing import Final

# Two neighbours are within a hundredth of each other: that is how exact a percentile is.
_STEP: Final = math.log(1.01)
_LEAST_S: Final = 1e-6
_BUCKETS: Final = 2100


class Histogram:
    """Counts of durations. `least_s` and `most_s` are exact, the rest within 1 %."""

    __slots__ = ("_counts", "_sum_s", "count", "least_s", "most_s")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._sum_s = 0.0
        self.count = 0
        self.least_s = math.inf
        self.most_s = 0.0

    def add(self, duration_s: float) -> None:
        """Counts a duration."""
        place = 0
        if duration_s > _LEAST_S:
            place = min(math.ceil(math.log(duration_s / _LEAST_S) / _STEP), _BUCKETS)
        self._counts[place] = self._counts.get(place, 0) + 1
        self.count += 1
        self._sum_s += duration_s
        self.least_s = min(self.least_s, duration_s)
        self.most_s = max(self.most_s, duration_s)

    def percentile_s(self, percent: float) -> float | None:
        """What so many percent took at most, to the upper end of its bucket; None of none."""
        if not self.count:
            return None
        rank = max(1, math.ceil(self.count * percent / 100))
        for place in sorted(self._counts):
            rank -= self._counts[place]
            if rank <= 0:
                upper_s = _LEAST_S * math.exp(place * _STEP)
                return min(max(upper_s, self.least_s), self.most_s)
        return self.most_s

    @property
    def mean_s(self) -> float | None:
        """The mean; None of none."""
        return self._sum_s / self.count if self.count else None
