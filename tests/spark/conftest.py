"""One Spark session for the suite, in this process, on two cores."""

import os
from collections.abc import Iterator

import pytest
from harness.spark_cluster import SITE
from harness.spark_programs import Programs, programs_at
from pyspark.sql import SparkSession

import mq.spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The suite's session: `local[2]`, no UI, UTC, `format("mq")` known, workers import mq's
    checkout.

    Shared by all: a test leaves its settings as they were, and stops every query that it starts.
    """
    before = dict(os.environ)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SITE), before.get("PYTHONPATH")]))
    try:
        made = mq.spark.session(
            "mq tests",
            master="local[2]",
            **{
                "spark.driver.memory": "1g",
                "spark.log.level": "ERROR",
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.session.timeZone": "UTC",
            },
        )
    finally:
        # What other tests start is to find the machine as it is.
        os.environ.clear()
        os.environ.update(before)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Runs programs as a user does, one after the other, in one process whose sessions share a JVM.
    A session that a program does not stop is there for the next one.
    """
    with programs_at(tmp_path_factory.mktemp("programs")) as made:
        yield made
