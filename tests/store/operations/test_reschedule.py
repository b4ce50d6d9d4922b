"""Releases: whose rename is done and answered "no such file", as a network mount may; that fail;
and of what has lapsed.
"""

import errno
import os
from pathlib import Path

import pytest
from harness.faults import FaultyFiles
from harness.leases import QUEUE, LeasingRoot

from mq.model.errors import Busy, DeliveredAgain, StorageFailed
from mq.model.message import Delivery
from mq.model.names import MessageId
from mq.store.disk.files import Files
from mq.store.operations.fetch import fetch
from mq.store.operations.release import release_many
from mq.store.operations.reschedule import reschedule

# What the mtime says of a second delivery.
DELIVERED_AGAIN_NS = 1_900_000_000_000 * 1_000_000 + 2_000


class AnswerLost(Files):
    """When told to: a rename back to the queue is done, another one fetches the message, and the
    answer to the rename is lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loses = False

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if self.loses and "/delay/" in source:
            self.loses = False
            os.utime(target, ns=(DELIVERED_AGAIN_NS, DELIVERED_AGAIN_NS))
            super().rename(target, source)
            raise OSError(errno.ENOENT, "no such file", source)


@pytest.fixture
def files() -> AnswerLost:
    return AnswerLost()


@pytest.fixture
def place(tmp_path: Path, files: AnswerLost) -> LeasingRoot:
    return LeasingRoot(tmp_path / "root", files=files)


def delivered(place: LeasingRoot) -> Delivery:
    (message_id,) = place.publish()
    delivery = place.run(fetch(place.root, QUEUE, message_id, 60))
    assert delivery is not None
    return delivery


def fetched(place: LeasingRoot) -> MessageId:
    return delivered(place).id


def test_it_is_not_refused_for_the_delivery_that_it_made_possible(
    place: LeasingRoot, files: AnswerLost
) -> None:
    message_id = fetched(place)
    files.loses = True
    with pytest.raises(Busy):
        place.run(reschedule(place.root, QUEUE, message_id, 0, lambda receives: receives == 1))


def test_a_delivery_before_it_refuses_it(place: LeasingRoot) -> None:
    message_id = fetched(place)
    with pytest.raises(DeliveredAgain):
        place.run(reschedule(place.root, QUEUE, message_id, 0, lambda receives: receives == 2))


def test_what_has_lapsed_is_released_where_it_may_be_tried_again(place: LeasingRoot) -> None:
    delivery = delivered(place)
    place.pass_s(60 + 1)
    assert place.run(release_many(place.root, QUEUE, [delivery], unhandled=True))
    assert (place.top / "queues/q" / delivery.id.text).exists()


def test_a_release_that_fails_says_so(tmp_path: Path) -> None:
    files = FaultyFiles()
    place = LeasingRoot(tmp_path / "root", files=files)
    delivery = delivered(place)
    files.fail("rename", errno.EIO)
    with pytest.raises(StorageFailed):
        place.run(release_many(place.root, QUEUE, [delivery], unhandled=True))
