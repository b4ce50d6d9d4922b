"""Publishing by Spark, for real: batches and streams, tried again, failed, aborted."""

import datetime
import json
import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from harness.audits import assert_audits_clean
from harness.messages import put_file
from harness.processes import Processes
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from mq.model.clock import SystemClock
from mq.model.limits import FOLDER_FILES_MAX
from mq.model.names import Key, MessageId, QueueName, UuidSource
from mq.store.bulk.journal import is_published, journals
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue

ORDERS = QueueName.parse("orders")
SCHEMA = (
    "value binary, queue string, key string, priority int, at timestamp, "
    "headers map<string,string>, content_type string, group string, tags array<string>, "
    "ttl_s int"
)


@pytest.fixture
def opened(root: Path) -> Root:
    made = open_root(str(root), Files(), SystemClock())
    run_alone(create_queue(made, ORDERS), NoFlusher())
    return made


def write(frame: DataFrame, root: Root, **options: str) -> None:
    named = {"path": root.layout.root, "queue": "orders"} | options
    frame.write.format("mq").mode("append").options(**named).save()


def bodies(root: Root) -> list[bytes]:
    folder = Path(root.layout.queue(ORDERS))
    return sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def assert_nothing_is_left(root: Root) -> None:
    assert journals(root) == []
    assert list(Path(root.layout.new, ".spark").rglob("*:*")) == []
    assert_audits_clean(Path(root.layout.root))


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as value")


def test_rows_are_fetched_over_http_byte_for_byte(
    spark: SparkSession, opened: Root, daemons: Processes
) -> None:
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    rows = [
        Row(bytes(range(256)), None, "a/1", 9, None, {"ce-id": "7"}, "text/csv"),
        Row(b"", None, None, None, None, None, None),
        Row(b"later", None, None, None, tomorrow, None, None),
        Row("ü".encode(), "orders", None, 1, None, {"X-Attribute-a": "b"}, "text/x; q=1"),
    ]
    # Of the first alone, what a batch's rows may say too.
    more = ("g", ["eu", "wien"], 3600), (None, None, None)
    rows = [Row(*row, *(more[0] if row is rows[0] else more[1])) for row in rows]
    write(spark.createDataFrame(rows, SCHEMA).repartition(2), opened)
    assert_nothing_is_left(opened)
    url = daemons.mq(Path(opened.layout.root)).url
    got = {}
    for _ in range(3):
        with urllib.request.urlopen(f"{url}/orders/messages", timeout=30) as reply:
            got[reply.read()] = reply.headers
    assert set(got) == {bytes(range(256)), b"", "ü".encode()}
    first = got[bytes(range(256))]
    assert (first["ce-id"], first["Content-Type"]) == ("7", "text/csv")
    assert (first["X-Message-Group"], first["X-Message-Tags"]) == ("g", "eu, wien")
    assert ",e=3600" in first["X-Message-Id"]
    other = got["ü".encode()]
    assert (other["X-Attribute-a"], other["Content-Type"]) == ("b", "text/x; q=1")
    with urllib.request.urlopen(f"{url}/orders", timeout=30) as reply:
        assert json.load(reply)["delayed"] == 1
    with urllib.request.urlopen(f"{url}/orders/keys/a%2F1", timeout=30) as reply:
        assert reply.read() == bytes(range(256))


def test_each_priority_of_a_publish_behind_a_large_backlog_has_its_own_buckets(
    spark: SparkSession, opened: Root
) -> None:
    queue, uuids = Path(opened.layout.queue(ORDERS)), UuidSource(opened.clock)
    for uuid in uuids.many(FOLDER_FILES_MAX):
        put_file(queue / uuid, due_ms=MessageId(uuid).published_ms)
    rows = numbers(spark, 60).selectExpr("value", "if(int(value) % 4 = 0, 5, 0) as priority")
    write(rows, opened)
    buckets = {path.name[:3] for path in queue.iterdir() if path.is_dir()}
    assert len(buckets) == 2
    assert "p5-" in buckets
    assert_nothing_is_left(opened)


def test_a_publish_with_an_id_is_published_once(spark: SparkSession, opened: Root) -> None:
    for _ in range(2):
        write(numbers(spark, 10), opened, publishId="nightly/7")
    assert len(bodies(opened)) == 10
    write(numbers(spark, 10), opened, publishId="nightly/8", sync="fsync")
    assert len(bodies(opened)) == 20
    assert is_published(opened, Key.parse("nightly/8"))
    assert_nothing_is_left(opened)


def test_two_jobs_with_one_id_at_a_time_are_one_publish(spark: SparkSession, opened: Root) -> None:
    failed: list[BaseException] = []

    def publish() -> None:
        try:
            # Made here: that tells Spark which session is this thread's.
            frame = spark.createDataFrame([(str(number),) for number in range(20)], "value string")
            write(frame, opened, publishId="both")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=publish) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(bodies(opened)) == 20
    assert_nothing_is_left(opened)


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, opened: Root) -> None:
    frame = spark.range(0, 10, 1, 2).selectExpr("if(id = 7, null, cast(id as string)) as value")
    with pytest.raises(PySparkException, match="row 2 of partition 1, column value: is null"):
        write(frame, opened)
    assert bodies(opened) == []
    assert_nothing_is_left(opened)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["'x' as value", "1 as other"], {}, "column other is none that is published"),
        (["1 as value"], {}, "column value is int"),
        (["'x' as value"], {"queue": "absent"}, "there is no queue absent"),
        (["'x' as value"], {"path": "/nowhere"}, "is not an mq root"),
    ],
)
def test_what_cannot_be_published_is_told_before_a_task_runs(
    spark: SparkSession, opened: Root, columns: list[str], options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        write(spark.range(1).selectExpr(*columns), opened, **options)
    assert not Path(opened.layout.new, ".spark").exists()


def test_only_append_is_a_mode(spark: SparkSession, opened: Root) -> None:
    writing = numbers(spark, 1).write.format("mq").mode("overwrite")
    with pytest.raises(PySparkException, match="append: a queue is not overwritten"):
        writing.options(path=opened.layout.root, queue="orders").save()


class Stream:
    """Files of lines that a stream publishes."""

    def __init__(self, spark: SparkSession, root: Root, folder: Path) -> None:
        self._spark, self._root = spark, root
        self._lines, self.checkpoint = folder / "lines", folder / "checkpoint"
        self._lines.mkdir()

    def add(self, name: str, *lines: str) -> None:
        unfinished = self._lines / f".{name}"
        unfinished.write_text("\n".join(lines))
        unfinished.rename(self._lines / name)

    def run(self, **options: str) -> None:
        """All that is there, then it ends."""
        frame = self._spark.readStream.text(str(self._lines))
        query = (
            frame.writeStream.format("mq")
            .options(path=self._root.layout.root, queue="orders", **options)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def test_a_streams_replayed_batch_is_published_once(
    spark: SparkSession, opened: Root, tmp_path: Path
) -> None:
    stream = Stream(spark, opened, tmp_path)
    stream.add("one", "a", "b")
    stream.run()
    assert bodies(opened) == [b"a", b"b"]
    # As if the driver had died between the commit point and Spark's own log of it.
    commits = [path for path in (stream.checkpoint / "commits").iterdir() if "0" in path.name]
    for path in commits:
        path.unlink()
    stream.add("two", "c")
    stream.run()
    assert bodies(opened) == [b"a", b"b", b"c"]
    query = json.loads((stream.checkpoint / "metadata").read_text())["id"]
    assert all(is_published(opened, Key.parse(f"{query}-{batch}")) for batch in (0, 1))
    assert_nothing_is_left(opened)


def test_a_streams_publish_has_no_id_of_its_own(
    spark: SparkSession, opened: Root, tmp_path: Path
) -> None:
    stream = Stream(spark, opened, tmp_path)
    stream.add("one", "a")
    with pytest.raises(PySparkException, match="a stream's batches have names of their own"):
        stream.run(publishId="x")


FAILS_ONCE = """
import sys
from pathlib import Path
import pyspark.sql.functions as F
from pyspark.sql.types import StringType
import mq.spark

root, mark = sys.argv[1:]
spark = mq.spark.session("retries", master="local[2,3]", **{"spark.driver.memory": "1g"})

@F.udf(StringType())
def value(number):
    if number == 7:
        try:
            Path(mark).touch(exist_ok=False)
        except FileExistsError:
            return str(number)
        raise RuntimeError("the first attempt fails")
    return str(number)

frame = spark.range(0, 10, 1, 2).select(value("id").alias("value"))
frame.write.format("mq").mode("append").options(path=root, queue="orders").save()
"""


@pytest.mark.certificate
def test_a_task_that_fails_once_is_tried_again_and_publishes_once(
    opened: Root, tmp_path: Path
) -> None:
    mark = tmp_path / "failed"
    command = [sys.executable, "-c", FAILS_ONCE, opened.layout.root, str(mark)]
    subprocess.run(command, check=True, capture_output=True, timeout=300, env=dict(os.environ))
    assert mark.exists()
    assert bodies(opened) == [b"%d" % number for number in range(10)]
    assert_nothing_is_left(opened)
