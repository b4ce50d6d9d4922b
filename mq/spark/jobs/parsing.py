"""Bodies of messages as columns; a message that has other columns, or fails an expectation, goes to
its queue's sideline or to another queue.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from mq.model.names import QueueName
from mq.spark.opening import opened_root
from mq.store.disk.group import run_alone
from mq.store.operations.queues import create_queue

REASON: Final = "x-attribute-reason"
OF: Final = "x-attribute-of"
"""Attributes of a refused message: why, and the id of the message that it was."""

_KEPT: Final = ("queue", "id", "key", "published")
_OF_REFUSED: Final = ("value", "priority", "headers")
_CLOUD: Final = (
    "specversion string, id string, source string, type string, subject string, time timestamp"
)
_CLOUD_COLUMNS: Final = ("ce_id", "ce_source", "ce_type", "ce_subject", "ce_time")
_CORRUPT: Final = "_mq_corrupt"
_REASON_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Parsed:
    """Parses bodies that are JSON. Rows have the columns mq_queue, mq_id, mq_key and mq_published,
    and those of the `schema`, in Spark SQL's syntax. A message whose body is no JSON object with
    them, or for which the SQL condition `expect` is false or null, is published to the queue
    `bad_to` of the root instead, with its body, headers and priority and with the attributes REASON
    and OF. `bad_to` None: to the sideline of its queue, which is made if it is missing.

    With `cloud_events` a body is a CloudEvent in JSON ("structured"), whose `data` has the columns
    of the schema; rows also have ce_id, ce_source, ce_type, ce_subject and ce_time.
    """

    schema: str
    root: str | Path
    bad_to: str | None = None
    expect: str | None = None
    cloud_events: bool = False

    def __post_init__(self) -> None:
        """Raises BadName."""
        if self.bad_to is not None:
            QueueName.parse(self.bad_to)

    def split(self, rows: DataFrame, publish_id: str) -> DataFrame:
        """The parsed rows of a batch, which is persisted: `unpersist` it. Publishes the others
        under this id, unless that was done in the last 7 days. Raises what Spark raises.
        """
        parsed = self._told(rows).persist()
        try:
            bad = parsed.where("mq_reason is not null")
            if not bad.isEmpty():
                options = {"path": str(self.root), "publishId": publish_id}
                refused = bad.select(
                    self._bad_to(bad).alias("queue"),
                    F.col("mq_value").alias("value"),
                    F.col("mq_priority").alias("priority"),
                    _headers().alias("headers"),
                )
                refused.write.format("mq").mode("append").options(**options).save()
        except BaseException:
            parsed.unpersist()
            raise
        return parsed

    def good(self, parsed: DataFrame) -> DataFrame:
        """The rows without a reason, of what `split` returned."""
        kept = [f"mq_{name}" for name in _KEPT]
        attributes = _CLOUD_COLUMNS if self.cloud_events else ()
        good = parsed.where("mq_reason is null")
        return good.select(*kept, *attributes, *_fields(self.schema))

    def _bad_to(self, bad: DataFrame) -> Column:
        """The queue of each refused message; makes sidelines that are missing."""
        if self.bad_to is not None:
            return F.lit(self.bad_to)
        pairs = []
        with opened_root(Path(self.root)) as (root, flusher):
            for row in bad.select("mq_queue").distinct().collect():
                queue = QueueName.parse(row["mq_queue"])
                if queue.is_sideline:
                    raise ValueError(f"{queue.text} is a sideline and has none: say bad_to")
                sideline = root.facts.settings(queue).aside(queue)
                run_alone(create_queue(root, sideline), flusher)
                pairs += [F.lit(queue.text), F.lit(sideline.text)]
        return F.create_map(*pairs)[F.col("mq_queue")]

    def _told(self, rows: DataFrame) -> DataFrame:
        fields = _parse(self.schema)
        if self.cloud_events:
            fields = StructType([*_parse(_CLOUD), StructField("data", fields)])
        fields = StructType([*fields, StructField(_CORRUPT, StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        body = F.expr("try_validate_utf8(cast(value as string))")
        parsed = rows.withColumn("mq_it", F.from_json(body, fields, options))
        named = parsed.select(
            *(F.col(name).alias(f"mq_{name}") for name in (*_KEPT, *_OF_REFUSED)),
            F.expr(f"mq_it is null or mq_it.{_CORRUPT} is not null{self._no_event()}").alias(
                "mq_misfit"
            ),
            *self._columns(),
        )
        what = "a CloudEvent in JSON whose data has" if self.cloud_events else "JSON with"
        misfit = F.lit(f"is not {what} the columns {self.schema}")
        why = F.when(F.col("mq_misfit"), misfit)
        if self.expect is not None:
            fails = ~F.coalesce(F.expr(self.expect), F.lit(False))
            why = why.when(fails, F.lit(f"does not meet {self.expect}"))
        return named.withColumn("mq_reason", why)

    def _no_event(self) -> str:
        """The rest of a condition that is true of all but CloudEvents."""
        if not self.cloud_events:
            return ""
        needed = "coalesce(mq_it.id, '') = '' or coalesce(mq_it.source, '') = ''"
        needed = f"{needed} or coalesce(mq_it.type, '') = '' or mq_it.data is null"
        return f" or {needed} or not mq_it.specversion <=> '1.0'"

    def _columns(self) -> Iterator[Column]:
        it = F.col("mq_it")
        if self.cloud_events:
            for name in _CLOUD_COLUMNS:
                yield it.getField(name.removeprefix("ce_")).alias(name)
            it = it.getField("data")
        for name in _fields(self.schema):
            yield it.getField(name).alias(name)


def _parse(schema: str) -> Any:
    return StructType.fromDDL(schema)


def _fields(schema: str) -> list[str]:
    return [str(name) for name in _parse(schema).fieldNames()]


def _headers() -> Any:
    """The message's headers, and why it is refused in one line."""
    others = F.map_filter("mq_headers", lambda name, _: ~name.isin(REASON, OF))
    why = F.substring(F.regexp_replace("mq_reason", r"\s+", " "), 1, _REASON_CHARS)
    return F.map_concat(others, F.create_map(F.lit(REASON), why, F.lit(OF), F.col("mq_id")))
