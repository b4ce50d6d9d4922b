"""Chooses messages by an SQL condition on rows, and on bodies as text and as JSON."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from mq.model.errors import MqError
from mq.model.lifecycle import State
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.spark.opening import attached
from mq.spark.options import COLUMNS
from mq.store.core.moves import message_status
from mq.store.core.root import Root

# The logger with which Spark repeats, with all of Java's frames, an error that it raises.
_SPARKS_LOG: Final = "SQLQueryContextLogger"
_CONDITION: Final = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: [0-9A-Z]+.*", re.DOTALL)
_OF_BODIES: Final = ("value", "text", "json")
_OF_SIDELINES: Final = {"reason": "string", "sidelined": "timestamp"}
_REASONS: Final = {each.value: each.name.lower() for each in Reason if each.value}


@dataclass(eq=False)
class BadCondition(MqError):
    """The condition is not valid for these columns: Spark's message, and the columns."""

    detail: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"--where: {self.detail}\nThe columns are {', '.join(self.columns)}."


def with_bodies(rows: DataFrame) -> DataFrame:
    """Adds `text`, the value if it is UTF-8, and `json`, the text as a VARIANT if it is JSON; else
    null.
    """
    told = rows.withColumn("text", F.expr("try_validate_utf8(cast(value as string))"))
    return told.withColumn("json", F.expr("try_parse_json(text)"))


def ready_rows(spark: SparkSession, root: Root, queue: QueueName, where: str) -> DataFrame:
    """The ready messages of the queue for which the condition holds: id, priority, receives, size,
    `due_ms` and, in a sideline, `reason`. Tasks read the bodies only if the condition uses them.
    Raises BadCondition.
    """
    of_bodies = _needs(spark, queue, where, _OF_BODIES)
    rows = (
        spark.read.format("mq")
        .option("path", root.layout.root)
        .option("subscribe", queue.text)
        .option("includeValue", str(of_bodies).lower())
        .load()
    )
    rows = with_bodies(rows) if of_bodies else rows
    if queue.is_sideline:
        told = F.udf(
            functools.partial(_reason, root.layout.root, queue.text), "string", useArrow=False
        )
        rows = rows.withColumn("reason", told("id")).withColumn("sidelined", F.col("due"))
    found = rows.where(F.expr(where))
    reason = ["reason"] if queue.is_sideline else []
    due_ms = F.expr("unix_millis(due)").alias("due_ms")
    return found.select("id", "priority", "receives", "size", due_ms, *reason)


def check_condition(rows: DataFrame, where: str) -> None:
    """Raises BadCondition if the text is not a condition on the rows."""
    with _quiet():
        try:
            _ = rows.where(F.expr(where)).schema
        except PySparkException as error:
            raise BadCondition(explained(error), tuple(rows.columns)) from error


def explained(error: Exception) -> str:
    """Spark's message, without the parts meant for Spark's developers."""
    text = str(error).strip()
    return _STATE.sub("", _CONDITION.sub("", text)).strip() or type(error).__name__


def _needs(spark: SparkSession, queue: QueueName, where: str, columns: Sequence[str]) -> bool:
    """Whether the condition uses any of these columns. Raises BadCondition."""
    kinds = {**COLUMNS, **(_OF_SIDELINES if queue.is_sideline else {})}
    check_condition(with_bodies(_nothing(spark, kinds)), where)
    # Uses a new frame: Spark still resolves columns that were only dropped.
    without = {name: kind for name, kind in kinds.items() if name not in columns}
    try:
        check_condition(_nothing(spark, without), where)
    except BadCondition:
        return True
    return False


def _nothing(spark: SparkSession, kinds: Mapping[str, str]) -> DataFrame:
    schema = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    return spark.createDataFrame([], schema)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences Spark's own log of an error that is raised in plain words."""
    log = PySparkLogger.getLogger(_SPARKS_LOG)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _reason(root: str, queue: str, message_id: str) -> str | None:
    """Why a message lies in a sideline, from its mtime; in a task."""
    here = _root(root)
    parsed, of = MessageId.parse(message_id), QueueName.parse(queue)
    for each in (parsed.pack(), parsed) if parsed.pack_size else (parsed,):
        for spot in here.places.spots(State.READY, of, each):
            status = message_status(here, here.layout.path(State.READY, of, each, spot))
            if status is not None:
                return _REASONS.get(Stamp.from_mtime_ns(status.st_mtime_ns).reason)
    return None


@functools.cache
def _root(path: str) -> Root:
    return attached(path)
