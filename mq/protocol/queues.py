"""Requests for queues and for members, and how both are listed. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from mq.model.clock import rfc3339
from mq.model.limits import BUCKET_DIGITS_MAX, BUCKET_DIGITS_MIN, SHARDS_MAX
from mq.model.members import Member, leader_of, owner_of
from mq.model.names import QueueName
from mq.model.settings import DIGITS_SETTING, SHARDS_SETTING
from mq.model.trends import Point, Range, Trends
from mq.protocol.query import Choice, Name, Whole

MEMBER_QUEUES_SHOWN_MAX: Final = 100
QUEUES_LISTED_DEFAULT: Final = 100
QUEUES_LISTED_MAX: Final = 1000
TREND_COUNTS: Final = ("published", "fetched", "deleted")
TREND_LEVELS: Final = ("ready", "delayed", "in_flight", "sidelined")

DIGITS: Final = Whole(
    DIGITS_SETTING, BUCKET_DIGITS_MIN, BUCKET_DIGITS_MAX,
    "The hexadecimal digits of an id that share a bucket. Default: 8, or any if the queue exists.",
)  # fmt: skip
SHARDS: Final = Whole(
    SHARDS_SETTING, 1, SHARDS_MAX,
    "The shards of each bucket. Default: 1, or any if the queue exists.",
)  # fmt: skip

COUNT: Final = Whole(
    "count", 1, QUEUES_LISTED_MAX, "The length of the page.", default=QUEUES_LISTED_DEFAULT
)
AFTER: Final = Name("after", "Continue behind this name, whether or not a queue has it.")


def listed(found: Sequence[QueueName], count: int) -> dict[str, object]:
    """A page of at most `count` queues; if `found` has one more there is a next page."""
    page = found[:count]
    return {
        "queues": [{"name": each.text, "sideline": each.is_sideline} for each in page],
        "next": page[-1].text if len(found) > count else None,
    }


SETTINGS_SAY: Final[Mapping[str, str]] = {
    "visibility_s": "The visibility timeout.",
    "priority_default": "The priority of a publish without one.",
    "delay_default_s": "The delay of a publish without `delay` or `at`.",
    "idempotency_s": "The deduplication window of an `Idempotency-Key`.",
    "body_bytes_max": "The largest body.",
    "history": "Records messages' events.",
    "history_kept_s": "How long events are kept.",
    "history_bytes_max": "How much of them is kept.",
    "max_receives": "Deliveries before a message goes to the dead-letter queue. 0: no limit.",
    "message_ttl_s": "The time to live from the publish. 0: for ever.",
    "expired_to": "Where an expired message goes.",
    "expires_at": "When the queue expires. null: never.",
    "expiry_grace_s": "How long an expired queue is kept.",
    "shovel_interval_s": "From a shovel's end to the next one. 0: off.",
    "shovel_concurrency": "A shovel's workers.",
    "shovel_max_receives": "A message with this many receives stays sidelined. 0: none does.",
    "sweep_after_s": "From the due time of a message that cannot come back until it is sidelined.",
    "consumers": "Messages that a worker handles at a time; mq itself ignores it. 0: not set.",
    "in_flight_max": "Messages that consumers have at a time. 0: any number.",
    "deliveries_per_s_max": "The rate limit of deliveries. 0: none.",
    "active_consumer": "Whether one consumer gets all messages.",
    "paused": "Pauses publishes, deliveries, or both.",
    "pack_messages_max": "Messages of a publish that share a file. Below 2: none do.",
    "messages_max": "Messages in the queue. 0: no limit.",
    "bytes_max": "Bytes of the messages' files. 0: no limit.",
    "overflow": "What a publish beyond a limit does.",
    "sideline_to": "A shared sideline. null: the queue's own.",
    "labels": "Notes of other programs; mq itself ignores them.",
    DIGITS_SETTING: "Fixed: the hexadecimal digits of an id that share a bucket.",
    SHARDS_SETTING: "Fixed: the shards of each bucket.",
}
"""The meaning of each setting."""

TRENDS_RANGE: Final = Choice("range", tuple(Range), "The length of the trends.", Range.HOUR)
TRENDS_QUEUE: Final = Name("queue", "Of this queue. Default: all queues together.")


def trends_shown(
    range_: Range, queue: QueueName | None, last: Trends, points: Sequence[Point]
) -> dict[str, object]:
    """A trend as JSON; of all queues also their last sample."""
    content: dict[str, object] = {
        "range": range_,
        "step_s": range_.step_s,
        "queue": None if queue is None else queue.text,
        "points": [
            {
                "time": rfc3339(each.at_s * 1000),
                "seconds": each.seconds,
                **{name: getattr(each, name) for name in TREND_COUNTS},
                **_levels(each),
            }
            for each in points
        ],
    }
    if queue is None:
        sums = last.last
        content["last"] = sums and {
            "time": rfc3339(last.taken_ms),
            "queues": last.queues,
            "uncounted": last.uncounted,
            **_levels(sums),
        }
    return content


def _levels(point: Point) -> dict[str, object]:
    levels: dict[str, object] = {name: getattr(point, name) for name in TREND_LEVELS}
    return {**levels, "oldest_ready_age_s": point.oldest_ready_s}


MEMBERS_QUEUE: Final = Name("queue", "Also answer which member maintains this queue.")


def members_shown(
    members: Sequence[Member], queue: QueueName | None, now_ms: int
) -> dict[str, object]:
    """What each member told last, also those that are gone; and whose the queue's upkeep is."""
    content: dict[str, object] = {
        "leader": leader_of(members, now_ms),
        "members": [_member_shown(each, now_ms) for each in members],
    }
    if queue is not None:
        content["assigned"] = {queue.text: owner_of(members, queue, now_ms)}
    return content


def _member_shown(member: Member, now_ms: int) -> dict[str, object]:
    """A member's report with the first names of its queues, and whether it is gone and leads."""
    said = member.as_json()
    del said["version"], said["leader"]
    names = [queue.text for queue in member.doing.queues[:MEMBER_QUEUES_SHOWN_MAX]]
    is_gone = member.is_gone(now_ms)
    return {
        **said,
        "gone": is_gone,
        "leads": member.leads and not is_gone,
        "queues": {"count": member.queues_count, "names": names},
    }
