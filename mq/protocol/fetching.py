"""What a fetch says: which messages, how many, for how long, and how long it would wait. Pure."""

import re
from typing import Final

from mq.model.limits import BATCH_MESSAGES_MAX, VISIBILITY_S_MAX, VISIBILITY_S_MIN, WAIT_S_MAX
from mq.model.selection import Selection
from mq.protocol.parameters import Fields, Query
from mq.protocol.query import Header, Seconds, Terms, Whole

_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\b")

VISIBILITY: Final = Seconds(
    "visibility", VISIBILITY_S_MIN, VISIBILITY_S_MAX,
    "For how long what is fetched is its fetcher's; left out, as the message or its queue says.",
)  # fmt: skip
WAIT: Final = Seconds(
    "wait", 0, WAIT_S_MAX, "How long a fetch that finds nothing waits for a message."
)
SELECT: Final = Terms(
    "select",
    "Which messages to fetch: those of which all these terms hold, with commas between; "
    "`priority:5..`, `key:PREFIX*`, `content-type:text/*`, `header:ce-type=order.created`.",
)
COUNT: Final = Whole(
    "count", 1, BATCH_MESSAGES_MAX, "How many messages at most, a line of JSON each, also for one."
)
PREFER: Final = Header(
    "Prefer", {"type": "string"},
    "`wait=S` (RFC 7240) does what the parameter does, cut to what that takes. Any other "
    "preference is passed over.",
    example="wait=20",
)  # fmt: skip


def terms_of(query: Query, headers: Fields) -> tuple[float | None, float, Selection | None]:
    """For how long the client would have what it fetches (None: as that or the queue says), how
    long it would wait, and which messages it would have. Raises BadParameter.
    """
    return VISIBILITY.of(query), wait_s_of(query, headers), SELECT.of(query)


def wait_s_of(query: Query, headers: Fields) -> float:
    """How long the client would wait: `?wait=`, else `Prefer: wait=` (RFC 7240), which is cut to
    what mq does. Raises BadParameter.
    """
    wait_s = WAIT.of(query)
    if wait_s is not None:
        return wait_s
    return preferred_wait_s(headers.getall("Prefer", []))


def preferred_wait_s(values: list[str]) -> float:
    """How long a client would wait, by what its Prefer headers say."""
    preferred = _WAIT.search(", ".join(values))
    return min(float(preferred[1]), WAIT_S_MAX) if preferred else 0
