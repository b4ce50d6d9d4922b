"""`drain` and `load` on a real Spark: out of a queue and back, byte for byte, in every format."""

import datetime
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness.audits import assert_audits_clean
from harness.folders import leased_files
from harness.mounts import tmpfs
from pyspark.sql import SparkSession

from mq.model.clock import SystemClock
from mq.model.errors import QueueNotFound
from mq.model.headers import Headers, print_block
from mq.model.lifecycle import State
from mq.model.message import Envelope
from mq.model.names import Key, MessageId, QueueName, UuidSource
from mq.spark.jobs.drain import drain
from mq.spark.jobs.drained_folder import FolderRefused
from mq.spark.jobs.load import NothingToLoad, PartlyLoaded, load
from mq.spark.jobs.row_files import FORMATS, Format
from mq.spark.jobs.row_reading import BadFile
from mq.spark.jobs.tasks import TaskFailed
from mq.spark.listing import blocks_of
from mq.spark.options import Subscription
from mq.spark.partitions import Cut, partitions
from mq.spark.reading import Manner, batches
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.publish import Draft, publish
from mq.store.operations.queues import create_queue

ORDERS = QueueName.parse("orders")
OTHER = QueueName.parse("other_SIDELINE")
BACK = QueueName.parse("back")
BODIES = (
    b"", b"\x00", b"\r\n", b"\r", b'"', b'","', b"\xef\xbb\xbfbom", b"\xff\xfe", b" x ", b"\\N",
    bytes(range(256)), "ü\u2028\u0085 \U0001f355".encode(), os.urandom(1 << 20), b"a\n" * 50_000,
)  # fmt: skip
HEADERS: Headers = (
    ("ce-id", "ü, \u2028∆"), ("X-Attribute-Who", "one"), ("x-attribute-who", "two"),
    ("traceparent", ""), ("x-attribute-quote", '"\\,;'),
)  # fmt: skip
KEYS = ("Zürich/1", 'a"b,c', "new\nline\r", "\0nul", " blank ", "a" * 64, "\U0001f355")


@pytest.fixture
def opened(root: Path) -> Root:
    made = open_root(str(root), Files(), SystemClock())
    for queue in (ORDERS, OTHER):
        run_alone(create_queue(made, queue), NoFlusher())
    return made


def put(root: Root, body: bytes, queue: QueueName = ORDERS, **facts: Any) -> None:
    """Publishes as mq does."""
    envelope = Envelope(**facts)
    head = print_block(envelope.headers) if envelope.headers else b""
    message_id = MessageId(
        UuidSource(root.clock).next(), envelope.priority or 0, envelope.key, None, len(head),
        envelope.extension,
    )  # fmt: skip
    due_ms = envelope.due_ms or message_id.published_ms
    draft = Draft(queue, message_id, due_ms, envelope.due_ms is not None, head)
    run_alone(publish(root, draft, body), NoFlusher())


def put_all(root: Root) -> None:
    for number, body in enumerate(BODIES):
        put(root, body, priority=number % 10)
    for key in KEYS:
        put(root, key.encode(), OTHER, key=Key.parse(key))
    put(root, b"{}", extension="json")
    put(root, b"all", headers=HEADERS)
    put(root, b"typed", headers=(("Content-Type", "text/plain; charset=utf-8"),))


def rows(root: Root, *queues: QueueName, state: State = State.READY) -> list[dict[str, Any]]:
    """What is there, but for what is a message's own: its id, times and receives."""
    names = partitions(root, blocks_of(root, Subscription(queues), state), Cut())
    read = (batch for each in names for batch in batches(root, each, Manner(state)))
    found = [row for batch in read for row in batch.to_pylist()]
    kept = ("queue", "key", "value", "headers", "priority")
    return sorted(
        ({name: row[name] for name in kept} for row in found),
        key=lambda row: (row["queue"], row["value"], row["key"] or ""),
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_out_of_a_queue_and_back_byte_for_byte(
    spark: SparkSession, opened: Root, tmp_path: Path, kind: Format
) -> None:
    top, to = Path(opened.layout.root), tmp_path / "out"
    put_all(opened)
    before = rows(opened, ORDERS, OTHER)
    done = drain(spark, top, ["orders", "other_SIDELINE"], to, format=kind, file_messages=10)
    assert (done.messages, done.files) == (len(before), 3)
    assert rows(opened, ORDERS, OTHER) == []
    assert leased_files(top) == []
    loaded = load(spark, top, to)
    assert (loaded.messages, loaded.files, loaded.was_before) == (len(before), 3, False)
    assert rows(opened, ORDERS, OTHER) == before
    # Once, however often; and again where that is said.
    assert load(spark, top, to).was_before
    assert len(rows(opened, ORDERS, OTHER)) == len(before)
    assert_audits_clean(top)
    if kind != "parquet":
        return
    found = {each["value"] for each in before}
    # As plain readers have it.
    assert set(pq.read_table(to).column("value").to_pylist()) == found
    assert {row["value"] for row in spark.read.parquet(str(to)).collect()} == found
    with pytest.raises(QueueNotFound, match="there is no queue back"):
        load(spark, top, to, queue="back")
    made = load(spark, top, to, queue="back", create=True, key_taken="skip")
    assert (made.created, made.messages) == (("back",), len(before))
    assert [each["value"] for each in rows(opened, BACK)] == sorted(found)
    with pytest.raises(TaskFailed, match="is taken by message"):
        load(spark, top, to, again=True)
    put(opened, b"one more")
    first = drain(spark, top, ["orders"], to, format=kind, limit=1)
    assert first.messages == 1
    with pytest.raises(PartlyLoaded, match="the first 1 batches"):
        load(spark, top, to)


def test_what_is_delayed_is_copied_and_loaded_to_its_time(
    spark: SparkSession, opened: Root, tmp_path: Path
) -> None:
    top = Path(opened.layout.root)
    due_ms = opened.now_ms() + 3_600_000
    put(opened, b"later", due_ms=due_ms)
    for kind in FORMATS:
        to = tmp_path / kind
        assert drain(
            spark, top, ["orders"], to, format=kind, copy=True, state="delayed"
        ).messages == 1  # fmt: skip
        load(spark, top, to, queue="other_SIDELINE", keep_due=True)
    assert len(rows(opened, ORDERS, OTHER, state=State.DELAYED)) == 4
    load(spark, top, tmp_path / "csv", queue="orders")
    assert [each["value"] for each in rows(opened, ORDERS)] == [b"later"]
    times = [path.stat().st_mtime_ns // 1_000_000 for path in Path(opened.layout.delay).iterdir()]
    assert set(times) == {due_ms}
    with pytest.raises(FolderRefused, match="lie in one another"):
        drain(spark, top, ["orders"], top / "queues" / "out")
    with pytest.raises(QueueNotFound, match="there is no queue nowhere"):
        drain(spark, top, ["nowhere"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_of_ones_own_are_published_whole_or_not_at_all(
    spark: SparkSession, opened: Root, tmp_path: Path
) -> None:
    top, mine = Path(opened.layout.root), tmp_path / "mine"
    mine.mkdir()
    with pytest.raises(NothingToLoad, match="has no files"):
        load(spark, top, mine, queue="orders")
    (mine / "a.csv").write_text("value,priority\nfirst,3\nsecond,\n")
    (mine / "b.jsonl").write_text('{"value": "third", "content_type": "text/csv"}\n')
    pq.write_table(
        pa.table({"value": ["fourth"], "headers": pa.array(
            [[("ce-id", "4")]], pa.map_(pa.string(), pa.string()))}),
        mine / "c.parquet",
    )  # fmt: skip
    bad = mine / "d.ndjson"
    for line, said in (
        ('{"value": "x"}\n{"value": 7}', "row 2: column value: 7 is not a text"),
        ('{"value": "x"}\n{"value": "y", "priority": 10}', "row 2: column priority: is 10"),
        ('{"value": "x", "headers": {"accept": "y"}}', "row 1: column headers: keeps no accept"),
        ('{"value": "x", "key": "%s"}' % ("k" * 65), "row 1: column key"),
    ):
        bad.write_text(line)
        with pytest.raises((BadFile, TaskFailed)) as caught:
            load(spark, top, mine, queue="orders")
        assert str(caught.value).startswith(str(bad)), caught.value
        assert said in str(caught.value)
    bad.unlink()
    assert rows(opened, ORDERS) == []
    assert load(spark, top, mine, queue="orders", publish_id="mine-1").messages == 4
    found = {row["value"]: row for row in rows(opened, ORDERS)}
    assert set(found) == {b"first", b"second", b"third", b"fourth"}
    assert found[b"first"]["priority"] == 3
    assert found[b"third"]["headers"] == [("content-type", "text/csv")]
    assert found[b"fourth"]["headers"] == [
        ("content-type", "application/octet-stream"),
        ("ce-id", "4"),
    ]
    assert load(spark, top, mine, queue="orders", publish_id="mine-1").was_before
    (mine / "queues.csv").write_text("value,queue\nx,made_here\n")
    done = load(spark, top, mine / "queues.csv", create=True)
    assert (done.created, done.messages) == (("made_here",), 1)
    (mine / "notes.md").touch()
    with pytest.raises(NothingToLoad, match="tells no format"):
        load(spark, top, mine, queue="orders")
    json.loads(json.dumps(done.facts()))


def entries(*tops: Path) -> list[tuple[str, int, int]]:
    paths = sorted(path for top in tops for path in (top, *top.rglob("*")))
    return [(str(path), path.lstat().st_mtime_ns, path.lstat().st_size) for path in paths]


def test_a_dry_run_counts_and_changes_nothing(
    spark: SparkSession, opened: Root, tmp_path: Path
) -> None:
    top, to = Path(opened.layout.root), tmp_path / "out"
    for number in range(5):
        put(opened, b"x", key=Key.parse(f"{number}"))
    put(opened, b"y", OTHER)
    queues = ["orders", "other_SIDELINE"]
    before = entries(top)
    done = drain(spark, top, queues, to, dry_run=True, format="delta")
    assert (done.messages, done.by_queue) == (6, {"orders": 5, "other_SIDELINE": 1})
    assert drain(spark, top, queues, to, dry_run=True, limit=4).messages == 4
    assert drain(spark, top, queues, to, dry_run=True, copy=True).messages == 6
    assert drain(spark, top, queues, to, dry_run=True, copy=True, state="removed").messages == 0
    assert entries(top) == before
    assert not to.exists()
    assert drain(spark, top, queues, to, limit=4).by_queue == {"orders": 3, "other_SIDELINE": 1}
    before = entries(top, to)
    assert drain(spark, top, queues, to, dry_run=True).messages == 2
    with pytest.raises(FolderRefused, match="is of format parquet, not json"):
        drain(spark, top, queues, to, dry_run=True, format="json")
    with pytest.raises(FolderRefused, match="lie in one another"):
        drain(spark, top, queues, tmp_path, dry_run=True)
    loaded = load(spark, top, to, dry_run=True)
    assert (loaded.messages, loaded.files, loaded.created) == (4, 1, ())
    with pytest.raises(QueueNotFound):
        load(spark, top, to, queue="back", dry_run=True)
    assert load(spark, top, to, queue="back", create=True, dry_run=True).created == ("back",)
    mine = tmp_path / "mine.csv"
    mine.write_text("value,queue\nx,made_here\ny,made_here\n")
    loaded = load(spark, top, mine, create=True, dry_run=True)
    assert (loaded.messages, loaded.created) == (2, ("made_here",))
    assert entries(top, to) == before
    assert load(spark, top, to).messages == 4
    assert load(spark, top, to, dry_run=True).was_before


def test_a_full_disk_gives_all_back(
    spark: SparkSession, opened: Root, tmp_path: Path, small_disk: Path
) -> None:
    top = Path(opened.layout.root)
    for _ in range(4):
        put(opened, os.urandom(1 << 20))
    with pytest.raises(TaskFailed, match="No space left"):
        drain(spark, top, ["orders"], small_disk / "out", batch_messages=2)
    assert leased_files(top) == []
    ready = rows(opened, ORDERS)
    drained = sum(
        len(pq.read_table(path, columns=["id"])) for path in (small_disk / "out").glob("0*")
    )
    assert len(ready) + drained == 4
    assert drain(spark, top, ["orders"], tmp_path / "out").messages == len(ready)


@pytest.fixture
def small_disk(tmp_path: Path, needs_root: None) -> Iterator[Path]:
    with tmpfs(tmp_path / "small", "size=3m") as where:
        yield where


def test_a_moment_is_told_in_utc_whatever_the_session_says(
    spark: SparkSession, opened: Root, tmp_path: Path
) -> None:
    put(opened, b"x")
    drain(spark, Path(opened.layout.root), ["orders"], tmp_path / "out", format="json")
    (path,) = (tmp_path / "out").glob("0*")
    told = datetime.datetime.fromisoformat(json.loads(path.read_text())["published"])
    age = datetime.datetime.now(datetime.UTC) - told
    assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=5)
