"""The report of a history: its tables as one HTML page of pictures, which asks no other host."""

from mq.spark.jobs.report.page import render

__all__ = ["render"]
