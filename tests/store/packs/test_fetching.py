"""Fetching a pack whole: one claim, or a pack that is where it was."""

import os
from pathlib import Path

import pytest
from harness.leases import QUEUE, LeasingRoot

from mq.model.errors import Busy, MessageUnreadable
from mq.model.lifecycle import State
from mq.model.message import Delivery, Stamp
from mq.model.names import MessageId
from mq.model.packs import contents
from mq.store.core.find import place_of
from mq.store.core.moves import claimed_path
from mq.store.format.layout import Place
from mq.store.operations.publish import Draft, publish_many
from mq.store.operations.purge import purge
from mq.store.operations.read import Room, any_room
from mq.store.packs.fetching import PackToPart, fetch_pack, items_of, pack_of

HEAD = b"ce-id: 7\n"
BODIES = [b"one", b"", b"three\n"]
SHOWN_S = 60


@pytest.fixture(params=[10_000, 1], ids=["flat", "buckets"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> LeasingRoot:
    return LeasingRoot(tmp_path / "root", folder_max=request.param)


@pytest.fixture
def pack(place: LeasingRoot) -> MessageId:
    """The last of two, so that it goes to a bucket where there are any."""
    uuids = place.uuids.packs(2)
    ids = [MessageId(each, items=3, header_bytes=len(HEAD)) for each in uuids]
    drafts = [Draft(QUEUE, each, place.clock.now_ms(), head=HEAD) for each in ids]
    held = [contents(BODIES)] * len(ids)
    assert place.run(publish_many(place.root, drafts, held)) == ids
    return ids[-1]


def path_of(place: LeasingRoot, pack: MessageId) -> str:
    found = place_of(place.root, QUEUE, pack)
    assert found is not None
    return Place(found[0], QUEUE, pack, found[1]).path(place.root.layout)


def fetched(place: LeasingRoot, pack: MessageId, room: Room = any_room) -> Delivery | None:
    found: Delivery | None = place.run(fetch_pack(place.root, (QUEUE, pack, None), SHOWN_S, room))
    return found


def test_all_items_are_claimed_by_one_rename(place: LeasingRoot, pack: MessageId) -> None:
    delivery = fetched(place, pack)
    assert delivery is not None
    assert (place_of(place.root, QUEUE, pack) or ())[0] is State.DELAYED
    due_ms = place.clock.now_ms() + SHOWN_S * 1000
    assert delivery.stamp == Stamp(due_ms, 1)
    assert Stamp.from_mtime_ns(os.stat(path_of(place, pack)).st_mtime_ns) == delivery.stamp
    found = items_of(delivery)
    assert [each.id for each in found] == pack.all_items()
    assert [(each.body, each.size) for each in found] == [(each, len(each)) for each in BODIES]
    assert {(each.stamp, each.bucket, each.headers) for each in found} == {
        (delivery.stamp, delivery.bucket, (("ce-id", "7"),))
    }
    assert pack_of(found[1]).id == pack
    assert items_of(found[0]) == found[:1]


def test_one_that_is_gone_or_purged_is_a_lost_race(place: LeasingRoot, pack: MessageId) -> None:
    assert fetched(place, pack) is not None
    assert fetched(place, pack) is None
    other = pack.with_uuid(place.uuids.packs(1)[0])
    assert fetched(place, other) is None
    first = next(
        MessageId.parse(each.name) for each in (Path(place.root.layout.queue(QUEUE))).rglob("*,n=*")
    )
    place.run(purge(place.root, QUEUE, place.clock.now_ms() + 1000))
    assert fetched(place, first) is None


def test_one_that_another_process_holds_is_busy(place: LeasingRoot, pack: MessageId) -> None:
    with claimed_path(place.root, path_of(place, pack)) as claim:
        assert claim is not None
        with pytest.raises(Busy):
            fetched(place, pack)


@pytest.mark.parametrize("why", ["delivered", "no room"])
def test_what_must_be_parted_is_where_it_was(place: LeasingRoot, pack: MessageId, why: str) -> None:
    path = path_of(place, pack)
    if why == "delivered":
        stamp = Stamp(place.clock.now_ms(), 1)
        os.utime(path, ns=(stamp.mtime_ns(), stamp.mtime_ns()))
    before = os.stat(path)
    with pytest.raises(PackToPart):
        fetched(place, pack, any_room if why == "delivered" else lambda size: None)
    assert os.stat(path).st_mtime_ns == before.st_mtime_ns


def test_one_that_was_returned_unhandled_is_claimed(place: LeasingRoot, pack: MessageId) -> None:
    stamp = Stamp(place.clock.now_ms(), 2, returned=2)
    os.utime(path_of(place, pack), ns=(stamp.mtime_ns(), stamp.mtime_ns()))
    delivery = fetched(place, pack)
    assert delivery is not None
    assert (delivery.id, delivery.stamp.receives) == (pack, 3)


def test_one_that_is_damaged_goes_to_the_sideline(place: LeasingRoot, pack: MessageId) -> None:
    place.make_queue(QUEUE.sideline())
    path = Path(path_of(place, pack))
    mtime_ns = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:-1])
    os.utime(path, ns=(mtime_ns, mtime_ns))
    with pytest.raises(MessageUnreadable):
        fetched(place, pack)
    assert place_of(place.root, QUEUE, pack) is None
    assert place_of(place.root, QUEUE.sideline(), pack) is not None
    found = (QUEUE.sideline(), pack, None)
    with pytest.raises(Busy):
        place.run(fetch_pack(place.root, found, SHOWN_S, any_room))
