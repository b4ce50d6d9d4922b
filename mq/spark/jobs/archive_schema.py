"""What an archive holds: one row a removed message, in Parquet, partitioned by queue and day."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

EVENT: Final = StructType(
    [
        StructField("time", TimestampType()),
        StructField("event", StringType()),
        StructField("receives", IntegerType()),
        StructField("due", TimestampType()),
        StructField("lease", StringType()),
        StructField("reason", StringType()),
        StructField("process", StringType()),
    ]
)
"""A line of the queue's history, FORMAT.md's "History"."""

ARCHIVE: Final = StructType(
    [
        StructField("id", StringType()),
        StructField("key", StringType()),
        StructField("value", BinaryType()),  # null: `body` says where it is, or it is damaged
        StructField("headers", MapType(StringType(), StringType())),
        StructField("priority", IntegerType()),
        StructField("published", TimestampType()),
        StructField("removed", TimestampType()),  # by the inode's ctime, or its lease's name
        StructField("removal", StringType()),  # message, queue (deleted or purged), lease
        StructField("receives", IntegerType()),
        StructField("reason", StringType()),  # why it was sidelined; null in other queues
        StructField("size", LongType()),  # bytes of its body; null of a damaged one
        StructField("sha256", StringType()),  # of its body, 64 hexadecimal digits
        StructField(
            "body", StringType()
        ),  # of one too large for a row: its file, below the archive
        StructField("damaged", BooleanType()),  # shorter than its header block: `value` is the file
        StructField("events", ArrayType(EVENT)),  # by time; null where its history is not known
        StructField("batch", LongType()),  # the archive's batch that it came with
        StructField("queue", StringType()),  # a partition
        StructField("day", DateType()),  # a partition: the day of `removed`, in UTC
    ]
)
