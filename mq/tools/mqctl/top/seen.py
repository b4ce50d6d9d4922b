"""What is known of one queue: the latest answer, and the rates of each process that answered."""

from dataclasses import dataclass, field

from mq.client.values import Description
from mq.tools.mqctl.top.limits import PROCESSES_MAX, RATE_KEPT_S
from mq.tools.mqctl.top.rates import Rates, Totals, rates_between


@dataclass(slots=True)
class Seen:
    """A queue as it was seen last. `asked_s`: by the steady clock of who asks, at the answer."""

    latest: Description
    asked_s: float
    _totals: dict[int, Totals] = field(default_factory=dict)
    _rates: dict[int, tuple[Rates, float]] = field(default_factory=dict)

    @classmethod
    def first(cls, said: Description, asked_s: float) -> "Seen":
        """A queue that was never seen before: its rates are not known yet."""
        seen = cls(said, asked_s)
        seen.take(said, asked_s)
        return seen

    def take(self, said: Description, asked_s: float) -> None:
        """The next answer. Of several processes (`--processes`) any may have given it, and each
        counts for itself: an answer is compared with the last one of the same process.
        """
        self.latest, self.asked_s = said, asked_s
        index, of = said.process.get("index", 0), self.processes
        now = Totals.of(said)
        before = self._totals.get(index)
        if before is None or not before.is_before(now):
            self._totals[index] = now
            self._rates.pop(index, None)
        elif (rates := rates_between(before, now)) is not None:
            self._totals[index] = now
            self._rates[index] = (rates, asked_s)
        for gone in [each for each in self._totals if each >= of and each != index]:
            del self._totals[gone]
            self._rates.pop(gone, None)

    @property
    def processes(self) -> int:
        """How many processes answer at this address, each for itself."""
        return min(max(self.latest.process.get("of", 1), 1), PROCESSES_MAX)

    def processes_counted(self) -> int:
        """Of how many of them the rates are known."""
        return len(self._fresh())

    def rates(self) -> Rates | None:
        """Of all processes that answered twice lately, together; None: of none."""
        fresh = self._fresh()
        return sum(fresh, Rates()) if fresh else None

    def _fresh(self) -> list[Rates]:
        """The last known ones: those of the latest answer, and others that are not too old beside
        it.
        """
        kept_from_s = self.asked_s - RATE_KEPT_S
        return [rates for rates, asked_s in self._rates.values() if asked_s >= kept_from_s]
