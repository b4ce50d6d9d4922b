"""Stretches in which messages waited and none was removed: what a reader looks for first."""

from dataclasses import dataclass

from mq.spark.jobs.report.queues import Part

LEAST_STEPS = 3


@dataclass(frozen=True, slots=True)
class Stall:
    """The longest such stretch; seconds since 1970. `peak`: how many messages waited at its end."""

    begin: float
    end: float
    peak: float


def longest_stall(part: Part) -> Stall | None:
    """The longest stretch of steps in which nothing was removed though messages waited at the end
    of each, if there is one of LEAST_STEPS. A queue from which nothing was ever removed has none.
    """
    waiting = {
        round(at): messages
        for at, messages in zip(part.backlog.ends, part.backlog["messages"], strict=True)
        if messages
    }
    removed = part.rates["removed"]
    if not any(removed):
        return None
    best: Stall | None = None
    begun: int | None = None
    for index, (value, end) in enumerate(zip(removed, part.rates.ends, strict=True)):
        messages = waiting.get(round(end))
        if value != 0 or messages is None:
            begun = None
            continue
        begun = index if begun is None else begun
        begin = part.rates.starts[begun]
        if index - begun + 1 >= LEAST_STEPS and (
            best is None or end - begin > best.end - best.begin
        ):
            best = Stall(begin, end, messages)
    return best
