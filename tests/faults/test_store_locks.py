"""Who has a lock is alone, and what is changed under it is changed while it is held."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from harness.leases import QUEUE, LeasingRoot
from harness.watched import WatchedFiles

from mq.errors import Busy
from mq.message import Delivery
from mq.names import QueueName, UuidSource
from mq.settings import QueueSettings
from mq.store.configure import change_settings
from mq.store.expire import expire_bucket
from mq.store.fetch import fetch
from mq.store.flush import FsyncFlusher
from mq.store.journal import job_locked, journal_locked
from mq.store.pipeline_layout import job_folder, job_lock, journal_lock
from mq.store.purge import purge
from mq.store.putting_right import restore_queue
from mq.store.queues import create_queue, delete_queue, retire_delayed, sweep_tombstones
from mq.store.queues_lock import queues_locked
from mq.store.reschedule import extend, release
from mq.store.root import Root
from mq.store.steps import Steps
from mq.store.turns import at_once, in_turn

JOB = "job-1"
GONE = QueueName.parse("gone")


@pytest.fixture
def files() -> WatchedFiles:
    return WatchedFiles()


@pytest.fixture
def place(tmp_path: Path, files: WatchedFiles) -> LeasingRoot:
    return LeasingRoot(tmp_path / "root", files=files, flusher=FsyncFlusher(files, 1))


def is_free(root: Root, path: str) -> bool:
    descriptor = root.files.open_kept(path)
    try:
        return root.files.lock(descriptor)
    finally:
        root.files.close(descriptor)


@pytest.mark.parametrize(
    ("locked", "path"),
    [
        (queues_locked, lambda root: root.layout.queues_lock),
        (journal_locked, lambda root: journal_lock(root.layout)),
        (lambda root: job_locked(root, JOB), lambda root: job_lock(root.layout, JOB)),
    ],
    ids=["queues", "journal", "job"],
)
def test_a_lock_that_is_held_is_not_another_s(
    place: LeasingRoot,
    locked: Callable[[Root], AbstractContextManager[object]],
    path: Callable[[Root], str],
) -> None:
    os.makedirs(job_folder(place.root.layout, JOB))
    with locked(place.root):
        assert not is_free(place.root, path(place.root))
    assert is_free(place.root, path(place.root))


def test_what_is_done_in_turn_is_done_under_the_lock(place: LeasingRoot) -> None:
    path = f"{place.top}/lock"
    assert not place.run(in_turn(place.root, path, lambda: is_free(place.root, path)))
    looked: list[bool] = []
    assert at_once(place.root, path, lambda: looked.append(is_free(place.root, path)))
    assert looked == [False]


def test_what_another_has_locked_is_not_done(place: LeasingRoot) -> None:
    path = f"{place.top}/lock"
    descriptor = place.files.open_kept(path)
    assert place.files.lock(descriptor)
    assert not at_once(place.root, path, lambda: pytest.fail("it was done"))
    with pytest.raises(Busy):
        place.run(in_turn(place.root, path, lambda: pytest.fail("it was done")))
    place.files.close(descriptor)


def test_a_lock_on_a_file_whose_name_is_another_s_is_none(tmp_path: Path) -> None:
    """As where the lock's folder went with its queue, and another came."""
    path = tmp_path / "lock"

    class Replaced(WatchedFiles):
        def lock(self, descriptor: int) -> bool:
            path.unlink()
            path.touch()
            return super().lock(descriptor)

    place = LeasingRoot(tmp_path / "root")
    root = replace(place.root, files=Replaced())
    assert not at_once(root, str(path), lambda: pytest.fail("it was done"))


@pytest.mark.parametrize(
    "operation",
    [
        lambda root: change_settings(root, QUEUE, {"priority_default": 3}, QueueSettings()),
        lambda root: purge(root, QUEUE, 1_000),
        lambda root: create_queue(root, GONE),
        lambda root: delete_queue(root, QUEUE, UuidSource(root.clock).next()),
        lambda root: retire_delayed(root, GONE),
        lambda root: restore_queue(root, GONE),
        sweep_tombstones,
    ],
    ids=["change", "purge", "create", "delete", "retire", "restore", "sweep"],
)
def test_what_concerns_a_queue_as_a_whole_is_done_by_one_at_a_time(
    place: LeasingRoot, operation: Callable[[Root], Steps[object]]
) -> None:
    with queues_locked(place.root), pytest.raises(Busy):
        place.run(operation(place.root))


def test_what_is_expired_is_moved_whole_by_one_at_a_time(tmp_path: Path) -> None:
    place = LeasingRoot(tmp_path / "root", folder_max=0)
    place.publish(3)
    patch = {"message_ttl_s": 1, "expired": "remove"}
    place.run(change_settings(place.root, QUEUE, patch, QueueSettings()))
    place.pass_s(100_000)
    with queues_locked(place.root), pytest.raises(Busy):
        expire_bucket(place.root, QUEUE)
    assert expire_bucket(place.root, QUEUE)


def fetched(place: LeasingRoot) -> Delivery:
    (message_id,) = place.publish()
    delivery = place.run(fetch(place.root, QUEUE, message_id, 60))
    assert delivery is not None
    return delivery


def test_a_longer_time_is_set_and_flushed_under_the_message_s_lock(
    place: LeasingRoot, files: WatchedFiles
) -> None:
    delivery = fetched(place)
    files.seen.clear()
    given = place.run(extend(place.root, delivery, delivery.stamp.due_ms + 60_000))
    assert given is not None
    assert (files.seen, files.unlocked) == (["stamp", "sync"], [])


@pytest.mark.parametrize("limit", [None, 1])
def test_what_goes_back_is_stamped_under_the_message_s_lock(
    place: LeasingRoot, files: WatchedFiles, limit: int | None
) -> None:
    """Also what was received as often as its queue allows, and stays to be sidelined."""
    patch = {"max_receives": limit}
    place.run(change_settings(place.root, QUEUE, patch, QueueSettings()))
    place.root.settings.look_again(QUEUE)
    delivery = fetched(place)
    files.seen.clear()
    assert place.run(release(place.root, delivery)) is (limit is None)
    assert files.seen[0] == "stamp"
    assert "stamp" not in files.unlocked
