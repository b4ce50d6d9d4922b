"""What older processes have put into buckets that are not its own, mq-mover puts in its place."""

import errno
from pathlib import Path

import pytest
from harness.api import call, delete
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.logged import event
from harness.messages import put_file
from harness.server import Serve
from harness.upkeep import work_of

from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.core.root import Root
from mq.store.disk.files import FOLDER_MODE, Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.bucket_names import BUCKET_KEPT_S, Shape
from mq.store.opening import open_root
from mq.store.operations.queues import WantedShape, create_queue
from mq_mover.policies.misplaced import MISPLACED_EVERY_S, MISPLACED_MOVED_MAX, Misplaced

QUEUE = QueueName.parse("q")
WINDOW_S = 66
"""A bucket's, and a little more."""
OVER_S = 2 * WINDOW_S + BUCKET_KEPT_S


class Place:
    """A root whose queue has messages in buckets of its own and in others'."""

    def __init__(self, top: Path, shape: Shape | None = None, files: Files | None = None) -> None:
        self.top = top
        self.clock = FakeClock()
        self.uuids = UuidSource(self.clock)
        self.shape = shape or Shape()
        self.root: Root = open_root(str(top), files or Files(), self.clock, folder_max=1)
        wanted = WantedShape(self.shape.digits, self.shape.shards)
        run_alone(create_queue(self.root, QUEUE, wanted), NoFlusher())

    def put(self, priority: int, like: int | None = None, *, deep: bool = False) -> MessageId:
        """A message in the bucket of the priority `like`, by default its own."""
        message_id = MessageId(self.uuids.next(), priority)
        other = MessageId(message_id.uuid, priority if like is None else like)
        bucket = self.shape.deep(other) if deep else self.shape.bucket(other)
        folder = Path(self.root.layout.queue(QUEUE))
        for part in bucket[:-1].split("/"):
            folder /= part
            folder.mkdir(FOLDER_MODE, exist_ok=True)
        put_file(folder / message_id.text, b"x", message_id.published_ms)
        return message_id

    def policy(self) -> Misplaced:
        return Misplaced(work_of(self.root, NoFlusher()))

    def buckets(self) -> dict[str, str]:
        """Where each message lies, by its id."""
        top = Path(self.root.layout.queue(QUEUE))
        found = [path for path in top.rglob("*-*-*-*-*") if path.is_file()]
        return {path.name: f"{path.parent.relative_to(top)}/" for path in found}


def assert_in_place(place: Place, ids: list[MessageId]) -> None:
    found = place.buckets()
    assert found.keys() == {each.text for each in ids}
    for each in ids:
        assert found[each.text] in ("./", place.shape.bucket(each), place.shape.deep(each))
    assert_audits_clean(place.top, place.clock)


@pytest.mark.parametrize("shape", [Shape(), Shape(9, 4)], ids=["plain", "sharded"])
async def test_ids_find_what_lay_in_the_buckets_of_other_priorities(
    root: Path, serve: Serve, shape: Shape
) -> None:
    place = Place(root, shape)
    said = ((0, 0), (0, 5), (5, 0), (9, 5), (5, 5))
    ids = [place.put(*each, deep=deep) for each in said for deep in (False, True) for _ in range(3)]
    server = await serve(clock=place.clock, folder_max=1)
    lost = [(await call(server, "GET", f"/q/messages/{each.text}")).status for each in ids]
    assert lost == [200] * 6 + [404] * 18 + [200] * 6
    place.clock.advance(OVER_S)
    assert place.policy().act().acted == 18
    assert_in_place(place, ids)
    for each in ids:
        assert (await call(server, "GET", f"/q/messages/{each.text}")).status == 200
        assert (await delete(server, each.text)).status == 202
    assert_audits_clean(root, place.clock)


def test_what_a_hand_has_put_into_a_bucket_of_another_time_comes_to_its_own(root: Path) -> None:
    place = Place(root)
    message_id = place.put(0)
    top = Path(place.root.layout.queue(QUEUE))
    (top / "00000000").mkdir(FOLDER_MODE)
    path = top / place.shape.bucket(message_id) / message_id.text
    path.rename(top / "00000000" / message_id.text)
    assert place.policy().act().acted == 1
    assert_in_place(place, [message_id])


def test_a_bucket_that_more_may_come_to_waits(root: Path) -> None:
    place = Place(root)
    ids = [place.put(0, 5)]
    policy = place.policy()
    assert policy.act().acted == 0
    ids.append(place.put(0, 5))
    place.clock.advance(OVER_S)
    assert policy.act().acted == 2
    assert_in_place(place, ids)


def test_each_bucket_is_looked_through_once(root: Path) -> None:
    files = FaultyFiles()
    place = Place(root, files=files)
    ids = [place.put(0, deep=True), place.put(5)]
    place.clock.advance(OVER_S)
    policy = place.policy()

    def listed() -> list[str]:
        before = len(files.calls)
        assert policy.act().acted == 0
        place.clock.advance(MISPLACED_EVERY_S)
        return [path for name, path in files.calls[before:] if name == "entries"]

    own = place.root.layout.queue(QUEUE)
    below = f"{own}/{place.shape.deep(ids[0])[:-1]}"
    bucket = f"{own}/{place.shape.bucket(ids[1])[:-1]}"
    assert sorted(listed()) == sorted([own, below[:-3], below, bucket])
    assert listed() == [own]


@pytest.mark.certificate
def test_many_take_several_turns(root: Path) -> None:
    place = Place(root)
    ids = [place.put(0, 5) for _ in range(MISPLACED_MOVED_MAX + 5)]
    place.clock.advance(OVER_S)
    policy = place.policy()
    first, second = policy.act(), policy.act()
    assert (first.acted, first.more) == (MISPLACED_MOVED_MAX, True)
    assert (second.acted, second.more) == (5, False)
    assert_in_place(place, ids)


def test_what_could_not_be_moved_is_moved_by_the_next_pass(root: Path) -> None:
    files = FaultyFiles()
    place = Place(root, files=files)
    ids = [place.put(0, 5) for _ in range(3)]
    place.clock.advance(OVER_S)
    policy = place.policy()
    files.fail("rename", errno.EIO, where=ids[1].text, times=1)
    assert policy.act().acted == 2
    assert policy.act().acted == 1
    assert_in_place(place, ids)


def test_what_is_at_its_place_too_stays(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(root)
    message_id = place.put(0, 5)
    flat = put_file(Path(place.root.layout.queue(QUEUE)) / message_id.text, b"other", 1)
    place.clock.advance(OVER_S)
    policy = place.policy()
    for _ in range(2):
        assert policy.act().acted == 0
    assert flat.read_bytes() == b"other"
    said = [event(each) for each in caplog.records if each.name == "mq-mover.policies"]
    assert said == ["could not move misplaced messages"]
