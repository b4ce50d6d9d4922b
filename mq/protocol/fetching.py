"""Requests that fetch or peek. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from mq.model.errors import BadParameter
from mq.model.lifecycle import State
from mq.model.limits import BATCH_MESSAGES_MAX, PRIORITY_MAX, VISIBILITY_S_MAX, VISIBILITY_S_MIN
from mq.model.message import Page
from mq.model.names import CONSUMER_PATTERN, ConsumerName
from mq.model.selection import Selection
from mq.protocol.parameters import Fields, Query
from mq.protocol.query import Choice, Choices, Header, Id, KeyText, NameText, Seconds, Terms, Whole

PEEK_MESSAGES_DEFAULT: Final = 100
WAIT_S_MAX: Final = 60.0

_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\b")

VISIBILITY: Final = Seconds(
    "visibility", VISIBILITY_S_MIN, VISIBILITY_S_MAX,
    "This delivery's visibility timeout. Default: the message's, or the queue's. One of a few "
    "milliseconds may end before the answer, which then has no message; it counts as a receive.",
)  # fmt: skip
WAIT: Final = Seconds(
    "wait", 0, WAIT_S_MAX,
    "Long poll: how long to wait for a message. A publish by another process ends it within half a "
    "second.",
)  # fmt: skip
SELECT: Final = Terms(
    "select",
    "Fetch only messages that match all terms, separated by commas: `priority:5..,key:eu-*`. "
    "Others stay, and block nothing.",
)
CONSUMER_PRIORITY: Final = Whole(
    "priority", 0, PRIORITY_MAX,
    "The consumer's priority, not the messages'. While one of a higher priority waits, or has "
    "credit and reads, others do not get the messages that it would take; equals take turns. With "
    "`select`, and between several mqs on one root, this holds in each process alone.",
    default=0,
)  # fmt: skip
COUNT: Final = Whole(
    "count", 1, BATCH_MESSAGES_MAX,
    "Fetch up to this many messages: fewer once bodies exceed 8 MiB or memory is short, and with "
    "`wait` as soon as there is one.",
)  # fmt: skip
PACKS: Final = Choice(
    "packs",
    ("true", "false"),
    "With `count`: take packs whole, which is faster. The last one may exceed `count`. Without it, "
    "mq first makes a file of its own for each message of a pack.",
    "false",
)
CONSUMER: Final = NameText(
    "consumer",
    ConsumerName.parse,
    {"type": "string", "pattern": f"^{CONSUMER_PATTERN}$"},
    "The consumer's name, for a single active consumer. Default: the connection.",
)
PREFER: Final = Header(
    "Prefer", {"type": "string"},
    "`wait=S` (RFC 7240) is the parameter `wait`. mq ignores other preferences.",
    example="wait=20",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a fetch asks for: for how long (None: as the message or queue says), how long it waits,
    of which selection, with which priority among consumers, who fetches, and
    whether it takes packs whole.
    """

    visibility_s: float | None = None
    wait_s: float = 0
    selection: Selection | None = None
    priority: int = 0
    consumer: ConsumerName | None = None
    packs: bool = False


_PLAIN: Final = Wanted()


def terms_of(query: Query, headers: Fields) -> Wanted:
    """What a fetch asks for. Raises BadParameter."""
    if not query:
        values = headers.getall("Prefer", [])
        return Wanted(wait_s=preferred_wait_s(values)) if values else _PLAIN
    return Wanted(
        VISIBILITY.of(query),
        wait_s_of(query, headers),
        SELECT.of(query),
        CONSUMER_PRIORITY.of(query) or 0,
        CONSUMER.of(query),
        PACKS.of(query) == "true",
    )


def wait_s_of(query: Query, headers: Fields) -> float:
    """The wait in seconds: `?wait=`, else `Prefer: wait=` (RFC 7240). Raises BadParameter."""
    wait_s = WAIT.of(query)
    if wait_s is not None:
        return wait_s
    return preferred_wait_s(headers.getall("Prefer", []))


def preferred_wait_s(values: list[str]) -> float:
    """The wait in seconds of Prefer headers, cut to the maximum."""
    preferred = _WAIT.search(", ".join(values))
    return min(float(preferred[1]), WAIT_S_MAX) if preferred else 0


# Peeks

STATES: Final = {
    state.value: state for state in (State.READY, State.DELAYED, State.LEASED, State.REMOVED)
}
STATE: Final = Choices(
    "state", tuple(STATES), "The states to list, one after the other.",
    default=(State.READY.value,),
)  # fmt: skip
GROUPS_SHOWN_DEFAULT: Final = 100
PEEK_COUNT: Final = Whole(
    "count", 1, BATCH_MESSAGES_MAX, "The length of the page.",
    default=PEEK_MESSAGES_DEFAULT,
)  # fmt: skip
PEEK_AFTER: Final = Id(
    "after", "Continue behind this id, which may be gone. Requires one state, or a tag."
)
PEEK_SELECT: Final = Terms(
    "select", "List only messages that match, as in a fetch. Requires one state."
)
PEEK_TAG: Final = KeyText("tag", "List only messages with this tag, in the order of ids.")

TAG_AFTER: Final = Id("after", "Continue behind this id, which may be gone.")


GROUP_COUNT: Final = Whole(
    "count", 1, BATCH_MESSAGES_MAX, "How many groups to list.", default=GROUPS_SHOWN_DEFAULT
)


def page_of(query: Query) -> Page:
    """The page of a peek. Raises BadParameter."""
    states = tuple(STATES[word] for word in STATE.of(query))
    count = PEEK_COUNT.of(query) or PEEK_MESSAGES_DEFAULT
    after, selection, tag = PEEK_AFTER.of(query), PEEK_SELECT.of(query), PEEK_TAG.of(query)
    if len(states) > 1 and tag is None:
        for parameter, value in ((PEEK_AFTER, after), (PEEK_SELECT, selection)):
            if value is not None:
                raise BadParameter(parameter.name, "left out with more than one state")
    return Page(states, count, after, selection, tag)
