"""The folder of a history: whoever dies writing it, whenever, a reader finds one history, whole."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from harness.faults import CrashingFiles, Died, FaultyFiles

from mq.spark.jobs.history_assembly import Row
from mq.spark.jobs.history_folder import TABLES, FolderTaken, owned
from mq.store.disk.files import Files

BEFORE, AFTER = 1, 2


class UnflushedFiles(Files):
    """For what is not about power cuts."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_folder(self, path: str) -> None:
        pass


def write(files: Files, to: Path, number: int, *, has_report: bool = True) -> None:
    """A history whose rows all say its number."""
    with owned(files, to) as folder, folder.writing(f"number-{number}") as run:
        run.add({"receives": rows(number)})
        run.add({"sizes": [("orders", None, 1, 2, number, 1)]})
        if has_report:
            run.report(lambda tables: str(tables["receives"][0]["receives"]))


def rows(number: int) -> Sequence[Row]:
    return [("orders", priority, number, 1) for priority in (None, 0)]


def number_in(to: Path) -> int | None:
    """The number of the history that a reader finds, by every table and the report; None: none."""
    if not (to / "queues").exists():
        assert not any((to / name).exists() for name in (*TABLES, "report.html"))
        return None
    tables = {name: pq.read_table(to / name).to_pylist() for name in TABLES}
    found = {row["receives"] for row in tables["receives"]}
    found |= {row["messages"] for row in tables["sizes"]}
    found |= {int((to / "report.html").read_text())}
    assert len(found) == 1
    assert len(tables["receives"]) == 2
    return found.pop()


@pytest.mark.parametrize("has_one", [False, True])
def test_it_may_die_at_any_change(tmp_path: Path, has_one: bool) -> None:
    changes, found = 0, set()
    while True:
        to = tmp_path / str(changes)
        if has_one:
            write(UnflushedFiles(), to, BEFORE)
        files = CrashingFiles(changes)
        try:
            write(files, to, AFTER)
        except Died:
            found.add(number_in(to))
            write(UnflushedFiles(), to, AFTER + 1)
            assert number_in(to) == AFTER + 1
            assert len(list(to.glob("_run-*"))) <= 2
            changes += 1
            continue
        break
    assert number_in(to) == AFTER
    assert found == {BEFORE if has_one else None}


@pytest.mark.parametrize("call", ["write", "sync", "sync_folder", "rename"])
def test_a_disk_that_fails_leaves_the_one_before(tmp_path: Path, call: str) -> None:
    to = tmp_path / "to"
    write(Files(), to, BEFORE)
    files = FaultyFiles()
    files.fail(call, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        write(files, to, AFTER)
    assert number_in(to) == BEFORE
    write(Files(), to, AFTER)
    assert number_in(to) == AFTER


def test_without_a_report_there_is_none_of_another_time(tmp_path: Path) -> None:
    write(Files(), tmp_path / "to", BEFORE)
    write(Files(), tmp_path / "to", AFTER, has_report=False)
    assert not (tmp_path / "to" / "report.html").is_symlink()
    assert pq.read_table(tmp_path / "to" / "receives").num_rows == 2


def test_one_writes_at_a_time_and_only_to_its_own(tmp_path: Path) -> None:
    with owned(Files(), tmp_path), pytest.raises(FolderTaken), owned(Files(), tmp_path):
        pass
    (tmp_path / "rates").mkdir()
    with pytest.raises(FolderTaken, match="rates"):
        write(Files(), tmp_path, BEFORE)
    assert list((tmp_path / "rates").iterdir()) == []


def test_many_rows_go_to_the_file_as_they_come(tmp_path: Path) -> None:
    with owned(Files(), tmp_path / "to") as folder, folder.writing("many") as run:
        for _ in range(3):
            run.add({"receives": rows(1) * 20_000})
        assert run.rows["receives"] == 120_000
    assert pq.read_table(tmp_path / "to" / "receives").num_rows == 120_000
