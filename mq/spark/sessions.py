"""Sessions that know `format("mq")`."""

from pyspark.sql import SparkSession

from mq.spark.java import ensure_java
from mq.spark.source import MqDataSource


def session(
    app_name: str = "mq", *, master: str | None = None, remote: str | None = None, **conf: object
) -> SparkSession:
    """A session, made or got."""
    ensure_java()
    builder = SparkSession.builder.appName(app_name).master(master or "local[*]")
    for name, value in conf.items():
        builder = builder.config(name, str(value))
    made = builder.getOrCreate()
    register(made)
    return made


def register(spark: SparkSession) -> None:
    """Makes `format("mq")` known to a session."""
    spark.dataSource.register(MqDataSource)
