"""The recorder: what it holds, what it has open, and what it keeps."""

import json
import os
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.messages import new_id
from harness.processes import PATIENCE_S

from mq.model.history import Event, Told
from mq.model.names import MessageId, QueueName
from mq.store.core.facts import SETTINGS_AGE_S
from mq.store.core.root import History, Root
from mq.store.format.history import Day, date_of, day_folder, history_file
from mq.store.history.files import HISTORY_FILE_IDLE_S, HISTORY_FILES_OPEN_MAX, HistoryFiles
from mq.store.history.recording import HISTORY_LINES_HELD_MAX
from mq.store.history.sweep import Kept, kept_of, sweep_history
from mq.store.opening import open_root, root_of

QUEUE = QueueName.parse("q")
DAY_S = 24 * 3600
PROCESS = "mq-0123456789abcdef"
MIB = 1 << 20


class Place:
    """A root with a queue that has a history."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.files = FaultyFiles()
        self.clock = FakeClock()
        self.root: Root = open_root(str(top), self.files, self.clock)
        self.recorder: History = self.root.history
        self.set(history=True)

    def set(self, queue: QueueName = QUEUE, **wanted: object) -> None:
        path = self.top / "settings" / f"{queue.text}.json"
        path.with_suffix(".new").write_text(json.dumps(wanted))
        path.with_suffix(".new").rename(path)
        self.clock.advance(SETTINGS_AGE_S)

    def record(self, message_id: MessageId | None = None, queue: QueueName = QUEUE) -> None:
        self.recorder.record(queue, Event.PUBLISHED, message_id or new_id(), 0)

    def lines(self, queue: str = "q") -> list[dict[str, object]]:
        return [
            json.loads(line)
            for path in sorted((self.top / "history" / queue).glob("*/*"))
            for line in path.read_text().splitlines()
        ]


@pytest.fixture
def place(root: Path) -> Place:
    return Place(root)


def test_a_line_is_there_at_once_where_no_thread_writes(place: Place) -> None:
    place.record()
    assert [line["event"] for line in place.lines()] == ["published"]


@pytest.mark.certificate
def test_a_flood_is_dropped_and_counted(place: Place) -> None:
    place.recorder.begin()
    gate = place.files.hold("write", "/history")
    message_id, over = new_id(), 7
    place.record(message_id)
    assert gate.reached.wait(PATIENCE_S)  # The first is in the writer's hands.
    for _ in range(HISTORY_LINES_HELD_MAX + over):
        place.record(message_id)
    gate.open()
    place.recorder.end()
    lines = place.lines()
    assert len(lines) == 1 + HISTORY_LINES_HELD_MAX + 1
    (dropped,) = [line for line in lines if line["event"] == "dropped"]
    assert dropped["count"] == over
    assert place.files.open_paths("/history") == []


def test_settings_that_cannot_be_understood_change_nothing(place: Place) -> None:
    place.record()
    (place.top / "settings" / "q.json").write_text("{")
    place.clock.advance(SETTINGS_AGE_S)
    place.record()
    assert len(place.lines()) == 2
    assert kept_of(place.root.facts, QUEUE) is None
    other = root_of(place.root.layout, place.files, place.clock)
    other.history.record(QUEUE, Event.PUBLISHED, new_id())
    assert len(place.lines()) == 2


def test_settings_are_looked_at_now_and_then_alone(place: Place) -> None:
    place.set(history=False)
    before = place.files.count("status", "/settings")
    for _ in range(100):
        place.record()
    assert place.files.count("status", "/settings") == before + 1
    assert not (place.top / "history").exists()


def test_few_files_are_open_and_none_for_long(place: Place) -> None:
    queues = [QueueName(f"q{number}") for number in range(HISTORY_FILES_OPEN_MAX + 3)]
    for queue in queues:
        place.set(queue, history=True)
        place.record(queue=queue)
    assert len(place.files.open_paths("/history")) <= HISTORY_FILES_OPEN_MAX
    place.record(queue=queues[0])
    assert len(place.lines("q0")) == 2
    place.clock.advance(HISTORY_FILE_IDLE_S)
    place.recorder.close_idle()
    assert place.files.open_paths("/history") == []


def test_the_next_day_has_files_of_its_own(place: Place) -> None:
    place.record()
    place.clock.advance(DAY_S)
    place.record()
    days = sorted(path.name for path in (place.top / "history" / "q").iterdir())
    now_ms = place.clock.now_ms()
    assert days == [date_of(now_ms - DAY_S * 1000), date_of(now_ms)]
    assert len(place.files.open_paths("/history")) == 1


def test_what_was_swept_is_not_written_to(place: Place) -> None:
    place.record()
    (path,) = (place.top / "history" / "q").glob("*/*")
    path.unlink()
    path.parent.rmdir()
    place.record()
    assert len(place.lines()) == 1


def test_a_torn_write_costs_its_own_lines_alone(place: Place) -> None:
    files = HistoryFiles(place.root.layout, TornFiles(), PROCESS)
    day = Day("q", "2026-01-31")
    with pytest.raises(OSError, match="torn"):
        files.append(day, b'{"a": 1}\n', MIB, 0)
    files.append(day, b'{"b": 2}\n', MIB, 0)
    files.append(day, b'{"c": 3}\n', MIB, 0)
    files.close()
    path = Path(history_file(place.root.layout, day, PROCESS, 0))
    assert path.read_bytes() == b'{"a"\n{"b": 2}\n{"c": 3}\n'


class TornFiles(FaultyFiles):
    """The first write is cut."""

    def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
        if self.count("write") == 0:
            self.calls.append(("write", ""))
            os.write(descriptor, bytes(data[:4]))
            raise OSError("torn")
        super().write(descriptor, data)


def put(place: Place, date: str, number: int, size: int, age_s: float) -> Path:
    day = Day("q", date)
    Path(day_folder(place.root.layout, day)).mkdir(parents=True, exist_ok=True)
    path = Path(history_file(place.root.layout, day, PROCESS, number))
    path.write_bytes(b"x" * size)
    then_s = place.clock.now_ms() / 1000 - age_s
    os.utime(path, (then_s, then_s))
    return path


def swept(place: Place, seconds: float, bytes_max: int) -> int:
    kept = Kept(seconds, bytes_max)
    return sweep_history(place.root.layout, place.files, "q", kept, place.clock.now_ms())


def test_what_is_too_old_goes_with_its_folder(place: Place) -> None:
    old = put(place, "2026-01-01", 0, 10, 101)
    young = put(place, "2026-01-02", 0, 10, 99)
    assert swept(place, 100, MIB) == 1
    assert (old.exists(), young.exists()) == (False, True)
    assert swept(place, 100, MIB) == 0
    assert not old.parent.exists()
    assert swept(place, 90, MIB) == 1
    assert swept(place, 90, MIB) == 0
    assert not young.parent.parent.exists()


def test_the_oldest_goes_first_where_it_is_too_much(place: Place) -> None:
    third = put(place, "2026-01-02", 0, 400, 10)
    second = put(place, "2026-01-01", 1, 400, 20)
    first = put(place, "2026-01-01", 0, 400, 30)
    (first.parent / "notes").write_bytes(b"x" * 10_000)
    assert swept(place, 100, 800) == 1
    assert [path.exists() for path in (first, second, third)] == [False, True, True]
    assert swept(place, 100, 300) == 2
    assert (first.parent / "notes").exists()


def test_a_process_keeps_its_own_within_the_bound(place: Place) -> None:
    place.set(history=True, history_bytes_max=MIB)
    ids = [Told(new_id().text, 0)] * 1000
    for _ in range(20):
        place.clock.advance(1)
        place.recorder.record_many(QUEUE, Event.PUBLISHED, ids)
    size = sum(path.stat().st_size for path in (place.top / "history" / "q").glob("*/*"))
    assert MIB / 2 < size <= MIB * 1.5
