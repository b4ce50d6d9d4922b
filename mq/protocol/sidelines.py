"""What a request says that has a message go to its queue's sideline, and what it is told: pure."""

from typing import Final

from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.parameters import Query
from mq.protocol.query import Choice

_REASONS: Final = {reason.name.lower(): reason for reason in (Reason.REJECTED, Reason.EXCEPTION)}

REASON: Final = Choice(
    "reason", tuple(_REASONS), "Why: its consumer does not want it, or failed over it.", "rejected"
)  # fmt: skip


def reason_of(query: Query) -> Reason:
    """Why a message is to go. Raises BadParameter."""
    return _REASONS[REASON.of(query) or "rejected"]


def sidelined(message_id: MessageId, into: QueueName, stamp: Stamp) -> dict[str, object]:
    """Where a message is by now, with its stamp there."""
    return {
        "id": message_id.text,
        "queue": into.text,
        "receives": stamp.receives,
        "reason": Reason(stamp.reason).name.lower(),
    }
