"""Counting many queues: a little at a time, and all of them in the end."""

import errno
from pathlib import Path

from harness.api import id_at
from harness.clock import FakeClock
from harness.faults import FaultyFiles

from mq.metrics.survey import OTHERS, Survey
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue
from mq.store.scan.census import Census
from mq.store.totals.ledger import Ledger

COUNT = 20


class Slow(Files):
    """Each look takes a millisecond of the clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.looks = 0

    def status(self, path: str):  # type: ignore[no-untyped-def]
        self.looks += 1
        self.clock.advance(0.001)
        return super().status(path)


def made(path: Path, files: Files, clock: FakeClock) -> Root:
    root = open_root(str(path), files, clock)
    for number in range(COUNT):
        run_alone(create_queue(root, QueueName(f"q{number:02}")), NoFlusher())
    return root


def survey_of(root: Root, named_max: int, **more: float) -> Survey:
    return Survey(Census(root), Ledger(root), named_max, **more)


def test_a_look_ends_in_time_and_the_next_goes_on_with_the_others(tmp_path: Path) -> None:
    clock = FakeClock()
    files = Slow(clock)
    survey = survey_of(made(tmp_path / "root", files, clock), COUNT, counting_s=0.02)
    began, files.looks = clock.steady_s(), 0
    first = survey.look()
    assert clock.steady_s() - began < 0.04
    assert 0 < len(first.rows) < COUNT
    assert first.uncounted == COUNT - len(first.rows)
    looks = 1
    while (found := survey.look()).uncounted:
        assert found.queues == COUNT
        looks += 1
        assert looks < COUNT
    assert [row.queue for row in found.rows] == [f"q{number:02}" for number in range(COUNT)]
    assert found.age_s > 0.02


def test_queues_that_are_gone_are_forgotten_and_all_beyond_the_named_are_one(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    root = made(tmp_path / "root", Files(), clock)
    (tmp_path / "root" / "queues" / "q00" / "foreign").write_text("")
    (tmp_path / "root" / "queues" / "q19" / "foreign").write_text("")
    survey = survey_of(root, 3)
    found = survey.look()
    assert [row.queue for row in found.rows] == ["q00", "q01", "q02", OTHERS]
    assert [row.figures["foreign"] for row in found.rows] == [1, 0, 0, 1]
    (tmp_path / "root" / "queues" / "q01").rmdir()
    found = survey.look()
    assert [row.queue for row in found.rows] == ["q00", "q02", "q03", OTHERS]
    assert found.queues == COUNT - 1


def test_all_others_are_shown_once_each_of_them_was_counted(tmp_path: Path) -> None:
    clock = FakeClock()
    survey = survey_of(made(tmp_path / "root", Slow(clock), clock), 3, counting_s=0.02)
    while (found := survey.look()).uncounted:
        assert OTHERS not in [row.queue for row in found.rows]
    assert [row.queue for row in found.rows] == ["q00", "q01", "q02", OTHERS]


def test_a_queue_that_cannot_be_counted_hides_no_other(tmp_path: Path) -> None:
    clock, files = FakeClock(), FaultyFiles()
    root = made(tmp_path / "root", files, clock)
    files.fail("entries", errno.EACCES, "/q00")
    files.fail("entries", errno.EACCES, "/q19")
    found = survey_of(root, 3).look()
    assert [row.queue for row in found.rows] == ["q01", "q02", OTHERS]
    assert found.uncounted == 2
    files.heal()
    assert survey_of(root, 3).look().uncounted == 0


def test_what_lies_in_sidelines_is_no_backlog_of_all_others(tmp_path: Path) -> None:
    clock = FakeClock()
    root = made(tmp_path / "root", Files(), clock)
    run_alone(create_queue(root, QueueName("z_SIDELINE")), NoFlusher())
    lies = tmp_path / "root" / "queues" / "z_SIDELINE" / id_at(clock.now_ms() - 5000, 1)
    lies.touch(0o600)
    assert survey_of(root, 3).look().rows[-1].oldest_ready_s == 0
    lies.rename(tmp_path / "root" / "queues" / "q19" / lies.name)
    assert survey_of(root, 3).look().rows[-1].oldest_ready_s == 5
