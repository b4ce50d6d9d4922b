"""The errors of SQS's protocol, with the codes and statuses of both of its forms. Pure."""

from dataclasses import dataclass
from typing import Final

_OLD: Final = "AWS.SimpleQueueService."
_MODEL: Final = "com.amazonaws.sqs#"
_COMMON: Final = "com.amazon.coral.service#"
# Kinds that SQS's model does not have: all services share them.
COMMON_KINDS: Final = frozenset(
    {
        "AccessDeniedException",
        "IncompleteSignatureException",
        "InternalFailure",
        "InvalidParameterValueException",
        "InvalidSignatureException",
        "MissingRequiredParameterException",
        "RequestExpired",
        "SerializationException",
        "ServiceUnavailable",
        "UnknownOperationException",
        "UnrecognizedClientException",
    }
)
# The Query form's code of each JSON type that differs from it.
QUERY_CODES: Final = {
    "QueueDoesNotExist": _OLD + "NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "InvalidParameterValueException": "InvalidParameterValue",
    "MissingRequiredParameterException": "MissingParameter",
    "AccessDeniedException": "AccessDenied",
    "UnrecognizedClientException": "InvalidClientTokenId",
    "InvalidSignatureException": "SignatureDoesNotMatch",
    "IncompleteSignatureException": "IncompleteSignature",
    "SerializationException": "MalformedInput",
    "UnknownOperationException": "InvalidAction",
    **{
        name: _OLD + name
        for name in (
            "BatchEntryIdsNotDistinct",
            "BatchRequestTooLong",
            "EmptyBatchRequest",
            "InvalidBatchEntryId",
            "MessageNotInflight",
            "PurgeQueueInProgress",
            "QueueDeletedRecently",
            "TooManyEntriesInBatchRequest",
            "UnsupportedOperation",
        )
    },
}
STATUSES: Final = {
    "AccessDeniedException": 403,
    "InternalFailure": 500,
    "InvalidSignatureException": 403,
    "OverLimit": 403,
    "PurgeQueueInProgress": 403,
    "ReceiptHandleIsInvalid": 404,
    "RequestThrottled": 403,
    "ResourceNotFoundException": 404,
    "ServiceUnavailable": 503,
    "UnrecognizedClientException": 403,
}
_SERVER: Final = frozenset({"InternalFailure", "ServiceUnavailable"})


@dataclass(eq=False)
class SqsError(Exception):
    """A failed request; `kind` is its name in SQS's model."""

    kind: str
    message: str

    @property
    def json_type(self) -> str:
        """The kind as JSON answers have it."""
        return (_COMMON if self.kind in COMMON_KINDS else _MODEL) + self.kind

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUSES.get(self.kind, 400)

    @property
    def query_code(self) -> str:
        """The code in the Query form, which JSON answers carry in a header."""
        return QUERY_CODES.get(self.kind, self.kind)

    @property
    def is_senders(self) -> bool:
        """Whether the request is at fault, not the server."""
        return self.kind not in _SERVER


def invalid(value: object, parameter: str, reason: str) -> SqsError:
    """A parameter's value that is out of its range."""
    return SqsError(
        "InvalidParameterValueException",
        f"Value {value} for parameter {parameter} is invalid. Reason: {reason}",
    )


def missing(parameter: str) -> SqsError:
    """A parameter that the request must have."""
    return SqsError(
        "MissingRequiredParameterException", f"The request must contain the parameter {parameter}."
    )


def no_queue() -> SqsError:
    return SqsError("QueueDoesNotExist", "The specified queue does not exist.")
