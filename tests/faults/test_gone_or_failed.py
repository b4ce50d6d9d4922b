"""What an operation makes of an error: a name that is gone may be a queue that was deleted, or a
race that was lost; any other error is raised.
"""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from harness.faults import FaultyFiles
from harness.leases import QUEUE, LeasingRoot
from harness.messages import new_id
from harness.staging import committed, stage

from mq.model.errors import MqError, QueueNotFound, StorageFailed
from mq.model.names import Key, MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.model.shovel import ALL
from mq.store.bulk.roll_forward import roll_forward
from mq.store.core.standing import not_found, refuse_gone
from mq.store.disk.flush import FolderFlusher, FsyncFlusher
from mq.store.disk.steps import Flush, Steps
from mq.store.leases.releasing import release
from mq.store.operations.expire import expire
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish, publish_many
from mq.store.operations.queues import delete_queue
from mq.store.operations.redeliver import Timer, redeliver
from mq.store.operations.reschedule import reschedule
from mq.store.operations.sideline import sideline
from mq.store.scan.order import STRICT, Candidate
from mq.store.settings.configure import change_settings
from mq.store.shovel.shovel import Aim, shovel_many

K = Key.parse("k")


class GoneFiles(FaultyFiles):
    """When told to, the queue is gone before a call on a path with this in it."""

    def __init__(self) -> None:
        super().__init__()
        self.at = ("", "")
        self.go: Callable[[], object] = lambda: None

    def _look(self, call: str, path: str) -> None:
        if self.at[0] == call and self.at[1] in path:
            self.at = ("", "")
            self.go()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._look("renamed", target)

    def sync_folder(self, path: str) -> None:
        self._look("sync_folder", path)
        super().sync_folder(path)


@pytest.fixture
def files() -> GoneFiles:
    return GoneFiles()


@pytest.fixture
def place(tmp_path: Path, files: GoneFiles) -> LeasingRoot:
    return LeasingRoot(tmp_path / "root", files=files, flusher=FsyncFlusher(files, 1))


def goes(place: LeasingRoot, call: str, where: str) -> None:
    files = place.files
    assert isinstance(files, GoneFiles)
    removed = place.top / "remove" / f"q:{new_id().uuid}.d"
    files.at, files.go = (call, where), lambda: (place.top / "queues/q").rename(removed)


def published(
    place: LeasingRoot, *, later: bool = False, key: Key | None = None
) -> Steps[MessageId]:
    message_id = MessageId(place.uuids.next(), key=key)
    due_ms = place.clock.now_ms() + 60_000 * later
    return publish(place.root, Draft(QUEUE, message_id, due_ms, later), b"x")


def published_many(place: LeasingRoot, later: bool = False) -> Steps[object]:
    ids = [MessageId(place.uuids.next()) for _ in range(2)]
    due_ms = place.clock.now_ms() + 60_000 * later
    drafts = [Draft(QUEUE, each, due_ms, later) for each in ids]
    return publish_many(place.root, drafts, [b"x", b"y"])


@pytest.mark.parametrize("act", [published, published_many], ids=["one", "many"])
def test_a_queue_that_goes_takes_what_is_published_with_it(
    place: LeasingRoot, act: Callable[..., Steps[object]]
) -> None:
    place.publish()  # Its folder is flushed.
    goes(place, "sync_folder", "/queues/q")
    with pytest.raises(QueueNotFound):
        place.run(act(place))


@pytest.mark.parametrize("act", [published, published_many], ids=["one", "many"])
def test_a_queue_that_goes_takes_what_is_published_for_later_with_it(
    place: LeasingRoot, act: Callable[..., Steps[object]]
) -> None:
    goes(place, "renamed", "/delay/")
    with pytest.raises(QueueNotFound):
        place.run(act(place, later=True))


@pytest.mark.parametrize("act", [published, published_many], ids=["one", "many"])
def test_another_folder_that_is_gone_is_no_queue_that_is_not_found(
    place: LeasingRoot, files: GoneFiles, act: Callable[..., Steps[object]]
) -> None:
    files.fail("sync_folder", errno.ENOENT, "/new")
    with pytest.raises(StorageFailed):
        place.run(act(place))


def test_a_publish_for_later_to_no_queue_leaves_nothing(place: LeasingRoot) -> None:
    (place.top / "queues/q").rmdir()
    with pytest.raises(QueueNotFound):
        place.run(published_many(place, later=True))
    assert list((place.top / "new").iterdir()) == []


def test_a_publish_with_a_key_to_no_queue_makes_no_folder_of_keys(place: LeasingRoot) -> None:
    (place.top / "queues/q").rmdir()
    with pytest.raises(QueueNotFound):
        place.run(published(place, key=K))
    assert not (place.top / "queues/q/.keys").exists()


def fetched(place: LeasingRoot, later_s: float = 0) -> MessageId:
    (message_id,) = place.publish()
    assert place.run(fetch(place.root, QUEUE, message_id, 60)) is not None
    place.pass_s(later_s)
    return message_id


def configured(place: LeasingRoot, **fields: object) -> None:
    place.run(change_settings(place.root, QUEUE, fields, QueueSettings()))
    place.root.facts.look_again(QUEUE)
    place.root.facts.settings(QUEUE)


def expired(place: LeasingRoot) -> Steps[object]:
    configured(place, message_ttl_s=60)
    (message_id,) = place.publish()
    place.pass_s(61)
    return expire(place.root, QUEUE, message_id, "")


def came_back(place: LeasingRoot) -> Steps[object]:
    return redeliver(place.root, QUEUE, fetched(place, 61), Timer())


def expired_delayed(place: LeasingRoot) -> Steps[object]:
    configured(place, message_ttl_s=60)
    return redeliver(place.root, QUEUE, fetched(place, 61), Timer())


def released(place: LeasingRoot) -> Steps[object]:
    return reschedule(place.root, QUEUE, fetched(place), 0)


@pytest.mark.parametrize(
    ("begin", "where"),
    [
        (expired, "/remove/"),
        (came_back, "/queues/q/"),
        (expired_delayed, "/remove/"),
        (released, "/queues/q/"),
    ],
)
def test_an_error_of_a_rename_is_told(
    place: LeasingRoot, files: GoneFiles, begin: Callable[[LeasingRoot], Steps[object]], where: str
) -> None:
    operation = begin(place)
    files.fail("rename", errno.EIO, where)
    with pytest.raises(StorageFailed):
        place.run(operation)


def test_a_lease_is_given_back_to_no_bucket_that_could_not_be_made(
    tmp_path: Path, files: GoneFiles
) -> None:
    place = LeasingRoot(tmp_path / "root", 1, files, FsyncFlusher(files, 1))
    (place.top / "queues/q/.full").touch()
    place.publish()
    lease = place.claimed()
    for folder in sorted((place.top / "queues/q").glob("*/**/"), reverse=True):
        folder.rmdir()
    files.fail("mkdir", errno.EIO, "/queues/q/")
    with pytest.raises(StorageFailed):
        place.run(release(place.root, lease.name))


def test_a_publish_is_rolled_forward_to_no_queue_s_loss(
    place: LeasingRoot, files: GoneFiles
) -> None:
    place.make_queue(QueueName.parse("orders"))
    staged, _ = stage(place.root, [b"x"])
    name = committed(place.root, staged, publish_id="nightly").name
    files.fail("rename", errno.ENOENT, "/queues/orders/", times=1)
    files.fail("rename", errno.EIO, "/queues/orders/")
    with pytest.raises(StorageFailed):
        roll_forward(place.root, name)


def test_a_stale_folder_is_gone_and_no_failure_of_the_disk(
    place: LeasingRoot, files: GoneFiles
) -> None:
    failures: list[None] = []
    flusher = FsyncFlusher(files, 1, FolderFlusher(files, lambda: failures.append(None)))
    files.fail("sync_folder", errno.ESTALE)
    caught: list[OSError] = []

    def operation() -> Steps[None]:
        try:
            yield Flush(folders=(place.root.layout.remove,))
        except OSError as error:
            caught.append(error)

    place.flusher = flusher
    place.run(operation())
    flusher.close()
    assert [type(each) for each in caught] == [FileNotFoundError]
    assert failures == []


def over_network(place: LeasingRoot) -> None:
    place.root = replace(place.root, over_network=True)


def test_a_batch_to_no_queue_fails_as_a_whole_over_a_network(place: LeasingRoot) -> None:
    over_network(place)
    (place.top / "queues/q").rmdir()
    with pytest.raises(QueueNotFound):
        place.run(published_many(place))


def test_a_lost_answer_rolls_no_key_s_publish_forward_to_no_queue(
    place: LeasingRoot, files: GoneFiles
) -> None:
    place.make_queue(QueueName.parse("orders"))
    staged, _ = stage(place.root, [b"x"], key="k")
    name = committed(place.root, staged, publish_id="nightly").name
    files.fail("mkdir", errno.ENOENT, "/.keys", times=1)
    with pytest.raises(StorageFailed):
        roll_forward(place.root, name)
    assert roll_forward(place.root, name) == (1, 0, 0)


def test_a_shovel_tells_of_a_lost_answer(place: LeasingRoot, files: GoneFiles) -> None:
    place.make_queue(QUEUE.sideline())
    message_id = place.run(published(place, key=K))
    place.run(sideline(place.root, QUEUE, message_id))
    shutil.rmtree(place.top / "queues/q/.keys")
    place.clock.advance(1)
    files.fail("mkdir", errno.ENOENT, "/.keys", times=1)
    aim = Aim(QUEUE, ALL, place.clock.now_ms())
    candidates = [Candidate(STRICT.key(message_id.text), "")]
    shovelled = shovel_many(place.root, place.flusher, aim, candidates)
    assert isinstance(shovelled.error, StorageFailed)


def test_nothing_is_renamed_to_no_queue_over_a_network(place: LeasingRoot) -> None:
    over_network(place)
    refuse_gone(place.root, QUEUE)
    (place.top / "queues/q").rmdir()
    with pytest.raises(FileNotFoundError):
        refuse_gone(place.root, QUEUE)


def test_nothing_is_fetched_from_a_deleted_queue_s_folder_over_a_network(
    place: LeasingRoot,
) -> None:
    (message_id,) = place.publish()
    over_network(place)
    os.chmod(place.top / "queues/q", 0o1700)
    with pytest.raises(StorageFailed):
        place.run(fetch(place.root, QUEUE, message_id, 60))
    assert (place.top / "queues/q" / message_id.text).exists()


def test_nothing_is_brought_back_to_a_deleted_queue_s_folder_over_a_network(
    place: LeasingRoot,
) -> None:
    (message_id,) = place.publish()
    assert place.run(fetch(place.root, QUEUE, message_id, 60)) is not None
    place.pass_s(61)
    over_network(place)
    os.chmod(place.top / "queues/q", 0o1700)
    with pytest.raises(StorageFailed):
        place.run(redeliver(place.root, QUEUE, message_id, Timer()))
    assert (place.top / "delay" / f"q:{message_id.text}").exists()


def test_a_queue_that_is_there_is_not_found_by_none(place: LeasingRoot) -> None:
    with pytest.raises(StorageFailed):
        not_found(place.root, QUEUE)
    (place.top / "queues/q").rmdir()
    assert isinstance(not_found(place.root, QUEUE), QueueNotFound)
    (place.top / "queues").rmdir()
    with pytest.raises(StorageFailed):
        not_found(place.root, QUEUE)


def deleted(place: LeasingRoot) -> Steps[object]:
    return delete_queue(place.root, QUEUE, place.uuids.next())


def published_over_another(place: LeasingRoot) -> Steps[object]:
    message_id = place.run(published(place, key=K))
    (place.top / "queues/q" / message_id.text).unlink()
    return published(place, key=K)


@pytest.mark.parametrize(("begin", "where"), [(deleted, ".d"), (published_over_another, "/.new")])
def test_a_rename_that_found_nothing_and_was_not_done_is_told(
    place: LeasingRoot, files: GoneFiles, begin: Callable[[LeasingRoot], Steps[object]], where: str
) -> None:
    operation = begin(place)
    files.fail("rename", errno.ENOENT, where)
    with pytest.raises((OSError, MqError)):
        place.run(operation)


def test_a_publish_whose_journal_stays_is_not_at_its_end(
    place: LeasingRoot, files: GoneFiles
) -> None:
    place.make_queue(QueueName.parse("orders"))
    staged, _ = stage(place.root, [b"x"])
    name = committed(place.root, staged, publish_id="nightly").name
    files.fail("rename", errno.ENOENT, "nightly.done")
    with pytest.raises((OSError, MqError)):
        roll_forward(place.root, name)
    assert (place.top / "journal/nightly.json").exists()
