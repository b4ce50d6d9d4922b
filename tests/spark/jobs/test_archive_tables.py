"""Archives that are Delta and Iceberg tables: each message is in the table once, whatever dies."""

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from harness.archiving import archive_here, data_files, put_removed, rows_of
from harness.drains import Unflushed
from harness.faults import Died
from harness.folders import make_root
from harness.messages import number_in
from harness.tables import use_catalog
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from mq.model.clock import SystemClock
from mq.spark.jobs.archive import archivable
from mq.spark.jobs.archive_folder import NoArchive
from mq.spark.jobs.archive_rows import TABLE_SCHEMA
from mq.spark.jobs.archive_task import Wanted
from mq.spark.jobs.archived import reading
from mq.spark.jobs.tables import TableRefused
from mq.store.archive.archiving import archive_mark
from mq.store.disk.files import Files
from mq.store.opening import attach_root

pytestmark = [
    pytest.mark.certificate,
    # Of the libraries' own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
NAME = ("mq", "removed")
KINDS = {
    "delta": Wanted(3, format="delta", small_files_max=1),
    "iceberg": Wanted(3, format="iceberg", table="lake.mq.removed"),
}
MESSAGES = 5


@pytest.fixture(autouse=True)
def _catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_catalog(tmp_path, monkeypatch)


def table_rows(kind: str, to: Path) -> pa.Table:
    """What a reader of the table alone gets."""
    if kind == "delta":
        if not deltalake.DeltaTable.is_deltatable(str(to)):
            return TABLE_SCHEMA.empty_table()
        builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(to))
        return pa.table(builder.execute("select * from t").read_all())
    catalog = load_catalog("lake")
    if not catalog.table_exists(NAME):
        return TABLE_SCHEMA.empty_table()
    return catalog.load_table(NAME).scan().to_arrow()


def numbers(rows: pa.Table) -> Counter[int]:
    return Counter(map(number_in, rows.column("value").to_pylist()))


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_change_each_message_is_in_the_table_once(tmp_path: Path, kind: str) -> None:
    changes = Unflushed()
    wanted = KINDS[kind]

    def made(name: str) -> tuple[Path, Path]:
        if kind == "iceberg":
            with contextlib.suppress(Exception):
                load_catalog("lake").drop_table(NAME)
        root = make_root(tmp_path / name)
        put_removed(root, MESSAGES)
        return root, tmp_path / f"{name}-archive"

    root, to = made("whole")
    archive_here(root, to, wanted, files=changes, folder_files=changes)
    assert changes.changes > 30
    # Those before have no table yet.
    for left in range(12, changes.changes, 3 if kind == "delta" else 6):
        root, to = made(str(left))
        files = Unflushed(left)
        with pytest.raises(Died):
            archive_here(root, to, wanted, files=files, folder_files=files)
        before = numbers(table_rows(kind, to))
        assert set(before.values()) <= {1}, left
        # The table has each message that mq-reaper may unlink: the job adds it to the table first.
        told = sum(
            len(each.read_text().splitlines()) - 1 for each in (root / "archive").glob("*.stored")
        )
        assert told <= before.total(), left
        archive_here(root, to, wanted)
        assert numbers(table_rows(kind, to)) == Counter(range(MESSAGES)), left
    put_removed(root, 1, first=MESSAGES)
    assert archive_here(root, to, wanted).messages == 1
    rows = table_rows(kind, to)
    assert numbers(rows) == Counter(range(MESSAGES + 1))
    assert set(rows.schema.names) == set(TABLE_SCHEMA.names)
    assert set(rows.column("queue").to_pylist()) == {"orders"}
    days = {path.parent.name.removeprefix("day=") for path in data_files(to)}
    assert {str(day) for day in rows.column("day").to_pylist()} == days
    assert len(rows_of(to)) == MESSAGES + 1


@pytest.mark.parametrize("kind", KINDS)
def test_spark_reads_the_files_that_the_table_has_now(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    root, to = make_root(tmp_path / "root"), tmp_path / "archive"
    archive_here(root, to, KINDS[kind])
    with reading(spark, to) as messages:
        assert messages.count() == 0
    for number in range(3):
        put_removed(root, 2, f"q{number}", first=2 * number)
    archive_here(root, to, KINDS[kind])
    if kind == "delta":
        table = deltalake.DeltaTable(to)
        assert table.optimize.compact()["numFilesRemoved"] > 1
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        assert data_files(to) == []
    else:
        # A condition finds files by their queue.
        iceberg = load_catalog("lake").load_table(NAME)
        found = list(iceberg.scan(row_filter="queue = 'q1'").plan_files())
        assert 0 < len(found) < len(data_files(to))
    put_removed(root, 1, "q1", first=6)
    archive_here(root, to, KINDS[kind])
    with reading(spark, to) as messages:
        assert sorted(number_in(row["value"]) for row in messages.collect()) == [*range(7)]
        assert messages.where("queue = 'q1' and day >= '2020-01-01'").count() == 3
    if kind == "iceberg":
        load_catalog("lake").load_table(NAME).delete("queue = 'q0'")
        with reading(spark, to) as messages:
            assert messages.count() == 5


def test_a_table_that_does_not_fit_is_refused_before_the_archive_is_enabled(tmp_path: Path) -> None:
    root, to = make_root(tmp_path / "root"), tmp_path / "archive"
    put_removed(root, 1)
    catalog = load_catalog("lake")
    catalog.create_namespace("mq")
    catalog.create_table(NAME, pa.schema([("id", pa.int64())]))
    with pytest.raises(TableRefused, match="has int64 in its column id"):
        archive_here(root, to, KINDS["iceberg"])
    assert archive_mark(attach_root(str(root), Files(), SystemClock())) is None
    with pytest.raises(NoArchive, match=r"is of table iceberg:lake.mq.removed, not delta"):
        archive_here(root, to, KINDS["delta"])
    with pytest.raises(NoArchive, match="not none: say the same format"):
        archivable(root, to)
    assert archivable(root, to, KINDS["iceberg"].kind).messages == 1
    wrong: Any
    for wrong in ({"format": "csv"}, {"format": "iceberg"}, {"table": "a.b.c"}):
        with pytest.raises(ValueError, match=r"the format is|a table has the format"):
            _ = Wanted(**wrong).kind
