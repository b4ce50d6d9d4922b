"""What Spark's driver does is in the queue's history, which Spark reads as it is."""

import json
from collections import Counter
from pathlib import Path

from harness.clock import FakeClock
from harness.staging import QUEUE, committed, rolled, stage
from pyspark.sql import SparkSession

import mq.spark
from mq.model.clock import SystemClock
from mq.model.names import QueueName
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue

COUNT = 20


def test_a_bulk_publish_and_a_lease_are_told_of(spark: SparkSession, root: Path) -> None:
    opened = open_root(str(root), Files(), SystemClock())
    run_alone(create_queue(opened, QueueName.parse("orders")), NoFlusher())
    (root / "settings" / "orders.json").write_text(json.dumps({"history": True}))
    rows = spark.range(COUNT).selectExpr("cast(id as string) as value")
    rows.write.format("mq").mode("append").options(path=str(root), queue="orders").save()
    with mq.spark.lease(spark, root, "orders") as lease:
        assert lease.df.count() == COUNT
    found = spark.read.json(f"{root}/history/*/*/*.ndjson").collect()
    told = Counter((row["event"], row["receives"], row["lease"] is None) for row in found)
    assert told == {
        ("published", 0, True): COUNT,
        ("leased", 1, False): COUNT,
        ("removed", 1, False): COUNT,
    }
    assert len({row["id"] for row in found}) == COUNT
    assert {row["process"].rpartition("-")[0] for row in found} == {"spark"}


def test_a_bulk_publish_is_in_the_history_at_the_time_of_its_ids(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    """Staging takes long, and the lines come at its end."""
    clock = FakeClock()
    opened = open_root(str(root), Files(), clock)
    run_alone(create_queue(opened, QUEUE), NoFlusher())
    (root / "settings" / f"{QUEUE.text}.json").write_text(json.dumps({"history": True}))
    staged, ids = stage(opened, [b"x"] * COUNT)
    clock.advance(600)
    rolled(opened, committed(opened, staged).name)
    clock.advance(60)
    opened.history.write_out()
    to = tmp_path / "history"
    mq.spark.history(spark, root, to, step_s=60, clock=clock)
    rates = spark.read.parquet(f"{to}/rates").where("priority is null").orderBy("start")
    published = [row["published"] for row in rates.collect()]
    assert ids[0].published_ms <= clock.now_ms() - 660_000
    assert published[0] == sum(published) == COUNT
