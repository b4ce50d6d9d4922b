"""The steps that a history's figures are of: spans of time of one length, in UTC. Pure."""

from dataclasses import dataclass
from typing import Final

from mq.model.errors import MqError

STEPS_MAX: Final = 10_000
"""More than anybody looks at, and than a report can show."""
_STEPS_WANTED: Final = 200
_WEEK_S: Final = 7 * 24 * 3600
# What people divide time by; beyond that, whole weeks.
_LENGTHS_S: Final = (
    60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 2 * 86_400, _WEEK_S,
)  # fmt: skip


@dataclass(eq=False)
class BadSpan(MqError):
    """A span of time that cannot be divided so."""

    why: str

    def __str__(self) -> str:
        return f"no history: {self.why}"


@dataclass(frozen=True, slots=True)
class Steps:
    """`count` steps from `start_ms` on, milliseconds since the epoch; a whole number of steps since
    the epoch, so that two histories have the same. The last one ends at `until_ms`, whatever its
    length.
    """

    start_ms: int
    step_ms: int
    count: int
    until_ms: int

    @property
    def step_s(self) -> int:
        """How long each is, in seconds."""
        return self.step_ms // 1000

    def start(self, number: int) -> int:
        """When it begins."""
        return self.start_ms + number * self.step_ms

    def end(self, number: int) -> int:
        """When it is over: the first millisecond that is not of it."""
        return min(self.start(number + 1), self.until_ms)


def steps_between(since_ms: int, until_ms: int, step_s: int | None = None) -> Steps:
    """The steps of [since_ms, until_ms). Without a length of `step_s` it is the shortest of those
    that people divide time by, a minute to whole weeks, that makes 200 steps at most.

    Raises BadSpan when there is nothing between the two, or when there were too many steps.
    """
    if since_ms >= until_ms:
        raise BadSpan("it would end before it begins")
    if step_s is not None and step_s < 1:
        raise BadSpan("a step is a second at least")
    steps = _divided(since_ms, until_ms, step_s or _length_s(since_ms, until_ms))
    if steps.count > STEPS_MAX:
        raise BadSpan(f"{steps.count} steps of {step_s} s; {STEPS_MAX} at most")
    return steps


def _length_s(since_ms: int, until_ms: int) -> int:
    for length_s in _LENGTHS_S:
        if _divided(since_ms, until_ms, length_s).count <= _STEPS_WANTED:
            return length_s
    weeks = 2
    while _divided(since_ms, until_ms, weeks * _WEEK_S).count > _STEPS_WANTED:
        weeks *= 2
    return weeks * _WEEK_S


def _divided(since_ms: int, until_ms: int, step_s: int) -> Steps:
    step_ms = step_s * 1000
    start_ms = since_ms // step_ms * step_ms
    return Steps(start_ms, step_ms, -(-(until_ms - start_ms) // step_ms), until_ms)
