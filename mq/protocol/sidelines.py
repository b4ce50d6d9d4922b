"""Requests that sideline a message or run a shovel, and their answers. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mq.model.clock import rfc3339
from mq.model.failure import Failure
from mq.model.limits import RECEIVES_MAX
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.model.shovel import (
    SHOVEL_IDS_MAX,
    SHOVEL_LIMIT_MAX,
    SHOVEL_OLDER_THAN_S_MAX,
    SHOVEL_RATE_MAX,
    Criteria,
    Progress,
)
from mq.protocol.bodies import failure_of
from mq.protocol.parameters import Query
from mq.protocol.query import Choice, Ids, Seconds, Text, Whole

_REASONS: Final = {reason.name.lower(): reason for reason in (Reason.REJECTED, Reason.EXCEPTION)}

REASON: Final = Choice(
    "reason", tuple(_REASONS), "Whether the consumer rejects the message or failed on it.",
    "rejected",
)  # fmt: skip


def reason_of(query: Query) -> Reason:
    """The reason of a request. Raises BadParameter."""
    return _REASONS[REASON.of(query) or "rejected"]


def why_of(said: Mapping[str, Any], *, is_sidelined: bool) -> tuple[Reason, Failure | None]:
    """Why a message is sidelined or released, as the `reason` of an object says: a sidelined one's
    also by a word, `rejected` or `exception`. Raises BadBody.
    """
    why = said.get("reason")
    if is_sidelined and isinstance(why, str) and why in _REASONS:
        return _REASONS[why], None
    failure = failure_of(why) if "reason" in said else None
    return Reason.EXCEPTION if failure is not None and failure.type else Reason.REJECTED, failure


def sidelined(message_id: MessageId, into: QueueName, stamp: Stamp) -> dict[str, object]:
    """Where a message is now, with its stamp there."""
    return {
        "id": message_id.text,
        "queue": into.text,
        "receives": stamp.receives,
        "reason": Reason(stamp.reason).name.lower(),
    }


# Shovels

ID: Final = Ids("id", SHOVEL_IDS_MAX, "Only the messages with these ids, a pack whole.")
LIMIT: Final = Whole(
    "limit", 1, SHOVEL_LIMIT_MAX, "Move at most this many messages, the oldest first."
)
RATE: Final = Whole("rate", 1, SHOVEL_RATE_MAX, "Move at most this many messages a second.")
OLDER_THAN: Final = Seconds(
    "older_than", 0, SHOVEL_OLDER_THAN_S_MAX,
    "Only messages sidelined at least this long ago.",
)  # fmt: skip
KEY: Final = Text(
    "key", {"type": "string", "minLength": 1},
    "Only messages with this key, or prefix of a key: `eu-*`.",
    example="eu-*",
)  # fmt: skip
PRIORITY: Final = Text(
    "priority", {"type": "string", "pattern": r"^(?:[0-9]|[0-9]?\.\.[0-9]?)$"},
    "Only messages of this priority or range: `5..`, `3..7`.",
    example="5..",
)  # fmt: skip
MAX_RECEIVES: Final = Whole(
    "max_receives", 0, RECEIVES_MAX,
    "Messages with at least this many receives stay (0: none). Default: the queue's.",
)  # fmt: skip
DRY_RUN: Final = Choice(
    "dry_run", ("true", "false"), "Count the messages without moving them.", "false"
)
PARAMETERS: Final = (ID, LIMIT, RATE, OLDER_THAN, KEY, PRIORITY, MAX_RECEIVES, DRY_RUN)

SCHEDULED: Final = "scheduled"
"""The state of a shovel that has never run and is scheduled."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requested run. `max_receives` None: the queue's setting. `into`, `renews`: see
    `mq.store.shovel.run.Asked`; no query asks for them.
    """

    limit: int | None = None
    rate: int | None = None
    older_than_s: float | None = None
    key: str | None = None
    priority: str | None = None
    max_receives: int | None = None
    dry_run: bool = False
    into: QueueName | None = None
    renews: bool = False
    ids: frozenset[MessageId] = frozenset()

    def criteria(self, settings: QueueSettings) -> Criteria:
        """Raises BadParameter."""
        receives = self.max_receives
        return Criteria.of(
            limit=self.limit,
            older_than_s=self.older_than_s,
            key=self.key,
            priority=self.priority,
            max_receives=settings.shovel_max_receives if receives is None else receives,
            ids=self.ids,
        )


@dataclass(frozen=True, slots=True)
class Shown:
    """A queue's shovel: its current or last run (None: there was none), its interval (None: it is
    not scheduled), the next run in milliseconds since the epoch, and what requests began before.
    """

    run: Progress | None
    interval_s: float | None
    next_ms: int | None
    earlier: Sequence[Progress] = ()


def wanted_of(query: Query) -> Wanted:
    """The run that a query asks for. Raises BadParameter."""
    return Wanted(
        LIMIT.of(query),
        RATE.of(query),
        OLDER_THAN.of(query),
        KEY.of(query),
        PRIORITY.of(query),
        MAX_RECEIVES.of(query),
        DRY_RUN.of(query) == "true",
        ids=ID.of(query),
    )


def progress(name: QueueName, shown: Shown) -> dict[str, object]:
    schedule = {
        "interval_s": shown.interval_s,
        "next": None if shown.next_ms is None else rfc3339(shown.next_ms),
    }
    if shown.run is None:
        return {"queue": name.text, "state": SCHEDULED, **schedule}
    return {**shown.run.as_json(), **schedule}
