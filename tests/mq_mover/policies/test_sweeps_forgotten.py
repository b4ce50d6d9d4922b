"""Sweeping: what is forgotten in new/ is never delivered, and deleted queues leave nothing."""

import fcntl
from typing import TYPE_CHECKING

import pytest
from harness.messages import ctime_ms, new_id, put_entry, put_file

from mq.model.limits import FORGOTTEN_AFTER_S, GROUP_OPERATIONS_MAX
from mq.store.operations.purge import PURGED_PER_PASS_MAX
from mq.store.operations.queues import TOMBSTONE_KEPT_S

if TYPE_CHECKING:
    from tests.mq_mover.conftest import Bench


def test_a_file_in_new_goes_to_remove_when_it_is_an_hour_old(bench: "Bench") -> None:
    torn = put_entry(bench.folder("new"), body=b"to")
    bench.clock.reach(ctime_ms(torn) + FORGOTTEN_AFTER_S * 1000 - 1)
    assert bench.sweeper().run_once() == 0
    assert torn.exists()
    bench.clock.reach(ctime_ms(torn) + FORGOTTEN_AFTER_S * 1000)
    assert bench.sweeper().run_once() == 1
    assert not torn.exists()
    assert bench.removed(torn).read_bytes() == b"to"


@pytest.mark.parametrize("age_s", [0, FORGOTTEN_AFTER_S - 1, FORGOTTEN_AFTER_S, 10**7])
def test_a_file_in_new_is_never_delivered(bench: "Bench", age_s: int) -> None:
    torn = put_entry(bench.folder("new"), body=b"to", due_ms=bench.clock.now_ms() - 10**9)
    bench.clock.reach(ctime_ms(torn) + age_s * 1000)
    mover, sweeper = bench.mover(), bench.sweeper()
    for _ in range(3):
        sweeper.run_once()
        mover.run_once()
        bench.clock.advance(61)
    assert list(bench.ready.iterdir()) == []
    assert torn.exists() != bench.removed(torn).exists()


def test_an_mtime_of_long_ago_does_not_make_a_publish_forgotten(bench: "Bench") -> None:
    young = put_entry(bench.folder("new"), due_ms=1000)
    assert bench.sweeper().run_once() == 0
    assert young.exists()


def test_many_forgotten_files_go_in_one_pass(bench: "Bench") -> None:
    entries = [put_entry(bench.folder("new")) for _ in range(2 * GROUP_OPERATIONS_MAX + 1)]
    bench.clock.advance(FORGOTTEN_AFTER_S + 600)
    assert bench.sweeper().run_once() == len(entries)
    assert all(bench.removed(entry).exists() for entry in entries)


def test_foreign_names_in_new_stay(bench: "Bench") -> None:
    foreign = [
        put_file(bench.folder("new") / name) for name in (".probe", "notes.txt", "orders:notes")
    ]
    bench.clock.advance(FORGOTTEN_AFTER_S + 600)
    assert bench.sweeper().run_once() == 0
    assert all(path.exists() for path in foreign)


def test_a_pass_is_made_once_a_minute(bench: "Bench") -> None:
    torn = put_entry(bench.folder("new"))
    bench.clock.reach(ctime_ms(torn) + FORGOTTEN_AFTER_S * 1000 - 1000)
    sweeper = bench.sweeper()
    assert sweeper.run_once() == 0
    bench.clock.advance(59)
    assert sweeper.run_once() == 0
    bench.clock.advance(1)
    assert sweeper.run_once() == 1


def test_what_a_deleted_queue_has_in_delay_is_retired_and_its_tombstone_kept(
    bench: "Bench",
) -> None:
    tombstone = put_file(bench.folder("deleted") / "gone", due_ms=bench.clock.now_ms())
    own = [bench.delayed(10**7, queue="gone") for _ in range(3)]
    others = [bench.delayed(10**7), bench.delayed(10**7, queue="gone.too")]
    assert bench.sweeper().run_once() == 3
    assert all(bench.removed(entry).exists() for entry in own)
    assert all(entry.exists() for entry in others)
    assert tombstone.exists()


def test_a_tombstone_is_forgotten_when_nothing_of_its_queue_can_be_in_hand(bench: "Bench") -> None:
    tombstone = put_file(bench.folder("deleted") / "gone", due_ms=bench.clock.now_ms())
    entry = bench.delayed(10**9, queue="gone")
    bench.clock.advance(TOMBSTONE_KEPT_S - 1)
    bench.sweeper().run_once()
    assert tombstone.exists()
    bench.clock.advance(1)
    bench.sweeper().run_once()
    assert not tombstone.exists()
    assert bench.removed(entry).exists()


def test_a_tombstone_beside_its_queue_is_forgotten_and_takes_nothing_along(bench: "Bench") -> None:
    # A crash between the tombstone and the rename: the deletion was never answered.
    tombstone = put_file(bench.folder("deleted") / "orders", due_ms=bench.clock.now_ms())
    entry = bench.delayed(10**7)
    assert bench.sweeper().run_once() == 0
    assert not tombstone.exists()
    assert entry.exists()


def test_a_pass_leaves_deleted_queues_alone_while_another_makes_or_deletes_one(
    bench: "Bench",
) -> None:
    put_file(bench.folder("deleted") / "gone", due_ms=bench.clock.now_ms())
    entry = bench.delayed(10**7, queue="gone")
    sweeper = bench.sweeper()
    with (bench.folder("deleted") / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert sweeper.run_once() == 0
        assert entry.exists()
    bench.clock.advance(60)
    assert sweeper.run_once() == 1
    assert bench.removed(entry).exists()


def test_a_locked_message_of_a_deleted_queue_is_retired_by_a_later_pass(bench: "Bench") -> None:
    put_file(bench.folder("deleted") / "gone", due_ms=bench.clock.now_ms())
    entry = bench.delayed(10**7, queue="gone")
    sweeper = bench.sweeper()
    with entry.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sweeper.run_once() == 0
        assert entry.exists()
    bench.clock.advance(60)
    assert sweeper.run_once() == 1


def test_buckets_that_emptied_go_from_queues_and_from_delay(bench: "Bench") -> None:
    for folder in (bench.ready / "0192f3a2", bench.folder("delay") / "0192f3a2" / "7c"):
        folder.mkdir(parents=True)
    full = bench.ready / "p1-0192f3a3"
    full.mkdir()
    put_file(full / f"0192f3a3{new_id().text[8:]},p=1")
    young = bench.ready / f"{bench.clock.now_ms() >> 16:08x}"
    young.mkdir()
    sweeper = bench.sweeper()
    for _ in range(3):
        bench.clock.advance(60)
        sweeper.run_once()
    assert not any((bench.folder("delay") / "0192f3a2").parent.glob("0*"))
    left = {path.name for path in bench.ready.iterdir()}
    assert left == {full.name} | ({young.name} if young.exists() else set())


def test_settings_of_no_queue_are_taken_away(bench: "Bench") -> None:
    settings = bench.folder("settings")
    for queue in ("orders", "gone"):
        (settings / f"{queue}.json").write_text("{}")
    (settings / "README").touch()
    bench.sweeper().run_once()
    assert sorted(path.name for path in settings.iterdir()) == ["README", "orders.json"]


def test_what_a_purge_has_left_is_taken_away_and_its_mark_an_hour_later(bench: "Bench") -> None:
    ready = put_file(bench.ready / new_id().text)
    delayed = bench.delayed(10**7)
    other = bench.delayed(10**7, queue="others")
    mark = put_file(bench.folder("purged") / "orders", due_ms=bench.clock.now_ms() + 60_000)
    sweeper = bench.sweeper()
    assert sweeper.run_once() == 2
    assert [ready.exists(), delayed.exists(), other.exists()] == [False, False, True]
    for _ in range(2):
        assert mark.exists()
        bench.clock.advance(1800)
        assert sweeper.run_once() == 0
        bench.clock.advance(60)
        sweeper.run_once()
    assert not mark.exists()


def test_a_mark_of_no_queue_is_taken_away(bench: "Bench") -> None:
    for name in ("orders", "gone", "READ ME"):
        put_file(bench.folder("purged") / name, due_ms=0)
    bench.sweeper().run_once()
    assert not (bench.folder("purged") / "gone").exists()
    assert (bench.folder("purged") / "READ ME").exists()


@pytest.mark.certificate
def test_a_large_purge_is_taken_away_over_several_passes(bench: "Bench") -> None:
    count = PURGED_PER_PASS_MAX + 5
    for _ in range(count):
        (bench.ready / new_id().text).touch()
    put_file(bench.folder("purged") / "orders", due_ms=bench.clock.now_ms() + 10**6)
    sweeper = bench.sweeper()
    assert sweeper.run_once() == PURGED_PER_PASS_MAX
    bench.clock.advance(60)
    assert sweeper.run_once() == 5


def test_much_of_deleted_queues_is_retired_over_several_turns(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redelivery has a round between any two; the tombstone stays until a turn finds nothing."""
    monkeypatch.setattr("mq_mover.policies.sweeps.RETIRED_PER_TURN_MAX", 10)
    tombstone = put_file(
        bench.folder("deleted") / "gone", due_ms=bench.clock.now_ms() - 2 * TOMBSTONE_KEPT_S * 1000
    )
    entries = [bench.delayed(10**7, queue="gone") for _ in range(35)]
    sweeper = bench.sweeper()
    turns = 0
    while tombstone.exists():
        left = sum(entry.exists() for entry in entries)
        turned = sweeper.counts()["deleted-queues"].turns
        sweeper.run_next()
        turns += sweeper.counts()["deleted-queues"].turns - turned
        assert left - sum(entry.exists() for entry in entries) <= 10
        if sweeper.next_due_s():
            bench.clock.advance(60)
    assert all(bench.removed(entry).exists() for entry in entries)
    assert turns == 5
