"""Operations over buckets: the races for a bucket, and taking empty ones away."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.messages import new_id

from mq.model.errors import Busy, MqError
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.bucket_names import Shape
from mq.store.opening import open_root
from mq.store.operations.buckets import drop_buckets, sweep_buckets
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.queues import WantedShape, create_queue, delete_queue
from mq.store.operations.redeliver import Redelivery, Timer, redeliver
from mq.store.operations.release import release_many
from mq.store.operations.remove import remove

QUEUE = QueueName.parse("q")


class Place:
    """A root whose folders hold nothing: every message goes below its bucket's first file."""

    def __init__(self, top: Path, files: Files) -> None:
        self.files = files
        self.clock = FakeClock()
        self.root: Root = open_root(str(top), files, self.clock, folder_max=1)
        self.flusher = FsyncFlusher(files, 1)
        run_alone(create_queue(self.root, QUEUE), self.flusher)
        self.queue = Path(self.root.layout.queue(QUEUE))
        for folder in (self.queue, top / "delay", top / "remove"):
            (folder / ".full").touch()  # It counts as a file.

    def publish(self, message_id: MessageId | None = None) -> MessageId:
        message_id = message_id or new_id()
        draft = Draft(QUEUE, message_id, message_id.published_ms)
        return run_alone(publish(self.root, draft, b"x"), self.flusher)

    def bucket(self, message_id: MessageId) -> str:
        return Shape().bucket(message_id)[:-1]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, Files())


def test_a_bucket_that_goes_before_the_rename_is_made_again(tmp_path: Path) -> None:
    class Racing(Files):
        times = 2

        def rename(self, source: str, target: str) -> None:
            folder = os.path.dirname(target)
            if os.path.basename(os.path.dirname(folder)) == "q" and self.times:
                self.times -= 1
                if os.path.isdir(folder):
                    os.rmdir(folder)
            super().rename(source, target)

    place = Place(tmp_path, Racing())
    message_id = place.publish()
    assert (place.queue / place.bucket(message_id) / message_id.text).exists()


def test_a_bucket_that_goes_again_and_again_is_busy_and_loses_nothing(tmp_path: Path) -> None:
    class Racing(Files):
        folder = "queues/q/"

        def rename(self, source: str, target: str) -> None:
            bucket = os.path.dirname(target)
            if f"/{self.folder}0" in bucket and os.path.isdir(bucket):
                os.rmdir(bucket)
            super().rename(source, target)

    files = Racing()
    place = Place(tmp_path, files)
    with pytest.raises(Busy):
        place.publish()
    assert not list((tmp_path / "new").glob("q:*"))
    files.folder = "delay/"
    message_id = place.publish()
    with pytest.raises(Busy):
        run_alone(fetch(place.root, QUEUE, message_id, 30), place.flusher)
    files.folder = "remove/"
    with pytest.raises(Busy):
        run_alone(remove(place.root, QUEUE, message_id), place.flusher)
    assert (place.queue / place.bucket(message_id) / message_id.text).exists()


def test_a_bucket_is_made_but_never_its_queue(place: Place) -> None:
    message_id = place.publish()
    delivery = run_alone(fetch(place.root, QUEUE, message_id, 30), place.flusher)
    assert delivery is not None
    run_alone(delete_queue(place.root, QUEUE, new_id().uuid), place.flusher)
    released = release_many(place.root, QUEUE, [delivery], unhandled=True)
    assert run_alone(released, place.flusher) == []
    place.clock.advance(100)
    redelivery = redeliver(place.root, QUEUE, message_id, Timer(), delivery.bucket)
    assert run_alone(redelivery, place.flusher)[0] is Redelivery.RETIRED
    with pytest.raises(MqError):
        place.publish()
    assert not place.queue.exists()


@pytest.mark.parametrize("was_flat", [True, False])
def test_a_publish_into_a_queue_that_is_made_anew_meanwhile_is_found_by_its_id(
    tmp_path: Path, was_flat: bool
) -> None:
    """In another shape, between the choice of a bucket and the rename."""

    class Racing(Files):
        wanted: WantedShape | None = None

        def rename(self, source: str, target: str) -> None:
            wanted, self.wanted = self.wanted, None
            if wanted is not None:
                root = open_root(str(tmp_path), Files(), FakeClock())
                run_alone(delete_queue(root, QUEUE, new_id().uuid), NoFlusher())
                run_alone(create_queue(root, QUEUE, wanted), NoFlusher())
                if not was_flat:
                    Path(root.layout.queue(QUEUE), ".full").touch()
            super().rename(source, target)

    files = Racing()
    place = Place(tmp_path, files)
    place.publish()
    files.wanted = WantedShape(digits=7)
    message_id = place.publish()
    other = open_root(str(tmp_path), Files(), FakeClock(), folder_max=1)
    assert run_alone(remove(other, QUEUE, message_id), NoFlusher())


def _emptied(place: Place) -> list[Path]:
    ids = [place.publish(MessageId(f"0192f3a2-7c4e-7d2a-9b1e-01234567890{n}")) for n in range(2)]
    for message_id in ids:
        run_alone(remove(place.root, QUEUE, message_id), place.flusher)
    place.clock.advance(10)
    return [place.queue / "0192f3a2" / "7c", place.queue / "0192f3a2"]


def test_an_empty_bucket_goes_once_those_below_it_went(place: Place) -> None:
    _, bucket = _emptied(place)
    assert sweep_buckets(place.root, str(place.queue)) is False
    place.clock.advance(10)
    assert sweep_buckets(place.root, str(place.queue)) is True
    assert not bucket.exists()


@pytest.mark.parametrize("place_of", [Shape().bucket, Shape().deep])
def test_a_sweep_lists_no_backlog(tmp_path: Path, place_of: Callable[[MessageId], str]) -> None:
    class Counting(Files):
        listed = 0

        def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
            for entry in super().entries(folder):
                self.listed += 1
                yield entry

    files = Counting()
    place = Place(tmp_path, files)
    for number in range(100):
        message_id = MessageId(f"0192f3a2-7c4e-7d2a-9b1e-0123456789{number:02}")
        path = place.queue / place_of(message_id) / message_id.text
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    empty = place.queue / "0192f3a1"
    empty.mkdir()
    place.clock.advance(10)
    files.listed = 0
    assert not sweep_buckets(place.root, str(place.queue))
    assert files.listed < 10
    assert not empty.exists()


def test_a_bucket_of_now_or_that_has_just_changed_stays(place: Place) -> None:
    [deep, bucket] = _emptied(place)
    os.utime(deep, ns=(place.clock.now_ms() * 10**6,) * 2)
    message_id = place.publish()
    young = place.queue / place.bucket(message_id)
    run_alone(remove(place.root, QUEUE, message_id), place.flusher)
    drop_buckets(place.root, map(str, (deep, bucket, young)))
    assert deep.exists()
    assert young.exists()


def test_a_bucket_that_holds_something_stays(place: Place) -> None:
    deep, _ = _emptied(place)
    (deep / "foreign").touch()
    place.clock.advance(10)
    assert drop_buckets(place.root, [str(deep)]) == 0
    assert deep.exists()
