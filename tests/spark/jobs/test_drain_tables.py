"""Drains to Delta and Iceberg tables that die or fail at each step; without Spark."""

import contextlib
import errno
import json
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness.drains import Place, Unflushed
from harness.faults import Died, FaultyFiles
from harness.folders import leased_files
from harness.tables import use_catalog
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

from mq.model.errors import Unavailable
from mq.spark.jobs.drained_folder import FolderRefused
from mq.spark.jobs.row_files import ROWS
from mq.spark.jobs.tables import IcebergTable, TableRefused, check_columns, table_of
from mq.store.disk.files import Files

pytestmark = [
    pytest.mark.certificate,
    # Of the libraries' own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
KINDS = ("delta", "iceberg:lake.mq.messages")


@pytest.fixture(autouse=True)
def _catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_catalog(tmp_path, monkeypatch)


def rows_of(place: Place) -> pa.Table:
    """What a reader of the table alone gets."""
    if place.table == "delta":
        if not deltalake.DeltaTable.is_deltatable(str(place.to)):
            return ROWS.empty_table()
        return pa.table(deltalake.QueryBuilder().register(
            "t", deltalake.DeltaTable(place.to)).execute("select * from t").read_all())  # fmt: skip
    catalog = load_catalog("lake")
    if not catalog.table_exists(("mq", "messages")):
        return ROWS.empty_table()
    # By the table's own files: any reader that finds the metadata gets the same.
    return StaticTable.from_metadata(
        catalog.load_table(("mq", "messages")).metadata_location
    ).scan().to_arrow()  # fmt: skip


def ids_of(place: Place) -> Counter[str]:
    return Counter(rows_of(place).column("id").to_pylist())


def forget_table(place: Place) -> None:
    """Each place of a test has a table of its own."""
    if place.table != "delta":
        with contextlib.suppress(Exception):
            load_catalog("lake").drop_table(("mq", "messages"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lapses", [False, True])
def test_killed_at_any_change_each_message_is_in_the_table_once(
    tmp_path: Path, kind: str, lapses: bool
) -> None:
    changes = Unflushed()
    Place(tmp_path / "whole", kind).drain(changes)
    assert changes.changes > 40
    for left in range(10 if lapses else 12, changes.changes, 7 if lapses else 3):
        place = Place(tmp_path / str(left), kind)
        forget_table(place)
        with pytest.raises(Died):
            place.drain(Unflushed(left))
        before = ids_of(place)
        assert set(before.values()) <= {1}, left
        # What has left the root is in the table: it is added before it is acknowledged.
        assert set(place.in_root()) | set(before) == set(place.ids), left
        if lapses:
            place.lapse()
        place.drain(Unflushed())
        assert ids_of(place) == Counter(place.ids), left
        assert place.in_root() == [], left
    more = [each.text for each in place.publish(2)]
    assert place.drain().messages == 2
    assert ids_of(place) == Counter(place.ids + more)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lands", [False, True])
def test_a_table_that_fails_keeps_the_batch_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, lands: bool
) -> None:
    """Its commit may have landed all the same: an answer that is lost on the way."""
    place = Place(tmp_path / "place", kind)
    place.drain(limit=2)
    owner: Any = deltalake.DeltaTable
    name = "create_write_transaction"
    if kind != "delta":
        owner, name = type(load_catalog("lake")), "commit_table"
    real = getattr(owner, name)

    def fails(*given: Any, **more: Any) -> Any:
        if lands:
            real(*given, **more)
        raise RuntimeError("the storage says no\nand more")

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fails)
        with pytest.raises(TableRefused, match=r"did not take the rows: the storage says no$"):
            place.drain()
    assert len(leased_files(place.top)) == 5
    assert ids_of(place).total() == (7 if lands else 2)
    assert place.drain().resumed == 5
    place.assert_all_are_drained_once()
    assert ids_of(place) == Counter(place.ids)
    # A flush that fails says nothing of what is durable.
    place.publish(1)
    files = FaultyFiles()
    files.fail("sync_file_system", errno.EIO, times=1)
    with pytest.raises((OSError, Unavailable)):
        place.drain(files)
    assert len(leased_files(place.top)) == 1
    assert place.drain().resumed == 1
    assert ids_of(place).total() == 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_in_the_table_once(tmp_path: Path, kind: str) -> None:
    place = Place(tmp_path / "place", kind)
    files = FaultyFiles()
    files.fail("sync_file_system", errno.EIO, times=1)
    with pytest.raises((OSError, Unavailable)):
        place.drain(files, state="ready")
    assert place.drain(state="ready").resumed == 9
    assert ids_of(place) == Counter(place.ids) == Counter(place.in_root())
    with pytest.raises(FolderRefused, match="has a copy already"):
        place.drain(state="ready")


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_others_gets_the_rows_beside_its_own(tmp_path: Path, kind: str) -> None:
    place = Place(tmp_path / "place", kind)
    schema = ROWS.append(pa.field("note", pa.string()))
    mine = pa.table({name: pa.nulls(1, schema.field(name).type) for name in schema.names})
    if kind == "delta":
        deltalake.write_deltalake(place.to, mine)
    else:
        catalog = load_catalog("lake")
        catalog.create_namespace("mq")
        catalog.create_table(("mq", "messages"), mine.schema).append(mine)
    assert place.drain().messages == 9
    found = rows_of(place)
    assert Counter(found.column("id").to_pylist()) == Counter([*place.ids, None])
    assert found.column("note").null_count == 10
    assert sorted(found.drop_columns("note").schema.names) == sorted(ROWS.names)
    row = next(each for each in found.to_pylist() if each["id"] == place.ids[0])
    assert (row["queue"], row["receives"], row["size"]) == ("q", 1, 1)
    assert (row["value"], row["published"].tzinfo is not None) == (b"x", True)
    assert dict(row["headers"]) == {"content-type": "application/octet-stream"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_does_not_fit_is_refused_before_a_message_leaves(
    tmp_path: Path, kind: str
) -> None:
    place = Place(tmp_path / "place", kind)
    wrong = ROWS.set(ROWS.get_field_index("priority"), pa.field("priority", pa.string()))
    table_of(kind, str(place.to), "w", Files()).check(wrong)
    with pytest.raises(TableRefused, match="string in its column priority, and the rows have int"):
        place.drain()
    assert place.in_root() == place.ids


def test_a_folder_is_of_one_table(tmp_path: Path) -> None:
    place = Place(tmp_path / "place", "delta")
    place.drain(limit=1)
    about = json.loads((place.to / "_mq" / "drain.json").read_text())
    # An mq that knows no tables refuses the folder: it would not add its files.
    assert (about["version"], about["table"]) == (2, "delta")
    place.table = KINDS[1]
    with pytest.raises(FolderRefused, match=r"is of table delta, not iceberg:lake.mq.messages"):
        place.drain()
    assert pq.read_table(place.to).num_rows == 1


def test_tables_that_ask_more_of_their_writers_are_refused(tmp_path: Path) -> None:
    place = Place(tmp_path / "place", "delta")
    deltalake.DeltaTable.create(place.to, ROWS, partition_by=["queue"])
    with pytest.raises(TableRefused, match="is partitioned"):
        place.drain()
    place = Place(tmp_path / "other", "delta")
    made = deltalake.DeltaTable.create(place.to, ROWS)
    made.alter.add_constraint({"few": "receives < 9"})
    with pytest.raises(TableRefused, match="asks its writers for"):
        place.drain()
    assert place.in_root() == place.ids
    with pytest.raises(TableRefused, match=r"no name such as CATALOG.NAMESPACE.TABLE"):
        IcebergTable("lake.messages", "/", "w", Files())


def test_columns_of_a_table() -> None:
    rows = pa.schema([("a", pa.list_(pa.string())), ("b", pa.int16())])
    check_columns(
        "t", pa.schema([("b", pa.int32()), ("a", pa.large_list(pa.large_string()))]), rows
    )
    with pytest.raises(TableRefused, match="the table t has no column b, only a: add it"):
        check_columns("t", rows.remove(1), rows)
    with pytest.raises(TableRefused, match="has a column c that must not be null"):
        check_columns("t", rows.append(pa.field("c", pa.int8(), nullable=False)), rows)
