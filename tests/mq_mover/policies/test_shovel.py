"""Shovels by schedule: due by the interval from the last one's end, one member a queue, and what is
begun elsewhere, or left behind, is minded.
"""

import fcntl
import json
import logging
import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.logged import event
from harness.messages import new_id, put_file
from harness.processes import eventually
from harness.upkeep import MEMBER

from mq.coordination.coordinator import Alone
from mq.model.limits import TURN_SILENT_S
from mq.model.message import Stamp
from mq.model.names import QueueName
from mq.model.shovel import (
    SHOVEL_AGAIN_S,
    SHOVEL_SCHEDULED_RUNS_MAX,
    SHOVEL_SCHEDULES_LOOK_S,
    RunState,
)
from mq.store.disk.files import Files
from mq.store.settings.registry import Registry
from mq.store.shovel.files import ask_to_stop, read_record
from mq_mover.policies.shovel import Due, Shovel, decide
from mq_mover.policy import Policies, Work

if TYPE_CHECKING:
    from tests.mq_mover.conftest import Bench

ORDERS = QueueName("orders")
EVERY_S = 600


class Among(Alone):
    """One of several, who has some of the queues."""

    def __init__(self, queues: Collection[str]) -> None:
        super().__init__(MEMBER)
        self.queues = queues

        self.asked: list[str] = []

    def has(self, queue: QueueName) -> bool:
        self.asked.append(queue.text)
        return queue.text in self.queues


def with_settings(bench: "Bench", queue: str = "orders", **fields: object) -> None:
    """As of the clock's time."""
    (bench.folder("queues") / queue).mkdir(exist_ok=True)
    written = bench.folder("settings") / f".{queue}"
    written.write_text(json.dumps(fields))
    now_ns = bench.clock.now_ms() * 1_000_000
    os.utime(written, ns=(now_ns, now_ns))
    written.rename(bench.folder("settings") / f"{queue}.json")


def sidelined(bench: "Bench", queue: str = "orders", receives: int = 1, key: str = "") -> Path:
    """A message in the queue's sideline, since a second."""
    folder = bench.folder("queues") / f"{queue}_SIDELINE"
    folder.mkdir(exist_ok=True)
    path = put_file(folder / f"{new_id().text}{key}", b"body")
    mtime_ns = Stamp(bench.clock.now_ms() - 1000, receives, 1).mtime_ns()
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def back(path: Path) -> Path:
    """Where the message is that was moved back."""
    return path.parent.parent / path.parent.name.removesuffix("_SIDELINE") / path.name


class Member:
    """A member's shovels."""

    def __init__(self, bench: "Bench", queues: Collection[str] = ("orders",)) -> None:
        self.bench = bench
        self.coordinator = Among(queues)
        self.registry = Registry(bench.root)
        self.registry.refresh()
        work = Work(bench.root, bench.flusher, self.coordinator, self.registry)
        self.policy = Shovel(work)
        self.policies = Policies(bench.root, [self.policy])

    def turn(self) -> int:
        moved = self.policies.run_once()
        self.bench.clock.advance(SHOVEL_SCHEDULES_LOOK_S)
        return moved

    @property
    def running(self) -> set[str]:
        return {queue.text for queue in self.policy.runs}

    def until_over(self) -> int:
        """Turns until none runs; how many messages were moved."""
        moved = 0

        def is_over() -> bool:
            nonlocal moved
            moved += self.policies.run_once()
            self.bench.clock.advance(SHOVEL_SCHEDULES_LOOK_S)
            return not self.running

        eventually(is_over, "the runs' end")
        return moved


def record(bench: "Bench", queue: str = "orders") -> Any:
    found = read_record(bench.root, QueueName(queue))
    return None if found is None else found.run


def test_what_is_due_longest_begins_first() -> None:
    dues = {QueueName(name): Due(at_s, 0, 60) for name, at_s in (("a", 3), ("b", 1), ("c", 9))}
    assert decide(dues, 5, 10) == [QueueName("b"), QueueName("a")]
    assert decide(dues, 5, 1) == [QueueName("b")]
    assert decide(dues, 0.5, 10) == []
    assert decide(dues, 100, 0) == []


@pytest.mark.certificate
def test_a_run_is_told_of_in_the_log_when_it_moved_something(
    bench: "Bench", caplog: pytest.LogCaptureFixture
) -> None:
    with_settings(bench, shovel_interval_s=EVERY_S)
    sidelined(bench)
    member = Member(bench)
    with caplog.at_level(logging.DEBUG, logger="mq.shovels"):
        for _ in range(2):
            bench.clock.advance(EVERY_S)
            member.until_over()
    told = [each for each in caplog.records if event(each) == "a shovel ended"]
    assert [each.levelno for each in told] == [logging.INFO, logging.DEBUG]
    assert [vars(each)["fields"]["moved"] for each in told] == [1, 0]


@pytest.mark.certificate
def test_it_runs_an_interval_after_its_setting_and_after_each_end(bench: "Bench") -> None:
    with_settings(bench, shovel_interval_s=EVERY_S)
    first = sidelined(bench)
    member = Member(bench)
    assert member.turn() == 0
    bench.clock.advance(EVERY_S - 2)
    assert member.turn() == 0
    assert first.exists()
    bench.clock.advance(1)
    assert member.until_over() == 1
    assert back(first).exists()
    assert not first.exists()
    assert Stamp.from_mtime_ns(back(first).stat().st_mtime_ns).receives == 1
    second = sidelined(bench)
    bench.clock.advance(EVERY_S / 2)
    assert member.turn() == 0
    assert second.exists()
    bench.clock.advance(EVERY_S / 2)
    assert member.until_over() == 1
    assert back(second).exists()
    done = record(bench)
    assert (done.state, done.by.value, done.moved) == (RunState.DONE, "scheduled", 1)


def test_one_that_is_not_scheduled_does_not_run(bench: "Bench") -> None:
    path = sidelined(bench)
    member = Member(bench, ("orders", "orders_SIDELINE"))
    with_settings(bench, "orders_SIDELINE", shovel_interval_s=1)
    member.registry.refresh()
    for _ in range(5):
        assert member.turn() == 0
        bench.clock.advance(EVERY_S)
    assert not member.running
    assert path.exists()


@pytest.mark.certificate
def test_a_restart_does_not_run_it_before_its_time(bench: "Bench") -> None:
    with_settings(bench, shovel_interval_s=EVERY_S)
    sidelined(bench)
    bench.clock.advance(EVERY_S)
    assert Member(bench).until_over() == 1
    path = sidelined(bench)
    bench.clock.advance(EVERY_S / 2)
    again = Member(bench)
    assert again.turn() == 0
    assert path.exists()
    bench.clock.advance(EVERY_S / 2)
    assert again.until_over() == 1


@pytest.mark.certificate
def test_settings_are_followed(bench: "Bench") -> None:
    member = Member(bench)
    path = sidelined(bench)
    assert member.turn() == 0
    with_settings(bench, shovel_interval_s=1)
    member.registry.refresh()
    bench.clock.advance(2)
    assert member.until_over() == 1
    assert back(path).exists()
    with_settings(bench)
    # As known when it becomes due; that was a second's interval.
    path = sidelined(bench)
    for _ in range(5):
        assert member.turn() == 0
    assert not member.running
    assert path.exists()


@pytest.mark.certificate
def test_poison_stays(bench: "Bench") -> None:
    with_settings(bench, shovel_interval_s=1, shovel_max_receives=3)
    goes, stays = sidelined(bench, receives=2), sidelined(bench, receives=3)
    bench.clock.advance(2)
    member = Member(bench)
    assert member.until_over() == 1
    assert back(goes).exists()
    assert stays.exists()
    assert record(bench).stayed == {"receives": 1}


@pytest.mark.certificate
def test_only_its_own_queues(bench: "Bench") -> None:
    for queue in ("orders", "bills"):
        with_settings(bench, queue, shovel_interval_s=1)
    mine, others = sidelined(bench), sidelined(bench, "bills")
    bench.clock.advance(2)
    member = Member(bench)
    assert member.until_over() == 1
    assert back(mine).exists()
    assert others.exists()
    member.coordinator.queues = ("bills",)
    assert member.until_over() == 1
    assert back(others).exists()


def test_of_queues_without_a_schedule_nobody_is_asked_whose_they_are(bench: "Bench") -> None:
    """Each second: there may be very many."""
    for queue in ("notes", "bills"):
        with_settings(bench, queue)
    with_settings(bench, shovel_interval_s=EVERY_S)
    member = Member(bench)
    member.turn()
    assert set(member.coordinator.asked) == {"orders"}


@pytest.mark.certificate
def test_so_many_at_a_time_and_the_others_after_them(bench: "Bench") -> None:
    queues = [f"q{n}" for n in range(3 * SHOVEL_SCHEDULED_RUNS_MAX)]
    for queue in queues:
        with_settings(bench, queue, shovel_interval_s=EVERY_S)
    paths = [sidelined(bench, queue) for queue in queues]
    bench.clock.advance(EVERY_S)
    member = Member(bench, queues)
    moved, most = 0, 0

    def are_back() -> bool:
        nonlocal moved, most
        moved += member.turn()
        most = max(most, len(member.running))
        return moved == len(queues)

    eventually(are_back, "all of them back")
    assert most == SHOVEL_SCHEDULED_RUNS_MAX
    assert all(back(path).exists() for path in paths)


class StuckFiles(Files):
    """Renames out of a sideline wait until they are let go, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()
        self.waits = threading.Event()
        self.error: OSError | None = None

    def rename(self, source: str, target: str) -> None:
        if "_SIDELINE/" in source:
            self.waits.set()
            assert self.go.wait(30)
            if self.error is not None:
                raise self.error
        super().rename(source, target)


@pytest.fixture
def stuck(make_bench: Any) -> tuple["Bench", StuckFiles]:
    files = StuckFiles()
    return make_bench(files), files


@pytest.mark.certificate
def test_a_run_does_not_hold_turns_up(stuck: tuple["Bench", StuckFiles]) -> None:
    bench, files = stuck
    with_settings(bench, shovel_interval_s=1)
    path = sidelined(bench)
    bench.clock.advance(2)
    member = Member(bench)
    files.go.clear()
    try:
        member.turn()
        assert files.waits.wait(30)
        for _ in range(100):
            assert member.turn() == 0
            assert member.running == {"orders"}
    finally:
        files.go.set()
    assert member.until_over() == 1
    assert back(path).exists()


@pytest.mark.certificate
@pytest.mark.parametrize("how", ["leadership", "setting", "ends"])
def test_a_run_stops_when_it_may_go_on_no_more_and_the_next_goes_on(
    stuck: tuple["Bench", StuckFiles], how: str
) -> None:
    bench, files = stuck
    with_settings(bench, shovel_interval_s=EVERY_S, shovel_concurrency=1)
    paths = [sidelined(bench) for _ in range(300)]
    bench.clock.advance(EVERY_S)
    member = Member(bench)
    files.go.clear()
    member.turn()
    assert files.waits.wait(30)
    if how == "leadership":
        member.coordinator.queues = ()
    elif how == "setting":
        with_settings(bench)
        member.registry.refresh()
    else:
        ends = threading.Thread(target=member.policies.stop)
        ends.start()
        run = member.policy.runs[ORDERS].run
        eventually(lambda: run.stopping is not None, "its word to stop")
        files.go.set()
        ends.join(30)
        assert run.ended.is_set()
    files.go.set()
    if how != "ends":
        member.until_over()
    stopped = record(bench)
    assert stopped.state is RunState.STOPPED
    moved = sum(back(path).exists() for path in paths)
    assert 0 < moved == stopped.moved < 300
    if how != "setting":
        # As it has not come to its end, it is due at once.
        other = Member(bench)
        assert other.until_over() == 300 - moved
        assert all(back(path).exists() for path in paths)


@pytest.mark.certificate
def test_one_that_is_stopped_by_somebody_is_due_an_interval_later(
    stuck: tuple["Bench", StuckFiles],
) -> None:
    bench, files = stuck
    with_settings(bench, shovel_interval_s=EVERY_S, shovel_concurrency=1)
    paths = [sidelined(bench) for _ in range(300)]
    bench.clock.advance(EVERY_S)
    member = Member(bench)
    files.go.clear()
    member.turn()
    assert files.waits.wait(30)
    ask_to_stop(bench.root, ORDERS, record(bench).id)
    run = member.policy.runs[ORDERS].run
    eventually(lambda: run.stopping is not None, "its word to stop")
    files.go.set()
    moved = member.until_over()
    assert 0 < moved < 300
    assert record(bench).state is RunState.STOPPED
    assert not (bench.folder("shovels") / "orders.stop").exists()
    assert Member(bench).turn() == 0
    bench.clock.advance(EVERY_S)
    assert Member(bench).until_over() == 300 - moved
    assert all(back(path).exists() for path in paths)


@pytest.mark.certificate
def test_after_an_error_it_goes_on_once_and_then_has_failed(
    stuck: tuple["Bench", StuckFiles],
) -> None:
    bench, files = stuck
    with_settings(bench, shovel_interval_s=EVERY_S)
    path = sidelined(bench)
    bench.clock.advance(EVERY_S)
    member = Member(bench)
    files.error = OSError(5, "Input/output error")
    member.turn()
    eventually(lambda: record(bench).state is RunState.WAITING, "that it waits")
    assert record(bench).error == "storage-failed"
    bench.clock.advance(SHOVEL_AGAIN_S)
    member.until_over()
    failed = record(bench)
    assert (failed.state, failed.failed, failed.moved) == (RunState.FAILED, 2, 0)
    assert path.exists()
    files.error = None
    bench.clock.advance(EVERY_S)
    assert member.until_over() == 1


@pytest.mark.certificate
def test_after_an_error_that_passes_all_are_moved(stuck: tuple["Bench", StuckFiles]) -> None:
    bench, files = stuck
    with_settings(bench, shovel_interval_s=EVERY_S, shovel_concurrency=2)
    paths = [sidelined(bench) for _ in range(500)]
    bench.clock.advance(EVERY_S)
    member = Member(bench)
    files.error = OSError(28, "No space left on device")
    member.turn()
    eventually(lambda: record(bench).state is RunState.WAITING, "that it waits")
    files.error = None
    bench.clock.advance(SHOVEL_AGAIN_S)
    assert member.until_over() == 500
    done = record(bench)
    assert (done.state, done.error, done.looked_at) == (RunState.DONE, "no-space", 500)
    assert all(back(path).exists() for path in paths)


@pytest.mark.certificate
def test_one_run_a_queue_of_all_members(stuck: tuple["Bench", StuckFiles]) -> None:
    bench, files = stuck
    with_settings(bench, shovel_interval_s=EVERY_S)
    path = sidelined(bench)
    bench.clock.advance(EVERY_S)
    one, other = Member(bench), Member(bench)
    files.go.clear()
    one.turn()
    assert files.waits.wait(30)
    assert other.turn() == 0
    assert not other.running
    files.go.set()
    assert one.until_over() == 1
    assert back(path).exists()
    assert other.turn() == 0
    assert not other.running


@pytest.mark.certificate
def test_one_who_stands_still_loses_its_turn_and_wakes_up_to_nothing(
    stuck: tuple["Bench", StuckFiles],
) -> None:
    """Its process is stopped in the middle: all of it stands, its locks too."""
    bench, _ = stuck
    with_settings(bench, shovel_interval_s=EVERY_S)
    path = sidelined(bench)
    bench.clock.advance(EVERY_S)
    lock = bench.folder("shovels") / "orders.lock"
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        now_ns = bench.clock.now_ms() * 1_000_000
        os.utime(lock, ns=(now_ns, now_ns))
        assert Member(bench).turn() == 0
        assert path.exists()
        bench.clock.advance(TURN_SILENT_S)
        assert Member(bench).until_over() == 1
        assert back(path).exists()
        assert lock.stat().st_ino != os.fstat(held.fileno()).st_ino


@pytest.mark.certificate
def test_what_is_said_of_queues_that_are_gone_is_swept(bench: "Bench") -> None:
    with_settings(bench, shovel_interval_s=1)
    sidelined(bench)
    bench.clock.advance(2)
    Member(bench).until_over()
    folder = bench.folder("shovels")
    foreign = put_file(folder / "notes.txt")
    (folder / "gone.json").write_text("{}")
    ask_to_stop(bench.root, QueueName("gone"), "x")
    torn = put_file(folder / ".orders-7.0123456789abcdef", b"{")
    bench.clock.advance(3700)
    assert bench.sweeper().run_once() >= 4
    assert not torn.exists()
    kept = {"orders.json", "orders.lock", foreign.name}
    assert {path.name for path in folder.iterdir() if path.name != ".lock"} == kept
