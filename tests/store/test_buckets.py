"""Operations over buckets: their steps, the races for a bucket, and taking empty ones away."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.messages import new_id

from mq.errors import Busy, MqError
from mq.names import MessageId, QueueName
from mq.store.bucket_names import Shape
from mq.store.buckets import drop_buckets, sweep_buckets
from mq.store.fetch import fetch
from mq.store.files import Files
from mq.store.flush import FsyncFlusher, NoFlusher
from mq.store.group import run_alone
from mq.store.publish import Draft, publish
from mq.store.queues import WantedShape, create_queue, delete_queue, retire_delayed
from mq.store.redeliver import Redelivery, Timer, redeliver
from mq.store.remove import remove
from mq.store.reschedule import release
from mq.store.root import Root, open_root

QUEUE = QueueName.parse("q")
LONG_AGO = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"


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


class Steps(FaultyFiles):
    """What changed the disk, or made that durable, by the names of folders."""

    def taken(self, since: int) -> list[str]:
        top = len(str(self.top)) + 1
        kinds = ("mkdir", "rename", "sync", "sync_folder", "rmdir")
        return [f"{kind} {path[top:]}" for kind, path in self.calls[since:] if kind in kinds]

    top = Path()


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    files = Steps()
    files.top = tmp_path
    return files


@pytest.fixture
def place(tmp_path: Path, steps: Steps) -> Place:
    return Place(tmp_path, steps)


def test_the_steps_of_a_publish_into_a_bucket(place: Place, steps: Steps) -> None:
    since = len(steps.calls)
    first = place.publish()
    bucket = place.bucket(first)
    assert steps.taken(since) == [
        f"sync new/q:{first}",
        f"rename new/q:{first}",
        f"mkdir queues/q/{bucket}",
        f"rename new/q:{first}",
        "sync_folder queues",  # What leads to the message is durable before its place is.
        "sync_folder queues/q",
        f"sync_folder queues/q/{bucket}",
        "sync_folder new",
    ]
    since = len(steps.calls)
    second = MessageId(first.uuid[:-1] + ("0" if first.uuid[-1] != "0" else "1"))
    place.publish(second)
    deep = Shape().deep(second)[:-1]
    assert steps.taken(since) == [
        f"sync new/q:{second}",
        f"rename new/q:{second}",
        f"mkdir queues/q/{bucket}",  # Which is there.
        f"mkdir queues/q/{deep}",
        f"rename new/q:{second}",
        f"sync_folder queues/q/{bucket}",
        f"sync_folder queues/q/{deep}",
        "sync_folder new",
    ]
    since = len(steps.calls)
    third = MessageId(first.uuid[:-2] + "ee")
    place.publish(third)
    assert steps.taken(since)[-2:] == [f"sync_folder queues/q/{deep}", "sync_folder new"]
    assert len(steps.taken(since)) == 4


def test_the_steps_of_a_fetch_between_buckets(place: Place, steps: Steps) -> None:
    """The bucket that it goes to is on stable media before the message leaves its own."""
    message_id = place.publish()
    bucket = place.bucket(message_id)
    since = len(steps.calls)
    delivery = run_alone(fetch(place.root, QUEUE, message_id, 30), place.flusher)
    assert delivery is not None
    assert delivery.bucket == f"{bucket}/"
    assert steps.taken(since) == [
        f"mkdir delay/{bucket}",
        "sync_folder delay",
        f"rename queues/q/{bucket}/{message_id}",
        f"sync queues/q/{bucket}/{message_id}",
        f"sync_folder delay/{bucket}",
        f"sync_folder queues/q/{bucket}",
    ]


def test_the_steps_of_retiring_between_buckets(place: Place, steps: Steps) -> None:
    """As with every rename: where it went to is flushed before where it came from."""
    message_id = place.publish()
    bucket = place.bucket(message_id)
    assert run_alone(fetch(place.root, QUEUE, message_id, 30), place.flusher) is not None
    run_alone(delete_queue(place.root, QUEUE, message_id.uuid), place.flusher)
    since = len(steps.calls)
    assert run_alone(retire_delayed(place.root, QUEUE), place.flusher) == 1
    assert steps.taken(since) == [
        f"rename delay/{bucket}/q:{message_id}",
        f"mkdir remove/{bucket}",
        f"rename delay/{bucket}/q:{message_id}",
        "sync_folder remove",
        "sync_folder delay",
        f"sync_folder remove/{bucket}",
        f"sync_folder delay/{bucket}",
    ]


def test_the_steps_of_a_release_into_a_bucket_of_long_ago(place: Place, steps: Steps) -> None:
    """Others may have taken the bucket away and made it anew: all is flushed each time."""
    message_id = place.publish(MessageId(LONG_AGO))
    delivery = run_alone(fetch(place.root, QUEUE, message_id, 30), place.flusher)
    assert delivery is not None
    for _ in range(2):
        since = len(steps.calls)
        assert run_alone(release(place.root, delivery), place.flusher)
        taken = [each for each in steps.taken(since) if not each.startswith("sync delay")]
        assert taken == [
            "mkdir queues/q/0192f3a2",
            "sync_folder queues/q",
            f"rename delay/0192f3a2/q:{message_id}",
            "sync_folder queues/q",
            "sync_folder queues/q/0192f3a2",
            "sync_folder delay/0192f3a2",
        ]
        delivery = run_alone(fetch(place.root, QUEUE, message_id, 30), place.flusher)
        assert delivery is not None


def test_the_steps_of_a_release_below_a_bucket_of_long_ago(place: Place, steps: Steps) -> None:
    place.publish(MessageId(LONG_AGO))
    message_id = place.publish(MessageId(LONG_AGO[:-1] + "0"))
    delivery = run_alone(fetch(place.root, QUEUE, message_id, 30), place.flusher)
    assert delivery is not None
    since = len(steps.calls)
    assert run_alone(release(place.root, delivery), place.flusher)
    taken = [each for each in steps.taken(since) if not each.startswith("sync delay")]
    assert taken == [
        "mkdir queues/q/0192f3a2",
        "mkdir queues/q/0192f3a2/7c",
        "sync_folder queues/q",
        "sync_folder queues/q/0192f3a2",
        f"rename delay/0192f3a2/q:{message_id}",
        "sync_folder queues/q",
        "sync_folder queues/q/0192f3a2",
        "sync_folder queues/q/0192f3a2/7c",
        "sync_folder delay/0192f3a2",
    ]


def test_the_steps_of_a_delete_from_a_bucket(place: Place, steps: Steps) -> None:
    message_id = place.publish()
    bucket = place.bucket(message_id)
    run_alone(fetch(place.root, QUEUE, message_id, 30), place.flusher)
    since = len(steps.calls)
    assert run_alone(remove(place.root, QUEUE, message_id), place.flusher)
    assert steps.taken(since)[-6:] == [
        "sync_folder remove",
        f"sync_folder remove/{bucket}",
        "sync_folder delay",
        "sync_folder queues/q",
        f"sync_folder delay/{bucket}",
        f"sync_folder queues/q/{bucket}",
    ]
    assert not run_alone(remove(place.root, QUEUE, message_id), place.flusher)


def test_the_steps_of_making_a_queue_of_another_shape(place: Place, steps: Steps) -> None:
    """Nobody sees the queue before its settings are on stable media."""
    since = len(steps.calls)
    wanted = WantedShape(digits=7)
    assert run_alone(create_queue(place.root, QueueName.parse("wide"), wanted), place.flusher)
    taken = [each.partition(".wide")[0] for each in steps.taken(since)]
    assert taken[-5:] == [
        "sync settings/",
        "rename settings/",
        "sync_folder settings",
        "mkdir queues/wide",
        "sync_folder queues",
    ]


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
    assert not run_alone(release(place.root, delivery), place.flusher)
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


def test_the_steps_of_taking_empty_buckets_away(place: Place, steps: Steps) -> None:
    _, bucket = _emptied(place)
    since = len(steps.calls)
    assert run_alone(sweep_buckets(place.root, str(place.queue)), place.flusher) is False
    assert steps.taken(since) == [
        "sync_folder remove",
        "sync_folder delay",
        "sync_folder queues/q/0192f3a2/7c",
        "rmdir queues/q/0192f3a2/7c",
    ]
    place.clock.advance(10)
    assert run_alone(sweep_buckets(place.root, str(place.queue)), place.flusher) is True
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
    assert not run_alone(sweep_buckets(place.root, str(place.queue)), place.flusher)
    assert files.listed < 10
    assert not empty.exists()


def test_a_bucket_of_now_or_that_has_just_changed_stays(place: Place) -> None:
    [deep, bucket] = _emptied(place)
    os.utime(deep, ns=(place.clock.now_ms() * 10**6,) * 2)
    message_id = place.publish()
    young = place.queue / place.bucket(message_id)
    run_alone(remove(place.root, QUEUE, message_id), place.flusher)
    run_alone(drop_buckets(place.root, map(str, (deep, bucket, young))), NoFlusher())
    assert deep.exists()
    assert young.exists()


def test_a_bucket_that_is_used_meanwhile_stays(tmp_path: Path) -> None:
    class Moving(Files):
        def sync_folder(self, path: str) -> None:
            super().sync_folder(path)
            if path.endswith("7c"):
                Path(path, "other").touch()
                Path(path, "other").unlink()

    place = Place(tmp_path, Moving())
    deep, _ = _emptied(place)
    run_alone(drop_buckets(place.root, [str(deep)]), place.flusher)
    assert deep.exists()


def test_a_bucket_that_holds_something_stays(place: Place) -> None:
    deep, _ = _emptied(place)
    (deep / "foreign").touch()
    place.clock.advance(10)
    assert run_alone(drop_buckets(place.root, [str(deep)]), place.flusher) == 0
    assert deep.exists()


def test_a_failed_flush_keeps_the_bucket(tmp_path: Path) -> None:
    files = FaultyFiles()
    place = Place(tmp_path, files)
    deep, _ = _emptied(place)
    files.fail("sync_folder", errno.EIO, where="7c")
    with pytest.raises(MqError):
        run_alone(drop_buckets(place.root, [str(deep)]), place.flusher)
    assert deep.exists()
