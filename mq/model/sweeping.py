"""Which messages of delay/ are overdue, so that they go to the sideline: decided from times alone.

Times are milliseconds since the epoch.
"""

from dataclasses import dataclass

from mq.model.settings import QueueSettings


@dataclass(frozen=True, slots=True)
class Passing:
    """What redelivery has passed over without a gap. `since_ms`: when its first full pass of those
    ended. `latest_ms`: when the last one that has ended began; whatever was due by then has been
    tried since.
    """

    since_ms: int
    latest_ms: int


def overdue_after_s(settings: QueueSettings | None, is_sideline: bool) -> float:
    """How long a message waits, by the settings of its queue, or of the queue whose sideline it
    lies in: the more careful rule, as a shovel comes by there. None: nobody can tell the settings,
    and the defaults count.
    """
    told = settings or QueueSettings()
    return max(told.sweep_after_s, 2 * told.shovel_interval_s if is_sideline else 0)


def is_overdue(due_ms: int, came_ms: int, after_s: float, passing: Passing | None) -> bool:
    """Whether a message of delay/, due then, whose file was changed last at `came_ms`, is one that
    redelivery cannot bring back: it has tried for so long, without a gap. An outage, or a mover
    that was stopped, is no fault of any message's. None: there is no such time.
    """
    if passing is None:
        return False
    waits_since_ms = max(due_ms, came_ms, passing.since_ms)
    return passing.latest_ms - waits_since_ms >= after_s * 1000
