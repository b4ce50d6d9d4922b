"""What a process knows of its queues, beside another that changes that; and what waits for it."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.leases import QUEUE, LeasingRoot

from mq.model.errors import (
    MessageNotFound,
    PublishPurged,
    QueueNotFound,
    SettingsUnreadable,
    StorageFailed,
    Unavailable,
)
from mq.model.message import Delivery
from mq.model.names import MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.store.core.facts import FACTS_SETTLE_S, SETTINGS_AGE_S
from mq.store.core.root import Root
from mq.store.core.unserved import forget_mark
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Flush, Steps, T
from mq.store.format.settings import print_fields
from mq.store.opening import root_of
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import purge
from mq.store.operations.queues import WantedShape, create_queue, delete_queue, retire_delayed
from mq.store.operations.remove import remove
from mq.store.settings.configure import change_settings

OTHER = QueueName.parse("other")
ASKED = ("queues/q", "settings/q.json", "purged/q")


class StoppedFiles(FaultyFiles):
    """Lets a process be stopped just before its first look at a path."""

    def __init__(self) -> None:
        super().__init__()
        self.where = ""
        self.hidden = ""
        self.while_stopped: Callable[[], None] | None = None

    def status(self, path: str) -> os.stat_result | None:
        if self.while_stopped is not None and path.endswith(self.where):
            stopped, self.while_stopped = self.while_stopped, None
            stopped()
        return super().status(path)

    def is_there(self, path: str) -> bool:
        """access(2) says no also where it could not look."""
        return not (self.hidden and self.hidden in path) and super().is_there(path)


@pytest.fixture
def files() -> StoppedFiles:
    return StoppedFiles()


@pytest.fixture(params=[10_000, 1], ids=["flat", "buckets"])
def folder_max(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def place(tmp_path: Path, folder_max: int) -> LeasingRoot:
    """The process that changes things."""
    return LeasingRoot(tmp_path / "root", folder_max)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def other(place: LeasingRoot, files: StoppedFiles, clock: FakeClock, folder_max: int) -> Root:
    """Another process, which has looked at the queue."""
    root = root_of(place.root.layout, files, clock, folder_max=folder_max)
    root.facts.of(QUEUE)
    return root


def done(operation: Steps[T]) -> T:
    return run_alone(operation, NoFlusher())


def flushes(operation: Steps[T]) -> list[Flush]:
    """What the operation has flushed when it is over."""
    return list(operation)


def fetched(root: Root, message_id: MessageId) -> Delivery | None:
    return done(fetch(root, QUEUE, message_id, 60))


def rows(found: list[Flush]) -> set[str]:
    """The queues and buckets that were flushed beside."""
    return {
        "/".join(folder.split("/")[-2:]) for each in found for row in each.beside for folder in row
    }


def looked(files: FaultyFiles) -> list[str]:
    return [
        path
        for call, path in files.calls
        if call in ("status", "is_there") and path.rstrip("/").endswith(ASKED)
    ]


def test_one_look_is_enough_for_all_operations(
    place: LeasingRoot, other: Root, files: StoppedFiles, clock: FakeClock, folder_max: int
) -> None:
    ids = place.publish(2)
    files.calls.clear()
    assert fetched(other, ids[0])
    assert done(remove(other, QUEUE, ids[0]))
    new = MessageId(place.uuids.next())
    done(publish(other, Draft(QUEUE, new, new.published_ms), b"x"))
    assert looked(files) == [] or folder_max == 1
    clock.advance(SETTINGS_AGE_S)
    files.calls.clear()
    assert fetched(other, ids[1])
    assert done(remove(other, QUEUE, ids[1]))
    assert len(looked(files)) <= len(ASKED) + 1


def test_what_was_purged_is_served_until_the_purge_is_answered(
    place: LeasingRoot, other: Root, clock: FakeClock
) -> None:
    before, after = place.publish(2)
    mark_ms = done(purge(place.root, QUEUE, after.published_ms))
    assert fetched(other, before) is not None
    clock.advance(FACTS_SETTLE_S)
    assert fetched(other, after) is None
    for message_id in (before, after):
        with pytest.raises(MessageNotFound):
            done(remove(other, QUEUE, message_id))
    with pytest.raises(PublishPurged):
        done(publish(other, Draft(QUEUE, after, mark_ms), b"x"))


def test_a_mark_that_is_gone_hides_nothing(
    place: LeasingRoot, other: Root, clock: FakeClock
) -> None:
    ids = place.publish(2)
    done(purge(place.root, QUEUE, ids[-1].published_ms))
    clock.advance(FACTS_SETTLE_S)
    assert fetched(other, ids[0]) is None
    forget_mark(place.root, QUEUE)
    assert fetched(other, ids[0]) is not None
    assert done(remove(other, QUEUE, ids[1]))


def remade(place: LeasingRoot, wanted: WantedShape) -> None:
    done(delete_queue(place.root, QUEUE, place.uuids.next()))
    retire_delayed(place.root, QUEUE)
    done(create_queue(place.root, QUEUE, wanted))


def test_a_message_is_found_by_its_id_in_a_shape_that_was_not_known(
    place: LeasingRoot, other: Root
) -> None:
    remade(place, WantedShape(shards=4))
    for message_id in place.publish(6):
        assert done(remove(other, QUEUE, message_id))


def test_a_message_is_put_where_its_id_finds_it_in_a_shape_that_was_not_known(
    place: LeasingRoot, other: Root
) -> None:
    new = place.publish(3)
    remade(place, WantedShape(digits=7))
    for _ in range(6):
        new = [MessageId(place.uuids.next())]
        done(publish(other, Draft(QUEUE, new[0], new[0].published_ms), b"x"))
        assert done(remove(place.root, QUEUE, new[0]))
        place.publish(1)


def test_a_queue_that_is_gone_is_not_found_by_a_message_that_is_not_there(
    place: LeasingRoot, other: Root
) -> None:
    [message_id] = place.publish(1)
    done(delete_queue(place.root, QUEUE, place.uuids.next()))
    with pytest.raises(QueueNotFound):
        done(remove(other, QUEUE, message_id))


def test_nothing_is_kept_of_a_queue_that_is_not_there(place: LeasingRoot, other: Root) -> None:
    assert not other.facts.of(OTHER).exists
    done(create_queue(place.root, OTHER, WantedShape(shards=2)))
    assert other.facts.of(OTHER).exists
    assert other.facts.shape(OTHER).shards == 2


def test_a_look_that_began_before_a_change_is_not_kept(place: LeasingRoot) -> None:
    files = StoppedFiles()
    root = root_of(place.root.layout, files, place.clock)

    def meanwhile() -> None:
        fields: dict[str, object] = {"max_receives": 3}
        done(change_settings(root, QUEUE, fields, QueueSettings()))
        # The slow look read what was there before.
        os.rename(root.layout.settings_of(QUEUE), str(place.top / "aside"))

    files.where, files.while_stopped = "settings/q.json", meanwhile
    assert root.facts.settings(QUEUE).max_receives == 0
    os.rename(place.top / "aside", root.layout.settings_of(QUEUE))
    assert root.facts.settings(QUEUE).max_receives == 3


def test_settings_that_cannot_be_understood_are_as_they_were_and_read_anew(
    place: LeasingRoot, other: Root, clock: FakeClock
) -> None:
    path = Path(other.layout.settings_of(QUEUE))
    path.write_bytes(print_fields({"max_receives": 3}))
    clock.advance(SETTINGS_AGE_S)
    assert other.facts.settings(QUEUE).max_receives == 3
    path.write_bytes(b"{")
    clock.advance(SETTINGS_AGE_S)
    assert other.facts.settings(QUEUE).max_receives == 3
    assert other.facts.sure_settings(QUEUE) is None
    with pytest.raises(SettingsUnreadable):
        other.facts.shape(QUEUE)
    path.write_bytes(print_fields({"max_receives": 4}))
    assert other.facts.shape(QUEUE).shards == 1
    assert other.facts.settings(QUEUE).max_receives == 4


@pytest.mark.parametrize("path", ["purged", "queues/q"])
def test_a_look_that_fails_fails_what_relies_on_it_and_is_not_kept(
    place: LeasingRoot, other: Root, files: StoppedFiles, clock: FakeClock, path: str
) -> None:
    [message_id] = place.publish(1)
    if path == "purged":
        done(purge(place.root, QUEUE, message_id.published_ms - 1))
    clock.advance(SETTINGS_AGE_S)
    files.fail("status", 5, path, times=1)
    with pytest.raises(StorageFailed):
        done(remove(other, QUEUE, message_id))
    assert done(remove(other, QUEUE, message_id))


def test_a_mark_that_cannot_be_looked_at_is_not_taken_for_none(
    place: LeasingRoot, other: Root, files: StoppedFiles, clock: FakeClock
) -> None:
    [message_id] = place.publish(1)
    done(purge(place.root, QUEUE, message_id.published_ms))
    clock.advance(FACTS_SETTLE_S)
    files.hidden = "/purged/"
    assert fetched(other, message_id) is None
    clock.advance(FACTS_SETTLE_S)
    files.fail("status", errno.EIO, "/purged/", times=1)
    with pytest.raises(Unavailable):
        fetched(other, message_id)


def test_a_look_during_which_facts_changed_is_not_kept_nor_is_what_was_known_before(
    other: Root, files: StoppedFiles, clock: FakeClock
) -> None:
    files.where = "settings/q.json"
    files.while_stopped = lambda: other.facts.look_again(OTHER)
    other.facts.look(QUEUE)
    assert other.facts.fresh(QUEUE) is None
