"""Recording the load of all queues: true sums, bounded files, one recorder, whatever ends it."""

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.api import id_at
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.faults import FaultyFiles

from mq.metrics.survey import Survey
from mq.metrics.trends import COUNTING_S, TRENDS_SHARE, Recorder, read_trends
from mq.model import trends
from mq.model.names import QueueName
from mq.model.totals import Total
from mq.model.trends import Point, Range
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.trends import TRENDS_BYTES_MAX, new_trends_file, trends_file
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue
from mq.store.scan.census import Census
from mq.store.totals.folding import fold_totals
from mq.store.totals.ledger import Ledger
from mq.store.totals.writing import write_totals

MINUTE_S = 60
STEP_S = 5


class Place:
    """A root, and processes that record on it."""

    def __init__(self, top: Path, files: Files | None = None) -> None:
        self.top, self.clock, self.files = top, FakeClock(), files or FaultyFiles()
        # The first second of an hour: points of all ranges begin with it.
        self.clock.reach((self.clock.now_ms() // 3_600_000 + 1) * 3_600_000)
        self.root = self.process()
        self.recorder = self.recorder_of(self.root)

    def process(self) -> Root:
        return open_root(str(self.top), self.files, self.clock)

    def recorder_of(self, root: Root) -> Recorder:
        # No cache: the clock is ahead of the times of folders.
        return Recorder(
            root, Survey(Census(root, entries_max=0), Ledger(root), 1 << 30, COUNTING_S)
        )

    def make(self, *names: str) -> None:
        for name in names:
            run_alone(create_queue(self.root, QueueName(name)), NoFlusher())

    def put(self, queue: str, count: int, age_s: float = 0) -> None:
        """Ready messages."""
        for number in range(count):
            name = id_at(self.clock.now_ms() - round(age_s * 1000), number)
            path = self.top / "queues" / queue / name
            path.touch(0o600)
            os.utime(path, ns=(0, self.clock.now_ms() * 1_000_000))

    def did(self, queue: str, what: Total, count: int) -> None:
        self.root.totals.add(QueueName(queue), what, count)
        assert write_totals(self.root)

    def sample(self, *recorders: Recorder) -> None:
        """A sample, and the time until the next."""
        for _ in range(MINUTE_S // STEP_S):
            for each in recorders or (self.recorder,):
                each.step()
            self.clock.advance(STEP_S)

    def points(self, range_: Range = Range.HOUR, queue: str | None = None) -> list[Point]:
        name = None if queue is None else QueueName(queue)
        return read_trends(self.root, range_, name)[1]

    def files_of(self) -> list[Path]:
        return [Path(trends_file(self.root.layout, each)) for each in Range]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "root")
    yield made
    made.recorder.end()


def test_a_sample_has_each_queue_and_true_sums(place: Place) -> None:
    place.make("orders", "orders_SIDELINE", "other")
    place.put("orders", 3, age_s=7)
    place.put("orders_SIDELINE", 2, age_s=900)
    place.did("orders", Total.PUBLISHED, 100)
    began_s = place.clock.now_ms() // 1000
    place.sample()
    place.did("orders", Total.PUBLISHED, 30)
    place.did("other", Total.FETCHED, 12)
    place.put("other", 1)
    place.make("late")
    place.did("late", Total.DELETED, 5)
    place.sample()
    first, second = place.points()
    assert first == Point(began_s - MINUTE_S, 0, 0, 0, 0, 3, 0, 0, 2, 7)
    assert second == Point(began_s, MINUTE_S, 30, 12, 5, 4, 0, 0, 2, 67)
    assert [each.sidelined for each in place.points(queue="orders")] == [2, 2]
    assert [each.deleted for each in place.points(queue="late")] == [5]
    last = read_trends(place.root, Range.WEEK, None)[0]
    assert (last.queues, last.uncounted, last.last) == (4, 0, second)
    assert_audits_clean(place.top)


@pytest.mark.certificate
def test_longer_ranges_have_the_same_counts_in_bounded_files(place: Place) -> None:
    place.make("q")
    for _ in range(26 * 12):
        place.did("q", Total.PUBLISHED, 5)
        place.sample()
        place.clock.advance(4 * MINUTE_S)
        run_alone(fold_totals(place.root), NoFlusher())
    for range_, seen in ((Range.HOUR, 12), (Range.DAY, 96), (Range.WEEK, 27)):
        points = place.points(range_, "q")
        assert abs(len(points) - seen) <= 1
        assert points == place.points(range_)
        assert all(each.at_s % range_.step_s == 0 for each in points)
        assert [each.at_s for each in points] == sorted({each.at_s for each in points})
    inner = place.points(Range.WEEK)[1:-1]
    assert {(each.published, each.seconds) for each in inner} == {(60, 3600)}
    assert sum(each.published for each in place.points(Range.WEEK)) == 26 * 60 - 5
    assert all(file.stat().st_size < TRENDS_BYTES_MAX / 100 for file in place.files_of())


def test_a_process_goes_on_after_another_and_never_beside_it(place: Place) -> None:
    place.make("q")
    place.sample()
    other = place.recorder_of(place.process())
    for _ in range(3):
        place.sample(place.recorder, other)
    assert len(place.points()) == 4
    assert all(each.seconds for each in place.points()[1:])
    place.recorder.end()
    assert place.recorder.step() > 0
    left = Path(new_trends_file(place.root.layout, Range.DAY)).with_suffix(".0123456789abcdef")
    left.write_text("a process died here")
    place.did("q", Total.PUBLISHED, 5)
    place.sample(other)
    place.did("q", Total.PUBLISHED, 7)
    place.sample(other)
    assert [(each.seconds, each.published) for each in place.points()[4:]] == [(0, 0), (60, 7)]
    assert not left.exists()
    other.end()


def test_a_holder_that_was_silent_lets_another_go_on(place: Place) -> None:
    place.make("q")
    place.sample()
    other = place.recorder_of(place.process())
    place.sample(other)
    place.sample(place.recorder, other)
    assert [each.seconds > 0 for each in place.points()] == [False, False, True]
    other.end()


@pytest.mark.parametrize(
    "damage", ["", "\0\0\0\0", "half", "[]\n{}\n", '{"queue":"","points":[[0]]}']
)
def test_a_torn_file_begins_anew(place: Place, damage: str) -> None:
    place.make("q")
    for _ in range(17):
        place.sample()
    for file in place.files_of():
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2] if damage == "half" else damage.encode())
    assert len(place.points(Range.WEEK)) <= 1
    place.sample()
    assert place.points()[-1].seconds == MINUTE_S
    assert place.points(Range.WEEK, "q")


def test_the_busiest_queues_stay(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trends, "SERIES_MAX", 2)
    place.make("a", "b", "busy", "held")
    place.put("held", 1)
    place.sample()
    assert [bool(place.points(queue=each)) for each in ("a", "b", "busy", "held")] == [
        *(True, False, False, True)
    ]
    place.did("busy", Total.FETCHED, 1)
    place.sample()
    (point,) = place.points(queue="busy")
    assert point.fetched == 1
    assert len(place.points(queue="held")) == 2
    assert not place.points(queue="a")
    (place.top / "queues" / "busy").rmdir()
    place.sample()
    assert not place.points(queue="busy")


def test_a_disk_that_fails_is_logged_once_and_tried_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.make("q")
    assert isinstance(place.files, FaultyFiles)
    for call in ("mkdir", "create", "write", "rename"):
        place.files.fail(call, errno.ENOSPC, "trends")
        place.sample()
        place.sample()
        place.files.heal()
        place.sample()
    place.files.fail("read_file", errno.EIO, "totals")
    place.did("q", Total.PUBLISHED, 3)
    place.sample()
    place.files.heal()
    place.sample()
    assert sum(each.published for each in place.points()) == 0
    assert len([each for each in caplog.records if each.name == "mq.trends"]) == 4


def test_a_clock_that_was_set_wrong_loses_no_other_point(place: Place) -> None:
    place.make("q")
    for _ in range(4):
        place.sample()
    known, now_ms = place.points(), place.clock.now_ms()
    place.clock.set_ms(now_ms + 86_400_000 * 3)
    place.sample()
    place.clock.set_ms(now_ms)
    assert place.points() == known
    place.sample()
    assert place.points()[:-1] == known


class Slow(Files):
    """Each look takes a millisecond of the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.clock: FakeClock | None = None

    def status(self, path: str):  # type: ignore[no-untyped-def]
        if self.clock is not None:
            self.clock.advance(0.001)
        return super().status(path)


def test_recording_takes_its_share_of_the_time_at_most(tmp_path: Path) -> None:
    files = Slow()
    place = Place(tmp_path / "root", files)
    place.make(*(f"q{number:02}" for number in range(40)))
    files.clock = place.clock
    began_s, spent_s = place.clock.steady_s(), 0.0
    for _ in itertools.count():
        before_s = place.clock.steady_s()
        pause_s = place.recorder.step()
        spent_s += place.clock.steady_s() - before_s
        place.clock.advance(pause_s)
        if len(place.points()) == 4:
            break
    assert spent_s <= TRENDS_SHARE * (place.clock.steady_s() - began_s)
    assert read_trends(place.root, Range.HOUR, None)[0].uncounted == 0
    place.recorder.end()
