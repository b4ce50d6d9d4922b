"""What Spark looks for in every `pyspark_*` module to know `format("mq")` by itself.

The wheel has this file at its top level.
"""

from mq.spark.source import MqDataSource as DefaultSource

__all__ = ["DefaultSource"]
