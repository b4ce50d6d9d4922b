"""Leases: what a claim takes, how it ends, and what is told of it meanwhile."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from harness.faults import FaultyFiles
from harness.leases import CONSUMER, LEASE_S, QUEUE, LeasingRoot, ids_in, stamp_of

from mq.model.errors import Busy, ConsumerBusy, LeaseLost, TooManyLeases
from mq.model.names import ConsumerName, MessageId, QueueName
from mq.store.disk.steps import Steps
from mq.store.leases.lease import (
    LEASES_OPEN_MAX,
    Lease,
    LeaseState,
    acknowledge,
    claim,
    finish_claim,
    forget_consumer,
    own,
    renew,
)
from mq.store.leases.releasing import Release, Released, give_back, release
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import purge
from mq.store.scan.order import list_ready


@pytest.fixture
def place(tmp_path: Path) -> LeasingRoot:
    return LeasingRoot(tmp_path / "root")


def ready(place: LeasingRoot, queue: QueueName = QUEUE) -> list[str]:
    listing = list_ready(place.root, queue, 10_000)
    assert listing is not None
    return sorted(each.text for each in listing.ids)


def texts(ids: list[MessageId]) -> list[str]:
    return sorted(each.text for each in ids)


def rest(operation: Steps[Lease | None]) -> Steps[Lease | None]:
    """What is left of an operation whose first flush is made."""
    return (yield from operation)


# A claim


def test_a_claim_takes_the_first_in_the_order_of_fetches(place: LeasingRoot) -> None:
    late = place.publish(3)
    urgent = place.publish(2, priority=5)
    lease = place.claimed(3)
    assert ids_in(lease.folder) == texts([*urgent, late[0]])
    assert (lease.seq, lease.messages, lease.size_bytes) == (1, 3, 3)
    assert ready(place) == texts(late[1:])


def test_a_message_that_has_a_group_is_left_to_fetches(place: LeasingRoot) -> None:
    """However many of them stand before the others."""
    grouped = [replace(MessageId(place.uuids.next()), group="a" * 16) for _ in range(5)]
    for message_id in grouped:
        draft = Draft(QUEUE, message_id, message_id.published_ms)
        place.run(publish(place.root, draft, b"x"))
    ids = place.publish(2)
    assert place.claimed(limit=2).messages == 2
    assert ready(place) == texts(grouped)
    assert place.claim() is None
    assert not set(texts(ids)) & set(ready(place))


def test_a_claimed_message_is_as_it_was(place: LeasingRoot) -> None:
    (message_id,) = place.publish()
    path = place.top / "queues/q" / message_id.text
    before = path.stat()
    lease = place.claimed()
    after = (Path(lease.folder) / f"q:{message_id.text}").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_where_nothing_is_ready_nothing_is_left_behind(place: LeasingRoot) -> None:
    assert place.claim() is None
    assert place.claim(queues=(QueueName.parse("nowhere"),)) is None
    assert list((place.top / "leases").iterdir()) == []


def test_what_another_takes_first_is_not_claimed(tmp_path: Path) -> None:
    class Racing(FaultyFiles):
        def rename(self, source: str, target: str) -> None:
            if "/leases/" in target and "queues" in source:
                os.unlink(source)
            super().rename(source, target)

    place = LeasingRoot(tmp_path / "root", files=Racing())
    place.publish(3)
    assert place.claim() is None
    assert list((place.top / "leases").iterdir()) == []


def test_several_queues_have_a_fair_share(place: LeasingRoot) -> None:
    few, many = QueueName.parse("few"), QueueName.parse("many")
    for queue, count in ((few, 2), (many, 20), (QUEUE, 20)):
        if queue != QUEUE:
            place.make_queue(queue)
        place.publish(count, queue)
    lease = place.claim(12, (few, many, QUEUE))
    assert lease is not None
    assert lease.messages == 12
    held = [path.name.partition(":")[0] for path in Path(lease.folder).iterdir()]
    assert [held.count(queue) for queue in ("few", "many", "q")] == [2, 5, 5]


def test_a_claim_takes_from_buckets_too(tmp_path: Path) -> None:
    place = LeasingRoot(tmp_path / "root", folder_max=3)
    ids = place.publish(20)
    lease = place.claimed()
    assert ids_in(lease.folder) == texts(ids)
    assert lease.messages == 20


def test_what_was_purged_is_passed_over(place: LeasingRoot) -> None:
    place.publish(3)
    place.run(purge(place.root, QUEUE, place.uuids.end_moment()))
    place.pass_s(1)
    later = place.publish(2)
    assert ids_in(place.claimed().folder) == texts(later)


def test_what_has_two_names_keeps_the_leases(place: LeasingRoot) -> None:
    (message_id,) = place.publish()
    os.link(place.top / "queues/q" / message_id.text, place.top / "new" / f"q:{message_id.text}")
    lease = place.claimed()
    assert ids_in(lease.folder) == [message_id.text]
    assert list((place.top / "new").iterdir()) == []


@pytest.mark.parametrize(("limit", "lease_s"), [(0, 1), (1, 0), (1, 10**9)])
def test_a_claim_of_nothing_is_refused(place: LeasingRoot, limit: int, lease_s: float) -> None:
    with pytest.raises(ValueError, match="a claim takes"):
        place.run(claim(place.root, CONSUMER, [QUEUE], limit, lease_s))


def test_open_leases_are_bounded(place: LeasingRoot) -> None:
    place.publish(LEASES_OPEN_MAX + 1)
    for _ in range(LEASES_OPEN_MAX):
        place.claimed(1)
    with pytest.raises(TooManyLeases):
        place.claim(1)
    place.run(acknowledge(place.root, place.leases()[0].name))
    place.claimed(1)


# The manifest


def test_a_manifest_says_what_was_leased_and_until_when(place: LeasingRoot) -> None:
    place.publish(2)
    lease = place.claimed()
    path = place.top / "leases/c.1.json"
    assert json.loads(path.read_text()) == {
        "version": 1,
        "consumer": "c",
        "seq": 1,
        "queues": ["q"],
        "lease_s": LEASE_S,
        "state": "claimed",
        "messages": 2,
        "bytes": 2,
    }
    due_ms = place.clock.now_ms() + round(LEASE_S * 1000)
    assert path.stat().st_mtime_ns == due_ms * 1_000_000
    assert lease.due_ms == due_ms
    assert place.leases() == [lease]


def test_numbers_go_on_whatever_became_of_the_leases(place: LeasingRoot) -> None:
    place.publish(4)
    first, second, third = (place.claimed(1) for _ in range(3))
    place.run(acknowledge(place.root, first.name))
    place.run(acknowledge(place.root, third.name))
    place.run(release(place.root, second.name))
    assert place.claimed(1).seq == 4
    states = {lease.seq: lease.state for lease in place.leases()}
    assert states == {2: LeaseState.LAPSED, 3: LeaseState.ACKNOWLEDGED, 4: LeaseState.CLAIMED}


def test_a_claim_that_a_process_died_over_is_finished(place: LeasingRoot) -> None:
    ids = place.publish(3)
    operation = claim(place.root, CONSUMER, [QUEUE], 3, LEASE_S)
    next(operation)  # The manifest and the folder are flushed.
    next(operation)  # Everything is renamed.
    operation.close()
    (dead,) = place.leases()
    assert dead.state is LeaseState.CLAIMING
    finished = place.run(finish_claim(place.root, dead.name))
    assert (finished.state, finished.messages) == (LeaseState.CLAIMED, 3)
    assert ids_in(finished.folder) == texts(ids)
    assert place.leases() == [finished]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', "\0" * 40])
def test_a_torn_manifest_is_of_a_claim_of_which_nothing_is_known(
    place: LeasingRoot, text: str
) -> None:
    place.publish()
    lease = place.claimed()
    (place.top / "leases/c.1.json").write_text(text)
    (found,) = place.leases()
    assert (found.state, found.name) == (LeaseState.CLAIMING, lease.name)
    assert place.run(finish_claim(place.root, found.name)).messages == 1


# Acknowledged


def test_acknowledging_removes_all_of_it_by_one_rename(place: LeasingRoot) -> None:
    ids = place.publish(3)
    lease = place.claimed()
    assert place.run(acknowledge(place.root, lease.name)) is True
    (folder,) = (place.top / "remove").iterdir()
    assert folder.name.startswith("c.1:")
    assert folder.name.endswith(".l")
    assert ids_in(folder) == texts(ids)
    assert place.run(acknowledge(place.root, lease.name)) is False
    assert [each.state for each in place.leases()] == [LeaseState.ACKNOWLEDGED]


def test_what_was_released_cannot_be_acknowledged(place: LeasingRoot) -> None:
    place.publish()
    lease = place.claimed()
    place.run(release(place.root, lease.name))
    with pytest.raises(LeaseLost):
        place.run(acknowledge(place.root, lease.name))
    with pytest.raises(LeaseLost):
        renew(place.root, lease.name, LEASE_S)


# Released


@pytest.mark.parametrize("folder_max", [3, 10_000])
def test_what_is_released_is_ready_and_was_received(tmp_path: Path, folder_max: int) -> None:
    place = LeasingRoot(tmp_path / "root", folder_max)
    ids = place.publish(20)
    lease = place.claimed()
    place.pass_s(1)
    assert place.run(release(place.root, lease.name)) == Released(returned=20)
    assert ready(place) == texts(ids)
    assert {stamp_of(place.root, each).receives for each in ids} == {1}
    assert [path.name for path in (place.top / "leases").iterdir()] == ["c.1.lapsed"]
    with pytest.raises(LeaseLost):
        place.run(release(place.root, lease.name))


def test_a_lease_is_given_back_when_it_is_due(place: LeasingRoot) -> None:
    (message_id,) = place.publish()
    lease = place.claimed()
    assert place.run(give_back(place.root, lease.name, only_due=True)) is Release.NOT_DUE
    place.pass_s(LEASE_S / 2)
    assert renew(place.root, lease.name, LEASE_S) == place.clock.now_ms() + LEASE_S * 1000
    place.pass_s(LEASE_S / 2)
    assert place.run(give_back(place.root, lease.name, only_due=True)) is Release.NOT_DUE
    place.pass_s(LEASE_S / 2)
    due_ms = place.clock.now_ms()
    place.pass_s(1)
    assert place.run(give_back(place.root, lease.name, only_due=True)) == Released(returned=1)
    stamp = stamp_of(place.root, message_id)
    assert (stamp.receives, stamp.due_ms) == (1, due_ms)


def test_who_goes_on_with_a_release_does_not_count_twice(place: LeasingRoot) -> None:
    ids = place.publish(3)
    lease = place.claimed()
    place.pass_s(LEASE_S + 1)
    due_ms = lease.due_ms
    (place.top / "leases/c.1").rename(place.top / "leases/c.1.back")
    stamped = place.top / "leases/c.1.back" / f"q:{ids[0].text}"
    os.utime(stamped, ns=(0, due_ms * 1_000_000 + 1_000))
    assert [each.state for each in place.leases()] == [LeaseState.RETURNING]
    assert place.run(give_back(place.root, lease.name, only_due=True)) == Released(returned=3)
    assert [stamp_of(place.root, each).receives for each in ids] == [1, 1, 1]


def test_a_message_of_no_queue_stays_until_it_has_one(place: LeasingRoot) -> None:
    place.publish(2)
    lease = place.claimed()
    os.rmdir(place.top / "queues/q")
    assert place.run(release(place.root, lease.name)) == Released(stuck=2)
    assert [each.state for each in place.leases()] == [LeaseState.RETURNING]
    place.make_queue(QUEUE)
    assert place.run(release(place.root, lease.name)) == Released(returned=2)
    assert [each.state for each in place.leases()] == [LeaseState.LAPSED]


def test_what_was_purged_meanwhile_is_removed(place: LeasingRoot) -> None:
    place.publish(2)
    lease = place.claimed()
    place.run(purge(place.root, QUEUE, place.uuids.end_moment()))
    assert place.run(release(place.root, lease.name)) == Released(removed=2)
    assert ready(place) == []
    assert len(list((place.top / "remove").iterdir())) == 2


# Owners


def test_a_consumers_name_has_one_owner(place: LeasingRoot) -> None:
    with own(place.root, CONSUMER):
        with pytest.raises(ConsumerBusy):
            own(place.root, CONSUMER)
        own(place.root, ConsumerName.parse("other")).close()
    own(place.root, CONSUMER).close()


def test_a_consumer_is_forgotten_with_its_names(place: LeasingRoot) -> None:
    place.publish(2)
    lease = place.claimed(1)
    with own(place.root, CONSUMER):
        with pytest.raises(Busy):
            place.run(forget_consumer(place.root, CONSUMER))
        place.run(acknowledge(place.root, lease.name))
        place.run(forget_consumer(place.root, CONSUMER))
    assert list((place.top / "leases").iterdir()) == []
    assert place.claimed(1).seq == 1


def test_two_that_make_the_same_lease(place: LeasingRoot) -> None:
    place.publish(2)
    operation = claim(place.root, CONSUMER, [QUEUE], 1, LEASE_S)
    next(operation)
    second = place.claimed(1)
    assert second.seq == 2
    first = place.run(rest(operation))
    assert first is not None
    assert (first.seq, first.messages) == (1, 1)
