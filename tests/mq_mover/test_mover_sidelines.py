"""Redelivery of what was received as often as its queue allows: to the sideline, or nowhere."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.faults import FaultyFiles
from harness.leases import LEASE_S, QUEUE, LeasingRoot
from harness.messages import new_id

from mq.model.lifecycle import State
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.find import whereabouts
from mq.store.disk.files import Files
from mq.store.disk.group import run_alone
from mq.store.operations.fetch import fetch
from mq.store.operations.purge import purge
from mq.store.operations.queues import create_queue, delete_queue
from mq.store.operations.redeliver import Timer
from mq.store.operations.release import release_many
from mq.store.operations.reschedule import reschedule
from mq_mover.lapses import LeaseMover
from mq_mover.mover import Mover

if TYPE_CHECKING:
    from .conftest import Bench

ORDERS = QueueName.parse("orders")
MINUTE_MS = 60_000


def limit(path: Path, max_receives: int, queue: str = "orders") -> None:
    """As by a PATCH: another file in its place."""
    written = path / "settings" / ".written"
    written.write_text(f'{{"max_receives": {max_receives}}}')
    written.rename(path / "settings" / f"{queue}.json")


def due(bench: "Bench", receives: int, count: int = 1) -> list[Path]:
    """Messages of delay/ that are due now, and were stamped before."""
    entries = [bench.delayed(MINUTE_MS, receives=receives) for _ in range(count)]
    bench.clock.advance(MINUTE_MS / 1000)
    return entries


def sideline_of(bench: "Bench", entry: Path) -> Path:
    return bench.path / "queues" / "orders_SIDELINE" / entry.name.partition(":")[2]


@pytest.mark.parametrize("receives", [2, 3, 999])
def test_it_goes_to_the_sideline_that_it_makes(bench: "Bench", receives: int) -> None:
    limit(bench.path, 2)
    entries = due(bench, receives, 3)
    assert bench.mover().run_once() == 3
    for entry in entries:
        assert not entry.exists()
        stamp = Stamp.from_mtime_ns(sideline_of(bench, entry).stat().st_mtime_ns)
        assert stamp == Stamp(bench.clock.now_ms(), receives, Reason.RECEIVES)


@pytest.mark.parametrize("max_receives", [0, 3])
def test_with_less_it_comes_back(bench: "Bench", max_receives: int) -> None:
    limit(bench.path, max_receives)
    (entry,) = due(bench, 2)
    assert bench.mover().run_once() == 1
    assert bench.redelivered(entry).exists()


def test_what_is_purged_is_removed(bench: "Bench") -> None:
    limit(bench.path, 1)
    (entry,) = due(bench, 1)
    now_ms = MessageId.parse(entry.name.partition(":")[2]).published_ms
    run_alone(purge(bench.root, ORDERS, now_ms), bench.flusher)
    assert bench.mover().run_once() == 1
    assert bench.removed(entry).exists()


def test_what_is_of_a_deleted_queue_goes_with_it(bench: "Bench") -> None:
    limit(bench.path, 1)
    bench.root.facts.settings(ORDERS)
    (entry,) = due(bench, 1)
    run_alone(delete_queue(bench.root, ORDERS, new_id().text), bench.flusher)
    limit(bench.path, 1)
    assert bench.mover().run_once() == 1
    assert bench.removed(entry).exists()
    assert not sideline_of(bench, entry).parent.exists()


def test_while_the_sideline_cannot_be_made_it_stays_and_is_told_of_once(
    bench: "Bench", caplog: pytest.LogCaptureFixture
) -> None:
    limit(bench.path, 1)
    foreign = bench.path / "queues" / "orders_SIDELINE"
    foreign.write_text("no folder")
    entries = due(bench, 1, 2)
    mover = bench.mover()
    for _ in range(5):
        assert mover.run_once() == 0
        assert all(entry.exists() for entry in entries)
        bench.clock.advance(10)
    told = [each for each in caplog.records if "sideline" in each.getMessage()]
    assert len(told) == 1
    foreign.unlink()
    assert mover.run_once() == 2
    assert all(sideline_of(bench, entry).exists() for entry in entries)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_on_a_disk_that_takes_no_folder_it_stays(
    make_bench: Callable[[Files], "Bench"], code: int
) -> None:
    files = FaultyFiles()
    bench = make_bench(files)
    limit(bench.path, 1)
    (entry,) = due(bench, 1)
    files.fail("mkdir", code, "orders_SIDELINE")
    mover = bench.mover()
    assert mover.run_once() == 0
    assert entry.exists()
    files.heal()
    bench.clock.advance(10)
    assert mover.run_once() == 1
    assert sideline_of(bench, entry).exists()


def test_while_a_purge_s_mark_covers_it_there_it_stays(bench: "Bench") -> None:
    limit(bench.path, 1)
    (entry,) = due(bench, 1)
    into = ORDERS.sideline()
    run_alone(create_queue(bench.root, into), bench.flusher)
    run_alone(purge(bench.root, into, bench.clock.now_ms()), bench.flusher)
    mover = bench.mover()
    assert mover.run_once() == 0
    assert entry.exists()
    os.unlink(bench.root.layout.purge_mark(into))
    bench.clock.advance(10)
    assert mover.run_once() == 1


def test_settings_that_cannot_be_understood_are_as_last_known(bench: "Bench") -> None:
    limit(bench.path, 1)
    mover = bench.mover()
    known, unknown = "orders.json", "others.json"
    bench.root.facts.settings(ORDERS)
    for name in (known, unknown):
        (bench.path / "settings" / name).write_text("{")
    run_alone(create_queue(bench.root, ORDERS), bench.flusher)
    (entry,) = due(bench, 1)
    assert mover.run_once() == 1
    assert sideline_of(bench, entry).exists()


def test_a_limit_that_is_changed_counts_within_a_second(bench: "Bench") -> None:
    mover = bench.mover()
    (first,) = due(bench, 5)
    assert mover.run_once() == 1
    limit(bench.path, 5)
    (second,) = due(bench, 5)
    bench.clock.advance(1)
    assert mover.run_once() == 1
    assert bench.redelivered(first).exists()
    assert sideline_of(bench, second).exists()


def test_in_a_sideline_there_is_none(bench: "Bench") -> None:
    run_alone(create_queue(bench.root, ORDERS.sideline()), bench.flusher)
    limit(bench.path, 1, "orders_SIDELINE")
    entry = bench.delayed(MINUTE_MS, "orders_SIDELINE", receives=7)
    bench.clock.advance(MINUTE_MS / 1000)
    assert bench.mover().run_once() == 1
    assert bench.redelivered(entry).exists()


def test_of_two_movers_one_does_it(bench: "Bench") -> None:
    limit(bench.path, 1)
    entries = due(bench, 1, 20)
    movers = [bench.mover(), bench.mover()]
    for mover in movers:
        mover.next_due_s()
    moved = [mover.run_once() for mover in movers]
    assert sum(moved) == len(entries)
    assert all(sideline_of(bench, entry).exists() for entry in entries)


@pytest.fixture(params=[10_000, 1], ids=["flat", "in buckets"])
def place(root: Path, request: pytest.FixtureRequest) -> LeasingRoot:
    place = LeasingRoot(root, request.param)
    limit(place.top, 1, QUEUE.text)
    return place


def delayed_stamp(place: LeasingRoot, message_id: MessageId) -> Stamp:
    (path,) = (place.top / "delay").rglob(f"{QUEUE.text}:{message_id.text}")
    return Stamp.from_mtime_ns(path.stat().st_mtime_ns)


def sideline_all(place: LeasingRoot, ids: list[MessageId]) -> None:
    """Redelivery takes all of them to the sideline."""
    mover = Mover(place.root, place.flusher, Timer())
    moved = 0
    for _ in range(3):
        moved += mover.run_once()
        place.pass_s(1)
    assert moved == len(ids)
    for message_id in ids:
        assert whereabouts(place.root, QUEUE.sideline(), message_id) is State.READY


def test_a_lease_that_lapses_sends_it_there(place: LeasingRoot) -> None:
    ids = place.publish(3)
    place.claimed()
    place.pass_s(LEASE_S)
    assert LeaseMover(place.root, place.flusher).run_once() == 3
    for message_id in ids:
        assert whereabouts(place.root, QUEUE, message_id) is State.DELAYED
        stamp = delayed_stamp(place, message_id)
        assert (stamp.due_ms <= place.clock.now_ms(), stamp.receives) == (True, 1)
    sideline_all(place, ids)


def test_what_mq_gives_back_stays_to_be_sidelined(place: LeasingRoot) -> None:
    ids = place.publish(3)
    deliveries = [place.run(fetch(place.root, QUEUE, each, 60)) for each in ids]
    first, *rest = [each for each in deliveries if each is not None]
    place.pass_s(60)  # They have lapsed: else the deliveries are no attempts.
    assert place.run(release_many(place.root, QUEUE, [first], unhandled=True)) == []
    assert place.run(release_many(place.root, QUEUE, rest)) == []
    for message_id in ids:
        assert whereabouts(place.root, QUEUE, message_id) is State.DELAYED
        assert delayed_stamp(place, message_id).due_ms == place.clock.now_ms()
    sideline_all(place, ids)


def test_what_was_claimed_and_not_delivered_is_no_attempt(place: LeasingRoot) -> None:
    (message_id,) = place.publish(1)
    for receives in (1, 2, 3):
        delivery = place.run(fetch(place.root, QUEUE, message_id, 60))
        assert delivery is not None
        assert (delivery.stamp.receives, delivery.stamp.attempts) == (receives, 1)
        assert place.run(release_many(place.root, QUEUE, [delivery], unhandled=True))


def test_one_that_a_client_releases_stays_to_be_sidelined(place: LeasingRoot) -> None:
    (message_id,) = place.publish(1)
    place.run(fetch(place.root, QUEUE, message_id, 60))
    place.run(reschedule(place.root, QUEUE, message_id, 0))
    assert whereabouts(place.root, QUEUE, message_id) is State.DELAYED
    sideline_all(place, [message_id])
