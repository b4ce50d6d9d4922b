"""A queue's attributes: their ranges, and the settings of mq that some of them are. Pure.

The queue's label `sqs` keeps the attributes as they were set. An attribute that mq has a setting
for also sets it, and is read from it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from mq.model.limits import VISIBILITY_S_MIN
from mq.model.settings import QueueSettings
from mq.sqs.errors import SqsError
from mq.sqs.names import FIFO, name_in_arn, queue_of

LABEL: Final = "sqs"
VISIBILITY_S_MAX: Final = 43200
DELAY_S_MAX: Final = 900
WAIT_S_MAX: Final = 20
SIZE_MAX: Final = 1 << 20
RECEIVES_MAX: Final = 998
TAGS_MAX: Final = 50

_NUMBERS: Final = {
    "VisibilityTimeout": (0, VISIBILITY_S_MAX, 30),
    "MaximumMessageSize": (1024, SIZE_MAX, SIZE_MAX),
    "MessageRetentionPeriod": (60, 1_209_600, 345_600),
    "DelaySeconds": (0, DELAY_S_MAX, 0),
    "ReceiveMessageWaitTimeSeconds": (0, WAIT_S_MAX, 0),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400, None),
}
"""The least, the most and the default."""
_FIFO_WORDS: Final = {
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
_OF_FIFO: Final = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
_FLAGS: Final = frozenset({"SqsManagedSseEnabled", "FifoQueue"})
_JSON: Final = frozenset({"Policy", "RedrivePolicy", "RedriveAllowPolicy"})
SETTABLE: Final = frozenset({*_NUMBERS, *_FIFO_WORDS, *_FLAGS, *_JSON, "KmsMasterKeyId"})
COUNTS: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
READABLE: Final = SETTABLE | {*COUNTS, "QueueArn", "CreatedTimestamp", "LastModifiedTimestamp"}


@dataclass(frozen=True, slots=True)
class Kept:
    """The contents of a queue's label."""

    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    """As they were set."""
    tags: Mapping[str, str] = field(default_factory=dict)
    permissions: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    created_s: int = 0
    modified_s: int = 0
    is_dead: bool = False
    """Whether other queues' dead letters come to it, by way of its sideline."""
    forgot_ms: int = 0
    """The time of its last purge: a FIFO queue forgets the messages sent before."""

    @property
    def is_whole(self) -> bool:
        """Whether its values are of their types."""
        texts = (self.attributes, self.tags, self.permissions)
        return isinstance(self.name, str) and all(isinstance(each, dict) for each in texts)

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(FIFO)

    @property
    def deduplicates_by_content(self) -> bool:
        return self.attributes.get("ContentBasedDeduplication") == "true"

    @property
    def deduplicates_by_group(self) -> bool:
        return self.attributes.get("DeduplicationScope") == "messageGroup"

    @property
    def wait_s(self) -> int:
        return int(self.attributes.get("ReceiveMessageWaitTimeSeconds", 0))

    @property
    def size_max(self) -> int:
        return int(self.attributes.get("MaximumMessageSize", SIZE_MAX))

    @property
    def dead_letters(self) -> str | None:
        """The name of the queue that takes its dead letters."""
        policy = self.attributes.get("RedrivePolicy")
        return name_in_arn(json.loads(policy)["deadLetterTargetArn"]) if policy else None

    def as_label(self) -> str:
        """The label's text."""
        return json.dumps(
            {
                "name": self.name,
                "attributes": self.attributes,
                "tags": self.tags,
                "permissions": self.permissions,
                "created_s": self.created_s,
                "modified_s": self.modified_s,
                "is_dead": self.is_dead,
                "forgot_ms": self.forgot_ms,
            }
        )


def kept_of(name: str, settings: QueueSettings) -> Kept:
    """The contents of a queue's label; of a queue that CreateQueue did not make, its name alone."""
    text = settings.labels.get(LABEL)
    return Kept(name) if text is None else _parsed(name, text)


# Each request asks for it.
@lru_cache(maxsize=256)
def _parsed(name: str, text: str) -> Kept:
    try:
        found = json.loads(text)
        kept = Kept(**{each: found[each] for each in Kept.__dataclass_fields__ if each in found})
    except (ValueError, TypeError):
        return Kept(name)  # Others wrote it.
    return kept if kept.is_whole else Kept(name)


def checked(attributes: Mapping[str, str], name: str, before: Kept | None) -> dict[str, str]:
    """The attributes as they are kept. `before`: of the queue, None for a new one. Raises SqsError
    for those that the queue cannot have.
    """
    is_fifo = name.endswith(FIFO)
    found = {}
    for attribute, value in attributes.items():
        if attribute not in SETTABLE or (attribute in _FIFO_WORDS and not is_fifo):
            raise _not_for_standard(attribute) if attribute in _FIFO_WORDS else _unknown(attribute)
        if attribute == "FifoQueue":
            _check_fifo(value, is_fifo, before)
        found[attribute] = _taken(attribute, value)
    if before is None and is_fifo and attributes.get("FifoQueue") != "true":
        raise SqsError(
            "InvalidParameterValueException",
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length.",
        )
    return found


def _check_fifo(value: str, is_fifo: bool, before: Kept | None) -> None:
    if before is not None and (value == "true") != before.is_fifo:
        raise SqsError(
            "InvalidAttributeValue",
            "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not "
            "supported.",
        )
    if not is_fifo:
        if value == "true":
            raise SqsError(
                "InvalidParameterValueException",
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
                "underscores, must end with .fifo suffix and be 1 to 80 in length.",
            )
        raise _unknown("FifoQueue")


def _taken(attribute: str, value: str) -> str:
    if attribute in _NUMBERS:
        least, most, _ = _NUMBERS[attribute]
        if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
            raise _bad(attribute)
        return str(int(value))
    if attribute in _FLAGS and value not in ("true", "false"):
        raise _bad(attribute)
    if attribute in _FIFO_WORDS and value not in _FIFO_WORDS[attribute]:
        raise _bad(attribute)
    return _json(attribute, value) if attribute in _JSON and value else value


def _json(attribute: str, value: str) -> str:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise _bad(attribute) from None
    if not isinstance(found, dict):
        raise _bad(attribute)
    if attribute == "RedrivePolicy":
        _check_redrive(value, found)
        return json.dumps({**found, "maxReceiveCount": int(found["maxReceiveCount"])})
    return value


def _check_redrive(value: str, found: Mapping[str, Any]) -> None:
    said = f"Value {value} for parameter RedrivePolicy is invalid. Reason: "
    for needed in ("maxReceiveCount", "deadLetterTargetArn"):
        if needed not in found:
            raise SqsError(
                "InvalidParameterValueException",
                said + f"Redrive policy does not contain mandatory attribute: {needed}.",
            )
    receives = found["maxReceiveCount"]
    if isinstance(receives, bool) or not str(receives).isdigit() or not 1 <= int(receives) <= 1000:
        raise SqsError(
            "InvalidParameterValueException",
            said + "Invalid value for maxReceiveCount: "
            f"{receives}, valid values are from 1 to 1000 both inclusive.",
        )
    if name_in_arn(found["deadLetterTargetArn"]) is None:
        raise SqsError(
            "InvalidParameterValueException", said + "Invalid value for deadLetterTargetArn."
        )


def patch_of(kept: Kept, changed: Mapping[str, str], before: QueueSettings) -> dict[str, Any]:
    """The changes of mq's settings that changed attributes make, with the label beside others."""
    patch: dict[str, Any] = {LABEL_SETTING: {**before.labels, LABEL: kept.as_label()}}
    for attribute, setting in SETTINGS.items():
        if attribute in changed:
            patch[setting] = int(changed[attribute])
    if patch.get("visibility_s") == 0:
        patch["visibility_s"] = VISIBILITY_S_MIN
    if "RedrivePolicy" in changed:
        policy = json.loads(changed["RedrivePolicy"] or "null")
        target = kept.dead_letters
        patch["max_receives"] = min(int(policy["maxReceiveCount"]), RECEIVES_MAX) if policy else 0
        patch["sideline_to"] = None if target is None else queue_of(target).sideline().text
    return patch


LABEL_SETTING: Final = "labels"
SETTINGS: Final = {
    "VisibilityTimeout": "visibility_s",
    "MessageRetentionPeriod": "message_ttl_s",
    "DelaySeconds": "delay_default_s",
}


def defaults() -> dict[str, str]:
    """The attributes that a new queue has where the request does not say."""
    return {name: str(value) for name, (_, _, value) in _NUMBERS.items() if value is not None}


def shown(kept: Kept, settings: QueueSettings) -> dict[str, str]:
    """All attributes of a queue but its counts and its ARN."""
    found = {**defaults(), **kept.attributes}
    found["VisibilityTimeout"] = str(int(settings.visibility_s))
    found["DelaySeconds"] = str(int(settings.delay_default_s))
    if settings.message_ttl_s:
        found["MessageRetentionPeriod"] = str(int(settings.message_ttl_s))
    found.setdefault("SqsManagedSseEnabled", "false" if found.get("KmsMasterKeyId") else "true")
    if kept.is_fifo:
        found = {**_OF_FIFO, **found}
    found["CreatedTimestamp"] = str(kept.created_s)
    found["LastModifiedTimestamp"] = str(kept.modified_s or kept.created_s)
    return {name: value for name, value in found.items() if value}


def policy_of(kept: Kept, arn: str) -> str:
    """The policy that a queue's permissions make."""
    statements = [
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": _one([f"arn:aws:iam::{each}:root" for each in said["accounts"]])},
            "Action": _one([f"SQS:{each}" for each in said["actions"]]),
            "Resource": arn,
        }
        for label, said in kept.permissions.items()
    ]
    return json.dumps(
        {"Version": "2012-10-17", "Id": f"{arn}/SQSDefaultPolicy", "Statement": statements}
    )


def _one(texts: list[str]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else texts


def differing(kept: Kept, settings: QueueSettings, wanted: Mapping[str, str]) -> str | None:
    """An attribute that CreateQueue names with another value than the queue has; None: there is
    none.
    """
    has = shown(kept, settings)
    for name, value in wanted.items():
        if name in _JSON:
            if json.loads(has.get(name) or "null") != json.loads(value or "null"):
                return name
        elif has.get(name, "") != value:
            return name
    return None


def with_attributes(kept: Kept, changed: Mapping[str, str], now_s: int) -> Kept:
    """The contents with these attributes set; an empty text unsets one."""
    joined = {**kept.attributes, **changed}
    held = {name: value for name, value in joined.items() if value != ""}
    return replace(kept, attributes=held, modified_s=now_s)


def _unknown(attribute: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {attribute}.")


def _not_for_standard(attribute: str) -> SqsError:
    if attribute == "ContentBasedDeduplication":
        return _unknown(attribute)
    return SqsError(
        "InvalidAttributeName",
        f"You can specify the {attribute} only when FifoQueue is set to true.",
    )


def _bad(attribute: str) -> SqsError:
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {attribute}.")
