"""A purge's mark, what it covers, and how what is before it is taken away."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.api import call, id_at, make_queue
from harness.api import fetch as api_fetch
from harness.api import publish as api_publish
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.messages import put_file
from harness.server import Serve
from hypothesis import given
from hypothesis import strategies as st

from mq.model.errors import Busy, MessageNotFound, PublishPurged, StorageFailed
from mq.model.lifecycle import State
from mq.model.message import Part
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.core.root import Root
from mq.store.core.unserved import PurgeMark, is_purged, mark_of
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.bucket_names import Bucket, Shape, dashed
from mq.store.opening import open_root, root_of
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import (
    PURGE_MARK_KEPT_S,
    Taken,
    purge,
    sweep_purged,
    take_purged,
    take_purged_buckets,
)
from mq.store.operations.queues import WantedShape, create_queue, delete_queue, sweep_tombstones
from mq.store.operations.read import read
from mq.store.operations.redeliver import Redelivery, Timer, redeliver
from mq.store.operations.remove import remove
from mq.store.operations.reschedule import reschedule
from mq.store.scan.census import Census, count
from mq.store.scan.order import list_ready

QUEUE = QueueName.parse("q")
times = st.integers(0, 2**45)


class Counting(FaultyFiles):
    """Which folders were listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []

    def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        self.listed.append(folder)
        return super().entries(folder)


class Place:
    """A root with one queue, and a clock that the test moves."""

    def __init__(self, top: Path, folder_max: int = 10_000, shards: int = 1) -> None:
        self.top = top
        self.files = Counting()
        self.clock = FakeClock()
        self.root: Root = open_root(str(top), self.files, self.clock, folder_max=folder_max)
        self.uuids = UuidSource(self.clock)
        run_alone(create_queue(self.root, QUEUE, WantedShape(shards=shards)), NoFlusher())
        self.queue = Path(self.root.layout.queue(QUEUE))

    def publish(self, priority: int = 0) -> MessageId:
        message_id = MessageId(self.uuids.next(), priority)
        draft = Draft(QUEUE, message_id, message_id.published_ms)
        return run_alone(publish(self.root, draft, b"x"), NoFlusher())

    def fetched(self, message_id: MessageId) -> Path:
        """Fetches it; where it lies."""
        delivery = run_alone(fetch(self.root, QUEUE, message_id, 30), NoFlusher())
        assert delivery is not None
        return self.top / "delay" / delivery.bucket / f"q:{message_id.text}"

    def purge(self) -> int:
        return run_alone(purge(self.root, QUEUE, self.uuids.end_moment()), NoFlusher())

    def ready(self) -> list[str]:
        listing = list_ready(self.root, QUEUE, 1000)
        assert listing is not None
        return [each.text for each in listing.ids]

    def sweep(self, done: "dict[QueueName, PurgeMark] | None" = None) -> int:
        return sweep_purged(self.root, {} if done is None else done)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "root")


# What a mark covers


@given(times, times)
def test_a_mark_covers_what_is_of_its_time_or_before(ms: int, mark_ms: int) -> None:
    assert PurgeMark(mark_ms).covers(id_at(ms)) == (ms <= mark_ms)
    assert PurgeMark(mark_ms).covers(id_at(ms) + ",p=3.json") == (ms <= mark_ms)


@given(times, times, st.sampled_from([7, 8, 9]), st.booleans())
def test_a_bucket_is_covered_when_all_that_belongs_there_is(
    ms: int, mark_ms: int, digits: int, deep: bool
) -> None:
    message_id = MessageId(id_at(ms))
    bucket, _, below = Shape(digits).deep(message_id)[:-1].partition("/")
    of = Bucket(0, bucket, None)
    first = dashed(bucket + (below if deep else ""))
    last = PurgeMark(mark_ms).covers_all(of, below if deep else "")
    text = id_at(mark_ms)[:13]
    assert last == (first + "f" * 20 <= text + "f" * 20 and not text.startswith(first)) or (
        text.startswith(first) and set(text[len(first) :]) - {"-"} == {"f"}
    )
    if last:
        assert PurgeMark(mark_ms).covers(message_id.uuid)
    if of.begins_after(mark_ms):
        assert not PurgeMark(mark_ms).covers(message_id.uuid)


class Hands:
    """A clock that a property sets."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def steady_s(self) -> float:
        return 0.0


@given(st.lists(st.one_of(st.integers(-50, 50), st.sampled_from(["id", "end", "far"]))))
def test_every_id_is_on_one_side_of_every_moment(steps: list[int | str]) -> None:
    """Whatever the clock does; and ids go on rising."""
    clock = Hands()
    uuids, made, ended_ms = UuidSource(clock), [""], -1
    for step in steps:
        match step:
            case "id":
                made.append(uuids.next())
                assert made[-1] > made[-2]
                assert MessageId(made[-1]).published_ms > ended_ms
            case "end":
                ended_ms = uuids.end_moment()
                assert ended_ms >= clock.ms
                assert all(MessageId(each).published_ms <= ended_ms for each in made[1:])
            case "far":
                uuids.go_past(clock.ms + 20)
                ended_ms = max(ended_ms, clock.ms + 20)
            case int():
                clock.ms += step


def test_a_millisecond_that_is_full_ends_too() -> None:
    clock = Hands()
    uuids = UuidSource(clock)
    made = [uuids.next() for _ in range(10_000)]
    ended_ms = uuids.end_moment()
    assert max(MessageId(each).published_ms for each in made) == ended_ms > clock.ms
    assert MessageId(uuids.next()).published_ms == ended_ms + 1


# Operations


def test_every_operation_passes_over_what_is_purged(place: Place) -> None:
    ready, other = place.publish(), place.publish()
    delayed = place.fetched(other)
    before_ms = place.purge()
    kept = place.publish()
    assert (is_purged(place.root, QUEUE, ready), is_purged(place.root, QUEUE, kept)) == (1, 0)
    assert place.ready() == [kept.text]
    assert run_alone(fetch(place.root, QUEUE, ready, 30, ""), NoFlusher()) is None
    for message_id in (ready, other):
        with pytest.raises(MessageNotFound):
            run_alone(remove(place.root, QUEUE, message_id), NoFlusher())
        with pytest.raises(MessageNotFound):
            run_alone(reschedule(place.root, QUEUE, message_id, 5), NoFlusher())
        with pytest.raises(MessageNotFound):
            read(place.root, QUEUE, message_id, lambda size, receives: Part(0, size))
    counts = count(Census(place.root), QUEUE)
    assert (counts.ready, counts.delayed, counts.in_flight) == (1, 0, 0)
    assert counts.oldest_ready_ms == kept.published_ms
    old = Draft(QUEUE, MessageId(id_at(before_ms)), before_ms)
    with pytest.raises(PublishPurged) as told:
        run_alone(publish(place.root, old, b"x"), NoFlusher())
    assert told.value.before_ms == before_ms
    place.clock.advance(31)
    again = redeliver(place.root, QUEUE, other, Timer())
    assert run_alone(again, NoFlusher())[0] is Redelivery.RETIRED
    assert not delayed.exists()
    assert message_files(place.top)["remove"] == [f"q:{other.text}"]


def test_what_is_purged_and_lies_there_still_is_not_found_by_a_read(place: Place) -> None:
    ready, other = place.publish(), place.publish()
    place.fetched(other)
    place.purge()
    for message_id in (ready, other):
        with pytest.raises(MessageNotFound):
            read(place.root, QUEUE, message_id, lambda *_: None)
    while take_purged(place.root, QUEUE).met:
        pass
    for message_id in (ready, other):
        assert read(place.root, QUEUE, message_id, lambda *_: None).state is State.REMOVED
        with pytest.raises(MessageNotFound):
            read(place.root, QUEUE, message_id, lambda *_: None, with_removed=False)


def test_an_earlier_purge_takes_no_later_one_back(place: Place) -> None:
    later_ms = place.purge() + 5000
    assert run_alone(purge(place.root, QUEUE, later_ms), NoFlusher()) == later_ms
    assert run_alone(purge(place.root, QUEUE, later_ms - 1), NoFlusher()) == later_ms
    assert mark_of(place.root, QUEUE) == PurgeMark(later_ms)


def test_a_purge_waits_for_nobody_who_has_the_lock(place: Place) -> None:
    files = Files()
    descriptor = files.open_kept(place.root.layout.queues_lock)
    assert files.lock(descriptor)
    with pytest.raises(Busy):
        place.purge()
    files.close(descriptor)
    assert mark_of(place.root, QUEUE) is None


def test_a_lost_reply_of_a_rename_is_no_failure(place: Place) -> None:
    """As NFS may have it: done, and answered ENOENT."""

    class Losing(Files):
        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            raise FileNotFoundError(errno.ENOENT, "lost", source)

    root = open_root(str(place.top), Files(), place.clock)
    losing = root_of(root.layout, Losing(), place.clock)
    before_ms = place.uuids.end_moment()
    assert run_alone(purge(losing, QUEUE, before_ms), NoFlusher()) == before_ms
    assert mark_of(place.root, QUEUE) == PurgeMark(before_ms)


@pytest.mark.parametrize("step", ["create", "stamp", "rename", "sync_folder"])
def test_a_purge_that_fails_leaves_the_mark_as_it_was(place: Place, step: str) -> None:
    before = PurgeMark(place.purge())
    place.clock.advance(5)
    place.files.fail(step, errno.EIO, "/purged")
    with pytest.raises(StorageFailed):
        run_alone(purge(place.root, QUEUE, place.uuids.end_moment()), FsyncFlusher(place.files, 1))
    if step != "sync_folder":
        assert mark_of(place.root, QUEUE) == before
    assert [each.name for each in (place.top / "purged").iterdir()] == ["q"]


def test_what_a_foreign_file_says_is_no_mark(place: Place) -> None:
    message_id = place.publish()
    (place.top / "purged" / "q").mkdir()
    assert place.ready() == [message_id.text]
    (place.top / "purged" / "q").rmdir()
    (place.top / "purged" / "q").symlink_to("/etc/hosts")
    assert place.ready() == [message_id.text]


# Taking away


def test_what_is_purged_goes_to_remove_and_the_rest_stays(place: Place) -> None:
    gone = [place.publish() for _ in range(5)]
    place.fetched(gone[0])
    foreign = put_file(place.queue / "README")
    place.purge()
    kept = [place.publish() for _ in range(3)]
    place.fetched(kept[0])
    assert take_purged(place.root, QUEUE) == Taken(5, 5)
    assert take_purged(place.root, QUEUE) == Taken(0, 0)
    found = message_files(place.top)
    assert found["remove"] == sorted(f"q:{each.text}" for each in gone)
    assert found["delay"] == [f"q:{kept[0].text}"]
    assert found["queues"] == sorted(["q:README", *(f"q:{each.text}" for each in kept[1:])])
    assert foreign.exists()


def test_it_is_taken_away_bit_by_bit(place: Place) -> None:
    for _ in range(7):
        place.publish()
    place.purge()
    taken = [take_purged(place.root, QUEUE, 3).moved for _ in range(4)]
    assert taken == [3, 3, 1, 0]


@pytest.mark.parametrize("shards", [1, 3])
def test_whole_buckets_go_by_one_rename_each(tmp_path: Path, shards: int) -> None:
    place = Place(tmp_path / "root", folder_max=1, shards=shards)
    ids = []
    for _ in range(3):
        ids += [place.publish(priority) for priority in (0, 0, 0, 4)]
        place.clock.advance(70)
    place.purge()
    buckets = [path for path in place.queue.iterdir() if path.is_dir()]
    since = len(place.files.calls)
    while take_purged_buckets(place.root, QUEUE):
        pass
    renames = [call for call in place.files.calls[since:] if call[0] == "rename"]
    assert len(renames) == len(buckets)
    assert not [path for path in place.queue.iterdir() if path.is_dir()]
    assert take_purged(place.root, QUEUE).met == 1  # What lay flat.
    names = {path.name.rpartition(":")[2] for path in (place.top / "remove").rglob("*")}
    assert {each.text for each in ids} <= names


def test_a_bucket_with_something_else_in_it_stays(tmp_path: Path) -> None:
    """Put there by hand: a newer message, and what is none."""
    place = Place(tmp_path / "root", folder_max=1)
    for _ in range(3):
        place.publish()
    [bucket] = [path for path in place.queue.iterdir() if path.is_dir()]
    place.clock.advance(300)
    place.purge()
    newer = put_file(bucket / id_at(place.clock.now_ms() + 5))
    assert take_purged_buckets(place.root, QUEUE) == 0
    assert take_purged(place.root, QUEUE).moved == 3
    assert [path.name for path in bucket.iterdir() if path.is_file()] == [newer.name]
    newer.rename(bucket / "README")
    assert take_purged_buckets(place.root, QUEUE) == 0


def test_a_full_disk_is_freed_by_a_purge(tmp_path: Path) -> None:
    place = Place(tmp_path / "root", folder_max=2)
    for _ in range(6):
        place.publish()
    place.clock.advance(300)
    place.purge()
    place.files.fail("rename", errno.ENOSPC, "/remove/", times=1000)
    place.files.fail("mkdir", errno.ENOSPC, "/remove/", times=1000)
    while take_purged(place.root, QUEUE).moved:
        pass
    found = message_files(place.top)
    assert (found["queues"], found["remove"]) == ([], [])


def test_a_look_lists_no_bucket_that_is_purged(tmp_path: Path) -> None:
    place = Place(tmp_path / "root", folder_max=1)
    for _ in range(5):
        for _ in range(3):
            place.publish()
        place.clock.advance(70)
    place.purge()
    place.clock.advance(70)
    kept = [place.publish() for _ in range(2)]
    place.files.listed.clear()
    assert place.ready() == [each.text for each in kept]
    buckets = {Path(folder).name for folder in place.files.listed} - {"q"}
    assert buckets <= {Shape().bucket(kept[0])[:-1], *(f"{n:02x}" for n in range(256))}
    assert len(place.files.listed) <= 3


# Sweeping


def test_a_sweep_goes_on_where_a_process_died(place: Place) -> None:
    for _ in range(4):
        place.publish()
    place.purge()
    kept = place.publish()
    done: dict[QueueName, PurgeMark] = {}
    assert place.sweep(done) == 4
    assert place.ready() == [kept.text]
    assert mark_of(place.root, QUEUE) is not None
    assert place.sweep(done) == 0
    assert set(done) == {QUEUE}
    place.files.listed.clear()
    assert place.sweep(done) == 0
    assert place.files.listed == [place.root.layout.purged]  # Nothing is left to look for.


def test_a_mark_goes_when_it_is_an_hour_old_and_nothing_is_left(place: Place) -> None:
    mark = place.top / "purged" / "q"
    place.publish()
    place.purge()
    done: dict[QueueName, PurgeMark] = {}
    place.sweep(done)
    place.sweep(done)
    place.clock.advance(PURGE_MARK_KEPT_S - 1)
    place.sweep(done)
    assert mark.exists()
    place.clock.advance(1)
    message_id = place.publish()
    late = put_file(place.queue / id_at(mark_ms(place)), due_ms=1)  # It was still on its way.
    place.sweep(done)
    assert mark.exists()
    assert not late.exists()
    place.sweep(done)
    assert not mark.exists()
    assert place.ready() == [message_id.text]
    place.sweep(done)
    assert not done


def mark_ms(place: Place) -> int:
    mark = mark_of(place.root, QUEUE)
    assert mark is not None
    return mark.ms


def test_a_mark_that_was_made_anew_meanwhile_stays(place: Place) -> None:
    place.purge()
    place.clock.advance(PURGE_MARK_KEPT_S)
    gate = place.uuids.end_moment()

    class Late(Files):
        def lock(self, descriptor: int) -> bool:
            path = place.top / "purged" / "q"
            os.utime(path, ns=(gate * 10**6,) * 2)
            return super().lock(descriptor)

    root = root_of(place.root.layout, Late(), place.clock)
    sweep_purged(root, {})
    assert mark_of(place.root, QUEUE) == PurgeMark(gate)


def test_a_deleted_queue_has_no_mark_and_a_mark_no_queue_has_goes(place: Place) -> None:
    mark = place.top / "purged" / "q"
    place.purge()
    run_alone(delete_queue(place.root, QUEUE, place.uuids.next()), NoFlusher())
    assert not mark.exists()
    for path in (mark, mark.with_name(".q.0123456789abcdef"), mark.with_name(".mine")):
        path.touch()
    place.sweep()
    assert mark.exists()  # Whoever has the lock takes it.
    run_alone(sweep_tombstones(place.root), NoFlusher())
    assert [path.name for path in mark.parent.iterdir()] == [".mine"]


@pytest.mark.certificate
async def test_a_purge_takes_what_was_published_before_the_clock_was_set_back(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    await api_publish(server)
    clock.set_ms(clock.now_ms() - 1000)
    assert (await call(server, "DELETE", "/q/messages")).status == 202
    assert (await api_fetch(server)).status == 204
    later = await api_publish(server)
    assert (await api_fetch(server)).id == later
