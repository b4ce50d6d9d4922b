"""Amazon's own clients at work with the marks of `load.py`: a queue of groups, and one without.

A mark has the id that SQS tells, the beginning of mq's own: `named` puts mq's into a ledger. The
number of a body says its group and its place there.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError
from crash.images import Mark
from crash.load import QUEUE
from crash.promises import Found, Ledger
from harness.messages import make_body, number_in
from harness.sqs import sqs

from mq.model.names import MessageId

FIFO = "jobs.fifo"
GROUPS = 3
VISIBILITY_S = 2
_PLACES = 1000
# Beside the numbers of groups.
_PLAIN = GROUPS * _PLACES


def number_of(group: int, place: int) -> int:
    """The number of a message by its group, and its place there."""
    return group * _PLACES + place


def url_of(queue: str) -> str:
    """It says no more than the queue."""
    return f"http://localhost/000000000000/{queue}"


def send(client: Any, number: int) -> str:
    """Sends a message of a group, with its number as the id of its sending. Its id in mq."""
    answer = client.send_message(
        QueueUrl=url_of(FIFO),
        MessageBody=make_body(number, 300).decode(),
        MessageGroupId=str(number // _PLACES),
        MessageDeduplicationId=str(number),
    )
    message_id: str = answer["MessageId"]
    return message_id


def named(ledger: Ledger, found: Found) -> Ledger:
    """The ledger, with mq's ids of the messages that were found."""
    ids = {MessageId.parse(each).uuid: each for each in found.places}
    ledger.messages = {ids.get(each, each): told for each, told in ledger.messages.items()}
    return ledger


@dataclass
class SqsLoad:
    """Sends, batches, receives, releases and deletes, side by side. `sync`: as in `load.Load`."""

    mark: Callable[..., None]
    urls: Sequence[str]
    amount: int
    sync: Callable[[], None]
    _sending: int = 0
    _begun: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def run(self) -> None:
        await asyncio.to_thread(self._run)

    def _run(self) -> None:
        with sqs(self.urls[0]) as client:
            for queue, wanted in ((QUEUE, {}), (FIFO, {"FifoQueue": "true"})):
                self.mark("make_asked", queue=queue)
                client.create_queue(QueueName=queue, Attributes=wanted)
                self.mark("made_anew", queue=queue)
        self.sync()
        works = [
            *(lambda client, n=n: self._send(client, n) for n in range(GROUPS)),
            self._send_batches,
        ]
        self._sending = len(works)
        with ThreadPoolExecutor() as pool:
            ends = [pool.submit(self._with_client, each, True) for each in works]
            for queue in (FIFO, FIFO, QUEUE):
                receive = lambda client, queue=queue: self._receive(client, queue)  # noqa: E731
                ends.append(pool.submit(self._with_client, receive, False))
            for end in ends:
                end.result()

    def _with_client(self, work: Callable[[Any], None], is_sending: bool) -> None:
        with self._lock:
            self._begun += 1
            url = self.urls[self._begun % len(self.urls)]
        try:
            with sqs(url) as client:
                work(client)
        finally:
            with self._lock:
                self._sending -= is_sending

    def _send(self, client: Any, group: int) -> None:
        for place in range(self.amount):
            number = number_of(group, place)
            self.mark("published", queue=FIFO, id=send(client, number), number=number)
            if place == self.amount // 2:
                self.sync()

    def _send_batches(self, client: Any) -> None:
        for first in range(_PLAIN, _PLAIN + 3 * self.amount, 3):
            rows = [
                {"Id": str(n), "MessageBody": make_body(n, 300).decode()}
                for n in range(first, first + 3)
            ]
            answer = client.send_message_batch(QueueUrl=url_of(QUEUE), Entries=rows)
            for row in answer["Successful"]:
                facts = {"queue": QUEUE, "id": row["MessageId"]}
                self.mark("published", **facts, number=int(row["Id"]))

    def _receive(self, client: Any, queue: str) -> None:
        chance = random.Random(queue)
        while self._sending:
            for row in receives(client, queue, VISIBILITY_S, self.mark):
                number = number_in(row["Body"].encode())
                facts = {"queue": queue, "id": row["MessageId"], "number": number}
                handle = {"QueueUrl": url_of(queue), "ReceiptHandle": row["ReceiptHandle"]}
                what = chance.random()
                # A group's message whose visibility has ended is another's.
                with suppress(ClientError):
                    if what < 0.6:
                        self.mark("delete_asked", **facts)
                        client.delete_message(**handle)
                        self.mark("deleted", **facts)
                    elif what < 0.8:
                        self.mark("reschedule_asked", **facts, due_ms=_now_ms())
                        client.change_message_visibility(**handle, VisibilityTimeout=0)


def receives(
    client: Any, queue: str, visibility_s: int, mark: Callable[..., None]
) -> Iterator[dict[str, Any]]:
    """The messages of one receive."""
    asked_ms = _now_ms()
    answer = client.receive_message(
        QueueUrl=url_of(queue),
        MaxNumberOfMessages=5,
        VisibilityTimeout=visibility_s,
        WaitTimeSeconds=1,
        AttributeNames=["ApproximateReceiveCount"],
    )
    rows = answer.get("Messages", [])
    for row in rows:
        count = int(row["Attributes"]["ApproximateReceiveCount"])
        facts = {"queue": queue, "id": row["MessageId"], "receives": count}
        mark("fetched", **facts, due_ms=asked_ms + 1000 * visibility_s)
    yield from rows


def drained(url: str, marks: Sequence[Mark], count: int) -> list[str]:
    """After a cut: senders repeat what was not answered, and send on to `count` messages a group;
    then all are received and deleted. What is broken.
    """
    told: dict[str, set[int]] = {"published": set(), "delete_asked": set(), "deleted": set()}
    for mark in marks:
        if mark.facts.get("queue") == FIFO and mark.facts["what"] in told:
            told[mark.facts["what"]].add(mark.facts["number"])
    with sqs(url) as client:
        client.create_queue(QueueName=FIFO, Attributes={"FifoQueue": "true"})
        # Nothing before the cut sent the last ones.
        for number in sorted(_numbers(count + 1) - told["published"]):
            send(client, number)
        found = _received(client, {number_of(group, count) for group in range(GROUPS)})
    problems = []
    for group in range(GROUPS):
        numbers = [number for number in found if number // _PLACES == group]
        if sorted(set(numbers)) != numbers:
            problems.append(f"a group came as {numbers}")
    if lost := _numbers(count + 1) - told["delete_asked"] - set(found):
        problems.append(f"{lost} were sent, and did not come")
    if back := told["deleted"] & set(found):
        problems.append(f"{back} were deleted, and came again")
    return problems


def _numbers(count: int) -> set[int]:
    """Of the first `count` messages of each group."""
    return {number_of(group, place) for group in range(GROUPS) for place in range(count)}


def _received(client: Any, last: set[int]) -> list[int]:
    """What is received, and deleted, until these have come."""
    found: list[int] = []
    while not last <= set(found):
        for row in receives(client, FIFO, 600, lambda *_, **__: None):
            found.append(number_in(row["Body"].encode()))
            client.delete_message(QueueUrl=url_of(FIFO), ReceiptHandle=row["ReceiptHandle"])
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
