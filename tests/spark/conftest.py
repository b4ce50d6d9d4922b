"""One Spark session for the suite, in this process, on two cores."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import mq.spark

CHECKOUT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The suite's session: `local[2]`, no UI, `format("mq")` known, workers import this checkout.

    Shared by all: a test changes none of its settings and stops every query that it starts.
    """
    found = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *([found] if found else [])])
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
