"""One Spark session for the suite, in this process, on two cores."""

import os
from collections.abc import Iterator

import pytest
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
