"""What requests for a queue's shovel say, and how it is shown: pure."""

from dataclasses import dataclass
from typing import Final

from mq.model.clock import rfc3339
from mq.model.limits import RECEIVES_MAX
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.model.shovel import (
    SHOVEL_LIMIT_MAX,
    SHOVEL_OLDER_THAN_S_MAX,
    SHOVEL_RATE_MAX,
    Criteria,
    Progress,
)
from mq.protocol.parameters import Query
from mq.protocol.query import Choice, Seconds, Text, Whole

LIMIT: Final = Whole("limit", 1, SHOVEL_LIMIT_MAX, "So many messages at most are moved.")
RATE: Final = Whole("rate", 1, SHOVEL_RATE_MAX, "So many messages a second at most are moved.")
OLDER_THAN: Final = Seconds(
    "older_than", 0, SHOVEL_OLDER_THAN_S_MAX,
    "Those alone that were sidelined at least so many seconds ago.",
)  # fmt: skip
KEY: Final = Text(
    "key", {"type": "string", "minLength": 1},
    "Those alone that have the key, or one that begins so: eu-*. As in a selection's term.",
    example="eu-*",
)  # fmt: skip
PRIORITY: Final = Text(
    "priority", {"type": "string", "pattern": r"^(?:[0-9]|[0-9]?\.\.[0-9]?)$"},
    "Those alone of the priority, or of a range: 5.. or 3..7. As in a selection's term.",
    example="5..",
)  # fmt: skip
MAX_RECEIVES: Final = Whole(
    "max_receives", 0, RECEIVES_MAX,
    "From so many receives on a message stays; 0: no matter how many. Left out, as the queue's "
    "settings say.",
)  # fmt: skip
DRY_RUN: Final = Choice(
    "dry_run", ("true", "false"), "Whether it counts alone, and moves nothing.", "false"
)
PARAMETERS: Final = (LIMIT, RATE, OLDER_THAN, KEY, PRIORITY, MAX_RECEIVES, DRY_RUN)

SCHEDULED: Final = "scheduled"
"""The state of one that has never run, and is to."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request says of a run. `max_receives` None: as the queue's settings say."""

    limit: int | None = None
    rate: int | None = None
    older_than_s: float | None = None
    key: str | None = None
    priority: str | None = None
    max_receives: int | None = None
    dry_run: bool = False

    def criteria(self, settings: QueueSettings) -> Criteria:
        """Raises BadParameter."""
        receives = self.max_receives
        return Criteria.of(
            limit=self.limit,
            older_than_s=self.older_than_s,
            key=self.key,
            priority=self.priority,
            max_receives=settings.shovel_max_receives if receives is None else receives,
        )


@dataclass(frozen=True, slots=True)
class Shown:
    """A queue's shovel: its run that goes on, or the last one (None: there was none), and how often
    it is to run by itself (None: it is not), and when next, milliseconds since the epoch.
    """

    run: Progress | None
    interval_s: float | None
    next_ms: int | None


def wanted_of(query: Query) -> Wanted:
    """What a query says of a run. Raises BadParameter."""
    return Wanted(
        LIMIT.of(query),
        RATE.of(query),
        OLDER_THAN.of(query),
        KEY.of(query),
        PRIORITY.of(query),
        MAX_RECEIVES.of(query),
        DRY_RUN.of(query) == "true",
    )


def progress(name: QueueName, shown: Shown) -> dict[str, object]:
    """How a queue's shovel stands."""
    schedule = {
        "interval_s": shown.interval_s,
        "next": None if shown.next_ms is None else rfc3339(shown.next_ms),
    }
    if shown.run is None:
        return {"queue": name.text, "state": SCHEDULED, **schedule}
    return {**shown.run.as_json(), **schedule}
