"""What a peek asks for, and how a message is shown there: pure."""

from typing import Final

from mq.model.errors import BadParameter
from mq.model.headers import Headers
from mq.model.lifecycle import State
from mq.model.limits import BATCH_MESSAGES_MAX, PEEK_MESSAGES_DEFAULT
from mq.model.looking import Page
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.parameters import Query
from mq.protocol.query import Choices, Id, Whole
from mq.protocol.rows import members

STATES: Final = {
    state.value: state for state in (State.READY, State.DELAYED, State.LEASED, State.REMOVED)
}
STATE: Final = Choices(
    "state", tuple(STATES), "Messages of which states, one state after the other.",
    default=(State.READY.value,),
)  # fmt: skip
COUNT: Final = Whole(
    "count", 1, BATCH_MESSAGES_MAX, "How many at most; a page of less is the last one.",
    default=PEEK_MESSAGES_DEFAULT,
)  # fmt: skip
AFTER: Final = Id(
    "after", "The id behind which the page begins, also one that is gone; with one state alone."
)


def page_of(query: Query) -> Page:
    """The page that a query asks for. Raises BadParameter."""
    states = tuple(STATES[word] for word in STATE.of(query))
    count = COUNT.of(query) or PEEK_MESSAGES_DEFAULT
    after = AFTER.of(query)
    if after is not None and len(states) > 1:
        raise BadParameter("after", "left out where there is more than one state")
    return Page(states, count, after)


def peeked(
    queue: QueueName, message_id: MessageId, stamp: Stamp, kept: Headers, state: State, size: int
) -> dict[str, object]:
    """The members of a message's row, but for its body, of which `size` counts all bytes."""
    said = members(queue, message_id, stamp, kept, is_ready=state is State.READY)
    return {"id": said.pop("id"), "state": state.value, **said, "size": size}
