"""Putting many claimed messages back at once."""

import errno
from pathlib import Path

import pytest
from harness.faults import FlushedInCalls
from harness.leases import QUEUE, LeasingRoot, stamp_of

from mq.model.errors import StorageFailed
from mq.model.lifecycle import State
from mq.model.message import Delivery
from mq.model.names import MessageId
from mq.store.core.find import whereabouts
from mq.store.disk.flush import FsyncFlusher
from mq.store.operations.fetch import fetch
from mq.store.operations.queues import delete_queue
from mq.store.operations.release import RELEASED_PER_FLUSH_MAX, release_many
from mq.store.operations.remove import remove
from mq.store.operations.reschedule import reschedule
from mq.store.scan.order import list_ready


@pytest.fixture
def files() -> FlushedInCalls:
    return FlushedInCalls()


@pytest.fixture(params=[10_000, 2], ids=["flat", "buckets"])
def place(tmp_path: Path, files: FlushedInCalls, request: pytest.FixtureRequest) -> LeasingRoot:
    flusher = FsyncFlusher(files, 1)
    return LeasingRoot(tmp_path / "root", request.param, files, flusher)


def fetched(place: LeasingRoot, count: int) -> list[Delivery]:
    deliveries = []
    for message_id in place.publish(count):
        delivery = place.run(fetch(place.root, QUEUE, message_id, 60))
        assert delivery is not None
        deliveries.append(delivery)
    return deliveries


def ready(place: LeasingRoot) -> list[MessageId]:
    listing = list_ready(place.root, QUEUE, 10_000)
    assert listing is not None
    return listing.ids


def test_all_are_ready_again_with_their_receives(place: LeasingRoot) -> None:
    deliveries = fetched(place, 9)
    place.pass_s(5)
    ids = place.run(release_many(place.root, QUEUE, deliveries))
    assert ids == [each.id for each in deliveries]
    assert ready(place) == ids
    for message_id in ids:
        stamp = stamp_of(place.root, message_id)
        assert (stamp.due_ms, stamp.receives) == (place.clock.now_ms(), 1)


def test_what_has_moved_on_is_left_alone(place: LeasingRoot) -> None:
    extended, removed, back, held = fetched(place, 4)
    place.run(reschedule(place.root, QUEUE, extended.id, 99))
    place.run(remove(place.root, QUEUE, removed.id))
    path = place.root.layout.path(State.DELAYED, QUEUE, held.id, held.bucket)
    descriptor = place.files.open_claimed(path)
    assert place.files.lock(descriptor)
    assert place.run(release_many(place.root, QUEUE, [extended, removed, back, held])) == [back.id]
    place.files.close(descriptor)
    assert ready(place) == [back.id]
    assert whereabouts(place.root, QUEUE, extended.id) is State.DELAYED
    assert place.run(release_many(place.root, QUEUE, [back])) == []


def test_few_flushes_are_enough_for_many(tmp_path: Path, files: FlushedInCalls) -> None:
    place = LeasingRoot(tmp_path / "root", files=files, flusher=FsyncFlusher(files, 1))
    deliveries = fetched(place, 2 * RELEASED_PER_FLUSH_MAX)
    since = len(files.calls)
    assert len(place.run(release_many(place.root, QUEUE, deliveries))) == len(deliveries)
    calls = files.calls[since:]
    queue, delay = place.root.layout.queue(QUEUE), place.root.layout.delay
    assert [call for call in calls if "sync" in call[0]] == [
        ("sync_folder", queue), ("sync_folder", delay),
    ] * 2  # fmt: skip
    first = calls.index(("sync_folder", queue))
    assert sum(kind == "rename" for kind, _ in calls[:first]) == RELEASED_PER_FLUSH_MAX
    assert files.open_paths(":") == []


def test_where_the_queue_was_deleted_nothing_comes_back(place: LeasingRoot) -> None:
    deliveries = fetched(place, 3)
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    assert place.run(release_many(place.root, QUEUE, deliveries)) == []


@pytest.mark.parametrize("call", ["stamp", "rename", "sync_folder"])
def test_what_fails_loses_nothing(place: LeasingRoot, files: FlushedInCalls, call: str) -> None:
    deliveries = fetched(place, 3)
    files.fail(call, errno.EIO, times=1, after=1 if call != "sync_folder" else 0)
    with pytest.raises(StorageFailed):
        place.run(release_many(place.root, QUEUE, deliveries))
    for each in deliveries:
        assert whereabouts(place.root, QUEUE, each.id) in (State.READY, State.DELAYED)
