"""When a queue's shovel is due.

Floor 0, pure.
"""

from mq.settings import QueueSettings
from mq.shovel_limits import SHOVEL_SCHEDULED_S_MIN


def interval_s(settings: QueueSettings) -> float | None:
    """How often it runs; None: only when somebody asks."""
    if settings.shovel_interval_s <= 0:
        return None
    return max(settings.shovel_interval_s, SHOVEL_SCHEDULED_S_MIN)


def due_in_s(every_s: float, since_ms: int, now_ms: int) -> float:
    """In how many seconds it is due, when the last run of the schedule ended at `since_ms`, or,
    where there was none, the settings are of then. Where the clock was set back that may have been
    later than now: then it is due after one interval.
    """
    return max(0.0, every_s - max(0, now_ms - since_ms) / 1000)
