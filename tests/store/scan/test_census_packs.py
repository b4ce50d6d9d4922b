"""Roots with packs and single messages: every figure counts messages."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.audits import audit
from harness.chance import examples
from harness.leases import LeasingRoot
from harness.messages import put_file
from harness.packs import new_pack, put_pack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.model.totals import Total
from mq.store.core.room import Load
from mq.store.format.bucket_names import IN_COMMON
from mq.store.format.packs import Try
from mq.store.leases.lease import acknowledge
from mq.store.leases.releasing import release
from mq.store.operations.expire import expire, expired_ready
from mq.store.operations.overflow import oldest_ready, to_go
from mq.store.operations.purge import purge, take_purged, take_purged_buckets
from mq.store.operations.queues import delete_queue, retire_delayed
from mq.store.operations.remove import remove
from mq.store.scan.census import Census, Holding, count
from mq.store.scan.delayed_names import in_flight

QUEUE, OTHER = QueueName.parse("q"), QueueName.parse("other")
HOUR_S = 3600.0
STATES = (State.READY, State.DELAYED, State.REMOVED)


@dataclass(frozen=True)
class Written:
    """A file of this many messages; `items` 0: of a single one."""

    items: int
    state: State
    depth: int
    queue: QueueName
    receives: int
    is_overdue: bool

    @property
    def messages(self) -> int:
        return self.items or 1


files = st.builds(
    Written,
    st.sampled_from([0, 0, 2, 3, 100]),
    st.sampled_from(STATES),
    st.integers(0, 2),
    st.sampled_from([QUEUE, QUEUE, OTHER]),
    st.integers(0, 1),
    st.booleans(),
)


class Place(LeasingRoot):
    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.make_queue(OTHER)

    def put(self, written: Written) -> MessageId:
        single = MessageId(self.uuids.next())
        message_id = new_pack(written.items, uuids=self.uuids) if written.items else single
        bucket = ("", IN_COMMON.bucket(message_id), IN_COMMON.deep(message_id))[written.depth]
        path = Path(self.root.layout.path(written.state, written.queue, message_id, bucket))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in path.parents[: written.depth]:
            folder.chmod(0o700)
        due_ms = self.clock.now_ms() + (-HOUR_S if written.is_overdue else HOUR_S) * 1000
        if written.items:
            return self._put_pack(path, message_id, round(due_ms), written.receives)
        put_file(path, b"x", round(due_ms), written.receives)
        return message_id

    def _put_pack(self, path: Path, pack: MessageId, due_ms: int, receives: int) -> MessageId:
        put_pack(path, pack, due_ms=due_ms, receives=receives)
        return pack

    def ready(self, *items: int) -> list[MessageId]:
        """Ready packs of these numbers of items; 0: a single message."""
        return [self.put(Written(each, State.READY, 0, QUEUE, 0, False)) for each in items]

    def totals(self, queue: QueueName = QUEUE) -> dict[Total, int]:
        row = self.root.totals.row(queue.text)
        return {} if row is None else {what: n for what, n in row.counts.items() if n}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "root")


@given(st.lists(files, max_size=12))
@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
def test_all_figures_are_those_of_the_messages_that_were_written(
    tmp_path: Path, written: list[Written]
) -> None:
    shutil.rmtree(tmp_path / "root", ignore_errors=True)
    place = Place(tmp_path / "root")
    for each in written:
        place.put(each)

    def sum_of(queue: QueueName, state: State, **only: object) -> int:
        return sum(
            each.messages
            for each in written
            if (each.queue, each.state) == (queue, state)
            and all(getattr(each, name) == value for name, value in only.items())
        )

    found = audit(place.root)
    for queue in (QUEUE, OTHER):
        counts = count(Census(place.root), queue)
        assert counts.ready == sum_of(queue, State.READY)
        assert counts.in_flight == sum_of(queue, State.DELAYED, receives=1)
        assert counts.delayed == sum_of(queue, State.DELAYED, receives=0)
        assert counts.overdue == sum_of(queue, State.DELAYED, is_overdue=True)
        assert counts.removed == sum_of(queue, State.REMOVED)
        assert counts.foreign == 0
        held = Holding(lambda: place.root).count(queue, with_bytes=True)
        assert held.ready.messages == counts.ready
        assert held.kept.messages == counts.in_flight + counts.delayed
        assert (held.all.bytes > 0) == (held.all.messages > 0)
    for state in STATES:
        assert found.messages[state] == sum(sum_of(queue, state) for queue in (QUEUE, OTHER))
    assert found.foreign == 0


def test_the_messages_of_a_parted_pack_count_in_its_state(place: Place) -> None:
    """Some of them are at their places, the others are staged, and the pack lies with these. What
    lies in a try that did not end is none.
    """
    census, layout = Census(place.root), place.root.layout
    place.ready(2)
    for state, receives in ((State.READY, 0), (State.DELAYED, 1)):
        for is_parted in (True, False):
            pack = new_pack(5, uuids=place.uuids)
            parting = Try.begun(QUEUE, pack, state)
            Path(parting.folder(layout)).mkdir(parents=True)
            for item in pack.all_items():
                put_file(
                    Path(parting.item_path(layout, item)), b"x", place.clock.now_ms(), receives
                )
            if not is_parted:
                continue
            put_pack(Path(parting.pack_path(layout)), pack)
            first = pack.item(1)
            Path(parting.item_path(layout, first)).rename(layout.path(state, QUEUE, first))
    counts = count(census, QUEUE)
    assert (counts.ready, counts.in_flight, counts.foreign) == (2 + 5, 5, 0)
    other = count(census, OTHER)
    assert (other.ready, other.in_flight) == (0, 0)


def test_the_items_of_a_pack_are_in_flight(place: Place) -> None:
    pack = place.put(Written(3, State.DELAYED, 0, QUEUE, 1, False))
    place.put(Written(5, State.DELAYED, 0, QUEUE, 0, False))
    found = in_flight(place.root, QUEUE, shown_s=2 * HOUR_S, limit=10)
    assert [name for name, _ in found] == [each.text for each in pack.all_items()]
    assert len(in_flight(place.root, QUEUE, shown_s=2 * HOUR_S, limit=2)) == 2


def test_a_purge_and_its_totals_count_messages(place: Place) -> None:
    place.ready(3, 0, 100)
    place.put(Written(4, State.DELAYED, 0, QUEUE, 1, False))
    # A bucket goes by one rename.
    for items in (5, 0):
        place.put(Written(items, State.READY, 1, QUEUE, 0, False))
    place.clock.advance(70)
    later = place.ready(2)
    place.run(purge(place.root, QUEUE, later[0].published_ms - 1))
    place.clock.advance(1)
    census = Census(place.root)
    assert count(census, QUEUE).ready == 2
    while take_purged_buckets(place.root, QUEUE):
        pass
    while take_purged(place.root, QUEUE).met:
        pass
    assert place.totals() == {Total.PURGED: 3 + 1 + 100 + 4 + 5 + 1}
    counts = count(census, QUEUE)
    assert (counts.ready, counts.in_flight) == (2, 0)


def test_an_expiry_and_a_removal_count_messages(place: Place) -> None:
    packs = place.ready(7, 3)
    place.run(remove(place.root, QUEUE, packs[0]))
    assert place.totals() == {Total.DELETED: 7}
    Path(place.root.layout.settings_of(QUEUE)).write_text('{"message_ttl_s": 60}')
    place.clock.advance(61)
    found = expired_ready(place.root, QUEUE, 10)
    assert [message_id for _, message_id in found] == packs[1:]
    place.run(expire(place.root, QUEUE, packs[1], ""))
    assert place.totals() == {Total.DELETED: 7, Total.EXPIRED: 3}
    assert count(Census(place.root), QUEUE).removed == 10


def test_a_pack_makes_room_as_a_whole(place: Place) -> None:
    packs = place.ready(100, 2, 0)
    going = to_go(oldest_ready(place.root, QUEUE, with_bytes=False), Load(55))
    assert [each.id for each in going] == packs[:1]
    going = to_go(oldest_ready(place.root, QUEUE, with_bytes=False), Load(101))
    assert [each.id for each in going] == packs[:2]


def test_a_deleted_queue_takes_its_packs_along(place: Place) -> None:
    place.ready(3)
    place.put(Written(4, State.DELAYED, 0, QUEUE, 1, False))
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    retire_delayed(place.root, QUEUE)
    assert audit(place.root).messages[State.REMOVED] == 7
    place.make_queue(QUEUE)
    assert count(Census(place.root), QUEUE).ready == 0


def test_a_lease_takes_packs_below_its_limit_and_counts_messages(place: Place) -> None:
    place.ready(3, 0, 5, 5)
    lease = place.claimed(limit=5)
    assert (lease.messages, count(Census(place.root), QUEUE).leased) == (9, 9)
    assert count(Census(place.root), QUEUE).ready == 5
    assert place.totals() == {Total.FETCHED: 9}
    second = place.claimed(limit=100)
    assert second.messages == 5
    released = place.run(release(place.root, lease.name))
    assert released.returned == 9
    place.run(acknowledge(place.root, second.name))
    assert place.totals() == {Total.FETCHED: 14, Total.RELEASED: 9, Total.DELETED: 5}
    counts = count(Census(place.root), QUEUE)
    assert (counts.ready, counts.leased) == (9, 0)
