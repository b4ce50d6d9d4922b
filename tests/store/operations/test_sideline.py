"""Sidelining a message: what moves, what stays, and what it meets on the way."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.audits import audit
from harness.faults import Met
from harness.leases import QUEUE, LeasingRoot, stamp_of

from mq.model.errors import (
    AlreadySideline,
    Busy,
    DeliveredAgain,
    KeyNotFound,
    MessageLeased,
    MessageNotFound,
    NameTaken,
    QueueNotFound,
    SidelineMissing,
    SidelinePurged,
    StorageFailed,
)
from mq.model.lifecycle import State
from mq.model.message import Reason, Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.find import whereabouts
from mq.store.core.locks import queues_locked
from mq.store.core.standing import queue_exists
from mq.store.disk.flush import FsyncFlusher
from mq.store.format.layout import Keys
from mq.store.format.settings import write_fields
from mq.store.leases.releasing import release as release_lease
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import PURGE_MARK_KEPT_S, purge, sweep_purged, take_purged
from mq.store.operations.queues import delete_queue
from mq.store.operations.remove import find_key, remove
from mq.store.operations.reschedule import reschedule
from mq.store.operations.sideline import opened, sideline
from mq.store.scan.order import list_ready

SIDELINE = QUEUE.sideline()


@pytest.fixture
def files() -> Met:
    return Met()


@pytest.fixture(params=[10_000, 1], ids=["flat", "buckets"])
def place(tmp_path: Path, files: Met, request: pytest.FixtureRequest) -> LeasingRoot:
    place = LeasingRoot(
        tmp_path / "root", folder_max=request.param, files=files, flusher=FsyncFlusher(files, 1)
    )
    place.make_queue(SIDELINE)
    return place


def fetched(place: LeasingRoot, message_id: MessageId, queue: QueueName = QUEUE) -> MessageId:
    assert place.run(fetch(place.root, queue, message_id, 60)) is not None
    return message_id


def a_message(place: LeasingRoot, *, is_fetched: bool) -> MessageId:
    """The last of three, so that it goes to a bucket where there are any."""
    message_id = place.publish(3)[-1]
    return fetched(place, message_id) if is_fetched else message_id


def states(place: LeasingRoot, message_id: MessageId) -> tuple[State | None, State | None]:
    """Where it is in the queue, and in its sideline."""
    return (
        whereabouts(place.root, QUEUE, message_id),
        whereabouts(place.root, SIDELINE, message_id),
    )


@pytest.mark.parametrize("is_fetched", [True, False])
def test_it_goes_with_its_name_and_its_receives(place: LeasingRoot, is_fetched: bool) -> None:
    message_id = a_message(place, is_fetched=is_fetched)
    place.pass_s(7)
    into, stamp = place.run(sideline(place.root, QUEUE, message_id, Reason.EXCEPTION))
    assert into == SIDELINE
    assert stamp == Stamp(place.clock.now_ms(), int(is_fetched), Reason.EXCEPTION)
    assert stamp_of(place.root, message_id, SIDELINE) == stamp
    assert states(place, message_id) == (None, State.READY)
    assert audit(place.root).is_clean


def test_from_there_it_is_fetched_released_and_removed_as_any(place: LeasingRoot) -> None:
    message_id = a_message(place, is_fetched=True)
    place.run(sideline(place.root, QUEUE, message_id))
    delivery = place.run(fetch(place.root, SIDELINE, message_id, 60))
    assert delivery is not None
    assert delivery.body == b"x"
    assert (delivery.stamp.receives, delivery.stamp.reason) == (2, Reason.REJECTED)
    assert place.run(reschedule(place.root, SIDELINE, message_id, 0)).reason == Reason.REJECTED
    with pytest.raises(MessageNotFound):
        place.run(remove(place.root, QUEUE, message_id))
    assert place.run(remove(place.root, SIDELINE, message_id))
    assert states(place, message_id) == (None, State.REMOVED)


@pytest.mark.parametrize("later", [False, True])
def test_a_second_time_it_stays_as_it_is(place: LeasingRoot, later: bool) -> None:
    message_id = a_message(place, is_fetched=True)
    stamp = place.run(sideline(place.root, QUEUE, message_id))
    if later:
        fetched(place, message_id, SIDELINE)
    place.pass_s(5)
    again = place.run(
        sideline(place.root, QUEUE, message_id, Reason.EXCEPTION, lambda receives: False)
    )
    assert again == stamp or (later and again.stamp.receives == 2)
    assert states(place, message_id) == (None, State.DELAYED if later else State.READY)


def test_its_key_is_free_once_it_went(place: LeasingRoot) -> None:
    ids = []
    for _ in range(2):
        message_id = MessageId(place.uuids.next(), key=Key.parse("k"))
        place.run(publish(place.root, Draft(QUEUE, message_id, message_id.published_ms), b"x"))
        place.run(sideline(place.root, QUEUE, fetched(place, message_id)))
        with pytest.raises(KeyNotFound):
            place.run(find_key(place.root, QUEUE, Key.parse("k")))
        with pytest.raises(KeyNotFound):
            place.run(find_key(place.root, SIDELINE, Key.parse("k")))
        ids.append(message_id)
    assert [states(place, each) for each in ids] == [(None, State.READY)] * 2
    assert audit(place.root).is_clean


def test_who_saw_another_delivery_is_refused(place: LeasingRoot) -> None:
    message_id = a_message(place, is_fetched=True)
    with pytest.raises(DeliveredAgain):
        place.run(sideline(place.root, QUEUE, message_id, if_receives=lambda receives: False))
    assert states(place, message_id) == (State.DELAYED, None)
    place.run(sideline(place.root, QUEUE, message_id, if_receives=lambda receives: receives == 1))


def test_what_cannot_go(place: LeasingRoot) -> None:
    (message_id,) = place.publish(1, SIDELINE)
    with pytest.raises(AlreadySideline):
        place.run(sideline(place.root, SIDELINE, message_id))
    with pytest.raises(QueueNotFound):
        place.run(sideline(place.root, QueueName.parse("none"), message_id))
    never = MessageId(place.uuids.next())
    with pytest.raises(MessageNotFound):
        place.run(sideline(place.root, QUEUE, never))
    (leased,) = place.publish()
    place.claimed()
    with pytest.raises(MessageLeased):
        place.run(sideline(place.root, QUEUE, leased))
    (removed,) = place.publish()
    place.run(remove(place.root, QUEUE, removed))
    with pytest.raises(MessageNotFound):
        place.run(sideline(place.root, QUEUE, removed))


def test_a_missing_sideline_is_made_for_its_first_message(tmp_path: Path) -> None:
    place = LeasingRoot(tmp_path / "root")
    folder = place.top / "queues" / SIDELINE.text
    message_id = a_message(place, is_fetched=True)
    with pytest.raises(MessageNotFound):
        place.run(sideline(place.root, QUEUE, MessageId(place.uuids.next())))
    with pytest.raises(DeliveredAgain):
        place.run(sideline(place.root, QUEUE, message_id, if_receives=lambda seen: seen == 7))
    assert not folder.exists()
    assert place.run(sideline(place.root, QUEUE, message_id)).into == SIDELINE
    assert states(place, message_id) == (None, State.READY)


@pytest.mark.parametrize("is_fetched", [True, False])
def test_a_deleted_sideline_is_made_again_without_its_messages(
    place: LeasingRoot, is_fetched: bool
) -> None:
    there = fetched(place, *place.publish(1, SIDELINE), SIDELINE)
    place.run(delete_queue(place.root, SIDELINE, place.uuids.next()))
    message_id = a_message(place, is_fetched=is_fetched)
    assert place.run(sideline(place.root, QUEUE, message_id)).into == SIDELINE
    assert states(place, message_id) == (None, State.READY)
    assert whereabouts(place.root, SIDELINE, there) is State.REMOVED
    assert not (place.top / "deleted" / SIDELINE.text).exists()


def test_a_sideline_that_is_there_needs_no_lock_of_the_queues(place: LeasingRoot) -> None:
    message_id = a_message(place, is_fetched=True)
    with queues_locked(place.root):
        assert place.run(sideline(place.root, QUEUE, message_id)).into == SIDELINE


def test_a_sideline_that_another_makes_meanwhile_keeps_its_settings(
    tmp_path: Path, files: Met
) -> None:
    place = LeasingRoot(tmp_path / "root", files=files, flusher=FsyncFlusher(files, 1))
    settings = Path(place.root.layout.settings_of(SIDELINE))

    def make() -> None:
        place.make_queue(SIDELINE)
        settings.write_text('{"message_ttl_s": 60}')

    message_id = a_message(place, is_fetched=True)
    files.before("open_kept", place.root.layout.queues_lock, make)
    assert place.run(sideline(place.root, QUEUE, message_id)).into == SIDELINE
    assert settings.exists()


def test_one_whose_sideline_cannot_be_made_stays_where_it_is(tmp_path: Path) -> None:
    place = LeasingRoot(tmp_path / "root")
    (place.top / "queues" / SIDELINE.text).write_bytes(b"a file of that name")
    message_id = a_message(place, is_fetched=True)
    with pytest.raises(SidelineMissing) as missing:
        place.run(sideline(place.root, QUEUE, message_id))
    assert isinstance(missing.value.__cause__, NameTaken)
    assert whereabouts(place.root, QUEUE, message_id) is State.DELAYED


def test_what_was_purged_is_not_sidelined(place: LeasingRoot) -> None:
    message_id = a_message(place, is_fetched=True)
    place.run(purge(place.root, QUEUE, place.clock.now_ms()))
    with pytest.raises(MessageNotFound):
        place.run(sideline(place.root, QUEUE, message_id))
    assert states(place, message_id)[1] is None


def test_a_purge_of_its_queue_takes_nothing_from_the_sideline(place: LeasingRoot) -> None:
    message_id = a_message(place, is_fetched=True)
    place.run(sideline(place.root, QUEUE, message_id))
    place.run(purge(place.root, QUEUE, place.clock.now_ms()))
    take_purged(place.root, QUEUE)
    # Nor does it hide that it went there.
    assert place.run(sideline(place.root, QUEUE, message_id)).stamp.reason == Reason.REJECTED
    listing = list_ready(place.root, SIDELINE, 10)
    assert listing is not None
    assert listing.ids == [message_id]


def test_a_purge_of_the_sideline_takes_nothing_that_comes_later(place: LeasingRoot) -> None:
    before, message_id = place.publish(2)
    place.run(sideline(place.root, QUEUE, before))
    place.run(purge(place.root, SIDELINE, place.clock.now_ms()))
    fetched(place, message_id)
    with pytest.raises(SidelinePurged):
        place.run(sideline(place.root, QUEUE, message_id))
    assert states(place, message_id) == (State.DELAYED, None)
    assert stamp_of_delayed(place, message_id).due_ms > place.clock.now_ms()
    place.pass_s(PURGE_MARK_KEPT_S + 1)
    for _ in range(2):
        sweep_purged(place.root, {})
    place.run(sideline(place.root, QUEUE, message_id))
    listing = list_ready(place.root, SIDELINE, 10)
    assert listing is not None
    assert listing.ids == [message_id]
    # What is younger than the mark goes at once.
    place.run(purge(place.root, SIDELINE, place.clock.now_ms()))
    place.pass_s(1)
    (young,) = place.publish()
    place.run(sideline(place.root, QUEUE, young))


def stamp_of_delayed(place: LeasingRoot, message_id: MessageId) -> Stamp:
    for spot in place.root.places.spots(State.DELAYED, QUEUE, message_id):
        path = place.root.layout.path(State.DELAYED, QUEUE, message_id, spot)
        if (status := place.root.files.status(path)) is not None:
            return Stamp.from_mtime_ns(status.st_mtime_ns)
    raise AssertionError(message_id)


@pytest.mark.parametrize("is_fetched", [True, False])
def test_an_answer_that_a_mount_loses_is_asked_for_again(
    place: LeasingRoot, files: Met, is_fetched: bool
) -> None:
    message_id = a_message(place, is_fetched=is_fetched)
    files.fail("rename", errno.ENOENT, message_id.text, times=1, performed=True)
    moved = place.run(sideline(place.root, QUEUE, message_id))
    assert moved.stamp.receives == int(is_fetched)
    assert states(place, message_id) == (None, State.READY)


@pytest.mark.parametrize("call", ["rename", "stamp", "sync", "sync_folder"])
def test_what_fails_loses_nothing(place: LeasingRoot, files: Met, call: str) -> None:
    message_id = a_message(place, is_fetched=True)
    where = message_id.text if call != "sync_folder" else "SIDELINE"
    files.fail(call, errno.EIO, where, times=1)
    before = stamp_of_delayed(place, message_id)
    with pytest.raises(StorageFailed):
        place.run(sideline(place.root, QUEUE, message_id))
    if call == "rename":
        assert stamp_of_delayed(place, message_id) == before
    assert states(place, message_id) in ((State.DELAYED, None), (None, State.READY))
    assert place.run(sideline(place.root, QUEUE, message_id)).stamp.receives == 1
    assert states(place, message_id) == (None, State.READY)


def test_while_another_holds_it_it_stays(place: LeasingRoot, files: Met) -> None:
    message_id = a_message(place, is_fetched=True)
    path = next(path for path in place.top.glob(f"delay/**/q:{message_id.text}"))
    descriptor = files.open_claimed(str(path))
    assert files.lock(descriptor)
    with pytest.raises(Busy):
        place.run(sideline(place.root, QUEUE, message_id))
    files.close(descriptor)
    place.run(sideline(place.root, QUEUE, message_id))


def test_nobody_fetches_it_before_it_is_there_for_good(place: LeasingRoot, files: Met) -> None:
    message_id = a_message(place, is_fetched=False)

    def fetch_it() -> None:
        with pytest.raises(Busy):
            place.run(fetch(place.root, SIDELINE, message_id, 60))

    files.before("sync", message_id.text, fetch_it)
    place.run(sideline(place.root, QUEUE, message_id))
    fetched(place, message_id, SIDELINE)


def test_who_removes_it_first_wins(place: LeasingRoot, files: Met) -> None:
    message_id = a_message(place, is_fetched=True)
    files.before(
        "rename", message_id.text, lambda: place.run(remove(place.root, QUEUE, message_id))
    )
    with pytest.raises(Busy):
        place.run(sideline(place.root, QUEUE, message_id))
    with pytest.raises(MessageNotFound):
        place.run(sideline(place.root, QUEUE, message_id))


@pytest.mark.parametrize("queue", [QUEUE, SIDELINE])
def test_a_purge_that_comes_before_the_rename_counts(
    place: LeasingRoot, files: Met, queue: QueueName
) -> None:
    message_id = a_message(place, is_fetched=True)
    now_ms = place.clock.now_ms()
    files.before("lock", "", lambda: place.run(purge(place.root, queue, now_ms)))
    with pytest.raises(SidelinePurged if queue == SIDELINE else MessageNotFound):
        place.run(sideline(place.root, QUEUE, message_id))
    assert states(place, message_id)[1] is None


@pytest.mark.parametrize("call", ["rename", "sync"])
@pytest.mark.parametrize("queue", [QUEUE, SIDELINE])
@pytest.mark.parametrize("is_fetched", [True, False])
def test_a_queue_that_is_deleted_meanwhile(
    place: LeasingRoot, files: Met, call: str, queue: QueueName, is_fetched: bool
) -> None:
    """The answer may be that nobody knows; asked again, it is what has come of it."""
    message_id = a_message(place, is_fetched=is_fetched)
    uuid = place.uuids.next()
    files.before(call, message_id.text, lambda: place.run(delete_queue(place.root, queue, uuid)))
    try:
        place.run(sideline(place.root, QUEUE, message_id))
    except (Busy, QueueNotFound):
        pass
    else:
        assert states(place, message_id)[1] is State.READY
    if queue == SIDELINE and call == "rename":
        assert states(place, message_id) == (None, State.READY)  # In a sideline made anew.


@pytest.mark.parametrize("is_fetched", [True, False])
def test_of_two_names_whoever_moves_it_next_leaves_one(
    place: LeasingRoot, is_fetched: bool
) -> None:
    """A crash has left both ends of the rename."""
    acts: list[tuple[Callable[[MessageId], object], tuple[State | None, State | None]]] = [
        (lambda each: fetched(place, each, SIDELINE), (None, State.DELAYED)),
        (lambda each: place.run(remove(place.root, SIDELINE, each)), (None, State.REMOVED)),
        (lambda each: place.run(sideline(place.root, QUEUE, each)), (None, State.READY)),
    ]
    for act, left in acts:
        message_id = a_message(place, is_fetched=is_fetched)
        path = next(path for path in place.top.glob(f"*/**/*{message_id.text}"))
        os.link(path, place.top / "queues" / "q_SIDELINE" / message_id.text)
        act(message_id)
        assert states(place, message_id) == left
        (path,) = place.top.glob(f"*/**/*{message_id.text}")
        assert path.stat().st_nlink == 1


def test_of_two_names_a_lease_that_is_given_back_leaves_one(tmp_path: Path) -> None:
    place = LeasingRoot(tmp_path / "root")
    place.make_queue(SIDELINE)
    (message_id,) = place.publish(1, SIDELINE)
    lease = place.claim(queues=(SIDELINE,))
    assert lease is not None
    (path,) = place.top.glob(f"leases/*/*{message_id.text}")
    os.link(path, place.top / "queues" / "q" / message_id.text)
    assert place.run(release_lease(place.root, lease.name)).returned == 1
    assert states(place, message_id) == (None, State.READY)


def test_a_publish_that_finds_itself_sidelined_was_published(place: LeasingRoot) -> None:
    """Who met its link was faster, and so were a consumer and a sideline."""
    once = Key.parse("o")
    message_id = MessageId(place.uuids.next())
    draft = Draft(QUEUE, message_id, message_id.published_ms, idempotency=once, idempotency_s=300)
    operation = publish(place.root, draft, b"x")
    staged = place.root.layout.path(State.NEW, QUEUE, message_id)
    link = place.root.layout.link(Keys.IDEMPOTENCY, QUEUE, once)
    for _ in operation:
        if os.path.exists(staged) and os.path.lexists(link.path):
            os.rename(staged, place.root.layout.path(State.READY, QUEUE, message_id))
            place.run(sideline(place.root, QUEUE, message_id))
    assert os.path.lexists(link.path)
    again = MessageId(place.uuids.next())
    draft = Draft(QUEUE, again, again.published_ms, idempotency=once, idempotency_s=300)
    assert place.run(publish(place.root, draft, b"x")) == message_id


def test_a_shared_sideline_is_used_once_a_file_joins_it(place: LeasingRoot) -> None:
    root, shared = place.root, QueueName("failed_SIDELINE")
    place.run(write_fields(root.layout, root.files, QUEUE, {"sideline_to": shared.text}))
    root.facts.look_again(QUEUE)
    assert root.facts.sidelines(QUEUE) == (SIDELINE,)
    assert place.run(opened(root, QUEUE)) == shared
    assert queue_exists(root, shared)
    assert root.facts.sidelines(QUEUE) == (SIDELINE, shared)
