"""What became of every message: published, and delivered how often, by number."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Account:
    """Of one queue. `published`: acknowledged to a publisher, or committed by a job; `perhaps`: the
    publisher was not told. `fetched` counts deliveries over HTTP, `written` rows of Parquet.
    """

    published: set[int] = field(default_factory=set)
    perhaps: set[int] = field(default_factory=set)
    fetched: Counter[int] = field(default_factory=Counter)
    written: Counter[int] = field(default_factory=Counter)

    @property
    def delivered(self) -> Counter[int]:
        return self.fetched + self.written

    @property
    def twice(self) -> set[int]:
        """What was delivered more often than once."""
        return {number for number, count in self.delivered.items() if count > 1}

    def assert_balanced(self, may_come_twice: set[int]) -> None:
        """That nothing is lost or made up, and only what may be was delivered again, once."""
        delivered = self.delivered
        lost = self.published - delivered.keys()
        assert not lost, f"lost {_some(lost)}"
        strange = delivered.keys() - self.published - self.perhaps
        assert not strange, f"nobody published {_some(strange)}"
        again = self.twice - may_come_twice
        assert not again, f"delivered again: {_some(again)}"
        often = {number for number, count in delivered.items() if count > 2}
        assert not often, f"delivered more than twice: {_some(often)}"


def _some(numbers: set[int]) -> str:
    return f"{len(numbers)}: {sorted(numbers)[:20]}"
