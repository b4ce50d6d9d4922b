"""Registers `format("mq")`: Spark imports every module named `pyspark_*`.

The wheel has this file at its top level.
"""

from mq.spark.source import MqDataSource as DefaultSource

__all__ = ["DefaultSource"]
