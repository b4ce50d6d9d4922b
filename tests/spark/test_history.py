"""What Spark's driver does is in the queue's history, which Spark reads as it is."""

import json
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

import mq.spark
from mq.clock import SystemClock
from mq.names import QueueName
from mq.store.files import Files
from mq.store.flush import NoFlusher
from mq.store.group import run_alone
from mq.store.queues import create_queue
from mq.store.root import open_root

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
