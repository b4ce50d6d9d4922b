"""Who has a lock is alone, and what is changed under it is changed while it is held."""

import fcntl
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from harness.leases import LEASE_S, QUEUE, LeasingRoot
from harness.staging import JOB as STAGED_JOB
from harness.staging import committed, stage
from harness.watched import WatchedFiles

from mq.model.errors import Busy
from mq.model.lifecycle import State
from mq.model.limits import TURN_SILENT_S
from mq.model.message import Delivery
from mq.model.names import Key, QueueName, UuidSource
from mq.model.settings import QueueSettings
from mq.store.audit.findings import Breach, Violation
from mq.store.audit.repair import restamp, restore_queue
from mq.store.bulk.journal import abort, begin_publish, job_locked, journal_locked
from mq.store.bulk.roll_forward import roll_forward
from mq.store.bulk.sweep import STAGING_FORGOTTEN_S, sweep_bulk
from mq.store.core.locks import at_once, in_turn, queues_locked
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.steps import Steps
from mq.store.format.pipeline import JournalFile, job_folder, job_lock, journal_lock, journal_path
from mq.store.format.shovels import turns_lock
from mq.store.leases.releasing import release as release_lease
from mq.store.operations.expire import expire_bucket
from mq.store.operations.fetch import fetch
from mq.store.operations.purge import purge
from mq.store.operations.queues import create_queue, delete_queue, retire_delayed, sweep_tombstones
from mq.store.operations.release import release_many
from mq.store.operations.reschedule import reschedule
from mq.store.settings.configure import change_settings
from mq.store.shovel.files import take_turn
from mq.tools.fsck.repairs import repair_of

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
    place.run(reschedule(place.root, QUEUE, delivery.id, 90))
    assert (files.seen, files.unlocked) == (["stamp", "sync"], [])


@pytest.mark.parametrize("limit", [None, 1])
def test_what_goes_back_is_stamped_under_the_message_s_lock(
    place: LeasingRoot, files: WatchedFiles, limit: int | None
) -> None:
    """Also what was received as often as its queue allows, and stays to be sidelined."""
    patch = {"max_receives": limit}
    place.run(change_settings(place.root, QUEUE, patch, QueueSettings()))
    place.root.facts.look_again(QUEUE)
    delivery = fetched(place)
    if limit:
        place.pass_s(60)  # It has lapsed: else the delivery is no attempt.
    files.seen.clear()
    released = place.run(release_many(place.root, QUEUE, [delivery], unhandled=True))
    assert bool(released) is (limit is None)
    assert files.seen[0] == "stamp"
    assert "stamp" not in files.unlocked


class LockingFiles(WatchedFiles):
    """Keeps the paths of what was locked."""

    def __init__(self) -> None:
        super().__init__()
        self.locked: list[str] = []

    def lock(self, descriptor: int) -> bool:
        self.locked.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return super().lock(descriptor)

    def wait_for_lock(self, descriptor: int) -> None:
        self.locked.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        super().wait_for_lock(descriptor)


@pytest.fixture
def locking() -> LockingFiles:
    return LockingFiles()


@pytest.fixture
def watched(tmp_path: Path, locking: LockingFiles) -> LeasingRoot:
    return LeasingRoot(tmp_path / "root", files=locking, flusher=FsyncFlusher(locking, 1))


def staged(place: LeasingRoot, name: str | None = None) -> Key:
    place.make_queue(QueueName.parse("orders"))
    made, _ = stage(place.root, [b"x"])
    return Key(STAGED_JOB) if name is None else committed(place.root, made, publish_id=name).name


def test_a_publish_begins_under_the_journal_s_lock(
    watched: LeasingRoot, locking: LockingFiles
) -> None:
    watched.run(begin_publish(watched.root, Key("nightly")))
    assert journal_lock(watched.root.layout) in locking.locked


def test_a_job_is_given_up_under_its_lock(watched: LeasingRoot, locking: LockingFiles) -> None:
    staged(watched)
    locking.locked.clear()
    assert abort(watched.root, STAGED_JOB)
    assert job_lock(watched.root.layout, STAGED_JOB) in locking.locked


def test_a_forgotten_job_is_taken_away_under_its_lock(
    watched: LeasingRoot, locking: LockingFiles
) -> None:
    staged(watched)
    watched.pass_s(STAGING_FORGOTTEN_S + 60)
    locking.locked.clear()
    sweep_bulk(watched.root)
    assert job_lock(watched.root.layout, STAGED_JOB) in locking.locked
    assert not Path(job_folder(watched.root.layout, STAGED_JOB)).exists()


def test_who_waits_for_a_publish_waits_for_its_journal_s_lock(
    watched: LeasingRoot, locking: LockingFiles
) -> None:
    name = staged(watched, "nightly")
    locking.locked.clear()
    roll_forward(watched.root, name, wait=True)
    assert journal_path(watched.root.layout, name, JournalFile.JOURNAL) in locking.locked


def test_what_a_lease_gives_back_is_due_under_its_lock(
    watched: LeasingRoot, locking: LockingFiles
) -> None:
    watched.publish()
    lease = watched.claimed()
    watched.pass_s(LEASE_S / 2)
    locking.seen.clear()
    watched.run(release_lease(watched.root, lease.name))
    assert (locking.seen[0], locking.unlocked) == ("stamp", [])


def test_an_mtime_is_put_right_under_the_message_s_lock(
    watched: LeasingRoot, locking: LockingFiles
) -> None:
    (message_id,) = watched.publish()
    path = Path(watched.root.layout.path(State.READY, QUEUE, message_id))
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    locking.seen.clear()
    assert watched.run(restamp(watched.root, str(path))) is not None
    assert (locking.seen, locking.unlocked) == (["stamp", "sync"], [])


def test_a_member_that_lives_is_not_forgotten(watched: LeasingRoot) -> None:
    path = watched.top / "members" / "a.lease"
    path.touch()
    violation = Violation(Breach.LEFTOVER, str(path), "")
    with path.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = repair_of(violation)
        assert found is not None
        assert found.act(watched.root, watched.flusher, violation) is None
        assert path.exists()


def test_a_silent_shovel_s_turn_is_taken_away_under_the_lock_of_turns(
    watched: LeasingRoot, locking: LockingFiles
) -> None:
    turn = take_turn(watched.root, QUEUE)
    assert turn is not None
    watched.pass_s(TURN_SILENT_S + 60)
    assert take_turn(watched.root, QUEUE) is not None
    assert turns_lock(watched.root.layout) in locking.locked
    turn.end()
