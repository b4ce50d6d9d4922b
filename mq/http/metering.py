"""The operations and outcomes that metrics count."""

from typing import Final

from mq.metrics.plan import Plan
from mq.protocol.consume.frames import Verb
from mq.protocol.endpoints import ENDPOINTS

_WAITING: Final = "fetch_waiting"
_UNKNOWN: Final = "unknown"
_DELIVER: Final = "consume_deliver"
_BY_FRAME: Final = {verb: f"consume_{verb.value}" for verb in Verb}

_SQS: Final = (
    "AddPermission", "CancelMessageMoveTask", "ChangeMessageVisibility",
    "ChangeMessageVisibilityBatch", "CreateQueue", "DeleteMessage", "DeleteMessageBatch",
    "DeleteQueue", "GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues",
    "ListMessageMoveTasks", "ListQueueTags", "ListQueues", "PurgeQueue", "ReceiveMessage",
    "RemovePermission", "SendMessage", "SendMessageBatch", "SetQueueAttributes",
    "StartMessageMoveTask", "TagQueue", "UntagQueue",
)  # fmt: skip

# An endpoint's number is its place in ENDPOINTS.
PLAN: Final = Plan(
    (
        *(each.name for each in ENDPOINTS),
        _WAITING,
        _UNKNOWN,
        _DELIVER,
        *_BY_FRAME.values(),
        *(f"sqs_{each}" for each in _SQS),
    )
)
"""The counters of every process."""
_number: Final = PLAN.operations.index

FETCHES: Final = _number("fetch")
WAITS: Final = _number(_WAITING)
"""Fetches that may wait: their time says nothing about the daemon."""
CONSUMES: Final = _number("consume")
UNKNOWN: Final = _number(_UNKNOWN)
DELIVERS: Final = _number(_DELIVER)
"""Messages claimed for a WebSocket; the time is that of the claim."""
OF_SQS: Final = {each: _number(f"sqs_{each}") for each in _SQS}
"""Those of SQS's protocol. A receive's time includes its wait."""
SETTLES: Final = {verb: _number(name) for verb, name in _BY_FRAME.items()}
