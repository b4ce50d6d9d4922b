"""One Spark session for the suite, in this process, on two cores."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import mq.spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The suite's session: `local[2]`, no UI, `format("mq")` known, workers import this checkout.

    Shared by all: a test changes none of its settings and stops every query that it starts.
    """
    made = mq.spark.session(
        "mq tests",
        master="local[2]",
        **{
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
        },
    )
    yield made
    made.stop()
