"""SQS's operations: what each takes and gives. One table, for both forms of the protocol. Pure.

The names are SQS's. `tests/sqs/test_shapes.py` holds the table against botocore's model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Scalar: TypeAlias = Literal["text", "whole", "flag", "blob"]
"""A text, an integer, a boolean, or bytes as base64."""


@dataclass(frozen=True, slots=True)
class Many:
    """A list; the Query form numbers its items behind `name`."""

    of: "Shape"
    name: str


@dataclass(frozen=True, slots=True)
class Named:
    """A map of texts; the Query form has `name.1.{key}` and `name.1.{value}`."""

    of: "Shape"
    name: str
    key: str = "Name"
    value: str = "Value"


@dataclass(frozen=True, slots=True)
class Fields:
    """A structure: its fields, and the names of those that must be there."""

    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    required: frozenset[str] = frozenset()


Shape: TypeAlias = Scalar | Many | Named | Fields


def _fields(**fields: Shape) -> Fields:
    """Fields; a name that ends with `_` is required."""
    return Fields(
        {name.removesuffix("_"): shape for name, shape in fields.items()},
        frozenset(name.removesuffix("_") for name in fields if name.endswith("_")),
    )


_ATTRIBUTE: Final = _fields(
    StringValue="text",
    BinaryValue="blob",
    StringListValues=Many("text", "StringListValue"),
    BinaryListValues=Many("blob", "BinaryListValue"),
    DataType_="text",
)
_ATTRIBUTES: Final = Named(_ATTRIBUTE, "MessageAttribute")
_SYSTEM_ATTRIBUTES: Final = Named(_ATTRIBUTE, "MessageSystemAttribute")
DOCUMENT: Final = _fields(body_="text", attributes_=_ATTRIBUTES)
"""A body that is kept with its attributes (`mq.sqs.stored`)."""
_VALUES: Final = Named("text", "Attribute")
_TAGS: Final = Named("text", "Tag", "Key")
_ATTRIBUTE_NAMES: Final = Many("text", "AttributeName")
_QUEUE: Final = _fields(QueueUrl_="text")
_SENT: Final[Mapping[str, Shape]] = {
    "MessageBody_": "text",
    "DelaySeconds": "whole",
    "MessageAttributes": _ATTRIBUTES,
    "MessageSystemAttributes": _SYSTEM_ATTRIBUTES,
    "MessageDeduplicationId": "text",
    "MessageGroupId": "text",
}
_RESULT: Final[Mapping[str, Shape]] = {
    "MD5OfMessageAttributes": "text",
    "MD5OfMessageSystemAttributes": "text",
    "SequenceNumber": "text",
}
_FAILED: Final = Many(
    _fields(Id_="text", SenderFault_="flag", Code_="text", Message="text"), "BatchResultErrorEntry"
)
_MESSAGE: Final = _fields(
    MessageId="text",
    ReceiptHandle="text",
    MD5OfBody="text",
    Body="text",
    Attributes=_VALUES,
    MD5OfMessageAttributes="text",
    MessageAttributes=_ATTRIBUTES,
)
_MOVE_TASK: Final = _fields(
    TaskHandle="text",
    Status="text",
    SourceArn="text",
    DestinationArn="text",
    MaxNumberOfMessagesPerSecond="whole",
    ApproximateNumberOfMessagesMoved="whole",
    ApproximateNumberOfMessagesToMove="whole",
    FailureReason="text",
    StartedTimestamp="whole",
)


def _batch(operation: str, entry: Fields, result: Fields) -> tuple[Fields, Fields]:
    """The input and output of an operation on up to ten messages."""
    return (
        _fields(QueueUrl_="text", Entries_=Many(entry, f"{operation}RequestEntry")),
        _fields(Successful_=Many(result, f"{operation}ResultEntry"), Failed_=_FAILED),
    )


_ID: Final = _fields(Id_="text")
_NOTHING: Final = Fields()

OPERATIONS: Final[Mapping[str, tuple[Fields, Fields]]] = {
    "AddPermission": (
        _fields(
            QueueUrl_="text",
            Label_="text",
            AWSAccountIds_=Many("text", "AWSAccountId"),
            Actions_=Many("text", "ActionName"),
        ),
        _NOTHING,
    ),
    "CancelMessageMoveTask": (
        _fields(TaskHandle_="text"),
        _fields(ApproximateNumberOfMessagesMoved="whole"),
    ),
    "ChangeMessageVisibility": (
        _fields(QueueUrl_="text", ReceiptHandle_="text", VisibilityTimeout_="whole"),
        _NOTHING,
    ),
    "ChangeMessageVisibilityBatch": _batch(
        "ChangeMessageVisibilityBatch",
        _fields(Id_="text", ReceiptHandle_="text", VisibilityTimeout="whole"),
        _ID,
    ),
    "CreateQueue": (
        _fields(QueueName_="text", Attributes=_VALUES, tags=_TAGS),
        _fields(QueueUrl="text"),
    ),
    "DeleteMessage": (_fields(QueueUrl_="text", ReceiptHandle_="text"), _NOTHING),
    "DeleteMessageBatch": _batch(
        "DeleteMessageBatch", _fields(Id_="text", ReceiptHandle_="text"), _ID
    ),
    "DeleteQueue": (_QUEUE, _NOTHING),
    "GetQueueAttributes": (
        _fields(QueueUrl_="text", AttributeNames=_ATTRIBUTE_NAMES),
        _fields(Attributes=_VALUES),
    ),
    "GetQueueUrl": (
        _fields(QueueName_="text", QueueOwnerAWSAccountId="text"),
        _fields(QueueUrl="text"),
    ),
    "ListDeadLetterSourceQueues": (
        _fields(QueueUrl_="text", NextToken="text", MaxResults="whole"),
        _fields(queueUrls_=Many("text", "QueueUrl"), NextToken="text"),
    ),
    "ListMessageMoveTasks": (
        _fields(SourceArn_="text", MaxResults="whole"),
        _fields(Results=Many(_MOVE_TASK, "ListMessageMoveTasksResultEntry")),
    ),
    "ListQueueTags": (_QUEUE, _fields(Tags=_TAGS)),
    "ListQueues": (
        _fields(QueueNamePrefix="text", NextToken="text", MaxResults="whole"),
        _fields(QueueUrls=Many("text", "QueueUrl"), NextToken="text"),
    ),
    "PurgeQueue": (_QUEUE, _NOTHING),
    "ReceiveMessage": (
        _fields(
            QueueUrl_="text",
            AttributeNames=_ATTRIBUTE_NAMES,
            MessageSystemAttributeNames=Many("text", "MessageSystemAttributeName"),
            MessageAttributeNames=Many("text", "MessageAttributeName"),
            MaxNumberOfMessages="whole",
            VisibilityTimeout="whole",
            WaitTimeSeconds="whole",
            ReceiveRequestAttemptId="text",
        ),
        _fields(Messages=Many(_MESSAGE, "Message")),
    ),
    "RemovePermission": (_fields(QueueUrl_="text", Label_="text"), _NOTHING),
    "SendMessage": (
        _fields(QueueUrl_="text", **_SENT),
        _fields(MD5OfMessageBody="text", MessageId="text", **_RESULT),
    ),
    "SendMessageBatch": _batch(
        "SendMessageBatch",
        _fields(Id_="text", **_SENT),
        _fields(Id_="text", MessageId_="text", MD5OfMessageBody_="text", **_RESULT),
    ),
    "SetQueueAttributes": (_fields(QueueUrl_="text", Attributes_=_VALUES), _NOTHING),
    "StartMessageMoveTask": (
        _fields(SourceArn_="text", DestinationArn="text", MaxNumberOfMessagesPerSecond="whole"),
        _fields(TaskHandle="text"),
    ),
    "TagQueue": (_fields(QueueUrl_="text", Tags_=_TAGS), _NOTHING),
    "UntagQueue": (_fields(QueueUrl_="text", TagKeys_=Many("text", "TagKey")), _NOTHING),
}
"""Each operation's input and output."""
