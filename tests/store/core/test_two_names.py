"""A message's file with two names, which only a file system leaves that does not keep the order of
changes: the next lock leaves the latest.
"""

import itertools
import os
from pathlib import Path

import pytest
from harness.leases import QUEUE, LeasingRoot

from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import claimed
from mq.store.core.two_names import lateness
from mq.store.format.layout import Place

SIDELINE = QUEUE.sideline()
STATES = (State.NEW, State.READY, State.DELAYED, State.REMOVED)
ENDS = [*((QUEUE, state) for state in STATES), *((SIDELINE, state) for state in STATES[1:])]


@pytest.fixture
def place(tmp_path: Path) -> LeasingRoot:
    made = LeasingRoot(tmp_path / "root")
    made.make_queue(SIDELINE)
    return made


def put(place: LeasingRoot, message_id: MessageId, end: tuple[QueueName, State]) -> Place:
    made = Place(end[1], end[0], message_id)
    Path(made.path(place.root.layout)).write_bytes(b"x")
    return made


def names(place: LeasingRoot, message_id: MessageId) -> list[str]:
    return sorted(str(path) for path in place.top.rglob(f"*{message_id.text}"))


@pytest.mark.parametrize("ends", list(itertools.combinations(ENDS, 2)))
def test_the_latest_stays_whichever_is_locked(
    place: LeasingRoot, ends: tuple[tuple[QueueName, State], tuple[QueueName, State]]
) -> None:
    for met in (0, 1):
        message_id = MessageId(place.uuids.next())
        one = put(place, message_id, ends[0])
        other = Place(ends[1][1], ends[1][0], message_id)
        os.link(one.path(place.root.layout), other.path(place.root.layout))
        both = (one, other)
        latest = max(both, key=lateness)
        with claimed(place.root, both[met]) as claim:
            assert (claim is not None) is (both[met] == latest)
        assert names(place, message_id) == [latest.path(place.root.layout)]


def test_a_copy_outside_of_the_root_and_another_file_stay(
    place: LeasingRoot, tmp_path: Path
) -> None:
    message_id = MessageId(place.uuids.next())
    ready = put(place, message_id, (QUEUE, State.READY))
    put(place, message_id, (QUEUE, State.DELAYED))
    os.link(ready.path(place.root.layout), tmp_path / "copy")
    before = names(place, message_id)
    with claimed(place.root, ready) as claim:
        assert claim is not None
    assert names(place, message_id) == before
    assert (tmp_path / "copy").exists()
