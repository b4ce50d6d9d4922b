"""The sweep of what is overdue: what redelivery cannot bring back goes to the sideline, in turns
that hold nothing up, and a pass goes on where another was broken off.
"""

import errno
import fcntl
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.faults import FaultyFiles
from harness.messages import put_entry
from harness.upkeep import MEMBER

from mq.coordination.coordinator import Alone, View
from mq.model.message import Reason, Stamp
from mq.model.names import QueueName
from mq.model.settings import SWEEP_AFTER_S_DEFAULT
from mq.store.opening import root_of
from mq.store.operations.redeliver import Timer
from mq.store.settings.registry import Registry
from mq_mover.mover import Mover
from mq_mover.policies import overdue as module
from mq_mover.policies.overdue import (
    OVERDUE_EVERY_S,
    OVERDUE_FIRST_S,
    OVERDUE_TAKEN_OVER_S,
    Overdue,
)
from mq_mover.policy import Policies, Work

if TYPE_CHECKING:
    from tests.mq_mover.conftest import Bench

SIDELINE = "orders_SIDELINE"


def unreadable(bench: "Bench", queue: str = "orders") -> Path:
    """Nobody can tell the queue's settings, and it goes by buckets: so nothing comes back to it."""
    settings = bench.folder("settings") / f"{queue}.json"
    settings.write_text("{")
    (bench.folder("queues") / queue).mkdir(exist_ok=True)
    (bench.folder("queues") / queue / "0192f3a2").mkdir(exist_ok=True)
    return settings


def with_settings(bench: "Bench", queue: str, **fields: object) -> None:
    (bench.folder("settings") / f"{queue}.json").write_text(json.dumps(fields))


class Among(Alone):
    """One of several, who has some of the queues."""

    def __init__(self, member: str, queues: Collection[str] | None = None) -> None:
        super().__init__(member)
        self.members = (member,)
        self.queues = queues

    def has(self, queue: QueueName) -> bool:
        return self.queues is None or queue.text in self.queues

    def view(self) -> View:
        return View(self.member, self.members)


class Member:
    """A mover's redelivery and its sweep, a second a round."""

    def __init__(
        self, bench: "Bench", coordinator: Among | None = None, mover: Mover | None = None
    ) -> None:
        """`mover`: one that has passed for long, as that of whoever takes over."""
        self.bench = bench
        self.mover = mover or bench.mover()
        self.coordinator = coordinator or Among(MEMBER)
        registry = Registry(bench.root)
        registry.refresh()
        self.work = Work(
            bench.root, bench.flusher, self.coordinator, registry, passing=self.mover.passing
        )
        self.policies = Policies(bench.root, [Overdue(self.work)])

    def round(self) -> int:
        self.mover.run_once()
        return self.policies.run_next()

    def rounds(self, seconds: float, every_s: float = 30.0) -> int:
        swept = 0
        for _ in range(round(seconds / every_s)):
            swept += self.round()
            self.bench.clock.advance(every_s)
        return swept


def sidelined(bench: "Bench", entry: Path) -> Path:
    queue, _, message_id = entry.name.partition(":")
    return bench.folder("queues") / f"{queue}_SIDELINE" / message_id


def stamp(path: Path) -> Stamp:
    return Stamp.from_mtime_ns(path.stat().st_mtime_ns)


def test_what_cannot_be_brought_back_goes_to_the_sideline(bench: "Bench") -> None:
    unreadable(bench)
    entry = bench.delayed(5000, receives=3)
    member = Member(bench)
    assert member.rounds(SWEEP_AFTER_S_DEFAULT) == 0
    assert entry.exists()
    assert member.rounds(2 * OVERDUE_EVERY_S) == 1
    assert not entry.exists()
    there = sidelined(bench, entry)
    assert there.read_bytes() == b"body"
    assert (stamp(there).receives, stamp(there).reason) == (3, Reason.SWEPT)
    assert stamp(there).due_ms <= bench.clock.now_ms()


def test_what_can_be_brought_back_never_does(bench: "Bench") -> None:
    with_settings(bench, "orders", sweep_after_s=1)
    member = Member(bench)
    entries = [bench.delayed(ms) for ms in (-(10**9), -1000, 500_000, 3_000_000)]
    assert member.rounds(5 * OVERDUE_EVERY_S) == 0
    assert all(bench.redelivered(entry).exists() for entry in entries)
    assert not (bench.folder("queues") / SIDELINE).exists()


def test_a_stop_of_the_mover_is_no_fault_of_the_messages(bench: "Bench") -> None:
    """What comes back as soon as it runs again is never swept, however long that was."""
    member = Member(bench)
    member.rounds(OVERDUE_FIRST_S + 60)
    settings = unreadable(bench)
    stuck, well = bench.delayed(1000), bench.delayed(1000, queue="well")
    (bench.folder("queues") / "well").mkdir()
    bench.clock.advance(10 * 3600)  # SIGSTOP
    for _ in range(3):
        assert member.policies.run_next() == 0  # Before redelivery, even.
    assert member.rounds(SWEEP_AFTER_S_DEFAULT - 60) == 0
    assert stuck.exists()
    assert bench.redelivered(well).exists()
    settings.unlink()
    assert member.rounds(2 * OVERDUE_EVERY_S) == 0
    assert not stuck.exists()
    assert len(list(bench.ready.glob(f"*/{stuck.name.partition(':')[2]}"))) == 1
    assert not (bench.folder("queues") / SIDELINE).exists()


def test_it_does_not_begin_before_ten_minutes_and_comes_every_fifteen(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    real = module.delayed_behind

    def looked(*arguments: object) -> object:
        looks.append(bench.clock.steady_s())
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "delayed_behind", looked)
    Member(bench).rounds(2.5 * OVERDUE_EVERY_S)
    assert looks == [OVERDUE_FIRST_S, OVERDUE_FIRST_S + OVERDUE_EVERY_S]


def test_a_queues_own_setting_counts(bench: "Bench") -> None:
    """Its settings can be read, and what has a message's name there is a folder."""
    with_settings(bench, "orders", sweep_after_s=30)
    entry = bench.delayed(-1000)
    bench.redelivered(entry).mkdir(parents=True)
    later = bench.delayed(1000_000)
    bench.redelivered(later).mkdir(parents=True)
    member = Member(bench)
    assert member.rounds(OVERDUE_FIRST_S + 30) == 1
    assert sidelined(bench, entry).exists()
    assert later.exists()


def test_a_sidelines_message_waits_longer_and_comes_back_there(bench: "Bench") -> None:
    with_settings(bench, "orders", sweep_after_s=30, shovel_interval_s=1000)
    folder = bench.folder("queues") / SIDELINE
    folder.mkdir()
    entry = bench.delayed(0, queue=SIDELINE, receives=7)

    files = FaultyFiles()
    files.fail("rename", errno.EIO, where=SIDELINE)
    # The mover cannot do it; the sweep's own steps, which are the same, succeed.
    stuck = root_of(bench.root.layout, files, bench.clock)
    member = Member(bench, mover=Mover(stuck, bench.flusher, Timer()))
    assert member.rounds(2000) == 0
    assert entry.exists()
    assert member.rounds(2 * OVERDUE_EVERY_S) == 1
    there = bench.redelivered(entry)
    assert (stamp(there).receives, stamp(there).reason) == (7, Reason.SWEPT)
    assert not (bench.folder("queues") / f"{SIDELINE}_SIDELINE").exists()


def test_a_stray_message_stays(bench: "Bench") -> None:
    entry = bench.delayed(-1000, queue="nowhere")
    assert Member(bench).rounds(3 * OVERDUE_EVERY_S) == 0
    assert entry.exists()
    assert not (bench.folder("queues") / "nowhere_SIDELINE").exists()


def test_where_no_sideline_can_be_made_it_stays(bench: "Bench") -> None:
    unreadable(bench)
    entry = bench.delayed(-1000)
    foreign = bench.folder("queues") / SIDELINE
    foreign.write_text("not mq's")
    member = Member(bench)
    assert member.rounds(3 * OVERDUE_EVERY_S) == 0
    assert entry.read_bytes() == b"body"
    foreign.unlink()
    assert member.rounds(2 * OVERDUE_EVERY_S) == 1
    assert sidelined(bench, entry).exists()


def test_one_that_another_is_at_waits_for_the_next_pass(bench: "Bench") -> None:
    unreadable(bench)
    entry = bench.delayed(-1000)
    member = Member(bench)
    member.rounds(OVERDUE_FIRST_S)
    with entry.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert member.rounds(SWEEP_AFTER_S_DEFAULT + OVERDUE_EVERY_S) == 0
    assert member.rounds(OVERDUE_EVERY_S) == 1


def test_only_the_members_own_queues(bench: "Bench") -> None:
    for queue in ("orders", "others"):
        unreadable(bench, queue)
    own, other = bench.delayed(-1000), bench.delayed(-1000, queue="others")
    member = Member(bench, Among("a", {"orders"}))
    assert member.rounds(3 * OVERDUE_EVERY_S) == 1
    assert sidelined(bench, own).exists()
    assert other.exists()


def test_a_leader_that_was_stopped_before_the_move_makes_none(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has decided, and is no longer who does it when it wakes up."""
    unreadable(bench)
    entry = bench.delayed(-1000)
    coordinator = Among("a")
    member = Member(bench, coordinator)
    real = module.sweep_overdue

    def late(*arguments: object) -> object:
        coordinator.queues = ()
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "sweep_overdue", late)
    assert member.rounds(3 * OVERDUE_EVERY_S) == 0
    assert coordinator.queues == ()
    assert entry.exists()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with many messages."""
    monkeypatch.setattr(module, "OVERDUE_LOOKED_AT_MAX", 10)
    monkeypatch.setattr(module, "OVERDUE_MOVED_MAX", 4)


def many(bench: "Bench", count: int) -> list[Path]:
    unreadable(bench)
    return sorted(bench.delayed(-1000) for _ in range(count))


def until_the_first(member: Member) -> None:
    """Rounds until its sweep has made a turn that moved something."""
    for _ in range(1000):
        if member.round():
            return
        member.bench.clock.advance(30)
    raise AssertionError("nothing was swept")


@pytest.mark.certificate
@pytest.mark.usefixtures("small_batches")
def test_redelivery_has_a_round_between_any_two_batches(bench: "Bench") -> None:
    """However much is swept: by counting turns, not by time."""
    many(bench, 100)
    (bench.folder("queues") / "well").mkdir()
    member = Member(bench)
    until_the_first(member)
    late = bench.delayed(-5000, queue="well")
    bench.clock.advance(2)
    turns = 0
    while not bench.redelivered(late).exists():
        assert member.round() <= 4
        bench.clock.advance(1)
        turns += 1
    assert turns <= 3
    left = sum(path.name.startswith("orders:") for path in bench.folder("delay").iterdir())
    assert left > 50, "the sweep was over before"
    assert member.rounds(60, 0.1) == left


@pytest.mark.certificate
@pytest.mark.usefixtures("small_batches")
def test_a_member_that_is_killed_between_batches_is_followed_behind_them(bench: "Bench") -> None:
    entries = many(bench, 30)
    first = Member(bench, Among("first"))
    until_the_first(first)
    swept = [entry for entry in entries if not entry.exists()]
    assert swept == entries[:4]
    # What lies before the pointer again is not looked at by whoever goes on.
    back = put_entry(bench.folder("delay"), due_ms=bench.clock.now_ms() - 10**7)
    before = back.rename(back.with_name(entries[0].name))
    second = Member(bench, Among("second"), first.mover)
    until_the_first(second)
    assert [entry for entry in entries[1:] if not entry.exists()] == entries[1:8]
    second.rounds(10, 0.1)
    assert not any(entry.exists() for entry in entries[1:])
    assert before.exists()
    assert not list(bench.folder("members").glob("*.sweep"))


@pytest.mark.usefixtures("small_batches")
def test_a_pointer_of_long_ago_is_not_gone_on_with(bench: "Bench") -> None:
    entries = many(bench, 30)
    first = Member(bench, Among("first"))
    until_the_first(first)
    (pointer,) = bench.folder("members").glob("*.sweep")
    then_s = bench.clock.now_ms() / 1000 - OVERDUE_TAKEN_OVER_S
    os.utime(pointer, (then_s, then_s))
    (bench.folder("delay") / entries[0].name).write_bytes(b"again")
    until_the_first(Member(bench, Among("second"), first.mover))
    assert not entries[0].exists()


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("said", ["", "{", "[]", '{"version": 2}', '{"version": 1, "behind": 3}'])
def test_a_pointer_that_nobody_understands_is_none(bench: "Bench", said: str) -> None:
    entries = many(bench, 5)
    (bench.folder("members") / "gone.sweep").write_text(said)
    Member(bench).rounds(4 * OVERDUE_EVERY_S)
    assert not any(entry.exists() for entry in entries)


@pytest.mark.certificate
@pytest.mark.usefixtures("small_batches")
def test_whoever_is_at_work_goes_on_with_anothers_pass_beside_its_own(bench: "Bench") -> None:
    for queue in ("orders", "others"):
        unreadable(bench, queue)
    (theirs, mine) = [
        sorted(bench.delayed(-1000, queue=queue) for _ in range(12))
        for queue in ("orders", "others")
    ]
    first = Member(bench, Among("first", {"orders"}))
    second = Member(bench, Among("second", {"others"}))
    both = ("first", "second")
    first.coordinator.members = second.coordinator.members = both
    while not list(bench.folder("members").glob("first.sweep")):
        second.round()
        first.round()
        bench.clock.advance(30)
        assert bench.clock.steady_s() < 10_000
    # The first is killed; its queues are the second's, which has made its pass.
    second.rounds(60, 1)
    assert not any(entry.exists() for entry in mine) or all(entry.exists() for entry in mine)
    second.coordinator.members, second.coordinator.queues = ("second",), None
    began_s = bench.clock.steady_s()
    while any(entry.exists() for entry in theirs):
        second.round()
        bench.clock.advance(1)
        assert bench.clock.steady_s() - began_s < OVERDUE_EVERY_S
    second.rounds(10, 1)
    assert not list(bench.folder("members").glob("*.sweep"))


@pytest.mark.certificate
def test_two_at_once_move_each_message_once(bench: "Bench") -> None:
    entries = many(bench, 50)
    members = [Member(bench, Among(name)) for name in ("a", "b")]
    for member in members:
        member.coordinator.members = ("a", "b")
    swept = 0
    for _ in range(round(3 * OVERDUE_EVERY_S / 30)):
        swept += sum(member.round() for member in members)
        bench.clock.advance(30)
    assert swept == len(entries)
    assert all(sidelined(bench, entry).exists() for entry in entries)
