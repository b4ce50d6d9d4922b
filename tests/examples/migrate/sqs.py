#!/usr/bin/env python3
"""Moves the messages of an SQS queue into a queue of mq.

    pip install . boto3
    python -m tests.examples.migrate.sqs --from QUEUE_URL --to http://localhost:8080 --queue orders

Credentials, region and endpoint are those that boto3 finds. A dead-letter queue is moved in the
same way, to `orders_SIDELINE`.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import boto3

from mq.client.values import NewMessage
from tests.examples.migrate.moving import Taken, attributes, main, parser

OURS_S = 300
KEPT = {
    "SentTimestamp": "sqs-sent",
    "MessageGroupId": "sqs-group",
    "MessageDeduplicationId": "sqs-deduplication",
    "AWSTraceHeader": "sqs-trace",
}
COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


class Sqs:
    """A queue of SQS, standard or FIFO."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url

    def take(self) -> list[Taken]:
        """One receive: of FIFO's groups, others than those in hand would come next."""
        received = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=1,
            VisibilityTimeout=OURS_S,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        return [taken(message) for message in received.get("Messages", [])]

    def settle(self, taken: Sequence[Taken]) -> None:
        """Deletes them. Raises RuntimeError."""
        if not taken:
            return
        entries = [{"Id": str(at), "ReceiptHandle": each.handle} for at, each in enumerate(taken)]
        answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
        if failed := answer.get("Failed"):
            raise RuntimeError(f"SQS did not delete: {failed}")

    def give_back(self, taken: Sequence[Taken]) -> None:
        """They are visible again after OURS_S: at once, they would be received again at once."""

    def left(self) -> int:
        """About so many: SQS promises no more."""
        asked = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=list(COUNTS))
        return sum(int(asked["Attributes"].get(name, 0)) for name in COUNTS)


def taken(message: Mapping[str, Any]) -> Taken:
    """What SQS received, as a message of mq."""
    said = {
        name: found.get("StringValue", found.get("BinaryValue"))
        for name, found in message.get("MessageAttributes", {}).items()
    }
    system = message.get("Attributes", {})
    told = {KEPT[name]: value for name, value in system.items() if name in KEPT}
    new = NewMessage(
        message["Body"], headers=attributes(said | told), idempotency_key=message["MessageId"]
    )
    return Taken(message["MessageId"], message["ReceiptHandle"], new)


@contextlib.contextmanager
def source(url: str) -> Iterator[Sqs]:
    """The queue of this URL."""
    client = boto3.client("sqs")
    try:
        yield Sqs(client, url)
    finally:
        client.close()


def options() -> argparse.Namespace:
    """As the command line says."""
    made = parser("Moves the messages of an SQS queue into a queue of mq.")
    made.add_argument("--from", dest="source", required=True, metavar="URL", help="of the queue")
    return made.parse_args()


if __name__ == "__main__":
    said = options()
    with source(said.source) as queue:
        sys.exit(main(queue, said))
