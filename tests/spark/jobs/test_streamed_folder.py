"""Batches of a stream in a folder, and in its table: what any reader finds, whatever dies."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness.drains import Unflushed
from harness.faults import Died
from harness.leases import LeasingRoot
from harness.spark import PATIENCE_S
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import mq.spark
from mq.model.names import QueueName
from mq.spark.jobs.drained_folder import About, DrainedFolder, FolderRefused
from mq.spark.jobs.streamed_folder import OWN, StreamedFolder, Write
from mq.spark.jobs.tables import DELTA_LOG, table_of
from mq.store.disk.files import Files

pytestmark = pytest.mark.certificate
BAD = QueueName.parse("bad")
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
BATCHES = 3
KINDS = ("", "delta")


def whole(to: Path) -> Counter[int]:
    """What a reader that knows nothing of mq finds: it takes each Parquet file that it sees."""
    names = sorted(to.rglob("[!_.]*.parquet")) if to.exists() else []
    seen = [name for name in names if not any(part[0] == "_" for part in name.parts)]
    return Counter(n for name in seen for n in pq.read_table(name).column("n").to_pylist())


def in_table(to: Path, kind: str) -> Counter[int]:
    if not kind:
        return whole(to)
    if not deltalake.DeltaTable.is_deltatable(str(to)):
        return Counter()
    uris = deltalake.DeltaTable(to).file_uris()
    return Counter(n for uri in uris for n in pq.read_table(uri).column("n").to_pylist())


def numbers_of(batch: int) -> list[int]:
    return list(range(10 * batch, 10 * batch + 6))


def add(to: Path, kind: str, batch: int, files: Files, query: str = "q") -> None:
    """What a batch's call does in the driver; the tasks run here."""

    def execute(write: Write) -> Iterator[dict[str, Any]]:
        for partition in range(2):
            rows = [{"n": n, "text": "x" * n} for n in numbers_of(batch)[partition::2]]
            batches = iter([pa.RecordBatch.from_pylist(rows[:1], SCHEMA),
                            pa.RecordBatch.from_pylist(rows[1:], SCHEMA)])  # fmt: skip
            told = write.partition(partition, batches, files)
            assert told is not None
            yield told

    folder = DrainedFolder(to, files, f"{OWN}{query}")
    with contextlib.closing(folder), folder.locked((DELTA_LOG, OWN)):
        about = folder.claim(About(f"{query:_<32}", "", "parquet", "zstd", "", kind))
        table = table_of(kind, folder.path, about.id, files)
        StreamedFolder(folder, about, table).add(batch, SCHEMA, execute)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_change_each_batch_is_there_once_and_each_file_is_whole(
    tmp_path: Path, kind: str
) -> None:
    expected: Counter[int] = Counter()
    changes = Unflushed()
    for batch in range(BATCHES):
        add(tmp_path / "whole", kind, batch, changes)
        expected.update(numbers_of(batch))
    assert in_table(tmp_path / "whole", kind) == expected
    assert changes.changes > 50
    for left in range(0, changes.changes, 1 if not kind else 2):
        to, files = tmp_path / str(left), Unflushed(left)
        at = 0
        with contextlib.suppress(Died):
            for at in range(BATCHES):
                add(to, kind, at, files)
        # Parts of a batch may have their names, and each of them is whole.
        assert not whole(to) - expected, left
        before = Counter(n for batch in range(at) for n in numbers_of(batch))
        assert in_table(to, kind) in (before, before + Counter(numbers_of(at))) or not kind, left
        # Spark repeats the batch that is not in its log.
        for batch in range(at, BATCHES):
            add(to, kind, batch, Unflushed())
        assert whole(to) == in_table(to, kind) == expected, left
        own = to / f"{OWN}q"
        # At most the one that was settled when the process died is there beside the last.
        there = sorted(each.name for each in (own / "batches").iterdir())
        assert f"{BATCHES:06d}.done" in there[-1:], left
        assert there[:-1] in ([], [f"{BATCHES - 1:06d}.done"]), left
        assert list((own / "writing").iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_queries_of_one_folder_and_batches_that_come_again(tmp_path: Path, kind: str) -> None:
    to = tmp_path / "out"
    for query in ("q", "q", "other"):
        add(to, kind, 0, Files(), query)
    assert in_table(to, kind) == Counter(2 * numbers_of(0))
    with pytest.raises(FolderRefused, match="is of table"):
        add(to, "" if kind else "delta", 1, Files())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(FolderRefused, match="is not empty"):
        add(tmp_path / "mine", kind, 0, Files())


@pytest.mark.timeout(2 * PATIENCE_S)
def test_a_stream_whose_table_fails_once_is_in_it_exactly(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, to = LeasingRoot(tmp_path / "root"), tmp_path / "lake"
    place.make_queue(BAD)
    bodies = (b'{"value": "seven"}', b"\xff{", b"", b"[]", b'{"value": -1}', b'{"key": "none"}')
    refused = {place.publish(1, body=body)[0].text: body for body in bodies}
    published = place.publish(6, body=b'{"value": 7, "key": "a"}')
    parsed = mq.spark.Parsed("value int, key string", place.top, BAD.text, "value > 0")
    into = mq.spark.to_folder(to, format="delta", rows=parsed)

    def start() -> None:
        rows = spark.readStream.format("mq").option("path", str(place.top))
        rows = rows.options(subscribe="q", consumer="c", maxMessagesPerTrigger=9).load()
        query = rows.writeStream.foreachBatch(into).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "log")).start().awaitTermination()

    real = deltalake.DeltaTable.create_write_transaction
    calls: list[int] = []

    def lost(*given: Any, **more: Any) -> None:
        """The second batch's commit lands, and its answer is lost."""
        real(*given, **more)
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("the answer is lost")

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", lost)
    with pytest.raises(StreamingQueryException, match="the answer is lost"):
        start()
    start()
    assert len(calls) == 2
    table = deltalake.DeltaTable(to)
    assert (table.count(), table.version()) == (6, 2)
    rows = table.to_pyarrow_dataset().to_table().to_pylist()
    assert list(rows[0]) == ["mq_queue", "mq_id", "mq_key", "mq_published", "value", "key"]
    assert sorted(row["mq_id"] for row in rows) == [each.text for each in published]
    assert {(row["mq_queue"], row["value"], row["key"]) for row in rows} == {("q", 7, "a")}
    assert rows[0]["mq_published"].utcoffset().total_seconds() == 0
    bad = mq.spark.arrow_reader(place.top, BAD.text).read_all().to_pylist()
    told = {dict(row["headers"])["x-attribute-of"]: row for row in bad}
    assert {name: row["value"] for name, row in told.items()} == refused
    assert len(bad) == len(refused)
    why = [dict(told[name]["headers"])["x-attribute-reason"] for name in refused]
    assert (
        why
        == ["is not JSON with the columns value int, key string"] * 4
        + ["does not meet value > 0"] * 2
    )
    assert [lease for lease in place.leases() if lease.is_open] == []
    with pytest.raises(ValueError, match="is for foreachBatch"):
        into(spark.range(1), 0)
    for wrong in ({"format": "csv"}, {"format": "iceberg"}, {"table": "a.b.c"}):
        with pytest.raises(ValueError, match=r"the format is|a table has the format"):
            mq.spark.to_folder(to, **wrong)


def test_cloud_events_in_columns_and_the_others_in_their_queues_sideline(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = LeasingRoot(tmp_path / "root")
    event = {
        "specversion": "1.0", "id": "7", "source": "/shop", "type": "made",
        "time": "2026-01-31T12:00:00Z", "data": {"pizzas": 2}, "comexample": "kept in the body",
    }  # fmt: skip
    place.publish(1, body=json.dumps(event).encode())
    changes: tuple[dict[str, Any], ...] = (
        {"id": ""}, {"type": None}, {"specversion": "0.3"}, {"data": {"pizzas": "two"}},
        {"data": None}, {"data": {"pizzas": 0}},
    )  # fmt: skip
    bad = [json.dumps(event | change).encode() for change in changes]
    for body in bad:
        place.publish(1, body=body)
    parsed = mq.spark.Parsed("pizzas int", place.top, expect="pizzas > 0", cloud_events=True)

    def read(queue: str) -> DataFrame:
        reading = spark.read.format("mq").options(path=str(place.top), subscribe=queue)
        return reading.load()

    for _ in range(2):
        split = parsed.split(read("q"), "a-batch")
        (row,) = parsed.good(split).drop("mq_id", "mq_published").collect()
        split.unpersist()
    assert {**row.asDict(), "ce_time": row["ce_time"].isoformat()} == {
        "mq_queue": "q", "mq_key": None, "ce_id": "7", "ce_source": "/shop", "ce_type": "made",
        "ce_subject": None, "ce_time": "2026-01-31T12:00:00", "pizzas": 2,
    }  # fmt: skip
    aside = mq.spark.arrow_reader(place.top, "q_SIDELINE").read_all().to_pylist()
    assert sorted(each["value"] for each in aside) == sorted(bad)
    why = Counter(dict(each["headers"])["x-attribute-reason"] for each in aside)
    assert sorted(why.values()) == [1, 5]
    assert "is not a CloudEvent in JSON whose data has the columns pizzas int" in why
    with pytest.raises(ValueError, match="q_SIDELINE is a sideline and has none"):
        parsed.split(read("q_SIDELINE"), "another")
