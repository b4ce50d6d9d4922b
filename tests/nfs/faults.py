"""What an NFS client answers its applications wrongly, by command or by chance: pure decisions.

A lost reply: the server did it, restarted before its answer came, and refused the repetition. A
stale handle: it did nothing. Linux repeats most calls once by itself on ESTALE, so that an
application sees it only where it came twice; an fsync's it sees at once.
"""

import errno
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# What the repetition of a call finds that was done already.
LOST_REPLIES = {
    "rename": errno.ENOENT,
    "unlink": errno.ENOENT,
    "rmdir": errno.ENOENT,
    "link": errno.EEXIST,
    "mkdir": errno.EEXIST,
}
# By chance; how often in a row, so that an application sees it. Each handle is stale once.
STALE_CALLS = {"open": 2, "rename": 2, "fsync": 1}


@dataclass
class Fault:
    """One wrong answer: to this call, on a path with this in it."""

    call: str
    code: int
    where: str = ""
    times: int = 1
    """Negative: always."""
    done: bool = False
    """Whether the call is made all the same."""


@dataclass
class Rates:
    """How many of the calls are answered wrongly; the same calls and seed, the same answers."""

    lost: float = 0.0
    stale: float = 0.0
    seed: int = 0


@dataclass
class Faults:
    """Which call is answered how."""

    armed: list[Fault] = field(default_factory=list)
    rates: Rates = field(default_factory=Rates)
    chance: random.Random = field(default_factory=random.Random)
    hits: "Counter[str]" = field(default_factory=Counter)
    """How often which was answered wrongly, such as `lost rename`."""

    _stale: dict[tuple[str, ...], int] = field(default_factory=dict)

    def arm(self, **fault: Any) -> None:
        self.armed.append(Fault(**fault))

    def at_rates(self, **rates: Any) -> None:
        """From now on; nothing by chance without any."""
        self.rates = Rates(**rates)
        self.chance = random.Random(self.rates.seed)

    def heal(self) -> None:
        self.armed.clear()
        self.rates = Rates()

    def next(self, call: str, *paths: str) -> Fault | None:
        """The fault of this call, if it has one."""
        for fault in self.armed:
            if fault.call == call and fault.times and any(fault.where in path for path in paths):
                fault.times -= 1
                return self._hit(fault)
        draw = self.chance.random()
        if call in LOST_REPLIES and draw < self.rates.lost:
            return self._hit(Fault(call, LOST_REPLIES[call], done=True))
        if call in STALE_CALLS and draw > 1 - self.rates.stale:
            self._stale.setdefault((call, *paths), STALE_CALLS[call])
        if self.rates.stale and self._stale.get((call, *paths), 0) > 0:
            self._stale[call, *paths] -= 1
            return self._hit(Fault(call, errno.ESTALE))
        return None

    def _hit(self, fault: Fault) -> Fault:
        self.hits[f"{'lost' if fault.done else errno.errorcode[fault.code]} {fault.call}"] += 1
        return fault
