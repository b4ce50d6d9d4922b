"""A program that ends at once after its query: what it has processed is acknowledged."""

import subprocess
import sys
from pathlib import Path

import pytest
from harness.leases import LeasingRoot
from harness.spark import PATIENCE_S, environment

pytestmark = [pytest.mark.certificate, pytest.mark.timeout(2 * PATIENCE_S)]

PROGRAM = """
import sys, mq.spark
root, = sys.argv[1:]
spark = mq.spark.session(master="local[1]", **{"spark.driver.memory": "512m"})
read = spark.readStream.format("mq").option("path", root).option("subscribe", "q")
write = read.option("consumer", "c").load().writeStream.format("noop").trigger(once=True)
write.option("checkpointLocation", root + "-checkpoint").start().awaitTermination()
"""


def test_the_last_batch_of_a_program_that_ends_is_acknowledged(tmp_path: Path) -> None:
    """Spark tells of a query's end a moment late; of this trigger's one batch nothing else does."""
    place = LeasingRoot(tmp_path / "root")
    place.publish(3)
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place.top)],
        check=True,
        env=environment(),
        timeout=PATIENCE_S,
    )
    assert [(lease.seq, lease.is_open) for lease in place.leases()] == [(1, False)]
    assert list((place.top / "queues" / "q").iterdir()) == []
