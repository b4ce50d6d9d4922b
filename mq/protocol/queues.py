"""What requests for queues say, and how a page of them is shown: pure."""

from collections.abc import Sequence
from typing import Final

from mq.model.limits import BUCKET_DIGITS_MAX, BUCKET_DIGITS_MIN, SHARDS_MAX
from mq.model.names import QueueName
from mq.model.settings import DIGITS_SETTING, SHARDS_SETTING
from mq.model.upkeep_limits import QUEUES_LISTED_DEFAULT, QUEUES_LISTED_MAX
from mq.protocol.query import Name, Whole

DIGITS: Final = Whole(
    DIGITS_SETTING, BUCKET_DIGITS_MIN, BUCKET_DIGITS_MAX,
    "The width of the queue's time windows, as hexadecimal digits of an id. Left out, it asks for "
    "nothing of a queue that is there.",
)  # fmt: skip
SHARDS: Final = Whole(
    SHARDS_SETTING, 1, SHARDS_MAX,
    "Into how many shards each window is parted. Left out, it asks for nothing of a queue that is "
    "there.",
)  # fmt: skip

COUNT: Final = Whole(
    "count", 1, QUEUES_LISTED_MAX, "How many at most.", default=QUEUES_LISTED_DEFAULT
)
AFTER: Final = Name("after", "The name behind which the page begins, also of no queue.")


def listed(found: Sequence[QueueName], count: int) -> dict[str, object]:
    """A page of so many queues at most; one more of `found` says that there is a next page."""
    page = found[:count]
    return {
        "queues": [{"name": each.text, "sideline": each.is_sideline} for each in page],
        "next": page[-1].text if len(found) > count else None,
    }
