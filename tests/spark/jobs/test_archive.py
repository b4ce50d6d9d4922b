"""The archive as Spark makes and reads it."""

import json
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from harness.archiving import data_files, put_removed, rows_of
from harness.folders import make_root
from harness.messages import number_in, put_file
from harness.packs import new_pack, put_pack
from harness.processes import Processes, eventually
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from mq.model.history import Event, Line
from mq.spark.jobs.archive import archive
from mq.spark.jobs.archive_folder import NoArchive
from mq.spark.jobs.archive_rows import ARCHIVE
from mq.spark.jobs.archive_task import Wanted
from mq.spark.jobs.archived import archived, reading
from mq.spark.jobs.tasks import Amount, Unwatched
from mq.store.format.history import date_of

QUEUES = ("007", "1e5", "o.1_x", "orders", "orders_SIDELINE")


class _Away(Unwatched):
    """Takes the folders of staging away when the tasks begin."""

    def __init__(self, staging: Path) -> None:
        self._staging = staging

    def began(self, what: str, of: Amount = None) -> None:
        if of:
            shutil.rmtree(self._staging)


class Watched:
    """A watcher who remembers."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.notes: list[str] = []
        self.of = self.done = 0

    def began(self, what: str, of: Amount = None) -> None:
        self.steps.append(what)
        self.of += (of() if callable(of) else of) or 0

    def advanced(self, by: int) -> None:
        self.done += by

    def noted(self, text: str) -> None:
        self.notes.append(text)


def ids(paths: Iterable[Path]) -> set[str]:
    return {path.name.partition(":")[2] for path in paths}


def tell(root: Path, queue: str, day: str, *lines: bytes) -> None:
    """What some process wrote of a queue."""
    folder = root / "history" / queue / day
    folder.mkdir(parents=True)
    (folder / f"mq-{'0' * 16}.ndjson").write_bytes(b"".join(lines))


@pytest.mark.certificate
def test_what_was_removed_is_read_back(
    spark: SparkSession, tmp_path: Path, daemons: Processes
) -> None:
    root, to = make_root(tmp_path / "root"), tmp_path / "archive"
    paths = [
        path
        for number, queue in enumerate(QUEUES)
        for path in put_removed(root, 30, queue, 30 * number)
    ]
    watcher = Watched()
    wanted = Wanted(batch_messages=100)
    done = archive(spark, root, to, wanted, watcher=watcher)
    assert (done.enabled, done.batches, done.messages, done.gone) == (True, 2, 150, 0)
    assert (watcher.of, watcher.done) == (150, 150)
    assert [note for note in watcher.notes if "from now on" in note] == watcher.notes
    with reading(spark, to) as frame:
        assert frame.schema == spark.createDataFrame([], ARCHIVE).schema
        rows = frame.collect()
        assert sorted(number_in(bytes(row.value)) for row in rows) == list(range(150))
        assert {row.id for row in rows} == ids(paths)
        assert {row.queue for row in rows} == set(QUEUES)
        sizes = frame.where("queue = '007'")
        assert sizes.count() == 30
        assert "queue=007" in "".join(sizes.inputFiles())
        assert spark.read.parquet(str(to)).count() == 150
        # It is seen by who begins after it.
        more = put_removed(root, 3)
        archive(spark, root, to, wanted)
        assert frame.count() == 150
    assert archived(spark, to).count() == 153
    reaper = daemons.reaper("--root", str(root))
    eventually(lambda: not any(path.exists() for path in (*paths, *more)), "nothing left")
    reaper.terminate()
    assert archive(spark, root, to).messages == 0


def test_an_archive_of_nothing_and_none(spark: SparkSession, tmp_path: Path) -> None:
    root, to = make_root(tmp_path / "root"), tmp_path / "archive"
    assert archive(spark, root, to).messages == 0
    with reading(spark, to) as frame:
        assert frame.schema == spark.createDataFrame([], ARCHIVE).schema
        assert frame.collect() == []
    with pytest.raises(NoArchive, match="not an mq archive"):
        archived(spark, tmp_path)


def test_the_histories_of_messages(spark: SparkSession, tmp_path: Path) -> None:
    root, to = make_root(tmp_path / "root"), tmp_path / "archive"
    known, unknown = put_removed(root, 2)
    (aside,) = put_removed(root, 1, "orders_SIDELINE")
    one, other = (path.name.partition(":")[2] for path in (known, aside))
    at = int(one[:8] + one[9:13], 16)
    day = date_of(at)
    pack, parted = new_pack(2), new_pack(2)
    put_pack(root / "remove" / f"orders:{pack.text}", pack)
    own = parted.item(2)
    put_file(root / "remove" / f"orders:{own.text}", b"own")
    lines = [
        Line(at + 2000, Event.REMOVED, one, receives=1),
        Line(at, Event.FETCHED, one, receives=1, due_ms=at + 30_000),
        Line(at, Event.PUBLISHED, one),
        Line(at + 5, Event.PUBLISHED, other),
        Line(at + 9, Event.SIDELINED, other, reason="rejected"),
        Line(at, Event.PUBLISHED, pack.text),
        Line(at, Event.PUBLISHED, parted.text),
        Line(at + 1, Event.PARTED, parted.text),
        Line(at + 2, Event.REMOVED, own.text),
        Line(at + 1, Event.REMOVED, parted.item(1).text),
    ]
    written = [line.written("mq-0000000000000000") for line in lines]
    tell(
        root, "orders", day, written[0][:40], b"\n", b'{"time": "never"}\n\xff\n', *written, b'{"ti'
    )
    tell(root, "orders_SIDELINE", day, Line(at + 20, Event.REMOVED, other).written("mq-mover-1"))
    tell(root, "elsewhere", day, Line(at, Event.PUBLISHED, one).written("mq-1"))
    archive(spark, root, to)
    with reading(spark, to) as frame:
        found = {row.id: row.events for row in frame.collect()}
    assert found.pop(unknown.name.partition(":")[2]) is None
    for item in pack.all_items():
        assert [event.event for event in found[item.text]] == ["published"]
    assert [event.event for event in found[own.text]] == ["published", "parted", "removed"]
    assert [event.event for event in found[one]] == ["published", "fetched", "removed"]
    assert [event.event for event in found[other]] == ["published", "sidelined", "removed"]
    assert found[one][1].receives == 1
    assert (found[one][1].due - found[one][0].time).total_seconds() == 30
    assert found[other][1].reason == "rejected"
    assert found[other][2].process == "mq-mover-1"
    assert list((to / "_staging").iterdir()) == []


def test_small_files_become_few_when_nobody_reads(spark: SparkSession, tmp_path: Path) -> None:
    root, to = make_root(tmp_path / "root"), tmp_path / "archive"
    put_removed(root, 6)
    one_each = Wanted(batch_messages=1, compact=False)
    archive(spark, root, to, one_each)
    before = rows_of(to)
    watcher = Watched()
    with reading(spark, to) as frame:
        done = archive(spark, root, to, Wanted(small_files_max=2), watcher=watcher)
        assert (done.compacted, len(data_files(to))) == (0, 6)
        assert frame.count() == 6
    assert "a reader has the archive open" in watcher.notes[0]
    done = archive(spark, root, to, Wanted(small_files_max=2))
    assert (done.compacted, done.compacted_to, len(data_files(to))) == (6, 1, 1)
    assert sorted(map(key, rows_of(to))) == sorted(map(key, before))
    with reading(spark, to) as frame:
        assert frame.count() == 6


def key(row: dict[str, Any]) -> str:
    return json.dumps(row, default=str, sort_keys=True)


def test_a_task_that_fails_stores_nothing(spark: SparkSession, tmp_path: Path) -> None:
    root, to = make_root(tmp_path / "root"), tmp_path / "archive"
    put_removed(root, 4)
    archive(spark, root, to)
    paths = put_removed(root, 4, first=4)
    with pytest.raises(PythonException, match="No such file"):
        archive(spark, root, to, watcher=_Away(to / "_staging"))
    assert not (root / "archive" / "2.stored").exists()
    assert all(path.exists() for path in paths)
    ending = threading.Event()
    ending.set()
    assert archive(spark, root, to, Wanted(every_s=1.0), ending=ending).messages == 0
    assert archive(spark, root, to).messages == 4
    assert sorted(number_in(row["value"]) for row in rows_of(to)) == list(range(8))
