"""What a queue's history says of its messages, for a history over time: the lines of its files, and
those that an archive has beside its messages.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's pages have it

from mq.model.limits import SIDELINE_SUFFIX
from mq.model.names import UUID_V7, QueueName
from mq.spark.jobs.history_inodes import home_of
from mq.store.core.root import Root
from mq.store.history.sweep import history_files, recorded_queues

_LINE: Final = "time string, event string, id string, receives int, count long"
_PATH: Final = r"/([^/]+)/[0-9]{4}-[0-9]{2}-[0-9]{2}/[^/]+$"
# What a pattern of paths takes to mean something.
_MEANING: Final = frozenset("\\*?[]{},^")
_DROPPED: Final = "dropped"

EVENTS: Final = ("home", "id", "at", "event", "receives", "source")
"""Columns of events: `at` in milliseconds since the epoch; `source`, see history_lives."""


def history_paths(root: Root, queues: Sequence[QueueName] | None) -> list[str]:
    """The files of history/ that have lines of these queues and their sidelines, or of all. Raises
    OSError.
    """
    wanted = None if queues is None else {home_of(queue) for queue in queues}
    found = []
    for name in recorded_queues(root.layout, root.files):
        queue = QueueName(name)
        if wanted is None or home_of(queue) in wanted:
            found += [entry.path for _, entry in history_files(root.layout, root.files, name)]
    return found


def lines_of(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """All lines of these files, but for what is torn, as EVENTS has the columns but `source`, and
    `count` of the lines that say how many were dropped. A file that was swept since is passed over.
    """
    reader = spark.read.schema(_LINE).option("ignoreMissingFiles", "true")
    read = reader.json([f"file://{_literal(path)}" for path in paths])
    queue = F.regexp_extract(F.col("_metadata.file_path"), _PATH, 1)
    is_whole = (F.col("event") == _DROPPED) | F.col("id").rlike(f"^{UUID_V7.pattern}")
    return (
        read.select(
            home_column(queue).alias("home"),
            "id",
            F.unix_millis(F.expr("try_cast(time AS timestamp)")).alias("at"),
            "event",
            "receives",
            "count",
        )
        .where(is_whole)
        .where("at IS NOT NULL")
    )


def drops_of(lines: DataFrame) -> DataFrame:
    """How many lines could not be written, and when that was told: home, at, count."""
    return lines.where(F.col("event") == _DROPPED).select("home", "at", "count")


def events_of(lines: DataFrame, source: int) -> DataFrame:
    """The lines that are of messages, as EVENTS has the columns."""
    told = lines.where(F.col("event") != _DROPPED)
    return told.withColumn("source", F.lit(source)).select(*EVENTS)


def archived_events(archived: DataFrame, source: int) -> DataFrame:
    """The lines that an archive (`archived.py`) has of its messages, as EVENTS has the columns."""
    each = archived.select("queue", "id", F.explode("events").alias("told"))
    return each.select(
        home_column(F.col("queue")).alias("home"),
        "id",
        F.unix_millis("told.time").alias("at"),
        F.col("told.event").alias("event"),
        F.col("told.receives").alias("receives"),
        F.lit(source).alias("source"),
    ).where("at IS NOT NULL AND event IS NOT NULL")


def home_column(queue: Column) -> Column:
    """`home_of` as a column."""
    return F.regexp_replace(queue, f"{SIDELINE_SUFFIX}$", "")


def _literal(path: str) -> str:
    """A path as a pattern that no other fits."""
    return "".join(f"\\{letter}" if letter in _MEANING else letter for letter in path)
