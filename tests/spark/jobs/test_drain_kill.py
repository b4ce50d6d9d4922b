"""A drain to a Delta table, as a process with a Spark of its own, killed before it acknowledges its
commit.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from harness.audits import assert_audits_clean
from harness.folders import leased_files, message_files
from harness.points import VARIABLE, Point, Points
from harness.processes import PATIENCE_S, eventually
from harness.spark_cluster import SITE
from pyspark.sql import SparkSession

from mq.model.clock import SystemClock
from mq.model.names import MessageId, QueueName, UuidSource
from mq.spark.jobs.drain import drain
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.publish import Draft, publish
from mq.store.operations.queues import create_queue

SPARK_PATIENCE_S = 150.0
TESTS = Path(__file__).parent.parent.parent
IMPORTS = (SITE, TESTS.parent, TESTS)
MESSAGES = 40
# A JVM that does little, and not for long.
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@pytest.mark.certificate
def test_the_next_run_goes_on_where_a_killed_one_was(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    opened = open_root(str(root), Files(), SystemClock())
    orders = QueueName.parse("orders")
    run_alone(create_queue(opened, orders), NoFlusher())
    ids = [MessageId(uuid) for uuid in UuidSource(opened.clock).many(MESSAGES)]
    for each in ids:
        run_alone(publish(opened, Draft(orders, each, each.published_ms), b"x"), NoFlusher())
    points, to = Points(tmp_path / "points"), tmp_path / "out"
    points.arm(Point("rename", r"leases/drain-\w+\.1 -> "))
    with (tmp_path / "log").open("wb") as log:
        killed = subprocess.Popen(
            [
                *(sys.executable, "-m", "mq.tools.mqctl", "pipeline", "drain", "--root", str(root)),
                *("--queue", "orders", "--to", str(to), "--batch", "25", "--master", "local[1]"),
                *("--format", "delta"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ
            | {
                VARIABLE: str(tmp_path / "points"),
                "PYTHONPATH": os.pathsep.join(map(str, IMPORTS)),
                "JDK_JAVA_OPTIONS": SHORT_LIVED,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            start_new_session=True,
        )

    def stopped() -> bool:
        assert killed.poll() is None, (tmp_path / "log").read_text()
        return points.stopped() is not None

    try:
        eventually(stopped, "a stop at the acknowledgement", SPARK_PATIENCE_S)
    finally:
        points.disarm()
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(PATIENCE_S)
    committed = pq.read_table(to).column("id").to_pylist()
    assert len(committed) == len(leased_files(root)) == 25
    assert DeltaTable(to).count() == 25
    done = drain(spark, root, ["orders"], to, format="delta")
    assert (done.messages, done.resumed) == (MESSAGES, 25)
    found = pq.read_table(to).column("id").to_pylist()
    assert sorted(found) == sorted(each.text for each in ids)
    assert DeltaTable(to).count() == MESSAGES
    parts = [os.path.basename(each) for each in DeltaTable(to).file_uris()]
    assert sorted(parts) == sorted(each.name for each in to.glob("*.parquet"))
    assert message_files(root)["queues"] == leased_files(root) == []
    assert list((root / "leases").iterdir()) == []
    assert_audits_clean(root)
