"""SQS's names of queues, their URLs and ARNs, and receipt handles. Pure."""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from mq.model.errors import BadName
from mq.model.names import MessageId, QueueName
from mq.sqs.errors import SqsError, invalid

FIFO: Final = ".fifo"
ACCOUNT_DEFAULT: Final = "000000000000"
REGION_DEFAULT: Final = "us-east-1"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_ARN_FORMAT: Final = "arn:aws:sqs:{}:{}:{}"
_ARN: Final = re.compile("arn:[^:]+:sqs:[^:]*:[^:]*:([^:]+)")
_ACCOUNT: Final = re.compile("[0-9]{12}")
_SPOILT: Final = re.compile("[^A-Za-z0-9.]")
_BEGINNING_CHARS: Final = 30
_DIGEST_CHARS: Final = 20
_SHORTENED: Final = re.compile(f"(?:.*-)?[0-9a-f]{{{_DIGEST_CHARS}}}")
_SHOWN_CHARS: Final = 100


def check_name(name: str) -> None:
    """Raises SqsError for a name that SQS does not give to a queue."""
    if _NAME.fullmatch(name) is None:
        raise SqsError(
            "InvalidParameterValueException",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )


def queue_of(name: str) -> QueueName:
    """The mq queue of an SQS queue: of the same name, where mq allows it. A longer name, and one
    that begins with `-` or `_`, has its beginning and a digest.
    """
    try:
        return QueueName.parse(name)
    except BadName:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
        beginning = _SPOILT.sub("", name)[:_BEGINNING_CHARS]
        return QueueName.parse(f"{beginning}-{digest}" if beginning else digest)


def is_shortened(queue: QueueName) -> bool:
    """Whether the queue may have another name in SQS."""
    return _SHORTENED.fullmatch(queue.text) is not None


@dataclass(frozen=True, slots=True)
class Home:
    """The account, the region and the address that an answer's names have."""

    base: str
    """The scheme and the host, as the client wrote them."""
    account: str = ACCOUNT_DEFAULT
    region: str = REGION_DEFAULT

    def url(self, name: str) -> str:
        return f"{self.base}/{self.account}/{name}"

    def arn(self, name: str) -> str:
        return _ARN_FORMAT.format(self.region, self.account, name)


def name_in_url(url: str) -> str:
    """The queue's name in a URL, or a bare name."""
    return url.rstrip("/").rpartition("/")[2]


def account_in_url(url: str) -> str | None:
    """The account in a queue's URL; None: it has none."""
    account = url.rstrip("/").rpartition("/")[0].rpartition("/")[2]
    return account if _ACCOUNT.fullmatch(account) else None


def name_in_arn(arn: object) -> str | None:
    """The queue's name in an ARN; None: it is not a queue's."""
    found = _ARN.fullmatch(arn) if isinstance(arn, str) else None
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class Handle:
    """A receipt handle: the message, where it was received, and its count of receives then."""

    queue: QueueName
    id: MessageId
    receives: int

    def text(self) -> str:
        plain = f"{self.queue.text}/{self.id.text}/{self.receives}"
        return base64.urlsafe_b64encode(plain.encode()).decode("ascii")


def handle_of(text: str) -> Handle:
    """The handle of its text. Raises SqsError."""
    try:
        plain = base64.b64decode(text.encode("ascii"), b"-_", validate=True).decode("ascii")
        queue, message_id, receives = plain.split("/")
        if not receives.isdigit():
            raise ValueError(receives)
        return Handle(QueueName.parse(queue), MessageId.parse(message_id), int(receives))
    except (ValueError, binascii.Error, BadName):
        raise bad_handle(text) from None


def bad_handle(text: str) -> SqsError:
    return SqsError(
        "ReceiptHandleIsInvalid",
        f'The input receipt handle "{text[:_SHOWN_CHARS]}" is not a valid receipt handle.',
    )


_WORD: Final = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@[\\\]^_`{|}~]{1,128}")


def check_word(value: str, parameter: str) -> None:
    """Raises SqsError for a group, or a deduplication id, that is not of SQS's characters."""
    if _WORD.fullmatch(value) is None:
        raise invalid(
            value,
            parameter,
            f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in "
            "length.",
        )
