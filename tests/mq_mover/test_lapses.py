"""Leases and mq-mover: what lapsed goes back, what a crash left is finished, what is old goes."""

import json
import os
from pathlib import Path

import pytest
from harness.faults import FaultyFiles
from harness.leases import CONSUMER, LEASE_S, QUEUE, LeasingRoot, stamp_of
from harness.messages import ctime_ms, new_id
from harness.processes import Processes, eventually
from harness.upkeep import all_policies

from mq.store.leases.lapses import LAPSED_KEPT_S
from mq.store.leases.lease import LeaseState, acknowledge, claim, renew
from mq.store.leases.manifest import LEASE_S_DEFAULT
from mq.store.leases.releasing import release
from mq.store.operations.queues import delete_queue, sweep_tombstones
from mq_mover.lapses import LeaseMover


@pytest.fixture
def place(root: Path) -> LeasingRoot:
    return LeasingRoot(root)


def mover(place: LeasingRoot) -> LeaseMover:
    return LeaseMover(place.root, place.flusher)


def states(place: LeasingRoot) -> list[LeaseState]:
    return [lease.state for lease in place.leases()]


def names(place: LeasingRoot) -> list[str]:
    return sorted(path.name for path in (place.top / "leases").iterdir())


def test_a_lease_is_released_when_it_is_due_and_not_before(place: LeasingRoot) -> None:
    ids = place.publish(3)
    place.claimed()
    moving = mover(place)
    assert moving.run_once() == 0
    assert moving.next_due_s() == LEASE_S
    place.pass_s(LEASE_S - 1)
    assert moving.run_once() == 0
    place.pass_s(1)
    assert moving.run_once() == 3
    assert [stamp_of(place.root, each).receives for each in ids] == [1, 1, 1]
    assert states(place) == [LeaseState.LAPSED]
    assert moving.next_due_s() is None


def test_a_renewed_lease_stays(place: LeasingRoot) -> None:
    place.publish()
    lease = place.claimed()
    moving = mover(place)
    moving.run_once()
    for _ in range(3):
        place.pass_s(LEASE_S / 2)
        renew(place.root, lease.name, LEASE_S)
        assert moving.run_once() == 0
    assert moving.next_due_s() == LEASE_S
    place.pass_s(LEASE_S)
    assert moving.run_once() == 1


def test_a_lease_that_ended_meanwhile_is_forgotten(place: LeasingRoot) -> None:
    place.publish()
    lease = place.claimed()
    moving = mover(place)
    moving.run_once()
    place.run(acknowledge(place.root, lease.name))
    place.pass_s(LEASE_S + 1)
    assert moving.run_once() == 0
    assert moving.next_due_s() is None
    assert states(place) == [LeaseState.ACKNOWLEDGED]


def test_a_look_that_finds_nothing_new_lists_nothing(root: Path) -> None:
    class Listing(FaultyFiles):
        listed = 0

        def entries(self, folder: str):  # type: ignore[no-untyped-def]
            self.listed += folder.endswith("leases")
            return super().entries(folder)

    files = Listing()
    place = LeasingRoot(root, files=files)
    place.publish()
    place.claimed()
    place.clock.set_ms(ctime_ms(root / "leases") + 10_000)
    moving = mover(place)
    for _ in range(2):
        moving.run_once()
        place.pass_s(1)
    listed = files.listed
    for _ in range(5):
        moving.run_once()
        place.pass_s(1)
    assert files.listed == listed


@pytest.mark.parametrize("how", ["lapses", "is given back"])
def test_the_history_of_what_a_lease_had_at_its_limit_says_that_it_was_released(
    place: LeasingRoot, how: str
) -> None:
    (place.top / "settings" / "q.json").write_text('{"history": true, "max_receives": 1}')
    place.pass_s(1)
    place.publish()
    lease = place.claimed()
    place.pass_s(1)
    if how == "lapses":
        place.pass_s(LEASE_S)
        assert mover(place).run_once() == 1
    else:
        place.run(release(place.root, lease.name))
    lines = [
        json.loads(line)
        for path in (place.top / "history" / "q").glob("*/*.ndjson")
        for line in path.read_text().splitlines()
    ]
    # It is in delay/, due: the next pass has it in the sideline.
    assert [line["event"] for line in lines] == ["published", "leased", "released"]
    assert lines[-1]["receives"] == 1


def test_what_a_dead_mover_began_is_finished_at_once(place: LeasingRoot) -> None:
    place.publish(2)
    place.claimed()
    (place.top / "leases/c.1").rename(place.top / "leases/c.1.back")
    assert mover(place).run_once() == 2
    assert states(place) == [LeaseState.LAPSED]
    (place.top / "leases/c.1.back").mkdir()  # Of one that died before it took it away.
    assert mover(place).run_once() == 0
    assert names(place) == ["c.1.lapsed"]


def test_a_folder_without_a_manifest_is_released_after_a_while(place: LeasingRoot) -> None:
    place.publish()
    place.claimed()
    (place.top / "leases/c.1.json").unlink()
    folder = place.top / "leases/c.1"
    moving = mover(place)
    place.clock.set_ms(ctime_ms(folder) + LEASE_S_DEFAULT * 1000 - 1)
    assert moving.run_once() == 0
    place.pass_s(1)
    assert moving.run_once() == 1
    assert states(place) == [LeaseState.LAPSED]


def test_many_messages_are_given_back_some_at_a_time(
    place: LeasingRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq_mover.lapses.RETURNED_PER_PASS_MAX", 4)
    place.publish(10)
    place.claimed()
    moving = mover(place)
    place.pass_s(LEASE_S + 1)
    assert [moving.run_once() for _ in range(4)] == [4, 4, 2, 0]
    assert states(place) == [LeaseState.LAPSED]


def test_what_is_stuck_hides_nothing_else(
    place: LeasingRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq_mover.lapses.RETURNED_PER_PASS_MAX", 2)
    place.publish(3)
    lease = place.claimed()
    for _ in range(3):
        (Path(lease.folder) / f"nowhere:{new_id().text}").touch()
    moving = mover(place)
    place.pass_s(LEASE_S + 1)
    moved = 0
    for _ in range(6):
        moved += moving.run_once()
        place.pass_s(10)
    assert moved == 3
    assert states(place) == [LeaseState.RETURNING]


def test_a_deleted_queue_has_nothing_in_leases(place: LeasingRoot) -> None:
    place.publish(2)
    lease = place.claimed()
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    assert place.run(sweep_tombstones(place.root)) == 2
    assert list(Path(lease.folder).iterdir()) == []
    place.make_queue(QUEUE)
    place.pass_s(LEASE_S + 1)
    assert mover(place).run_once() == 0
    assert states(place) == [LeaseState.LAPSED]
    assert list((place.top / "queues/q").iterdir()) == []


# Sweeping


def sweep(place: LeasingRoot, after_s: float = 0) -> None:
    place.pass_s(after_s)
    all_policies(place.root, place.flusher).run_once()


def test_the_newest_manifest_stays(place: LeasingRoot) -> None:
    place.publish(3)
    first, second, third = (place.claimed(1) for _ in range(3))
    for lease in (second, first):
        place.run(acknowledge(place.root, lease.name))
    assert names(place) == ["c.1.json", "c.2.json", "c.3", "c.3.json"]
    sweep(place)
    assert names(place) == ["c.3", "c.3.json"]
    place.run(acknowledge(place.root, third.name))
    sweep(place, 10 * LAPSED_KEPT_S)
    assert names(place) == ["c.3.json"]


def test_that_a_lease_lapsed_is_known_for_a_while(place: LeasingRoot) -> None:
    place.publish(1)
    place.claimed()
    place.pass_s(LEASE_S)
    mover(place).run_once()
    place.run(acknowledge(place.root, place.claimed().name))
    sweep(place, LAPSED_KEPT_S - 1)
    assert names(place) == ["c.1.lapsed", "c.2.json"]
    sweep(place, 2)
    assert names(place) == ["c.2.json"]


def test_a_claim_that_took_nothing_is_swept_late(place: LeasingRoot) -> None:
    place.publish(1)
    operation = claim(place.root, CONSUMER, [QUEUE], 1, LEASE_S)
    next(operation)
    os.rmdir(place.top / "leases/c.1")  # It died before it made it.
    manifest = place.top / "leases/c.1.json"
    place.clock.reach(ctime_ms(manifest) + LEASE_S_DEFAULT * 1000 - 1)
    sweep(place)
    assert place.leases() == []
    assert names(place) == ["c.1.json"]
    sweep(place, 1)
    assert names(place) == []


# As a command


def test_the_command_gives_lapsed_leases_back(place: LeasingRoot, daemons: Processes) -> None:
    place.publish(3)
    place.run(claim(place.root, CONSUMER, [QUEUE], 10, 0.2))
    daemons.mover("--root", str(place.top))
    eventually(lambda: len(list((place.top / "queues/q").iterdir())) == 3)
    eventually(lambda: names(place) == ["c.1.lapsed"])
